//! A ledger on keyqueue-kafka. A record is a posting of an account, which is its key: `0`, `1`, `2` and so on. The members of a group
//! tell the witness of each posting before and after they handle it. The witness is another process than they are; it knows of
//! nothing but what it is told, and finds what is lost, repeated, out of order or at the same time.

pub mod lab;
pub mod member;
pub mod producer;
pub mod run;
pub mod witness;
