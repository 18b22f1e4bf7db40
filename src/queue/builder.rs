//! The settings of a queue.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::engine::{Core, Settings};
use crate::fifo::groups::settings::{GroupBy, Pacing};
use crate::fifo::order::Order;
use crate::limiter::RateLimiter;
use crate::metrics::Recorder;
use crate::sync::{DEFAULT_RING, default_shards};
use crate::values::Merging;
use crate::{Clock, ConfigError, DefaultHasher, DelayPolicy, WorkQueue};

const LARGEST_RING: usize = 1 << 24;
const SHORTEST_TICK: Duration = Duration::from_micros(100);
const LONGEST_TICK: Duration = Duration::from_secs(60);
const MOST_SHARDS: usize = 1 << 16;

/// Settings for a [`WorkQueue`], created by [`WorkQueue::builder`].
///
/// ```
/// use keyqueue::WorkQueue;
///
/// let queue = WorkQueue::<String>::builder().name("pods").build()?;
/// assert_eq!(queue.name(), Some("pods"));
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<K, V = (), S = DefaultHasher> {
    /// `None` backs off as [`Unset`](crate::limiter::unset::Unset) does.
    pub(crate) limiter: Option<Box<dyn RateLimiter<K>>>,
    pub(crate) hasher: S,
    pub(crate) settings: Settings,
    /// How values are merged, if the keys carry some.
    pub(crate) values: Option<Merging<V>>,
    /// How keys are grouped, if they are.
    pub(crate) grouping: Option<Box<dyn GroupBy<K>>>,
}

impl<K> Builder<K> {
    pub(crate) fn new() -> Self {
        Builder {
            limiter: None,
            hasher: DefaultHasher::default(),
            settings: Settings::default(),
            values: None,
            grouping: None,
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Names the queue. A queue with a name is timed ([`timing`](Self::timing)), and, with feature
    /// `metrics`, reports under that name, which must not be empty.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Hashes keys with `hasher`. Default: [`DefaultHasher`].
    ///
    /// Weak hashers (such as identity hashers for integers) are fine: a multiplication spreads the
    /// hashes over the shards and their tables. Keys with equal hashes are compared one by one.
    pub fn hasher<S2>(self, hasher: S2) -> Builder<K, V, S2> {
        Builder {
            limiter: self.limiter,
            hasher,
            settings: self.settings,
            values: self.values,
            grouping: self.grouping,
        }
    }

    /// Delays retries by `limiter`. Default: [`ItemExponentialFailure`](crate::limiter::ItemExponentialFailure) from 5 ms to
    /// 1000 s (L15); [`NoLimit`](crate::limiter::NoLimit) retries immediately. A limiter that depends on time should use
    /// the queue's clock (`with_clock`). To call methods of your limiter later, pass an `Arc` of it.
    ///
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::limiter::{Bucket, RateLimiter};
    /// use std::sync::Arc;
    ///
    /// let bucket = Arc::new(Bucket::new(10.0, 1)?);
    /// let queue = WorkQueue::builder().rate_limiter(Arc::clone(&bucket)).build()?;
    /// queue.add_rate_limited("a"); // takes the token
    /// assert!(!bucket.when("b").is_zero());
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Reads the time from `clock` (D9). Default: the queue's own [`Clock`].
    ///
    /// With a mocked clock and [`manual_timers`](Self::manual_timers), delays can be tested without
    /// sleeping. Without the latter, the queue's thread sleeps until the mocked clock is advanced.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = Some(clock);
        self
    }

    /// Ends delays only in calls of [`fire_due`](WorkQueue::fire_due), as well as the time that a getter
    /// [lingers](crate::UpTo::linger) and the limit of an async verb ([`within`](crate::Entry::within)). The queue then never
    /// starts a thread: for tests, and for programs with their own event loop.
    pub fn manual_timers(mut self) -> Self {
        self.settings.manual = true;
        self
    }

    /// Counts delays in ticks of this length, between 100 microseconds and a minute. A delay ends
    /// at most one tick late, plus scheduling, and the timer's thread wakes at most once a tick.
    /// Default: 1 ms.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.settings.tick = tick;
        self
    }

