//! Recording times: since when each key is in its state, and what is counted for the metrics.
//!
//! # Costs
//!
//! An untimed queue has no [`Watch`]: each operation checks whether there is one, and that is all.
//! What it does if there is one is out of line (`#[cold]`): inlined, it cost untimed queues 5 ns a
//! key. Such a queue reads no clock for this, and its nodes have no room for times (M4).
//!
//! A timed queue reads its clock three times for a delivered key (queued, delivered, done), keeps
//! the readings next to the node ([`crate::keys::times`]), and adds the two durations to
//! counters in the thread's own stripe (`metrics::stripes`), by plain loads and stores. A merged
//! add reads no clock.
//!
//! Readings and durations are in ticks, the unit in which the processor counts, until a report
//! converts them to nanoseconds.

use std::sync::Weak;
use std::time::Duration;

use crate::engine::Core;
use crate::keys::node::{Added, Held, Interned, Queued};
use crate::keys::state::Begun;
use crate::keys::times::{Ticks, Timed};
use crate::metrics::{Event, Tally};
use crate::sync::{Arc, Mutex};
use crate::time::clock::Clock;

/// The size of a store of dead letters, and the age of its oldest, for the reports of the queue.
#[derive(Default)]
pub(crate) struct LetterCounts(Mutex<(usize, Option<Since>)>);

/// When a letter was given up first, in nanoseconds of the clock of its queue: several queues may share a store.
type Since = (Clock, u64);

impl LetterCounts {
    pub(crate) fn set(&self, len: usize, oldest: Option<(&Clock, u64)>) {
        *self.0.lock() = (len, oldest.map(|(clock, since)| (clock.clone(), since)));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().0
    }

    /// Returns the size, and the age of the oldest in nanoseconds; 0 if there is none.
    #[cfg(feature = "metrics")]
    fn read(&self) -> (usize, u64) {
        let counts = self.0.lock();
        let age = |(clock, since): &Since| clock.nanos().saturating_sub(*since);
        (counts.0, counts.1.as_ref().map_or(0, age))
    }
}

/// What a timed queue has in addition.
pub(crate) struct Watch {
    clock: Clock,
    pub(crate) tally: Tally,
    /// The proof that the queue's nodes have times.
    pub(crate) timed: Timed,
    /// Those of the queue's workers, without those that are gone.
    letters: Mutex<Vec<Weak<LetterCounts>>>,
}

impl Watch {
    pub(crate) fn new(clock: Clock, tally: Tally) -> Self {
        Watch {
            clock,
            tally,
            // SAFETY: the slabs of a queue that has a watch have room for times: see `Core::with`.
            timed: unsafe { Timed::new() },
            letters: Mutex::default(),
        }
    }

    /// Returns the number of dead letters, and the age of the oldest in nanoseconds.
    #[cfg(feature = "metrics")]
    pub(crate) fn dead_letters(&self) -> (usize, u64) {
        let letters = self.letters.lock();
        let stores = letters.iter().filter_map(Weak::upgrade);
        let counts = stores.map(|counts| counts.read());
        counts.fold((0, 0), |all, (len, age)| (all.0 + len, age.max(all.1)))
    }

    #[inline]
    pub(crate) fn now(&self) -> Ticks {
        self.clock.ticks()
    }

    /// Returns the nanoseconds from one reading to another, 0 if that is no later.
    pub(crate) fn nanos(&self, from: Ticks, to: Ticks) -> u64 {
        self.clock.nanos_between(from, to)
    }

    pub(crate) fn duration(&self, from: Ticks, to: Ticks) -> Duration {
        Duration::from_nanos(self.nanos(from, to))
    }

    /// Records that the key has become queued. Called before the push.
    #[cold]
    pub(crate) fn queued<K>(&self, entry: &Queued<K>) {
        entry.times(&self.timed).queued(self.now());
        self.tally.start();
    }

    /// Begins the delivery, and records it.
    #[cold]
    pub(crate) fn begin<K>(&self, entry: Queued<K>) -> (Held<K>, Begun) {
        let now = self.now();
        let queued = entry.times(&self.timed).begin(now);
        let (held, begun) = entry.begin();
        held.times(&self.timed).begun(queued);
        self.tally.got(queued, now);
        (held, begun)
    }

    /// Ends the processing of the key by `finish`, and records it; see [`Held::finish`].
    #[cold]
    pub(crate) fn finish<K>(
        &self,
        held: Held<K>,
        finish: impl FnOnce(Held<K>) -> (Option<Queued<K>>, bool),
    ) -> (Option<Queued<K>>, bool) {
        let began = held.times(&self.timed).began();
        let now = self.now();
        let (queued, closed) = finish(held);
        if let Some(entry) = &queued {
            entry.times(&self.timed).requeued(began, now);
        }
        self.tally.worked(began, now);
        (queued, closed)
    }
}

impl<K, V> Core<K, V> {
    /// Returns how long a key that is processing was queued, if the queue is timed.
    pub(crate) fn queue_time(&self, key: &Interned<K>) -> Option<Duration> {
        let watch = self.watch()?;
        let (queued, began) = key.times(&watch.timed).queue_time();
        Some(watch.duration(queued, began))
    }

    /// Records what an add of this key did, if the queue is timed.
    #[inline]
    pub(crate) fn note_added(&self, added: &Added<K>, key: &Interned<K>) {
        if self.watch().is_some() {
            match *added {
                Added::Deferred => self.note_deferred(key),
                Added::Merged | Added::Raised(_) => self.note(Event::Merged),
                Added::Queued(_) | Added::Closed | Added::Delayed => {}
            }
        }
    }

    #[cold]
    fn note_deferred(&self, key: &Interned<K>) {
        if let Some(watch) = self.watch() {
            key.times(&watch.timed).deferred(watch.now());
        }
    }

    /// Reports the size of a store of dead letters, if the queue is timed.
    pub(crate) fn watch_letters(&self, counts: &Arc<LetterCounts>) {
        if let Some(watch) = self.watch() {
            let mut letters = watch.letters.lock();
            letters
                .retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(counts));
            letters.push(Arc::downgrade(counts));
        }
    }

    /// Counts an event, if the queue has a name.
    #[cold]
    pub(crate) fn note(&self, event: Event) {
        if let Some(watch) = self.watch() {
            watch.tally.count(event);
        }
    }

    /// Notes that a delay was accepted, which may be all that a queue has.
    #[cold]
    pub(crate) fn note_delayed(&self) {
        if let Some(watch) = self.watch() {
            watch.tally.count(Event::Retried);
            watch.tally.start();
        }
    }

    /// Notes that a pending delay was cancelled. Its room is left to the caller.
    pub(crate) fn note_cancelled(&self) {
        self.timer.note_stale();
        self.note(Event::Cancelled);
    }
}
