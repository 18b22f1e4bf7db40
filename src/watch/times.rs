//! The times of one key: since when it is queued, processed, dirty.
//!
//! A queue that is timed keeps them beside each node, in the same slot of the slab; one that is not has
//! no room for them at all. Nothing is decided by them: they are for reports alone.
//!
//! # Who writes what
//!
//! | word | written by | when |
//! | --- | --- | --- |
//! | `queued` | who made the key queued and owes the FIFO its entry | between that change and the push |
//! | `queued`, its flag | who popped the entry | right after `begin`: "this is how it was" |
//! | `began` | who popped the entry | before `begin` |
//! | `deferred` | whose add made the key dirty | after that change, by its lock or its pin |
//!
//! `queued` and `began` have one writer at a time, the holder of a token; the token changes hands
//! through the FIFO, which synchronises. `deferred` is written by somebody who holds no token, and so
//! it may come late, or be a straggler from an earlier processing:
//!
//! ```text
//!     adder                                worker
//!     processing -> dirty
//!     reads the clock: t
//!                                          dirty -> queued; deferred is not there yet
//!     deferred = t
//! ```
//!
//! `finish` believes `deferred` only if it is no earlier than `began`, and else takes the time of the
//! `done` itself: that add and that `done` happened at the same time, give or take the moment the adder
//! needs. An adder that is preempted between the two for so long that the key has been handed out again
//! leaves a time that is from before this processing, which is not believed; or, if it read the clock
//! late, one that may make a queue duration too long by as much as it was preempted. Nothing else
//! happens, and nobody pays for more.
//!
//! # Reading
//!
//! A report reads the state and the times without a token, beside a worker that changes them. It reads
//! the state, the times, and the state again, until both agree. As each word is written before the
//! state says so (`began`), or is marked as gone before the state can come again (`queued`), the pair
//! is one that was true at some moment in between, even if the key has gone full circle meanwhile. In the moment
//! between becoming queued and getting its time a key counts as queued just now.

use crate::state::{KeyState, Phase};
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// A reading of the stopwatch; 0 is none.
pub(crate) type Ticks = u64;

/// In `queued`: the key is not queued any more; this is when it was.
const GONE: u64 = 1 << 63;

/// How often a reader tries to catch a key between two changes.
const LOOKS: u32 = 64;

pub(crate) struct Times {
    queued: AtomicU64,
    began: AtomicU64,
    deferred: AtomicU64,
}

/// The state of a key, and the times that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) phase: Phase,
    /// Since when the key is queued, or dirty; none: since just now.
    pub(crate) dirty: Option<Ticks>,
    /// Since when it is with a worker.
    pub(crate) held: Option<Ticks>,
}

impl Seen {
    /// What is seen of a key that has no times.
    pub(crate) fn untimed(phase: Phase) -> Self {
        Seen {
            phase,
            dirty: None,
            held: None,
        }
    }
}

impl Times {
    pub(crate) fn new() -> Self {
        Times {
            queued: AtomicU64::new(0),
            began: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
        }
    }

    /// The key has been queued. Called by who owes the FIFO its entry, before the push.
    #[inline]
    pub(crate) fn queued(&self, now: Ticks) {
        // Ordering: Relaxed; the worker's read comes after it by the FIFO, and a reader without a
        // token may miss it.
        self.queued.store(now, Ordering::Relaxed);
    }

    /// The key is about to be handed out: called by who popped its entry, before the state changes.
    /// Answers since when it was queued.
    #[inline]
    pub(crate) fn begin(&self, now: Ticks) -> Ticks {
        // Ordering: Relaxed; the FIFO orders it after the store.
        let queued = self.queued.load(Ordering::Relaxed);
        // Ordering: Relaxed; ordered by the fence.
        self.began.store(now, Ordering::Relaxed);
        // Ordering: Release; with the change of state behind it, pairs with the Acquire of the state
        // in `read`: who sees the key in processing sees since when.
        fence(Ordering::Release);
        queued
    }

