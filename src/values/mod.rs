//! Values: what changed, merged for each key, and carried to the delivery.
//!
//! A queue that was built with [`merge`](crate::Builder::merge) keeps the value of a key next to the key's node
//! ([`Carried`](crate::keys::carried::Carried)). [`Merger`] is what else such a queue has.
//!
//! # The value of one key
//!
//! ```text
//!     waiting   what was put and is not delivered yet     behind the key's own lock
//!     loaded    what the delivery in progress has         only the holder of the key
//!
//!     put        locks, adds the key, merges into `waiting`, unlocks; then pushes the key's entry
//!     load       locks, begins the delivery, moves `waiting` to `loaded`, unlocks
//!     unload     drops `loaded`; then the key is finished
//!     put back   locks, adds the key again, merges `waiting` into `loaded`, which becomes `waiting`
//! ```
//!
//! # Protocol
//!
//! * **A value waits only if a delivery follows**: the key is queued or dirty, or has a pending delay,
//!   or the lock is held by the thread that is about to take the value away. A put adds the key first,
//!   so a put that a shut-down refuses has merged nothing. The values whose delivery a shut-down has
//!   ended stay where they are, until the queue is dropped.
//! * **The order of the puts is the order of the lock.** A delivery begins under the lock, so each
//!   put belongs to one delivery: before the begin to this one, and otherwise to the next.
//! * A put finds the key under its shard's lock, tries the key's lock, adds the key, and unlocks the
//!   shard. From then on the key is queued or dirty, and no getter can begin its delivery before the
//!   lock is free, so the node stays interned while the put merges. If another thread has the key's
//!   lock, the put pins the node and waits for the lock without the shard's.
//! * The order of locks is key, then shard. A thread that has a shard's lock does not wait for a
//!   key's.
//! * No value is dropped under the lock, unless user code drops it that runs there. What is left over, by
//!   [`merge::latest`] or an update that panics, is *outdated*: it is moved out, and dropped after the unlock and the push.
//!   So are the receipts of a put that panics, whose end runs wakers.
//! * The merge function is user code under the key's lock. It delays puts of this key, and the getter
//!   that delivers it, and must not call the queue. If it panics, `waiting` stays what it has made of it, the
//!   key is queued all the same, and the panic continues in the thread that put (V4). If it panics while
//!   a value is put back, only the panic hook reports that.
//! * A delivery that finds no value is finished immediately, and not handed out: the value was taken
//!   back, or another delivery before has taken it with its own.

mod builder;
mod core;
mod item;
pub mod merge;
mod merger;
mod put;
mod remove;

pub(crate) use merger::{Change, Merger, Merging};
