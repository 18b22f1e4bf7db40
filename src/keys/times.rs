//! The times of one key: when it was queued, when its processing began, and when it became dirty.
//!
//! A timed queue keeps them next to each node, in the same slot of the slab; other queues have no
//! room for them. They are only used in reports, and affect no decision.
//!
//! # Writers
//!
//! | word | written by | when |
//! | --- | --- | --- |
//! | `queued` | the thread that made the key queued and pushes its entry | between that change and the push |
//! | `queued`, its flag | the thread that popped the entry | right after `begin`: marks the time as past |
//! | `began` | the thread that popped the entry | before `begin` |
//! | `deferred` | the thread whose add made the key dirty | after that change, under its lock or pin |
//!
//! `queued` and `began` have one writer at a time, the holder of a token; the token passes through
//! the FIFO, which synchronises. The writer of `deferred` has only the shard's lock or a pin, which
//! order it with no worker, so its store may be late, when the worker has already requeued the key,
//! or even belong to an earlier processing.
//!
//! `requeued` uses `deferred` only if it is no earlier than `began`, and otherwise the time of the
//! `done` itself: the add and the `done` then happened at about the same time. If an adder is
//! preempted before its store until the key has been delivered again, its time may make a queue
//! duration too long by the time of the preemption. There is no other effect.
//!
//! # Reading
//!
//! A report reads the state, the times, and the state again, until both states agree, while a
//! worker may change them. Each word is either written before the state changes (`began`), or
//! marked as past before the state can recur (`queued`). So the pair was valid at some moment in
//! between. A key that is queued but has no time yet counts as queued just now.

use crate::keys::state::{KeyState, Level, State};
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// A reading of [`Clock::ticks`](crate::Clock); 0 means none.
pub(crate) type Ticks = u64;

/// The flag in `queued`: the key is no longer queued, and the time is past.
const GONE: u64 = 1 << 63;

/// The number of attempts of a reader to read a key between two changes.
const LOOKS: u32 = 64;

/// A proof that the nodes of a queue have times: only a timed queue has one.
#[derive(Debug)]
pub(crate) struct Timed(());

impl Timed {
    /// # Safety
    ///
    /// Only a queue whose slabs have room for times may have it.
    pub(crate) unsafe fn new() -> Self {
        Timed(())
    }
}

#[derive(Default)]
pub(crate) struct Times {
    queued: AtomicU64,
    began: AtomicU64,
    deferred: AtomicU64,
}

/// The state of a key, and the times that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) phase: State,
    /// The level of a key that is queued or dirty.
    pub(crate) level: Option<Level>,
    /// When the key became queued or dirty; `None` means just now.
    pub(crate) dirty: Option<Ticks>,
    /// When its processing began.
    pub(crate) held: Option<Ticks>,
}

impl Times {
    #[inline]
    pub(crate) fn queued(&self, now: Ticks) {
        // Ordering: Relaxed; the FIFO orders it before the worker's read, and a reader without a
        // token may miss it.
        self.queued.store(now, Ordering::Relaxed);
    }

    /// Records that a delivery begins, before the state changes. Returns when the key was queued.
    #[inline]
    pub(crate) fn begin(&self, now: Ticks) -> Ticks {
        // Ordering: Relaxed; the FIFO orders it after the store.
        let queued = self.queued.load(Ordering::Relaxed);
        // Ordering: Relaxed; ordered by the fence.
        self.began.store(now, Ordering::Relaxed);
        // Ordering: Release; with the state change after it, pairs with the Acquire of the state in
        // `read`: a reader that sees the key processing sees when that began.
        fence(Ordering::Release);
        queued
    }