    /// Sets which of two delays of one key is kept (D3). Default: [`DelayPolicy::Earliest`].
    pub fn delay_policy(mut self, policy: DelayPolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets whether a key that is queued or dirty has no delay (D5).
    ///
    /// By default it may have one: the key is delivered now, and again when its delay is over, as with client-go. With
    /// `true`, as in controller-runtime's queue, an add of the key cancels its pending delay. A delay for a key that is queued
    /// or dirty is not set, because its delivery comes sooner: `add_after` and a retry then merge, and return
    /// [`Added::Merged`](crate::Added::Merged). The more urgent level of the two counts.
    pub fn supersede_delays(mut self, supersede: bool) -> Self {
        self.settings.supersede = supersede;
        self
    }

    /// Sets whether adds of a key wait for its retry (V7).
    ///
    /// By default an add, or a put, of a key whose retry is pending queues the key now. So a key that keeps failing is tried at
    /// every message that comes for it. With `true` the key is delivered when the back-off is over, not before, and with
    /// everything that was put until then:
    ///
    /// | | with `true` |
    /// | --- | --- |
    /// | an add or a put, in any form, of a key whose retry is pending | waits for it, and returns [`Added::Delayed`](crate::Added::Delayed). The more urgent level of the two counts |
    /// | the same after a delay | the [`delay_policy`](Self::delay_policy) decides, but the key is not added before the retry is due |
    /// | an add of a key that is processing, and then fails | waits for the retry |
    /// | an add of a key whose pending delay is no retry | does what it does without this setting |
    /// | [`run_now`](WorkQueue::run_now), and a drain that [delivers delays](Self::drain_delays) | end the retry, and deliver everything |
    /// | [`cancel`](WorkQueue::cancel), [`remove`](WorkQueue::remove) | end the retry, and take back everything |
    ///
    /// A retry is what [`Item::retry`](crate::Item::retry), [`Item::retry_after`](crate::Item::retry_after) and a failure in a
    /// worker set, with a delay above zero. This setting takes precedence over
    /// [`supersede_delays`](Self::supersede_delays), which still holds for other delays.
    ///
    /// ```
    /// # use keyqueue::{Added, Clock, WorkQueue, merge};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers().merge(merge::append);
    /// let queue = builder.adds_wait_for_retries(true).build()?;
    /// queue.put("a", vec![1]);
    /// let item = queue.get().unwrap();
    /// assert_eq!(item.retry_after(Duration::from_secs(5)), Added::Delayed);
    /// assert_eq!(queue.put("a", vec![2]), Added::Delayed);
    /// assert!(queue.is_empty());
    ///
    /// time.advance(Duration::from_secs(5));
    /// queue.fire_due();
    /// assert_eq!(*queue.get().unwrap().value(), [1, 2]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn adds_wait_for_retries(mut self, wait: bool) -> Self {
        self.settings.wait_for_retries = wait;
        self
    }

    /// Sets whether a drain delivers pending delays first, now instead of at their time (S5).
    /// Default: `false`; they are dropped. [`shut_down`](WorkQueue::shut_down) always drops them.
    pub fn drain_delays(mut self, deliver: bool) -> Self {
        self.settings.drain_delays = deliver;
        self
    }

    /// Sets whether the queue records the times of keys: for the ages in a
    /// [`snapshot`](WorkQueue::snapshot), and, with feature `metrics`, for everything that a named
    /// queue reports. With `false` the queue reads no clock for them, and reports nothing.
    ///
    /// Default: `true` for a queue that has a name, otherwise `false`.
    pub fn timing(mut self, timing: bool) -> Self {
        self.settings.timing = Some(timing);
        self
    }

    /// Reports to `recorder` instead of the one that is installed for the process. Has no effect on
    /// a queue without a name. Without it, what is counted before one is installed is never reported.
    ///
    /// The drop of a queue waits for the end of a report about it. So a recorder deadlocks if it drops the queue that
    /// reports to it, or calls [`report_all`](crate::metrics::report_all) (S15).
    #[cfg(feature = "metrics")]
    pub fn recorder(
        mut self,
        recorder: std::sync::Arc<dyn ::metrics::Recorder + Send + Sync>,
    ) -> Self {
        self.settings.recorder = Recorder(Some(recorder));
        self
    }

