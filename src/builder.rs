//! The settings of a queue.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use crate::core::Core;
use crate::error::ConfigError;
use crate::limiter::NoLimit;
use crate::queue::{DefaultHasher, WorkQueue};
use crate::sync::Arc;

const DEFAULT_RING: usize = 1024;
const LARGEST_RING: usize = 1 << 24;
const MOST_SHARDS: usize = 1 << 16;

/// Settings for a [`WorkQueue`], made by [`WorkQueue::builder`].
///
/// ```
/// use keyqueue::WorkQueue;
///
/// let queue = WorkQueue::<String>::builder().name("pods").build()?;
/// assert_eq!(queue.name(), Some("pods"));
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct Builder<K, L = NoLimit, S = DefaultHasher> {
    name: Option<Box<str>>,
    limiter: L,
    hasher: S,
    shards: usize,
    ring: usize,
    _keys: PhantomData<fn(K)>,
}

impl<K> Builder<K> {
    pub(crate) fn new() -> Self {
        Builder {
            name: None,
            limiter: NoLimit,
            hasher: DefaultHasher::default(),
            shards: default_shards(),
            ring: DEFAULT_RING,
            _keys: PhantomData,
        }
    }
}

impl<K, L, S> Builder<K, L, S> {
    /// Names the queue.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Hashes keys with `hasher`. Take a keyed one if others choose the keys.
    ///
    /// Default: [`DefaultHasher`].
    pub fn hasher<S2>(self, hasher: S2) -> Builder<K, L, S2> {
        Builder {
            name: self.name,
            limiter: self.limiter,
            hasher,
            shards: self.shards,
            ring: self.ring,
            _keys: PhantomData,
        }
    }

    /// Splits the table of keys into this many shards, each with a lock of its own: a power of
    /// two between 2 and 65 536.
    ///
    /// Default: four times the number of processors, rounded up to a power of two.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Gives the FIFO's ring room for this many keys, between 1 and 16 777 216, at 16 bytes each.
    ///
    /// More queued keys than that go to an overflow, which has no bound, keeps the order and
    /// costs about twice as much. Default: 1024.
    pub fn ring(mut self, ring: usize) -> Self {
        self.ring = ring;
        self
    }

    /// Makes the queue. Starts no thread.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the first setting that is out of its range.
    pub fn build(self) -> Result<WorkQueue<K, L, S>, ConfigError>
    where
        K: Hash + Eq + Send + Sync + 'static,
        S: BuildHasher,
    {
        let refuse = |field, requirement: String, value: usize| {
            Err(ConfigError::new("queue", field, requirement, value))
        };
        if !self.shards.is_power_of_two() || !(2..=MOST_SHARDS).contains(&self.shards) {
            let requirement = format!("must be a power of two between 2 and {MOST_SHARDS}");
            return refuse("shards", requirement, self.shards);
        }
        if !(1..=LARGEST_RING).contains(&self.ring) {
            let requirement = format!("must be between 1 and {LARGEST_RING}");
            return refuse("ring", requirement, self.ring);
        }
        Ok(self.build_valid())
    }

    /// Makes the queue from settings known to be in range.
    pub(crate) fn build_valid(self) -> WorkQueue<K, L, S> {
        WorkQueue {
            core: Arc::new(Core::new(self.shards, self.ring)),
            hasher: self.hasher,
            limiter: self.limiter,
            name: self.name,
        }
    }
}

impl<K, L: fmt::Debug, S> fmt::Debug for Builder<K, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("limiter", &self.limiter)
            .field("shards", &self.shards)
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}

/// Four shards for each processor, so that threads seldom meet in one.
fn default_shards() -> usize {
    use std::sync::OnceLock;
    // Asking for the number of processors reads files, so ask once.
    static SHARDS: OnceLock<usize> = OnceLock::new();
    *SHARDS.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (4 * processors).next_power_of_two().clamp(2, MOST_SHARDS)
    })
}
