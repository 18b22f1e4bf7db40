//! The counters of a named queue, and its registration as a reporter.

use std::sync::{Arc, Mutex, Weak};

use super::event::Event;
use super::recorder::{Name, Recorder};
use super::reporter::{self, Entry};
use super::series::{Series, Source};
use super::stripes::{Stripe, Stripes};
use crate::keys::times::Ticks;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The counters of a queue; `None` if it has no name.
pub(crate) struct Tally(pub(super) Option<Box<Counters>>);

pub(super) struct Counters {
    pub(super) stripes: Stripes,
    /// The exported series, until the queue is dropped.
    pub(super) series: Mutex<Option<Box<Series>>>,
    /// Whether the queue needs no start of its reports: it is on the reporter's list, or reports
    /// manually.
    started: AtomicBool,
    entry: Arc<Entry>,
}

impl Tally {
    /// Creates the counters of a queue, and takes the name.
    pub(crate) fn new<C: Source + Send + Sync + 'static>(
        name: Option<&str>,
        to: Recorder,
        manual: bool,
        core: &Weak<C>,
    ) -> Self {
        let core = Weak::clone(core);
        let report = move |now| {
            let core = core.upgrade();
            core.is_some_and(|core| {
                core.tally()
                    .is_some_and(|tally| tally.report_due(&*core, now))
            })
        };
        Tally(name.map(|name| {
            Box::new(Counters {
                stripes: Stripes::new(),
                series: Mutex::new(Some(Box::new(Series::new(Name::take(name, to))))),
                started: AtomicBool::new(manual),
                entry: Arc::new(Entry::new(Some(Box::new(report)))),
            })
        }))
    }

    /// Starts the queue's reports, unless they have been started.
    #[inline]
    pub(crate) fn start(&self) {
        if let Some(counters) = &self.0 {
            // Ordering: Relaxed, both; a hint, the reporter's mutex decides.
            if !counters.started.load(Ordering::Relaxed) {
                // If the thread cannot be started, the next add or delay tries again.
                let started = reporter::register(&counters.entry);
                // Ordering: Relaxed; see above.
                counters.started.store(started, Ordering::Relaxed);
            }
        }
    }

    /// Takes the queue off the reporter's list: from here on no other thread reports for it, or
    /// holds a reference to do so.
    pub(crate) fn end(&self) {
        if let Some(counters) = &self.0 {
            // Ordering: Relaxed; keeps the add of a handle from registering the queue again. If an
            // add registers it anyway, the reporter drops the entry, which is empty.
            counters.started.store(true, Ordering::Relaxed);
            reporter::unregister(&counters.entry);
        }
    }

    /// Counts a delivery of a key that was queued at `queued`.
    #[inline]
    pub(crate) fn got(&self, queued: Ticks, now: Ticks) {
        self.with_stripe(|stripe, alone| stripe.queue.record(now.saturating_sub(queued), alone));
    }

    /// Counts a finished key whose delivery began at `began`.
    #[inline]
    pub(crate) fn worked(&self, began: Ticks, now: Ticks) {
        self.with_stripe(|stripe, alone| stripe.work.record(now.saturating_sub(began), alone));
    }

    pub(crate) fn count(&self, event: Event) {
        self.with_stripe(|stripe, alone| _ = stripe.events[event as usize].add(1, alone));
    }

    #[inline]
    fn with_stripe(&self, count: impl FnOnce(&Stripe, bool)) {
        if let Some(counters) = &self.0 {
            let (stripe, alone) = counters.stripes.mine();
            count(stripe, alone);
        }
    }
}
