//! Watching a queue: since when each key is in its state, and what is counted for the metrics.
//!
//! # What it costs whom
//!
//! A queue that is not watched has no [`Watch`]: each operation looks whether there is one, and that is
//! all. What it does if there is one is in functions of its own ([`ops`]), out of the way, so that the code
//! for the others stays as tight as it was: inlined, it cost them 5 ns a key. No clock is read, and a node
//! has no room for times (M4).
//!
//! A watched queue reads its stopwatch three times for a delivered key (queued, handed out, done), keeps
//! the readings beside the node ([`times`]), and notes the two durations in counters that no other
//! thread writes (`metrics::tally`). No line is shared between threads that was not shared before. An
//! add that is merged reads no clock.
//!
//! Everything that is a sum over the keys (how many are dirty, how old the oldest is, how long those in
//! flight have been there) is found out by looking at all of them, when a report is due (`metrics::look`).
//!
//! # Ticks
//!
//! The stopwatch answers in ticks, whatever the processor counts in, and durations stay in ticks until a
//! report makes nanoseconds of them.

mod ops;
mod snapshot;
mod times;

use std::time::Duration;

pub use snapshot::{KeySnapshot, State};
pub(crate) use times::{Ticks, Times};

use crate::clock::{Clock, coarse};
use crate::metrics::Tally;
use crate::node::{Held, Queued};

/// How a queue times its keys: for the ages in a [`snapshot`](crate::WorkQueue::snapshot), and, with
/// feature `metrics`, for the durations and everything else that a named queue reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timing {
    /// Not at all: no clock is read, and nothing is reported.
    Off,
    /// By the processor's cycle counter, to some nanoseconds.
    #[default]
    Exact,
    /// By the kernel's coarse clock where there is one (Linux), which is to some milliseconds and
    /// is as cheap where the cycle counter is slow or cannot be used. Elsewhere, and with a mocked clock, the same as `Exact`.
    Coarse,
}

/// What a watched queue has beside its parts.
pub(crate) struct Watch {
    clock: Clock,
    coarse: bool,
    tally: Tally,
}

impl Watch {
    /// None if nothing is to be timed.
    pub(crate) fn new(timing: Timing, clock: &Clock, tally: Tally) -> Option<Self> {
        let coarse = match timing {
            Timing::Off => return None,
            Timing::Exact => false,
            Timing::Coarse => coarse::IS_THERE && !clock.is_mocked(),
        };
        Some(Watch {
            clock: clock.clone(),
            coarse,
            tally,
        })
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    #[inline]
    pub(crate) fn now(&self) -> Ticks {
        if self.coarse {
            coarse::nanos()
        } else {
            self.clock.ticks()
        }
    }

    /// Nanoseconds from one reading to another, 0 if that is no later.
    pub(crate) fn nanos(&self, from: Ticks, to: Ticks) -> u64 {
        if self.coarse {
            to.saturating_sub(from)
        } else {
            self.clock.nanos_between(from, to)
        }
    }

    pub(crate) fn duration(&self, from: Ticks, to: Ticks) -> Duration {
        Duration::from_nanos(self.nanos(from, to))
    }

    /// The key has become queued and is about to be pushed.
    #[inline]
    pub(crate) fn queued<K>(&self, entry: &Queued<K>) {
        entry.times(self).queued(self.now());
        self.tally.start();
    }

    /// Begins the delivery.
    #[inline]
    pub(crate) fn begin<K>(&self, entry: Queued<K>) -> (Held<K>, bool) {
        let now = self.now();
        let queued = entry.times(self).begin(now);
        let (held, closed) = entry.begin();
        held.times(self).begun(queued);
        self.tally.got(queued, now);
        (held, closed)
    }

    /// The held key is not processed any more; see [`Held::finish`].
    #[inline]
    pub(crate) fn finish<K>(&self, held: Held<K>) -> (Option<Queued<K>>, bool) {
        let began = held.times(self).began();
        let now = self.now();
        let (queued, closed) = held.finish();
        if let Some(entry) = &queued {
            entry.times(self).requeued(began, now);
        }
        self.tally.worked(began, now);
        (queued, closed)
    }
}
