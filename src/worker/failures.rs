//! The last failure of each key whose retry is pending, for a look at a running queue. [`super::by_key`] has the protocol. An
//! error is kept as text.

use std::fmt::{self, Write};
use std::hash::Hash;
use std::time::{Duration, SystemTime};

use super::by_key::ByKey;
use super::{Failed, Workers};
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Arc, assert_unlocked};
use crate::{ConfigError, KeyHandle, KeySnapshot};

/// The most bytes of an error's text that are kept.
const TEXT: usize = 4096;

/// A bounded record of the last failure of each key whose retry is pending, for a look at a running queue (X2); see
/// [`Workers::failures`]. A clone is another handle to the same record.
///
/// ```
/// use keyqueue::limiter::ItemExponentialFailure;
/// use keyqueue::worker::{Failures, Job, Workers};
/// use keyqueue::{Listed, WorkQueue};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let backoff = ItemExponentialFailure::new(Duration::from_secs(30), Duration::from_secs(60))?;
/// let queue = WorkQueue::builder().rate_limiter(backoff).build()?;
/// let failures = Failures::new(1000)?;
/// let workers = Workers::new(&queue).concurrency(1).failures(&failures);
/// let workers = workers.spawn(|_: Job<&str>| Err::<(), _>("no route"))?;
/// queue.add("pod");
/// while queue.counts().delayed == 0 || failures.is_empty() {
///     std::thread::yield_now(); // it fails, and waits for its retry
/// }
///
/// let page = queue.page(Default::default(), Listed::Delayed, 100);
/// let failure = failures.of(&page.keys[0]).unwrap();
/// assert_eq!((&*failure.error, failure.attempt), ("no route", 1));
/// assert_eq!(failure.next, Duration::from_secs(30));
/// # drop(page);
/// # queue.shut_down();
/// # workers.join();
/// # Ok(())
/// # }
/// ```
pub struct Failures<K, V = ()>(pub(super) Arc<ByKey<K, V, LastFailure>>);

/// How a key failed whose retry is pending; see [`Failures`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastFailure {
    /// The error as text, written with `{:#}`; its first 4096 bytes.
    pub error: String,
    /// The number of the try that failed, from 1.
    pub attempt: u32,
    /// When it failed, by the system's clock.
    pub at: SystemTime,
    /// The delay of the retry, from then.
    pub next: Duration,
}

impl<K, V> Failures<K, V> {
    /// Creates a record of at most `capacity` failures, above 0. When it is full, a further one is not kept, and
    /// counted as [`missed`](Self::missed).
    ///
    /// # Errors
    ///
    /// Returns an error if `capacity` is 0.
    pub fn new(capacity: usize) -> Result<Self, ConfigError> {
        ConfigError::check_range("failures", "capacity", 1..=usize::MAX, capacity)?;
        Ok(Failures(Arc::new(ByKey::new(capacity))))
    }

    /// Returns the last failure of a key, from the failure until the end of its next try; `None` if it has none. The
    /// failure of a retry that a shut-down drops is kept until the retry is reported or taken, and may be for longer.
    #[must_use]
    pub fn of(&self, key: &KeySnapshot<'_, K, V>) -> Option<LastFailure> {
        self.0.get(key.key())
    }

    /// Returns the number of failures that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no failure is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many failures were not kept, because the record was full.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// Keeps the failure of a key that the caller holds and that will be retried.
    pub(super) fn keep<E: fmt::Display>(&self, key: KeyHandle<K, V>, failed: &Failed<'_, E>) {
        let Some(next) = failed.next else { return };
        assert_unlocked();
        let failure = LastFailure {
            error: catch_panic(|| beginning(failed.failure))
                .unwrap_or_else(|message| format!("its text panicked: {message}")),
            attempt: failed.attempt,
            at: SystemTime::now(),
            next,
        };
        self.0.put(key, failure);
    }
}

/// Writes a text until it is too long.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(TEXT - self.0.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(&text[..end]);
        match end < text.len() {
            true => Err(fmt::Error),
            false => Ok(()),
        }
    }
}

fn beginning(text: &impl fmt::Display) -> String {
    let mut beginning = Beginning(String::new());
    // An error says that there was more, or comes from the text itself.
    let _ = write!(beginning, "{text:#}");
    beginning.0
}

impl<K, V, E> Workers<'_, K, V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    E: fmt::Display,
{
    /// Records the last failure of each key whose retry is pending in `failures`, for a look at the running queue: from
    /// the failure until the end of the next try (X2).
    ///
    /// Costs a lock and the text of the error for each failure, and a lock for each key that ends. Several `Workers` may
    /// share a record. Default: none, which costs nothing.
    pub fn failures(mut self, failures: &Failures<K, V>) -> Self {
        self.inner.failures = Some(failures.clone());
        self
    }
}

impl<K, V> Clone for Failures<K, V> {
    fn clone(&self) -> Self {
        Failures(Arc::clone(&self.0))
    }
}

impl<K, V> fmt::Debug for Failures<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures")
            .field("len", &self.len())
            .field("capacity", &self.0.capacity)
            .field("missed", &self.missed())
            .finish()
    }
}
