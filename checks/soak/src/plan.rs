//! What a life is to be like.

use std::time::Duration;

use fastrand::Rng;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::{Clock, DelayPolicy, WorkQueue};
use keyqueue_model::ledger::Key;

pub(crate) type Queue = WorkQueue<Key, ItemExponentialFailure<Key>>;

/// How a producer adds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Adding {
    Add,
    AddRef,
    /// Through handles that live as long as the producer.
    Handle,
    /// Through a handle for each add.
    NewHandle,
    Bulk,
}

/// How a consumer takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taking {
    Get,
    Timeout,
    Batch,
    Async,
    /// Futures that are polled, and a little later polled again or dropped, woken or not.
    Fickle,
    /// The same, much later.
    Idle,
    /// Never waits.
    Try,
    /// The worker loop, on two threads.
    Workers,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// The producers stop, everything is delivered, then the queue is shut down.
    AtRest,
    ShutDown,
    /// So many drain it at the same time, while all are at work.
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
    pub(crate) shards: Option<usize>,
    pub(crate) ring: Option<usize>,
    pub(crate) tick: Duration,
    pub(crate) policy: DelayPolicy,
    pub(crate) supersede: bool,
    /// Whether a drain delivers what is delayed.
    pub(crate) drain_delays: bool,
    /// Keys that are added at once; their numbers are below.
    pub(crate) keys: u64,
    /// Keys that only their owners touch, and only delay: this many for each owner.
    pub(crate) delayed: u64,
    pub(crate) owners: u64,
    /// Whether keys count how many of them are alive.
    pub(crate) counted: bool,
    /// Threads that call `fire_due`; if there is none, the queue has its own thread for that.
    pub(crate) drivers: usize,
    /// Whether the keys that are added at once are delayed, cancelled and retried, too.
    pub(crate) mixed: bool,
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

impl Plan {
    /// A random plan.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let one_of = |rng: &mut Rng, sizes: &[u64]| sizes[rng.usize(..sizes.len())];
        use {Adding::*, DelayPolicy::*, Taking::*};
        let adding = [Add, AddRef, Handle, NewHandle, Bulk];
        let taking = [Get, Timeout, Batch, Async, Fickle, Workers, Idle, Try];
        // One that polls would make up for a wake-up that was lost.
        let kinds = taking.len() - usize::from(rng.u8(..4) > 0);
        Plan {
            shards: rng.bool().then(|| 2 << rng.u32(..7)),
            ring: [None, Some(rng.usize(1..9)), Some(rng.usize(1..9)), Some(64)][rng.usize(..4)],
            tick: [1000, 100, 5000].map(Duration::from_micros)[rng.usize(..3)],
            policy: [Earliest, Latest, Replace, KeepFirst][rng.usize(..4)],
            supersede: rng.bool(),
            drain_delays: rng.bool(),
            keys: one_of(rng, &[1, 3, 50, 1_000, 30_000, 300_000]),
            delayed: one_of(rng, &[1, 16, 500]),
            owners: rng.u64(..3),
            counted: rng.bool(),
            drivers: [0, 0, 1, 2][rng.usize(..4)],
            mixed: rng.bool(),
            producers: (0..rng.usize(1..5))
                .map(|_| adding[rng.usize(..adding.len())])
                .collect(),
            adds: None,
            bout: 1 << rng.u32(..16),
            consumers: (0..rng.usize(1..6))
                .map(|_| taking[rng.usize(..kinds)])
                .collect(),
            tasks: rng.usize(..4),
            time: match rng.u8(..8) {
                0 => Duration::from_micros(rng.u64(..3000)),
                _ => Duration::from_millis(rng.u64(5..1000)),
            },
            end: match rng.u8(..9) {
                0 | 1 => End::AtRest,
                2 => End::ShutDown,
                3 | 4 => End::Drain(rng.usize(1..4)),
                5 | 6 => End::DrainAsync,
                7 => End::DrainTimeout,
                _ => End::Released,
            },
        }
    }

    pub(crate) fn queue(&self, clock: &Clock) -> Queue {
        let (first, longest) = (Duration::from_millis(1), Duration::from_millis(20));
        let limiter = ItemExponentialFailure::new(first, longest).expect("1 ms is below 20 ms");
        let mut builder = WorkQueue::builder()
            .rate_limiter(limiter)
            .clock(clock.clone())
            .tick(self.tick)
            .delay_policy(self.policy)
            .supersede_delays(self.supersede)
            .drain_delays(self.drain_delays);
        if self.drivers > 0 {
            builder = builder.manual_timers();
        }
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        if let Some(ring) = self.ring {
            builder = builder.ring(ring);
        }
        builder.build().expect("the settings are in range")
    }
}
