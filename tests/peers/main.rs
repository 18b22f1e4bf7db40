//! The test suites of other queues, written for this one from what they test. A file is a suite,
//! and names its origin; a test has the name of its original. Where the two differ on purpose, the
//! test asserts what holds here, and says what the peer does and which promise makes it so.

#[path = "../common/mod.rs"]
mod common;

mod array_queue;
mod client_go;
mod delay_queue;
mod priority_queue;
mod runner;
mod scheduler;
mod wait;
