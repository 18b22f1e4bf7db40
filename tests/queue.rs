//! The promises of a queue of plain keys, in one program: they are tested on the same queues, and four programs took half as long
//! again to compile.

mod common;
mod core;
mod delays;
mod shutdown;
mod waiting;
