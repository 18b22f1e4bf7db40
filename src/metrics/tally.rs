//! What a named queue counts, and its place among those that report.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::recorder::{Name, Recorder};
use super::reporter::{self, Report};
use super::series::Series;
use super::stripes::Stripes;
use crate::caught::caught;
use crate::core::Core;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::watch::Ticks;

/// The counters of a queue; none if it has no name.
pub(crate) struct Tally(Option<Counters>);

pub(super) struct Counters {
    pub(super) stripes: Stripes,
    /// The name that was asked for, and where to report.
    wanted: (Box<str>, Recorder),
    /// What is exported; there from the queue's construction to its end.
    pub(super) series: Mutex<Option<Box<Series>>>,
    /// Whether nothing is to be done to be reported of: the reporter knows the queue, or it reports
    /// by hand.
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

    /// Takes the name. Called once, when the queue has been made.
    pub(crate) fn enrol<K: Send + Sync + 'static>(&self, core: &Arc<Core<K>>) {
        if let Some(counters) = &self.0 {
            let (name, recorder) = &counters.wanted;
            let series = Series::new(Name::take(name, recorder));
            *counters.lock() = Some(Box::new(series));
            let core: Arc<dyn Report> = Arc::<Core<K>>::clone(core);
            let _ = counters.queue.set(Arc::downgrade(&core));
        }
    }

    /// Sees to it that the queue is reported of from now on.
    #[inline]
    pub(crate) fn start(&self) {
        if let Some(counters) = &self.0 {
            // Ordering: Relaxed; a hint, the reporter has a mutex.
            if !counters.started.load(Ordering::Relaxed) {
                counters.start();
            }
        }
    }

    /// A key was handed out that had been queued since then.
    #[inline]
    pub(crate) fn got(&self, queued: Ticks, now: Ticks) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.queue.record(now.saturating_sub(queued), owned);
        }
    }

    /// A key is done that had been with its worker since then.
    #[inline]
    pub(crate) fn worked(&self, began: Ticks, now: Ticks) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.work.record(now.saturating_sub(began), owned);
        }
    }

    /// An add was merged.
    pub(crate) fn merged(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.merged.add(1, owned);
        }
    }

    /// An add with a delay, or a rate-limited one, was accepted.
    pub(crate) fn retried(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.retries.add(1, owned);
        }
    }

    /// A pending delay was taken back.
    pub(crate) fn cancelled(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.cancelled.add(1, owned);
        }
    }

    /// The worker loop gave a key up.
    pub(crate) fn gave_up(&self) {
        if let Some(counters) = &self.0 {
            let (stripe, owned) = counters.stripes.mine();
            stripe.given_up.add(1, owned);
        }
    }
}

impl Counters {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<Series>>> {
        // A recorder that panics leaves a report half made; the next one makes up for it.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn start(&self) {
        let started = self.queue.get().is_some_and(reporter::enlist);
        // Ordering: Relaxed; as in `Tally::start`. If there was no thread to be had, the next add
        // tries again.
        self.started.store(started, Ordering::Relaxed);
    }
}

/// The end of a queue's reports, in two steps, with the queue's own end between them.
pub(crate) struct Enrolment(());

impl Enrolment {
    /// From here on no other thread reports of the queue, or holds it to do so.
    pub(crate) fn end<K>(core: &Core<K>) -> Self {
        let counters = core.watch().and_then(|watch| watch.tally().counters());
        if let Some(counters) = counters
            && let Some(queue) = counters.queue.get()
        {
            // Ordering: Relaxed; so that the add of a handle does not put it on the list again. One that
            // comes through all the same is found out by the list: the queue is as good as gone.
            counters.started.store(true, Ordering::Relaxed);
            reporter::dismiss(queue);
        }
        Enrolment(())
    }

    /// Tells what was still counted, sets the gauges to zero, and gives the name back.
    pub(crate) fn zero<K>(self, core: &Core<K>) {
        if let Some(watch) = core.watch()
            && let Some(counters) = watch.tally().counters()
        {
            // The recorder is anybody's code, and this is a drop.
            let _ = caught(|| core.report_last(watch, counters));
        }
    }
}
