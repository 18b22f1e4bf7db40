//! What a life is to be like.

use std::time::Duration;

use fastrand::Rng;

use crate::settings::{GROUP, Merging, Settings};

/// How a producer adds. The last seven are for values, or respect the bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Adding {
    Add,
    /// At a random level.
    At,
    Ref,
    /// Through handles that live as long as the producer.
    Handle,
    /// Through a handle for each add.
    NewHandle,
    Bulk,
    Update,
    /// With a receipt.
    Tracked,
    Try,
    Wait,
    Timeout,
    Async,
    /// A future that is polled, and dropped if it is not ready.
    Cancelled,
}

/// Those that respect the bound.
const BOUNDED: [Adding; 5] = {
    use Adding::*;
    [Try, Wait, Timeout, Async, Cancelled]
};

/// How a consumer takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taking {
    Get,
    Timeout,
    Batch,
    Async,
    /// Items that own their queue.
    Owned,
    /// Futures that are polled, and a little later polled again or dropped, woken or not.
    Fickle,
    /// The same, much later.
    Idle,
    /// The worker loop, on two threads.
    Workers,
    /// The same, as four tasks of one thread.
    Tasks,
    /// Both again, with a function of many keys at a time.
    WorkersOfBatches,
    TasksOfBatches,
    /// Both again, which try the messages of a key one by one, if keys carry values.
    WorkersOfEach,
    TasksOfEach,
    /// Never waits.
    Try,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// The producers stop, everything is delivered, then the queue is shut down.
    AtRest,
    ShutDown,
    /// This many threads shut it down at once, without a delivery of what is queued.
    Now(usize),
    /// This many drain it at the same time, while all are at work.
    Drain(usize),
    /// A drain as a future.
    DrainAsync,
    /// Drains with deadlines, until one succeeds.
    DrainTimeout,
    /// A drain that a shut-down releases.
    Released,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// Keys that are added at once; their numbers are below.
    pub(crate) keys: u64,
    /// Keys that only their owners touch, and only delay: this many for each owner.
    pub(crate) delayed: u64,
    pub(crate) owners: u64,
    /// Threads that hold and release groups.
    pub(crate) holders: u64,
    /// Whether keys count how many of them are alive.
    pub(crate) counted: bool,
    /// Threads that call `fire_due`, if the queue has no thread of its own for that.
    pub(crate) drivers: usize,
    /// Whether the keys that are added at once are delayed, cancelled and taken back, too.
    pub(crate) mixed: bool,
    /// Whether all queued keys are discarded now and then.
    pub(crate) cleared: bool,
    /// Whether deliveries are retried, and panic.
    pub(crate) retried: bool,
    /// Whether each producer adds only keys of its own, and those only while they are idle. All of its adds
    /// need room then, so that what they may exceed, and when one has to find room, is known exactly.
    pub(crate) apart: bool,
    pub(crate) producers: Vec<Adding>,
    /// How often each adds; if not given, until the time is over.
    pub(crate) adds: Option<u64>,
    /// Adds between two short rests of a producer; so consumers fall asleep now and then.
    pub(crate) bout: u32,
    pub(crate) consumers: Vec<Taking>,
    pub(crate) tasks: usize,
    /// Until the end is called for.
    pub(crate) time: Duration,
    pub(crate) end: End,
}

/// The keys of a holder.
pub(crate) const HELD: u64 = 3 * GROUP;