    /// The key has been handed out: called after the state has changed. `queued` is what `begin` said.
    #[inline]
    pub(crate) fn begun(&self, queued: Ticks) {
        // Ordering: Relaxed; before the Release in `KeyState::finish`, and so before the key can be
        // queued again.
        self.queued.store(queued | GONE, Ordering::Relaxed);
    }

    /// An add has made the key dirty while it is processed. Called under the shard's lock or by a pin.
    #[inline]
    pub(crate) fn deferred(&self, now: Ticks) {
        // Ordering: Relaxed; it may come late: see the header.
        self.deferred.store(now, Ordering::Relaxed);
    }

    /// Since when the key is with its worker, who asks.
    #[inline]
    pub(crate) fn began(&self) -> Ticks {
        // Ordering: Relaxed; whoever has the token has it from who stored this.
        self.began.load(Ordering::Relaxed)
    }

    /// How long, in ticks, the key was queued before it was handed out to the worker that asks.
    pub(crate) fn queue_time(&self) -> (Ticks, Ticks) {
        // Ordering: Relaxed; as in `began`.
        (self.queued.load(Ordering::Relaxed) & !GONE, self.began())
    }

    /// The key was dirty and is queued again: called by who owes the FIFO its entry, before the push.
    #[inline]
    pub(crate) fn requeued(&self, began: Ticks, now: Ticks) {
        // Ordering: Relaxed; it may be missing: see the header.
        let deferred = self.deferred.load(Ordering::Relaxed);
        self.queued(if deferred >= began { deferred } else { now });
    }

    /// The state and its times, as of one moment. Called under the shard's lock or by a pin.
    pub(crate) fn read(&self, state: &KeyState) -> Seen {
        let mut seen = self.look(state.observe());
        for _ in 0..LOOKS {
            // Ordering: Acquire; keeps the times before the second look at the state.
            fence(Ordering::Acquire);
            let now = state.observe();
            if now == seen.phase {
                break;
            }
            seen = self.look(now);
        }
        seen
    }

    fn look(&self, phase: Phase) -> Seen {
        // Ordering: Relaxed; ordered by the Acquire of the state before, and by the fence after.
        let queued = self.queued.load(Ordering::Relaxed);
        // Ordering: Relaxed; as above.
        let began = self.began.load(Ordering::Relaxed);
        // Ordering: Relaxed; as above.
        let deferred = self.deferred.load(Ordering::Relaxed);
        let (dirty, held) = match phase {
            Phase::Idle => (None, None),
            Phase::Queued => ((queued != 0 && queued & GONE == 0).then_some(queued), None),
            Phase::Processing => (None, Some(began)),
            Phase::Dirty => ((deferred >= began).then_some(deferred), Some(began)),
        };
        Seen { phase, dirty, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ShortHash;

    #[test]
    fn a_key_has_the_times_of_its_state() {
        let state = KeyState::new(ShortHash::of(0), Phase::Queued, false);
        let times = Times::new();
        let seen = |phase, dirty, held| assert_eq!(times.read(&state), Seen { phase, dirty, held });
        seen(Phase::Queued, None, None);
        times.queued(5);
        seen(Phase::Queued, Some(5), None);

        assert_eq!(times.begin(9), 5);
        seen(Phase::Queued, Some(5), None);
        state.begin();
        times.begun(5);
        seen(Phase::Processing, None, Some(9));
        assert_eq!(times.queue_time(), (5, 9));

        state.add_pinned();
        seen(Phase::Dirty, None, Some(9)); // just now: the adder has not come to say since when
        times.deferred(12);
        seen(Phase::Dirty, Some(12), Some(9));

        state.finish();
        seen(Phase::Queued, None, None); // and not since 5
        times.requeued(times.began(), 20);
        seen(Phase::Queued, Some(12), None);
    }

    // M2
    #[test]
    fn the_time_of_an_earlier_processing_is_not_believed() {
        let times = Times::new();
        times.deferred(12); // a straggler
        times.begin(15);
        times.requeued(15, 20);
        assert_eq!(times.begin(21), 20);
        times.deferred(21); // in the same instant as the hand-out
        times.requeued(21, 30);
        assert_eq!(times.begin(31), 21);
    }
}
