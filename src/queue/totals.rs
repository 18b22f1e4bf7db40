//! What a named queue has counted so far.

use crate::WorkQueue;
use crate::metrics::Totals;

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns what the queue has counted since it was built; `None` if it has no name. Visits no key.
    ///
    /// Each number is as it was at some moment during the call.
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().name("pods").clock(clock).manual_timers().build()?;
    /// queue.add_all(["a", "b", "a"]);
    /// time.advance(Duration::from_secs(2));
    /// queue.get().unwrap().done();
    /// let totals = queue.totals().unwrap();
    /// assert_eq!((totals.delivered, totals.ended, totals.merged), (1, 1, 1));
    /// assert_eq!(totals.queue_time, Duration::from_secs(2));
    /// assert_eq!(WorkQueue::<u64>::new().totals(), None);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        self.core.watch()?.tally.totals(&*self.core)
    }
}
