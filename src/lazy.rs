//! The queue's core, built by the first call that needs it.
//!
//! A core allocates its ring and its shards: 13 KB, and most of a microsecond. A queue that is made
//! and dropped, or made for what may never come, pays for none of it; until the first call it keeps only the
//! settings, already found to be in range.
//!
//! # Ground rules
//!
//! * Dereferencing builds, as with the standard library's `LazyLock`. Who can answer for an empty queue that is
//!   open asks [`LazyCore::get`], and builds nothing.
//! * Of several first calls one builds; the others wait for it, and all see what it has built. Building runs no
//!   code of the user's. If it panics nothing is left of it, and the next call begins anew.
//! * A queue that is looked at from the outside, because it has a name or is timed, is built at once.
//! * So is every queue under a model checker (`sync::BUILDS_LAZILY`).

use std::ops::Deref;

use crate::core::{Core, Settings};
use crate::metrics::{Recorder, Tally};
use crate::sync::{self, Arc, OnceLock};
use crate::watch::{Timing, Watch};

pub(crate) struct LazyCore<K> {
    core: OnceLock<Arc<Core<K>>>,
    settings: Settings,
}

impl<K> LazyCore<K> {
    /// A core to be built when it is needed.
    #[inline]
    pub(crate) fn new(settings: Settings) -> Self {
        let lazy = LazyCore {
            core: OnceLock::new(),
            settings,
        };
        if !sync::BUILDS_LAZILY {
            lazy.build();
        }
        lazy
    }

    /// A core that is there from the beginning: it has a name or is timed.
    pub(crate) fn observed(
        mut settings: Settings,
        name: Option<Box<str>>,
        timing: Timing,
        recorder: Recorder,
    ) -> Self
    where
        K: Send + Sync + 'static,
    {
        let tally = Tally::new(name.as_deref(), recorder, settings.manual);
        // The same for the core and for its watch.
        let clock = settings.clock.get_or_insert_default();
        let watch = Watch::new(timing, clock, tally);
        let core = Arc::new(Core::new(&settings, name, watch));
        if let Some(watch) = core.watch() {
            watch.tally().enrol(&core);
        }
        LazyCore {
            core: OnceLock::from(core),
            settings,
        }
    }

    /// The core, if it has been built. If not, the queue is as it was made: empty, open, with nobody in it.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<Core<K>>> {
        self.core.get()
    }

    /// The core, built if it has not been, for who wants a share of it.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Core<K>> {
        self.get().unwrap_or_else(|| self.build())
    }

    #[cold]
    #[inline(never)]
    fn build(&self) -> &Arc<Core<K>> {
        let build = || Arc::new(Core::new(&self.settings, None, None));
        self.core.get_or_init(build)
    }
}

impl<K> Deref for LazyCore<K> {
    type Target = Core<K>;

    /// The core, built if it has not been.
    #[inline]
    fn deref(&self) -> &Core<K> {
        match self.get() {
            Some(core) => core,
            None => self.build(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Added, Clock, Timing, TryGetError, WorkQueue};

    fn is_built<K>(queue: &WorkQueue<K>) -> bool {
        queue.core.get().is_some()
    }

    // C8 D6 S1
    #[test]
    fn what_an_unused_queue_answers_builds_nothing() {
        let queue = WorkQueue::<u64>::new();
        assert_eq!(queue.len(), 0);
        assert!(queue.is_empty());
        assert!(!queue.is_shutting_down());
        assert_eq!(queue.name(), None);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
        assert!(!queue.cancel(&1));
        assert_eq!(queue.fire_due(), 0);
        assert_eq!(queue.num_requeues(&1), 0);
        queue.forget(&1);
        assert!(queue.snapshot().is_empty());
        assert!(queue.stuck(Duration::ZERO).is_none(), "nobody can tell");
        queue.shrink();
        #[cfg(feature = "metrics")]
        queue.report();
        assert_eq!(
            format!("{queue:?}"),
            "WorkQueue { name: None, len: 0, waiting: 0, timed: false, shutting_down: false, .. }"
        );
        drop(queue.get_async());
        drop(queue.drain_async());
        assert!(!is_built(&queue));
    }

    #[test]
    fn any_other_call_builds() {
        let calls: [fn(&WorkQueue<u64>); 11] = [
            |queue| assert_eq!(queue.add(1), Added::Queued),
            |queue| assert_eq!(queue.add_ref(&1), Added::Queued),
            |queue| assert_eq!(queue.add_all([1, 1]), 1),
            |queue| assert_eq!(queue.add_after(1, Duration::from_secs(1)), Added::Delayed),
            |queue| assert_eq!(queue.add_rate_limited(1), Added::Queued),
            |queue| drop(queue.handle(1)),
            |queue| assert!(queue.get_timeout(Duration::ZERO).is_err()),
            |queue| assert_eq!(queue.shut_down().queued, 0),
            WorkQueue::shut_down_with_drain,
            |queue| assert_eq!(queue.drain_timeout(Duration::ZERO), Ok(())),
            |queue| pollster::block_on(queue.drain_async()),
        ];
        for call in calls {
            let builder = WorkQueue::builder().manual_timers();
            let queue = builder.clock(Clock::mock().0).build().unwrap();
            call(&queue);
            assert!(is_built(&queue));
        }
    }

    // M1 M3
    #[test]
    fn a_queue_that_is_looked_at_from_the_outside_is_built_at_once() {
        let builder = WorkQueue::<u64>::builder;
        for (builder, built) in [
            (builder(), false),
            (builder().timing(Timing::Off), false),
            (builder().timing(Timing::Exact), true),
            (builder().name("named"), true),
            (builder().name("named").timing(Timing::Off), true),
        ] {
            assert_eq!(is_built(&builder.build().unwrap()), built);
        }
    }
}
