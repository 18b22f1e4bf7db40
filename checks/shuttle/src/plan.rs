//! The settings of one run, drawn at random from all features, so that any two of them meet in many runs.

use std::array;
use std::time::Duration;

use keyqueue::limiter::NoLimit;
use keyqueue::{Clock, DelayPolicy};

use crate::{How, Key, Kind, MS, QueueOf, SettingsOf, below, once_in};

/// Keys are in the group of their number modulo this.
pub(crate) const GROUPS: u64 = 2;

/// The most producers.
pub(crate) const PRODUCERS: u64 = 3;

/// The most keys that all add.
const SHARED: u64 = 3;

/// All keys, but for those that are added when the others have ended: how many these may be.
pub(crate) const KEYS: u64 = SHARED + PRODUCERS;
pub(crate) const SPARE: u64 = 6;

/// The group of a key.
pub fn group(key: &Key) -> u64 {
    key.number % GROUPS
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Drain,
    /// A drain that is out of time, and then a second one.
    Late,
    ShutDown,
    /// `shut_down_now`.
    Now,
}

/// Which features a run has.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// 1 for none.
    pub levels: usize,
    pub default_level: usize,
    pub capacity: Option<usize>,
    /// Whether the capacity counts what was put.
    pub weighs: bool,
    pub groups: bool,
    /// The most keys of a group in flight.
    pub limit: Option<usize>,
    /// The tokens of each group's bucket, to which one comes in each tick,
    pub group_rate: Option<u32>,
    /// and of the queue's.
    pub rate: Option<u32>,
    pub interval: Option<Duration>,
    pub timed: bool,
    pub supersede: bool,
    /// Whether adds wait for retries, which are delivered then.
    pub wait_for_retries: bool,
    pub policy: DelayPolicy,
    pub drain_delays: bool,
    /// Whether delays end by `fire_due` and not by the timer's own thread.
    pub manual: bool,
    pub ring: usize,

    // What the threads do.
    /// The number of keys that all add.
    pub keys: u64,
    pub producers: u64,
    /// Of each producer.
    pub adds: u64,
    /// The first adds of the producers, and ways of the others: few, so that they meet often.
    pub menu: [(How, u64); PRODUCERS as usize],
    pub getters: u64,
    /// Whether each producer delays a key of its own, once.
    pub delays: bool,
    pub cancels: bool,
    /// Whether groups are held at random,
    pub holds: bool,
    /// or the first one until the producers have ended.
    pub held: bool,
    pub retries: bool,
    /// Whether the queue has no limiter set, and retries wait as long as it says (L15).
    pub backs_off: bool,
    /// Whether keys are cleared and removed,
    pub clears: bool,
    /// or swept.
    pub sweeps: bool,
    /// Whether the queue is ended amid the adds.
    pub amid: bool,
    pub end: End,
}

fn maybe<T>(times: u32, value: impl FnOnce() -> T) -> Option<T> {
    once_in(times).then(value)
}

impl Plan {
    /// Nothing but a queue with few adds.
    pub fn plain() -> Self {
        Plan {
            levels: 1,
            default_level: 0,
            capacity: None,
            weighs: false,
            groups: false,
            limit: None,
            group_rate: None,
            rate: None,
            interval: None,
            timed: false,
            supersede: false,
            wait_for_retries: false,
            policy: DelayPolicy::Earliest,
            drain_delays: false,
            manual: true,
            ring: 2,
            keys: 2,
            producers: 3,
            adds: 1,
            menu: [(How::At(1), 0), (How::At(0), 0), (How::Wait, 1)],
            getters: 1,
            delays: false,
            cancels: false,
            holds: false,
            held: false,
            retries: false,
            backs_off: false,
            clears: false,
            sweeps: false,
            amid: false,
            end: End::Drain,
        }
    }

