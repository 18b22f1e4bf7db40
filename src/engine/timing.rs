//! Watching a queue: since when each key is in its state, and what is counted for the metrics.
//!
//! # What it costs whom
//!
//! A queue that is not watched has no [`Watch`]: each operation looks whether there is one, and that is
//! all. What it does if there is one is in functions of its own ([`crate::engine`]), out of the way, so that the code
//! for the others stays as tight as it was: inlined, it cost them 5 ns a key. No clock is read, and a node
//! has no room for times (M4).
//!
//! A watched queue reads its stopwatch three times for a delivered key (queued, handed out, done), keeps
//! the readings beside the node ([`crate::keys::times`]), and notes the two durations in counters that no other
//! thread writes (`metrics::tally`). No line is shared between threads that was not shared before. An
//! add that is merged reads no clock.
//!
//! Everything that is a sum over the keys (how many are dirty, how old the oldest is, how long those in
//! flight have been there) is found out by looking at all of them, when a report is due ([`crate::engine`], `scan.rs`).
//!
//! # Ticks
//!
//! The stopwatch answers in ticks, whatever the processor counts in, and durations stay in ticks until a
//! report makes nanoseconds of them.

use std::time::Duration;

use crate::keys::node::{Held, Queued};
use crate::keys::times::{Ticks, Timed};
use crate::metrics::Tally;
use crate::time::clock::Clock;

/// What a watched queue has beside its parts.
pub(crate) struct Watch {
    clock: Clock,
    tally: Tally,
    timed: Timed,
}

impl Watch {
    pub(crate) fn new(clock: Clock, tally: Tally) -> Self {
        Watch {
            clock,
            tally,
            // SAFETY: `Core::new` gives the slabs of a queue that has a watch room for times.
            timed: unsafe { Timed::new() },
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The right to the times of the queue's nodes.
    #[inline]
    pub(crate) fn timed(&self) -> &Timed {
        &self.timed
    }

    #[inline]
    pub(crate) fn now(&self) -> Ticks {
        self.clock.ticks()
    }

    /// Nanoseconds from one reading to another, 0 if that is no later.
    pub(crate) fn nanos(&self, from: Ticks, to: Ticks) -> u64 {
        self.clock.nanos_between(from, to)
    }

    pub(crate) fn duration(&self, from: Ticks, to: Ticks) -> Duration {
        Duration::from_nanos(self.nanos(from, to))
    }

    /// The key has become queued and is about to be pushed.
    #[inline]
    pub(crate) fn queued<K>(&self, entry: &Queued<K>) {
        entry.times(&self.timed).queued(self.now());
        self.tally.start();
    }

    /// Begins the delivery.
    #[inline]
    pub(crate) fn begin<K>(&self, entry: Queued<K>) -> (Held<K>, bool) {
        let now = self.now();
        let queued = entry.times(&self.timed).begin(now);
        let (held, closed) = entry.begin();
        held.times(&self.timed).begun(queued);
        self.tally.got(queued, now);
        (held, closed)
    }

    /// The held key is not processed any more; see [`Held::finish`].
    #[inline]
    pub(crate) fn finish<K>(&self, held: Held<K>) -> (Option<Queued<K>>, bool) {
        let began = held.times(&self.timed).began();
        let now = self.now();
        let (queued, closed) = held.finish();
        if let Some(entry) = &queued {
            entry.times(&self.timed).requeued(began, now);
        }
        self.tally.worked(began, now);
        (queued, closed)
    }
}
