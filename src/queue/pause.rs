//! Pausing all deliveries.

use crate::fifo::groups::grouping::Grouping;
use crate::{Builder, ConfigError, WorkQueue};

impl<K, V, S> Builder<K, V, S> {
    /// Makes a queue that can be [paused](WorkQueue::pause). A queue with [levels](Self::levels), [groups](Self::group_by)
    /// or a pace ([`dispatch_rate`](Self::dispatch_rate), [`min_interval`](Self::min_interval)) can be paused without.
    ///
    /// It puts the keys behind the lock that such queues have, so a queue without it pays nothing for this.
    pub fn pausable(mut self) -> Self {
        self.settings.pacing.pausable = true;
        self
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Delivers nothing from now on, until [`resume`](Self::resume) (G7): keys stay queued and merge, and getters wait.
    ///
    /// Keys that workers hold are not affected, delays end and queue their keys. A drain waits for the resume, as it
    /// does for the end of [holds](Self::hold_group); [`shut_down_now`](Self::shut_down_now) and
    /// [`clear`](Self::clear) wait for nothing. Pausing a paused queue is harmless.
    ///
    /// # Errors
    ///
    /// Returns an error that names the setting if the queue is not [`pausable`](Builder::pausable).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::builder().pausable().build()?;
    /// queue.add("a");
    /// queue.pause()?;
    /// assert!(queue.try_get().is_err_and(|error| error.is_empty()));
    /// assert_eq!((queue.len(), queue.paused()), (1, Some(true)));
    /// queue.resume();
    /// assert_eq!(*queue.try_get().unwrap(), "a");
    ///
    /// let plain = WorkQueue::<u64>::new();
    /// assert_eq!(plain.paused(), None);
    /// assert_eq!(plain.pause().unwrap_err().field(), "pausable");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("stop", "suspend"))]
    pub fn pause(&self) -> Result<(), ConfigError> {
        let Some(groups) = self.core.groups() else {
            let rule = "must be set for a queue that is paused, or levels, groups or a pace";
            return Err(ConfigError::new("queue", "pausable", rule, false));
        };
        // Nothing becomes ready.
        let _ = groups.pause(true);
        Ok(())
    }

    /// Ends a [pause](Self::pause). Returns whether the queue was paused.
    pub fn resume(&self) -> bool {
        let Some(groups) = self.core.groups() else {
            return false;
        };
        let (was_paused, ready) = groups.pause(false);
        self.core.notify_ready(ready);
        was_paused
    }

    /// Returns whether the queue is [paused](Self::pause), or `None` if it cannot be.
    #[must_use]
    pub fn paused(&self) -> Option<bool> {
        self.core.groups().map(Grouping::is_paused)
    }
}
