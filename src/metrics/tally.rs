//! The counters of a named queue, and its registration as a reporter.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::recorder::{Name, Recorder};
use super::reporter::{self, Report};
use super::series::Series;
use super::stripes::Stripes;
use crate::engine::Core;
use crate::keys::times::Ticks;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::catch_panic::catch_panic;

/// The counters of a queue; `None` if it has no name.
pub(crate) struct Tally(Option<Counters>);

pub(super) struct Counters {
    pub(super) stripes: Stripes,
    /// The requested name, and the recorder.
    wanted: (Box<str>, Recorder),
    /// The exported series, from the queue's construction until it is dropped.
    pub(super) series: Mutex<Option<Box<Series>>>,
    /// Whether the queue needs no start of its reports: it is on the reporter's list, or reports
    /// manually.
    started: AtomicBool,
    queue: OnceLock<std::sync::Weak<dyn Report>>,
}

impl Tally {
    pub(crate) fn new(name: Option<&str>, to: Recorder, manual: bool) -> Self {
        Tally(name.map(|name| Counters {
            stripes: Stripes::new(),
            wanted: (name.into(), to),
            series: Mutex::new(None),
            started: AtomicBool::new(manual),
            queue: OnceLock::new(),
        }))
    }

    pub(super) fn counters(&self) -> Option<&Counters> {
        self.0.as_ref()
    }

    /// Takes the name. Called once, after the queue is built.
    pub(crate) fn register<K: Send + Sync + 'static>(&self, core: &Arc<Core<K>>) {
        if let Some(counters) = &self.0 {
            let (name, recorder) = &counters.wanted;
            let series = Series::new(Name::take(name, recorder));
            *counters.lock() = Some(Box::new(series));
            let core: Arc<dyn Report> = Arc::<Core<K>>::clone(core);
            let _ = counters.queue.set(Arc::downgrade(&core));
        }
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
            let (stripe, owned) = counters.stripes.mine();
            stripe.queue.record(now.saturating_sub(queued), owned);
        }
    }

    /// Counts a finished key whose delivery began at `began`.
    #[inline]
    pub(crate) fn worked(&self, began: Ticks, now: Ticks) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.work.record(now.saturating_sub(began), owned);
        }
    }

    /// Counts a merged add.
    pub(crate) fn merged(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.merged.add(1, owned);
        }
    }

    /// Counts an accepted add with a delay or a rate limit.
    pub(crate) fn retried(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.retries.add(1, owned);
        }
    }

    /// Counts a cancelled delay.
    pub(crate) fn cancelled(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.cancelled.add(1, owned);
        }
    }

    /// Counts a key that the worker loop gave up.
    pub(crate) fn gave_up(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.given_up.add(1, owned);
        }
    }
}

impl Counters {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<Series>>> {
        // A recorder that panics leaves a report incomplete; the next report completes it.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn start(&self) {
        let started = self.queue.get().is_some_and(reporter::register);
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
        let counters = core.watch().and_then(|watch| watch.tally().counters());
        if let Some(counters) = counters
            && let Some(queue) = counters.queue.get()
        {
            // Ordering: Relaxed; keeps the add of a handle from registering the queue again. If an
            // add registers it anyway, the reporter drops the entry once the weak reference is
            // dead.
            counters.started.store(true, Ordering::Relaxed);
            reporter::unregister(queue);
        }
        Registration(())
    }

    /// Reports what is left, sets the gauges to zero, and frees the name.
    pub(crate) fn zero<K>(self, core: &Core<K>) {
        if let Some(watch) = core.watch()
            && let Some(counters) = watch.tally().counters()
        {
            // The recorder is user code, which may panic, and this runs in a drop.
            let _ = catch_panic(|| core.report_last(watch, counters));
        }
    }
}
