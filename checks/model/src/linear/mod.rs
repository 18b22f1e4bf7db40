//! Whether what concurrent threads saw of a queue can be explained: linearizability, by the search
//! of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with the memory of states
//! that Lowe added.
//!
//! A test lets threads call a queue and writes down what each call returned, when it began and when
//! it returned, by one clock. [`explain`] looks for an order of the calls' steps that a queue without
//! threads, the [`Spec`], could have taken one after the other, each within its call. If there is
//! none, the queue broke its promises.
//!
//! # Steps
//!
//! The queue does not promise that a call happens at one moment, so some calls are more than one step
//! of the specification:
//!
//! | call | steps | what may come in between |
//! | --- | --- | --- |
//! | an add that queues, `done` of a dirty key | mark the key, put it into the FIFO | adds are merged, gets find nothing |
//! | a get | take from the head, begin | adds are merged: the delivery has not begun (C5) |
//! | `add_after` | look at the clock, set the delay, register it | a delay that is not registered does not end yet |
//! | `fire_due` | for each due delay: end it, mark the key; put it into the FIFO, with groups once all are marked | whatever others do to other keys |
//! | `shut_down` | refuse new adds; for each key, close it and drop its delay; then the end | adds are refused, or accepted for keys not yet closed |
//!
//! All else is one step. Taken by one thread alone, the steps are what [`Naive`](crate::Naive) does.

mod check;
mod program;
mod spec;

pub use check::{Unexplained, explain};
pub use program::{Do, Via};
pub use spec::{Spec, Step};

use keyqueue::{Added, Remaining};

/// Histories have at most this many keys, numbered from 0.
pub const KEYS: usize = 4;
/// So many threads at most take part.
pub const THREADS: usize = 6;

/// A call and what it returned, as the parts of it that the specification knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A plain add.
    Add(u8, Added),
    /// An add after this many ticks, above 0; true unless it was refused.
    Delay(u8, u8, bool),
    /// A retry after this many ticks that set no delay: true if its key is dirty, and delivered again anyway; false
    /// if it is refused, because the queue is shut down and the key is not dirty.
    Retry(u8, u8, bool),
    /// The pending delay was cancelled; whether there was one.
    Cancel(u8, bool),
    /// A key was handed out.
    Got(u8),
    /// There was nothing to hand out.
    Empty,
    /// There was nothing to hand out, nor will be.
    Ended,
    /// A key that this thread held was done.
    Done(u8),
    /// The clock moved a tick on, and this many delays ended.
    Fired(u8),
    /// The one shut-down of the history, and what it found.
    ShutDown(Remaining),
}

/// A call: its parts in order, and the moments between which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it began.
    pub invoked: u64,
    /// When it had returned.
    pub returned: u64,
    /// What it did.
    pub parts: Vec<Part>,
}
