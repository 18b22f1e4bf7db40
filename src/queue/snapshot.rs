//! Snapshots: every key that is queued, processing or delayed, and its state. And their numbers.
//!
//! A snapshot takes the shards' locks one after the other. Under the lock it reads each key's state
//! with the times that belong to it ([`crate::keys::times`]) and pins the node; user code runs
//! after the locks are released. `get` and `done` take no lock and continue meanwhile.

use std::fmt;
use std::time::Duration;

use crate::WorkQueue;
use crate::engine::Core;
use crate::engine::timing::Watch;
use crate::keys::Shard;
use crate::keys::node::Pin;
use crate::keys::state::{Level, State};
use crate::keys::times::{Seen, Ticks};
use crate::limiter::RateLimiter;
use crate::queue::page::Listed;

/// One key in a [`snapshot`](WorkQueue::snapshot), as it was at some moment during the call.
///
/// The key stays interned while this lives, and may be in another state by now.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeySnapshot<'q, K, V = ()> {
    key: Known<'q, K, V>,
    state: State,
    level: Option<usize>,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    age: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    held: Option<Duration>,
    requeues: u32,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    due_in: Option<Duration>,
}

/// A key that stays interned. Its drop must not outlive the queue:
///
/// ```compile_fail,E0597
/// # use keyqueue::WorkQueue;
/// let snapshot;
/// {
///     let queue = WorkQueue::from_iter(["a"]);
///     snapshot = queue.snapshot();
/// }
/// // Here it would be dropped.
/// ```
struct Known<'q, K, V>(Pin<K>, &'q Core<K, V>);

// Not by a field that unpins: only a drop of this type keeps the queue borrowed until then.
impl<K, V> Drop for Known<'_, K, V> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Known<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.key().fmt(f)
    }
}

impl<K, V> KeySnapshot<'_, K, V> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.key.0.key()
    }

    /// Returns its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns how long it had been in that state; `None` for an idle key, and in a queue that is
    /// not timed ([`Builder::timing`](crate::Builder::timing)).
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.age
    }

    /// Returns how long it had been processing, if it was and the queue is timed.
    #[must_use]
    pub fn held(&self) -> Option<Duration> {
        self.held
    }

    /// Returns the level of a key that is queued or dirty; `None` if it is neither, or if the queue has no
    /// [levels](crate::Builder::levels).
    #[must_use]
    pub fn level(&self) -> Option<usize> {
        self.level
    }

    /// Returns the number of its failures since it was last forgotten, as
    /// [`num_requeues`](WorkQueue::num_requeues) does.
    #[must_use]
    pub fn requeues(&self) -> u32 {
        self.requeues
    }

    /// Returns the time until its pending delay ends: zero if it is due, `None` if none is pending.
    ///
    /// The call that sets the delay may not have returned yet, and [`fire_due`](WorkQueue::fire_due) may not find the delay
    /// until then. A worker has set that of a retry when the key is [idle](State::Idle) again.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        self.due_in
    }

    /// Calls `look` with the value that waits for the next delivery of the key, now, and returns what it returns; `None`
    /// is a key without one, such as a key whose delivery has it (X2).
    ///
    /// `look` runs under the lock of the key's value, as a merge function does: puts and a delivery of this key wait for
    /// it, so it should be short, and it must not call the queue, nor, with debug assertions, another one (S15).
    ///
    /// ```
    /// # use keyqueue::{Listed, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2]);
    /// let page = queue.page(Default::default(), Listed::Queued, 10);
    /// let text = page.keys[0].with_value(|value| format!("{value:?}"));
    /// assert_eq!(text, "Some([1, 2])");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn with_value<R>(&self, look: impl FnOnce(Option<&V>) -> R) -> R {
        let Known(pin, core) = &self.key;
        match core.values() {
            None => look(None),
            Some(values) => {
                let waiting = pin.carried(&values.carries).waiting.lock();
                look(waiting.load.value.as_ref())
            }
        }
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns every key that is queued, processing or delayed, with its state.
    ///
    /// The queue keeps running: each key is as it was at some moment during the call, and its state
    /// and age belong together. Ages are known if the queue is timed, as every named queue is
    /// ([`Builder::timing`](crate::Builder::timing)).
    ///
    /// Takes time and memory proportional to the number of keys that the queue knows. Adds to a
    /// shard wait while it is visited.
    ///
    /// ```
    /// # use keyqueue::{Clock, State, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().name("pods").clock(clock).manual_timers().build()?;
    /// queue.add("a");
    /// queue.add_after("b", Duration::from_secs(9));
    /// time.advance(Duration::from_secs(5));
    ///
    /// let mut keys = queue.snapshot();
    /// keys.sort_by_key(|key| *key.key());
    /// assert_eq!((*keys[0].key(), keys[0].state()), ("a", State::Queued));
    /// assert_eq!(keys[0].age(), Some(Duration::from_secs(5)));
    /// assert_eq!((*keys[1].key(), keys[1].state()), ("b", State::Idle));
    /// assert_eq!(keys[1].due_in(), Some(Duration::from_secs(4)));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Vec<KeySnapshot<'_, K, V>> {
        let mut keys = Vec::new();
        for shard in self.core.keys.shards() {
            let wanted = |sight: &Sight| Listed::All.has(sight);
            self.core.sight(&shard, 0, usize::MAX, wanted, &mut keys);
        }
        self.count_requeues(&mut keys);
        keys
    }

    /// Asks the limiter about each key, which is user code: no lock is held.
    pub(super) fn count_requeues(&self, keys: &mut [KeySnapshot<'_, K, V>]) {
        for key in keys {
            key.requeues = self.core.limiter.num_requeues(key.key());
        }
    }
}