impl Plan {
    /// A random plan.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let one_of = |rng: &mut Rng, sizes: &[u64]| sizes[rng.usize(..sizes.len())];
        let keys = one_of(rng, &[1, 3, 50, 1_000, 30_000, 300_000]);
        let delayed = one_of(rng, &[1, 16, 500]);
        let cleared = rng.u8(..8) == 0;
        // What clears takes the keys of owners and holders, too, who would wait for them.
        let others = if cleared { 1 } else { 3 };
        let (owners, mut holders) = (rng.u64(..others), rng.u64(..others));
        let settings = Settings::random(rng, keys + owners * delayed);
        if settings.groups.is_none() {
            holders = 0;
        }
        let apart = settings.capacity.is_some() && rng.u8(..4) == 0;
        let mut plan = Plan {
            keys,
            delayed,
            owners,
            holders,
            counted: rng.bool(),
            drivers: if settings.manual { rng.usize(1..3) } else { 0 },
            mixed: rng.bool(),
            cleared,
            retried: rng.bool(),
            apart,
            producers: random_producers(rng, &settings, apart),
            adds: None,
            bout: 1 << rng.u32(..16),
            consumers: random_consumers(rng),
            tasks: rng.usize(..4),
            time: match rng.u8(..8) {
                0 => Duration::from_micros(rng.u64(..3000)),
                _ => Duration::from_millis(rng.u64(5..1000)),
            },
            end: match rng.u8(..11) {
                0 | 1 => End::AtRest,
                2 => End::ShutDown,
                3 | 4 => End::Now(rng.usize(1..3)),
                5 | 6 => End::Drain(rng.usize(1..4)),
                7 | 8 => End::DrainAsync,
                9 => End::DrainTimeout,
                _ => End::Released,
            },
            settings,
        };
        // An add that waits for a retry is delivered unless that is cancelled or dropped.
        plan.settings.wait_for_retries =
            plan.retried && !plan.mixed && plan.keeps_delays() && rng.bool();
        // Rate-limited adds count as failures: in a mixed life a key could wait for minutes.
        plan.settings.backs_off = plan.retried && !plan.mixed && rng.bool();
        if apart {
            plan.set_apart().placed()
        } else {
            plan.placed()
        }
    }

    /// The same, with the keys of holders in groups of their own.
    pub(crate) fn placed(mut self) -> Self {
        let first = self.first_held();
        if let Some(groups) = &mut self.settings.groups {
            groups.apart = first;
        }
        self
    }

    /// The same, with nothing that keeps the producers from knowing what waits.
    fn set_apart(self) -> Self {
        Plan {
            owners: 0,
            holders: 0,
            mixed: false,
            cleared: false,
            retried: false,
            // One for each producer at least.
            keys: self.keys.max(self.producers.len() as u64),
            ..self
        }
    }

    /// Whether each delay that is not cancelled is delivered.
    fn keeps_delays(&self) -> bool {
        match self.end {
            End::AtRest => true,
            End::Drain(_) | End::DrainAsync | End::DrainTimeout => self.settings.drain_delays,
            End::ShutDown | End::Now(_) | End::Released => false,
        }
    }

    /// Whether some consumers try the messages of a key one by one. Each of them counts as a delivery then.
    pub(crate) fn tries_each(&self) -> bool {
        let each = |taking: &Taking| matches!(taking, Taking::WorkersOfEach | Taking::TasksOfEach);
        self.settings.values.is_some() && self.consumers.iter().any(each)
    }

    /// The keys of all.
    pub(crate) fn all_keys(&self) -> u64 {
        self.first_held() + self.holders * HELD
    }

    /// The first key of a holder.
    pub(crate) fn first_held(&self) -> u64 {
        self.keys + self.delayed * self.owners
    }

    /// The threads that add.
    pub(crate) fn adders(&self) -> usize {
        self.producers.len() + (self.owners + self.holders) as usize
    }

    /// Whether all keys have room at once, so that no add is refused.
    pub(crate) fn always_fits(&self) -> bool {
        let values = self.settings.values.as_ref();
        // Each takes room once: it is not delayed, and no value counts twice because a merge has panicked.
        let counts_once = !(self.mixed || self.retried || self.owners > 0)
            && values.is_none_or(|values| {
                values.weight.is_none() && values.merging != Merging::Panicking
            });
        // An add of a key that others add, too, may take room for a moment, and be merged.
        let others = if self.apart { 0 } else { self.adders() as u64 };
        let all = self.keys + others + self.holders * HELD;
        counts_once && self.settings.room().is_none_or(|room| all <= room as u64)
    }

    /// Whether the end may leave values that were put: they are in `take_left`, and their receipts have ended.
    pub(crate) fn may_leave_values(&self) -> bool {
        matches!(self.end, End::Now(_)) || self.retried && self.end != End::AtRest
    }

    /// Whether values may be dropped that were put: by a merge, a `clear`, a `cancel`, or a `shrink` after the end.
    pub(crate) fn may_lose_values(&self) -> bool {
        let merging = self.settings.values.as_ref().map(|values| values.merging);
        self.mixed || self.cleared || self.holders > 0 || merging != Some(Merging::Append)
    }
}

fn random_producers(rng: &mut Rng, settings: &Settings, apart: bool) -> Vec<Adding> {
    use Adding::*;
    let mut ways = vec![Add, At, Ref, Handle, NewHandle];
    if apart {
        ways.clear();
    }
    if settings.capacity.is_some() {
        ways.extend(BOUNDED);
    }
    match settings.values {
        _ if apart => {}
        None => ways.push(Bulk),
        Some(_) => ways.extend([Update, Tracked, Tracked]),
    }
    let ways = (0..rng.usize(1..5)).map(|_| ways[rng.usize(..ways.len())]);
    ways.collect()
}

fn random_consumers(rng: &mut Rng) -> Vec<Taking> {
    use Taking::*;
    let ways = [
        Get,
        Timeout,
        Batch,
        Async,
        Owned,
        Fickle,
        Workers,
        Tasks,
        WorkersOfBatches,
        TasksOfBatches,
        WorkersOfEach,
        TasksOfEach,
        Idle,
        Try,
    ];
    // One that polls would make up for a wake-up that was lost.
    let kinds = ways.len() - usize::from(rng.u8(..4) > 0);
    let ways = (0..rng.usize(1..6)).map(|_| ways[rng.usize(..kinds)]);
    ways.collect()
}