    /// Records that a delivery has begun, after the state has changed. `queued` is the result of
    /// `begin`.
    #[inline]
    pub(crate) fn begun(&self, queued: Ticks) {
        // Ordering: Relaxed; before the Release in `KeyState::finish`, and so before the key can be
        // queued again.
        self.queued.store(queued | GONE, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn deferred(&self, now: Ticks) {
        // Ordering: Relaxed; it may be late: see the header.
        self.deferred.store(now, Ordering::Relaxed);
    }

    /// Returns when the processing began. Called by the key's worker.
    #[inline]
    pub(crate) fn began(&self) -> Ticks {
        // Ordering: Relaxed; the thread that stored this passed the token on to the caller.
        self.began.load(Ordering::Relaxed)
    }

    /// Returns when the key was queued and when it was delivered. Called by the key's worker.
    pub(crate) fn queue_time(&self) -> (Ticks, Ticks) {
        // Ordering: Relaxed; as in `began`.
        (self.queued.load(Ordering::Relaxed) & !GONE, self.began())
    }

    /// Records that a dirty key was queued again.
    #[inline]
    pub(crate) fn requeued(&self, began: Ticks, now: Ticks) {
        // Ordering: Relaxed; it may be missing: see the header.
        let deferred = self.deferred.load(Ordering::Relaxed);
        self.queued(if deferred >= began { deferred } else { now });
    }

    /// Returns the state and its times, as of one moment.
    pub(crate) fn read(&self, state: &KeyState) -> Seen {
        let mut seen = self.look(state.phase_and_level());
        for _ in 0..LOOKS {
            // Ordering: Acquire; orders the loads of the times before the second load of the state.
            fence(Ordering::Acquire);
            let now = state.phase_and_level();
            if now == (seen.phase, seen.level) {
                break;
            }
            seen = self.look(now);
        }
        seen
    }

    fn look(&self, (phase, level): (State, Option<Level>)) -> Seen {
        // Ordering: Relaxed; ordered by the Acquire of the state before, and by the fence after.
        let queued = self.queued.load(Ordering::Relaxed);
        // Ordering: Relaxed; as above.
        let began = self.began.load(Ordering::Relaxed);
        // Ordering: Relaxed; as above.
        let deferred = self.deferred.load(Ordering::Relaxed);
        let (dirty, held) = match phase {
            State::Idle => (None, None),
            State::Queued => ((queued != 0 && queued & GONE == 0).then_some(queued), None),
            State::Processing => (None, Some(began)),
            State::Dirty => ((deferred >= began).then_some(deferred), Some(began)),
        };
        Seen {
            phase,
            level,
            dirty,
            held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::hash::ShortHash;

    #[test]
    fn a_key_has_the_times_of_its_state() {
        let state = KeyState::new(ShortHash::of(0), State::Queued, false);
        let times = Times::default();
        let seen = |phase, dirty, held| {
            let seen = times.read(&state);
            assert_eq!((seen.phase, seen.dirty, seen.held), (phase, dirty, held));
        };
        seen(State::Queued, None, None);
        times.queued(5);
        seen(State::Queued, Some(5), None);

        assert_eq!(times.begin(9), 5);
        seen(State::Queued, Some(5), None);
        state.begin();
        times.begun(5);
        seen(State::Processing, None, Some(9));
        assert_eq!(times.queue_time(), (5, 9));

        state.add_pinned();
        seen(State::Dirty, None, Some(9)); // just now: the adder has not stored the time yet
        times.deferred(12);
        seen(State::Dirty, Some(12), Some(9));

        state.finish();
        seen(State::Queued, None, None); // and not since 5
        times.requeued(times.began(), 20);
        seen(State::Queued, Some(12), None);
    }

    // M2
    #[test]
    fn the_time_of_an_earlier_processing_is_not_believed() {
        let times = Times::default();
        times.deferred(12); // a straggler
        times.begin(15);
        times.requeued(15, 20);
        assert_eq!(times.begin(21), 20);
        times.deferred(21); // in the same instant as the delivery
        times.requeued(21, 30);
        assert_eq!(times.begin(31), 21);
    }
}