/// What a look at a key has found.
pub(super) struct Sight {
    pub(super) seen: Seen,
    /// The tick in which the pending delay ends.
    pub(super) due: Option<u64>,
    pub(super) retrying: bool,
    now: Ticks,
}

impl<K, V> Core<K, V> {
    /// Looks at `most` places of a shard, from the place `from` on, and adds a snapshot of each key for which `wanted`
    /// returns true to `keys`. Returns the next place, unless the shard has no more.
    pub(super) fn sight<'q>(
        &'q self,
        shard: &Shard<'_, K, V>,
        from: usize,
        most: usize,
        mut wanted: impl FnMut(&Sight) -> bool,
        keys: &mut Vec<KeySnapshot<'q, K, V>>,
    ) -> Option<usize> {
        let now = self.watch().map_or(0, Watch::now);
        shard.visit(from, most, |node| {
            let at = node.get();
            let seen = match self.watch() {
                Some(watch) => node.times(&watch.timed).read(&at.state),
                None => {
                    let (phase, level) = at.state.phase_and_level();
                    Seen {
                        phase,
                        level,
                        dirty: None,
                        held: None,
                    }
                }
            };
            let sight = Sight {
                seen,
                due: at.delay.due(),
                retrying: at.is_retrying(),
                now,
            };
            if wanted(&sight) {
                let snapshot = self.snapshot_of(node.pin(), sight);
                snapshot.key.0.grant();
                keys.push(snapshot);
            }
        })
    }

    fn snapshot_of(&self, pin: Pin<K>, sight: Sight) -> KeySnapshot<'_, K, V> {
        let Sight { seen, now, .. } = sight;
        let since = match seen.phase {
            State::Queued | State::Dirty => seen.dirty.or(Some(now)),
            State::Idle | State::Processing => seen.held,
        };
        let age = |since: Option<Ticks>| Some(self.watch()?.duration(since?, now));
        let level = seen.level.filter(|_| self.has_levels());
        KeySnapshot {
            key: Known(pin, self),
            state: seen.phase,
            level: level.map(usize::from),
            age: age(since),
            held: age(seen.held),
            requeues: 0,
            due_in: sight.due.map(|tick| self.timer.until(tick)),
        }
    }
}

/// The numbers of keys in a queue; see [`WorkQueue::counts`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counts {
    /// Keys that are queued.
    pub queued: usize,
    /// The same, by level (P4); empty if the queue has no [levels](crate::Builder::levels).
    pub by_level: Vec<usize>,
    /// Keys with a pending delay, whatever their state is: a key may count here and once more.
    pub delayed: usize,
    /// Keys that are processing, dirty ones included.
    pub processing: usize,
    /// Keys that wait because they have failed: their retry is pending or queued. They count above, too.
    pub retrying: usize,
}

impl Counts {
    /// Counts a key that has this state, and this level if it is queued.
    pub(super) fn count(
        &mut self,
        phase: State,
        level: Option<Level>,
        is_delayed: bool,
        is_retrying: bool,
    ) {
        self.delayed += usize::from(is_delayed);
        self.retrying += usize::from(is_retrying);
        match phase {
            State::Idle => {}
            State::Queued => {
                self.queued += 1;
                let level = level.and_then(|level| self.by_level.get_mut(usize::from(level)));
                if let Some(queued) = level {
                    *queued += 1;
                }
            }
            State::Processing | State::Dirty => self.processing += 1,
        }
    }
}

impl<K, V> Core<K, V> {
    /// Returns the counts of no keys.
    pub(crate) fn no_counts(&self) -> Counts {
        let levels = match self.last_level() {
            0 => 0,
            last => usize::from(last) + 1,
        };
        Counts {
            by_level: vec![0; levels],
            ..Counts::default()
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.no_counts();
        for shard in self.keys.shards() {
            shard.for_each(|node| {
                let (phase, level) = node.state.phase_and_level();
                let is_delayed = node.delay.due().is_some();
                counts.count(phase, level, is_delayed, node.is_retrying());
            });
        }
        counts
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns how many keys are queued, delayed and processing, and how many of them wait for a retry.
    ///
    /// A key is *retrying* from [`Item::retry`](crate::Item::retry), [`retry_after`](crate::Item::retry_after) or a failure in a
    /// worker until it is delivered; if an add queues it before its retry is due, until then. A bounded queue in which
    /// many keys are is full of retries (B5).
    ///
    /// Each key is counted as it is at some moment during the call. Takes time proportional to the
    /// number of keys that the queue knows, and allocates nothing in a queue without levels. Adds to a shard wait while it
    /// is visited. For the queued keys alone, [`len`](Self::len) is cheaper.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::from_iter(["a", "b", "c"]);
    /// queue.add_after("d", Duration::from_secs(3600));
    /// let item = queue.get();
    /// let counts = queue.counts();
    /// assert_eq!((counts.queued, counts.delayed, counts.processing), (2, 1, 1));
    ///
    /// let queue = WorkQueue::builder().levels(3).build()?;
    /// queue.add_all(["a", "b"]);
    /// queue.entry("c").level(0).add();
    /// assert_eq!(queue.counts().by_level, [1, 2, 0]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }
}

#[cfg(feature = "serde")]
impl<K: serde::Serialize, V> serde::Serialize for Known<'_, K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.key().serialize(serializer)
    }
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&time.map(|time| time.as_secs_f64()), to)
}
