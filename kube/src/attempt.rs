//! Which try of an object is being reconciled: [`current`].

use std::time::Duration;

use keyqueue::worker::Job;

/// The try of the object that is being reconciled: see [`current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Attempt {
    /// The number of the try, from 1: one more than the number of retries.
    pub number: u32,
    /// How long the object was queued before this delivery; `None` if the queue is not timed.
    pub queue_time: Option<Duration>,
}

tokio::task_local!(static CURRENT: Attempt);

/// Returns the attempt of the reconciler or error policy that is running; `None` elsewhere, in hooks and in tasks that it
/// starts, too.
#[must_use]
pub fn current() -> Option<Attempt> {
    CURRENT.try_get().ok()
}

impl Attempt {
    pub(crate) fn of<K, V>(job: &Job<'_, K, V>) -> Self {
        Attempt {
            number: job.attempt(),
            queue_time: job.queue_time(),
        }
    }

    /// Runs the future with this as the current attempt.
    pub(crate) fn around<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }
}