    /// Draws all of it.
    pub fn draw() -> Self {
        let groups = once_in(2);
        let levels = 1 + below(2);
        let keys = 1 + below(SHARED);
        let plan = Plan {
            levels: levels as usize,
            default_level: below(levels) as usize,
            capacity: maybe(2, || 1 + below(SHARED) as usize),
            weighs: once_in(2),
            groups,
            limit: maybe(2, || 1 + below(2) as usize).filter(|_| groups),
            group_rate: maybe(4, || 1 + below(2) as u32).filter(|_| groups),
            rate: maybe(4, || 1 + below(2) as u32),
            interval: maybe(4, || MS * 2),
            timed: once_in(2),
            supersede: once_in(2),
            wait_for_retries: false,
            policy: match below(3) {
                0 => DelayPolicy::Earliest,
                1 => DelayPolicy::Latest,
                _ => DelayPolicy::Replace,
            },
            drain_delays: once_in(2),
            manual: once_in(2),
            ring: 1 << below(3),
            keys,
            producers: 2 + below(2),
            adds: 1 + below(4),
            menu: array::from_fn(|_| (How::draw(levels), below(keys))),
            getters: 1 + below(3),
            delays: once_in(2),
            cancels: once_in(3),
            holds: groups && once_in(2),
            held: false,
            retries: once_in(2),
            backs_off: once_in(2),
            clears: once_in(6),
            sweeps: once_in(3),
            amid: once_in(2),
            end: match below(6) {
                0 => End::Late,
                1 => End::ShutDown,
                2 => End::Now,
                _ => End::Drain,
            },
        };
        Plan {
            wait_for_retries: plan.keeps_delays() && once_in(2),
            ..plan
        }
    }

    /// Whether time has to pass.
    pub fn has_time(&self) -> bool {
        let waits = [self.rate, self.group_rate].iter().any(Option::is_some);
        let delays =
            self.menu.iter().any(|(how, _)| how.is_delayed()) || self.delays || self.retries;
        waits || delays || self.interval.is_some() || self.holds
    }

    /// The key that only this producer adds.
    pub fn own(&self, producer: u64) -> u64 {
        SHARED + producer
    }

    /// Whether the run ends with a drain.
    pub fn drains(&self) -> bool {
        matches!(self.end, End::Drain | End::Late)
    }

    /// Whether every delay that is accepted has to be delivered.
    pub fn keeps_delays(&self) -> bool {
        self.drains() && self.drain_delays && !self.cancels
    }

    /// Whether what is accepted may be dropped.
    pub fn discards(&self) -> bool {
        self.clears || self.end == End::Now
    }

    /// Builds the queue.
    pub fn build<K: Kind>(&self, clock: Clock) -> QueueOf<K> {
        let mut settings: SettingsOf<K> = K::builder()
            .shards(2)
            .ring(self.ring)
            .clock(clock)
            .levels(self.levels)
            .default_level(self.default_level)
            .timing(self.timed)
            .supersede_delays(self.supersede)
            .adds_wait_for_retries(self.wait_for_retries)
            .delay_policy(self.policy)
            .drain_delays(self.drain_delays);
        if !self.backs_off {
            settings = settings.rate_limiter(NoLimit);
        }
        if self.manual {
            settings = settings.manual_timers();
        }
        if let Some(capacity) = self.capacity {
            settings = settings.capacity(capacity);
        }
        if self.weighs {
            settings = K::weigh(settings);
        }
        if self.groups {
            settings = settings.group_by(group);
        }
        if let Some(limit) = self.limit {
            settings = settings.group_limit(limit);
        }
        let a_tick = 1.0 / MS.as_secs_f64();
        if let Some(burst) = self.group_rate {
            settings = settings.group_rate(a_tick, burst);
        }
        if let Some(burst) = self.rate {
            settings = settings.dispatch_rate(a_tick, burst);
        }
        if let Some(interval) = self.interval {
            settings = settings.min_interval(interval);
        }
        settings.build().expect("the settings are in range")
    }
}
