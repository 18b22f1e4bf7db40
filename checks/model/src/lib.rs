//! What the queue should do, in the plainest words: a reference to compare it with.
//!
//! The model shares the words for results with the crate it is a model of ([`keyqueue::Added`] and
//! the like), and no code. It is for one thread, it is slow, and it should be obviously right. [`lockstep`], [`recorded`] and the [`ledger`] are no
//! models, and know the crate.
//!
//! * [`Naive`] is the queue: a deque of queued keys, sets of the others, [`Delays`], and who waits;
//!   [`limit`] has the rate limiters.
//! * [`Op`] is one step of a test, and [`Setup`] the queue it is run against; both can be made
//!   from a fuzzer's bytes (feature `arbitrary`) or by a property test's strategies.
//!
//! * [`linear`] asks of what several threads saw whether a queue without threads can explain it.
//! * [`ledger`] is for more threads and adds than that: it counts what each key was promised, and what it got.
//!
//! * [`lockstep`] runs a model and a queue side by side and compares every result.
//! * [`recorded`] runs a queue by several threads and writes down what they see.

mod delays;
pub mod ledger;
pub mod limit;
pub mod linear;
pub mod lockstep;
mod naive;
mod op;
pub mod recorded;
mod seen;
mod spreading;
mod waiters;

pub use delays::{Delays, Policy};
pub use naive::Naive;
pub use op::{Op, Script, Setup, Spread};
pub use seen::{Phase, Seen};
pub use spreading::{SpreadHasher, Spreading};
pub use waiters::{Waiters, Woken};
