//! The counters of a named queue, and its registration as a reporter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::recorder::{Name, Recorder};
use super::reporter::{self, Entry};
use super::series::Series;
use super::stripes::Stripes;
use crate::engine::Core;
use crate::engine::timing::Event;
use crate::keys::times::Ticks;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::catch_panic::catch_panic;

/// The counters of a queue; `None` if it has no name.
pub(crate) struct Tally(Option<Counters>);

pub(super) struct Counters {
    pub(super) stripes: Stripes,
    /// The exported series, until the queue is dropped.
    series: Mutex<Option<Box<Series>>>,
    /// Whether the queue needs no start of its reports: it is on the reporter's list, or reports
    /// manually.
    started: AtomicBool,
    entry: Arc<Entry>,
}

impl Tally {
    /// Creates the counters of `core`, and takes the name.
    pub(crate) fn new<K: Send + Sync + 'static>(
        name: Option<&str>,
        to: Recorder,
        manual: bool,
        core: &Weak<Core<K>>,
    ) -> Self {
        Tally(name.map(|name| Counters {
            stripes: Stripes::new(),
            series: Mutex::new(Some(Box::new(Series::new(Name::take(name, to))))),
            started: AtomicBool::new(manual),
            entry: Arc::new(Entry::new(Weak::<Core<K>>::clone(core))),
        }))
    }

    pub(super) fn counters(&self) -> Option<&Counters> {
        self.0.as_ref()
    }

    /// Starts the queue's reports, unless they have been started.
    #[inline]
    pub(crate) fn start(&self) {
        if let Some(counters) = &self.0 {
            // Ordering: Relaxed; a hint, the reporter's mutex decides.
            if !counters.started.load(Ordering::Relaxed) {
                counters.start();
            }
        }
    }

    /// Counts a delivery of a key that was queued at `queued`.
    #[inline]
    pub(crate) fn got(&self, queued: Ticks, now: Ticks) {
        if let Some(counters) = &self.0 {
            let stripe = counters.stripes.mine();
            stripe.queue.record(now.saturating_sub(queued));
        }
    }

    /// Counts a finished key whose delivery began at `began`.
    #[inline]
    pub(crate) fn worked(&self, began: Ticks, now: Ticks) {
        if let Some(counters) = &self.0 {
            let stripe = counters.stripes.mine();
            stripe.work.record(now.saturating_sub(began));
        }
    }

    pub(crate) fn count(&self, event: Event) {
        if let Some(counters) = &self.0 {
            counters.stripes.mine().count(event).add(1);
        }
    }
}

impl Counters {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Box<Series>>> {
        // A recorder that panics leaves a report incomplete; the next report completes it.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn start(&self) {
        let started = reporter::register(&self.entry);
        // Ordering: Relaxed; as in `Tally::start`. If the thread could not be started, the next add
        // tries again.
        self.started.store(started, Ordering::Relaxed);
    }
}

/// The end of a queue's reports, in two steps, with the queue's own end between them.
pub(crate) struct Registration(());

impl Registration {
    /// Unregisters the queue: from here on no other thread reports for it, or holds a reference to
    /// do so.
    pub(crate) fn end<K>(core: &Core<K>) -> Self {
        if let Some(counters) = core.watch().and_then(|watch| watch.tally().counters()) {
            // Ordering: Relaxed; keeps the add of a handle from registering the queue again. If an
            // add registers it anyway, the reporter drops the entry, which is empty.
            counters.started.store(true, Ordering::Relaxed);
            reporter::unregister(&counters.entry);
        }
        Registration(())
    }

    /// Reports what is left, sets the gauges to zero, and frees the name.
    pub(crate) fn zero<K>(self, core: &Core<K>) {
        // The recorder is user code, which may panic, and this runs in a drop.
        let _ = catch_panic(|| core.report_last());
    }
}
