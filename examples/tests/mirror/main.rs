//! The example `mirror`, as a program: what it does to two directories, what it says, how it exits.
//!
//! The reference is a comparison of the two trees that is written here, not the program's own.
//! Waiting is for conditions on disk, with a deadline; no duration decides a result.

#![cfg(unix)]

mod follow;
mod once;
#[path = "../programs/mod.rs"]
mod programs;
mod support;
