//! What the queue should do, in the plainest words: a reference to compare it with.
//!
//! The model is for one thread, slow, and should be obviously right. It shares the words for
//! results with the crate ([`keyqueue::Added`] and the like), and no code:
//!
//! * [`Naive`] is the queue: a deque of queued keys for each level, sets of the others, [`Delays`], and who waits;
//!   [`limit`] has the rate limiters.
//! * [`linear`] asks of what several threads saw whether a queue without threads can explain it.
//!
//! These know the crate; the first three are the feature `lockstep`:
//!
//! * [`lockstep`] runs a model and a queue side by side, by [`Op`]s, and compares every result.
//! * [`values`] is [`lockstep`] for queues whose keys carry values.
//! * [`recorded`] runs a queue by several threads and writes down what they see.
//! * [`ledger`] is for more threads and adds: it counts what each key was promised, and what it got.

#![cfg_attr(
    not(feature = "lockstep"),
    allow(dead_code, reason = "only what runs a queue calls it")
)]

mod delays;
pub mod ledger;
mod levels;
pub mod limit;
pub mod linear;
#[cfg(feature = "lockstep")]
pub mod lockstep;
mod naive;
mod op;
#[cfg(feature = "lockstep")]
pub mod recorded;
mod seen;
mod spreading;
mod turns;
#[cfg(feature = "lockstep")]
pub mod values;
mod waiters;

pub use delays::{Delays, Policy};
pub use naive::Naive;
pub use op::{By, Op, Script, Settings, Setup, Spread};
pub use seen::Seen;
pub use spreading::{SpreadHasher, Spreading};
pub use waiters::{Waiters, Woken};
