//! The settings of a queue: each is drawn at random, for itself.

use std::time::Duration;

use fastrand::Rng;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::{Clock, DelayPolicy, WorkQueue};
use keyqueue_model::ledger::Key;

use crate::carried::Carried;

pub(crate) type Limiter = ItemExponentialFailure<Key>;
pub(crate) type Queue<V> = WorkQueue<Key, V>;

/// Keys for each second, and how many at once.
pub(crate) type Rate = (f64, u32);

/// What is queued when the adds end may take this long to be delivered, by a rate alone.
const LONGEST: f64 = 0.5;

/// The groups of a holder's keys are from here on; see [`Groups::of`].
const APART: u64 = 1 << 32;
/// The keys of such a group.
pub(crate) const GROUP: u64 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// How many there are, besides those of holders.
    pub(crate) count: u64,
    /// Keys from this one on are a holder's.
    pub(crate) apart: u64,
    pub(crate) limit: Option<usize>,
    pub(crate) weights: bool,
    pub(crate) rate: Option<Rate>,
}

impl Groups {
    /// The group of a key. A holder has groups of its own.
    pub(crate) fn of(&self, number: u64) -> u64 {
        match number.checked_sub(self.apart) {
            None => number % self.count,
            Some(nth) => APART + nth / GROUP,
        }
    }

    /// The place of the group of a key among all.
    pub(crate) fn place(&self, number: u64) -> usize {
        let group = self.of(number);
        let place = match group.checked_sub(APART) {
            None => group,
            Some(nth) => self.count + nth,
        };
        place as usize
    }
}

/// How values are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Merging {
    /// The newer pieces follow the older ones.
    Append,
    /// The newer piece remains.
    Latest,
    /// As the first, but it panics now and then.
    Panicking,
}

#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) merging: Merging,
    /// What each piece weighs, if the bound is by weight.
    pub(crate) weight: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Timing {
    Off,
    On,
    /// With the counters of the metrics, too.
    Named,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) shards: Option<usize>,
    pub(crate) ring: Option<usize>,
    pub(crate) tick: Duration,
    pub(crate) policy: DelayPolicy,
    pub(crate) supersede: bool,
    /// Whether adds wait for retries.
    pub(crate) wait_for_retries: bool,
    /// Whether no limiter is set: retries wait longer then, and longer with each.
    pub(crate) backs_off: bool,
    /// Whether a drain delivers what is delayed.
    pub(crate) drain_delays: bool,
    /// Whether delays end only in `fire_due`.
    pub(crate) manual: bool,
    pub(crate) timing: Timing,
    pub(crate) levels: usize,
    /// The level of adds that name none.
    pub(crate) level: usize,
    pub(crate) starvation_limit: usize,
    pub(crate) groups: Option<Groups>,
    pub(crate) rate: Option<Rate>,
    pub(crate) interval: Option<Duration>,
    pub(crate) capacity: Option<usize>,
    pub(crate) values: Option<Values>,
}

/// The defaults of the queue.
impl Default for Settings {
    fn default() -> Self {
        Settings {
            shards: None,
            ring: None,
            tick: Duration::from_millis(1),
            policy: DelayPolicy::Earliest,
            supersede: false,
            wait_for_retries: false,
            backs_off: false,
            drain_delays: false,
            manual: false,
            timing: Timing::Off,
            levels: 1,
            level: 0,
            starvation_limit: 16,
            groups: None,
            rate: None,
            interval: None,
            capacity: None,
            values: None,
        }
    }
}