    /// Splits the table of keys into this many shards, each with its own lock: a power of two
    /// between 2 and 65 536.
    ///
    /// Default: four times the number of processors, rounded up to a power of two. A shard holds at
    /// most 32 GiB of keys with their states, not counting what the keys point to; a key beyond
    /// that is a failed allocation ([`handle_alloc_error`](std::alloc::handle_alloc_error)).
    pub fn shards(mut self, shards: usize) -> Self {
        self.settings.shards = shards;
        self
    }

    /// Gives the FIFO's ring room for this many keys, between 1 and 16 777 216, at 8 bytes each,
    /// rounded up to a power of two.
    ///
    /// Further queued keys go to an overflow, which has no bound, keeps the order, takes no memory
    /// and costs more time. Default: 1024.
    pub fn ring(mut self, ring: usize) -> Self {
        self.settings.ring = ring;
        self
    }

    /// Bounds how many keys may wait for delivery, queued or delayed. Above 0. Default: no bound. If keys carry values,
    /// bounds how many values wait, or with [`weight`](Self::weight) what these weigh.
    ///
    /// These adds of an [`entry`](WorkQueue::entry) respect the bound: those that [`wait`](crate::Entry::wait), and the verbs
    /// [`try_add`](crate::Entry::try_add), [`add_async`](crate::Entry::add_async) and their like (B1, B2). Every other add or
    /// put, a retry, a key that was dirty and a delay that ends are never refused and do not wait: they count, and may exceed
    /// the bound (B3). Of keys that have failed only some count, so that at most twice the capacity waits (B5). Keys that workers
    /// hold are not counted.
    ///
    /// A key that is queued and has a pending delay counts twice, unless it carries a value. A value that
    /// is heavier than the capacity is let in once nothing else waits.
    #[doc(alias("bound", "backpressure"))]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.settings.capacity = Some(capacity);
        self
    }

    /// Builds the queue: allocates its ring and its shards, and starts no thread.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the first setting that is out of its range, or that needs another one which is
    /// missing, as [`group_limit`](Self::group_limit) needs [`group_by`](Self::group_by). An empty name is an error.
    pub fn build(self) -> Result<WorkQueue<K, V, S>, ConfigError>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + 'static,
        S: BuildHasher,
    {
        let Settings {
            shards, ring, tick, ..
        } = self.settings;
        if self.settings.name.as_deref() == Some("") {
            return Err(ConfigError::new("queue", "name", "must not be empty", ""));
        }
        if !shards.is_power_of_two() || !(2..=MOST_SHARDS).contains(&shards) {
            let requirement = format!("must be a power of two between 2 and {MOST_SHARDS}");
            return Err(ConfigError::new("queue", "shards", requirement, shards));
        }
        ConfigError::check_range("queue", "ring", 1..=LARGEST_RING, ring)?;
        ConfigError::check_range("queue", "tick", SHORTEST_TICK..=LONGEST_TICK, tick)?;
        self.settings.order.check()?;
        self.settings.pacing.check(self.grouping.is_some())?;
        if let Some(capacity) = self.settings.capacity {
            ConfigError::check_range("queue", "capacity", 1..=usize::MAX, capacity)?;
        }
        let core = Core::new(self.settings, self.limiter, self.values, self.grouping);
        Ok(WorkQueue::over(core, self.hasher))
    }
}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.settings.name)
            .field("shards", &self.settings.shards)
            .field("ring", &self.settings.ring)
            .field("tick", &self.settings.tick)
            .field("delay_policy", &self.settings.policy)
            .field("timing", &self.settings.timing)
            .finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: None,
            shards: default_shards(),
            ring: DEFAULT_RING,
            clock: None,
            tick: Duration::from_millis(1),
            policy: DelayPolicy::default(),
            supersede: false,
            wait_for_retries: false,
            drain_delays: false,
            manual: false,
            timing: None,
            capacity: None,
            order: Order::default(),
            pacing: Pacing::default(),
            recorder: Recorder::default(),
        }
    }
}