impl Settings {
    /// Settings for this many keys. One queue of four has none of those that change its order, its bound or
    /// what it carries; another has each of them with the same probability.
    pub(crate) fn random(rng: &mut Rng, keys: u64) -> Self {
        use DelayPolicy::{Earliest, KeepFirst, Replace};
        use Merging::{Append, Panicking};
        let tick = [1000, 100, 5000].map(Duration::from_micros)[rng.usize(..3)];
        let plain = rng.u8(..4) == 0;
        let with = |rng: &mut Rng| !plain && rng.u8(..3) == 0;
        let levels = if with(rng) { rng.usize(2..=8) } else { 1 };
        let rate = |rng: &mut Rng, keys: u64| with(rng).then(|| random_rate(rng, keys, tick));
        Settings {
            shards: rng.bool().then(|| 2 << rng.u32(..7)),
            ring: [None, Some(rng.usize(1..9)), Some(rng.usize(1..9)), Some(64)][rng.usize(..4)],
            tick,
            policy: [Earliest, DelayPolicy::Latest, Replace, KeepFirst][rng.usize(..4)],
            supersede: rng.bool(),
            // The plan draws these two.
            wait_for_retries: false,
            backs_off: false,
            drain_delays: rng.bool(),
            manual: rng.bool(),
            timing: [Timing::Off, Timing::On, Timing::Named][rng.usize(..3)],
            levels,
            level: rng.usize(..levels),
            starvation_limit: rng.usize(2..20),
            groups: with(rng).then(|| {
                let count = [1, 3, 16, keys][rng.usize(..4)].min(keys);
                Groups {
                    count,
                    apart: u64::MAX,
                    limit: rng.bool().then(|| rng.usize(1..5)),
                    weights: rng.bool(),
                    rate: rate(rng, keys.div_ceil(count).max(GROUP)),
                }
            }),
            rate: rate(rng, keys),
            interval: with(rng).then(|| Duration::from_micros(1 << rng.u32(3..13))),
            capacity: with(rng).then(|| {
                // The last one has room for all.
                [1, rng.usize(2..10), rng.usize(10..1000), keys as usize + 40][rng.usize(..4)]
            }),
            values: with(rng).then(|| Values {
                merging: [Append, Append, Merging::Latest, Panicking][rng.usize(..4)],
                weight: [None, None, Some(1), Some(7)][rng.usize(..4)],
            }),
        }
    }

    /// A queue with these settings.
    pub(crate) fn queue<V: Carried>(&self, clock: &Clock) -> Queue<V> {
        let mut builder = V::builder(self)
            .clock(clock.clone())
            .tick(self.tick)
            .delay_policy(self.policy)
            .supersede_delays(self.supersede)
            .adds_wait_for_retries(self.wait_for_retries)
            .drain_delays(self.drain_delays)
            .levels(self.levels)
            .default_level(self.level)
            .starvation_limit(self.starvation_limit);
        builder = match self.timing {
            Timing::Off => builder.timing(false),
            Timing::On => builder.timing(true),
            Timing::Named => builder.name("soak"),
        };
        if !self.backs_off {
            let (first, longest) = (Duration::from_millis(1), Duration::from_millis(20));
            let limiter = Limiter::new(first, longest).expect("1 ms is below 20 ms");
            builder = builder.rate_limiter(limiter);
        }
        if self.manual {
            builder = builder.manual_timers();
        }
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        if let Some(ring) = self.ring {
            builder = builder.ring(ring);
        }
        if let Some((per_second, burst)) = self.rate {
            builder = builder.dispatch_rate(per_second, burst);
        }
        if let Some(interval) = self.interval {
            builder = builder.min_interval(interval);
        }
        if let Some(capacity) = self.capacity {
            builder = builder.capacity(capacity);
        }
        if let Some(groups) = self.groups.clone() {
            let Groups {
                limit,
                weights,
                rate,
                ..
            } = groups;
            builder = builder.group_by(move |key: &Key| groups.of(key.number));
            if let Some(limit) = limit {
                builder = builder.group_limit(limit);
            }
            if weights {
                let weights = [0, 1, 5, u32::MAX];
                builder = builder.group_weight(move |group: &u64| weights[*group as usize % 4]);
            }
            if let Some((per_second, burst)) = rate {
                builder = builder.group_rate(per_second, burst);
            }
        }
        builder.build().expect("the settings are in range")
    }

    /// How many keys fit into a queue, if each has one piece; `None` without a bound.
    pub(crate) fn room(&self) -> Option<usize> {
        let weight = self.values.as_ref().and_then(|values| values.weight);
        Some((self.capacity? / weight.unwrap_or(1)).max(1))
    }
}

/// A rate by which this many keys take no longer than [`LONGEST`], although getters are woken only once in a tick.
fn random_rate(rng: &mut Rng, keys: u64, tick: Duration) -> Rate {
    let least = (keys as f64 / LONGEST).max(500.0);
    let burst = (least * tick.as_secs_f64()).ceil() as u32;
    let faster = [1.0, 5.0, 1000.0][rng.usize(..3)];
    (least * faster, burst.max(1) * [1, 1, 10][rng.usize(..3)])
}
