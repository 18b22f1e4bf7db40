//! What a test does, as data: the settings of a queue and the steps taken with it.

use crate::delays::Policy;
use crate::limit::{Limit, Limits, Span};
use keyqueue::Entry;

/// A whole test case.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Script {
    pub setup: Setup,
    pub ops: Vec<Op>,
}

/// The settings of a queue: tiny, so that what is rare elsewhere is common here. Any value is in
/// range; see the methods.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Setup {
    /// Chooses [`Setup::ring`].
    pub ring: u8,
    /// Chooses [`Setup::keys`].
    pub keys: u8,
    /// Chooses [`Setup::shards`].
    pub shards: u8,
    pub spread: Spread,
    pub policy: Policy,
    /// Whether a plain add ends a pending delay.
    pub supersede: bool,
    /// Whether adds wait for the retry of their key.
    pub wait_for_retries: bool,
    /// Whether a drain delivers what is delayed.
    pub drain_delays: bool,
    /// Chooses [`Setup::tick`] and [`Setup::timed`].
    pub tick: u8,
    /// Chooses [`Setup::has_limiter`], [`Setup::limits`] and [`Setup::capacity`].
    pub limiter: u8,
    /// Chooses [`Setup::levels`], [`Setup::starvation_limit`] and [`Setup::groups`].
    pub levels: u8,
}

impl Setup {
    /// The size of the ring: 1 to 3.
    pub fn ring(&self) -> usize {
        usize::from(self.ring % 3) + 1
    }

    /// How many shards there are: the fewest possible, so that keys meet in them, or so many that
    /// each has little room and is swept often.
    pub fn shards(&self) -> usize {
        [2, 2, 2, 256][usize::from(self.shards % 4)]
    }

    /// How many levels there are.
    pub fn levels(&self) -> usize {
        [1, 2, 3, 8][usize::from(self.levels % 4)]
    }

    pub fn starvation_limit(&self) -> usize {
        [16, 2, 3][usize::from(self.levels / 4 % 3)]
    }

    /// How many groups there are; 0 without.
    pub fn groups(&self) -> u64 {
        [0, 3, 1][usize::from(self.levels / 12 % 3)]
    }

    /// The length of a tick in milliseconds.
    pub fn tick(&self) -> u64 {
        [1, 2, 1000][usize::from(self.tick % 3)]
    }

    /// Whether it is known since when a key is where it is.
    pub fn timed(&self) -> bool {
        self.tick % 6 >= 3
    }

    /// Whether the queue is built with a limiter.
    pub fn has_limiter(&self) -> bool {
        self.limiter % 6 < 5
    }

    /// The rate limiter: none, one of each kind, all of them cut at a maximum, or what a queue has for which none is
    /// set. Their delays are exact: the bucket's rate divides a second.
    pub fn limits(&self) -> Limits {
        if !self.has_limiter() {
            return Limits::unset();
        }
        let span = |times, shift| Span { times, shift };
        let (short, long) = (span(5, 18), span(5, 24));
        let all = [
            Limit::Exponential(short.nanos(), long.nanos()),
            Limit::FastSlow(short, long, 2),
            Limit::Bucket(99, 0, 2),
        ];
        let chosen = usize::from(self.limiter % 6);
        Limits {
            of: match chosen {
                0 => Vec::new(),
                1..4 => vec![all[chosen - 1]],
                _ => all.to_vec(),
            },
            max_wait: (chosen == 4).then_some(span(1, 24)),
        }
    }

    /// How many keys may wait; `None` without a bound. Few, so that there is often no room.
    pub fn capacity(&self) -> Option<usize> {
        [None, Some(1), Some(3), Some(8)][usize::from(self.limiter / 6 % 4)]
    }

    /// How many different keys there are: few, so that they meet in every state, or enough for
    /// a shard to be swept.
    pub fn keys(&self) -> u16 {
        [2, 4, 16, 300][usize::from(self.keys % 4)]
    }
}

/// How the hashes of keys are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Spread {
    /// All keys have the same hash.
    OneHash,
    /// Four hashes for all keys.
    FourHashes,
    /// Different hashes, all in one shard.
    OneShard,
    /// As a good hasher would.
    #[default]
    Even,
}

/// The settings of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Settings {
    pub by: By,
    /// The last one if there are not so many.
    pub level: Option<u8>,
    pub delay: Option<Span>,
    /// With a delay: it is debounced, with this limit.
    pub limit: Option<Span>,
    /// Whether it is refused if there is no room.
    pub refuse: bool,
}

/// How the key of an entry is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum By {
    #[default]
    Owned,
    Ref,
    /// A handle, if there is one to this key.
    Handle,
}

impl Settings {
    /// Sets the level and the delay.
    pub(crate) fn of<'q, K, V, X>(self, mut entry: Entry<'q, K, V, X>) -> Entry<'q, K, V, X> {
        if let Some(level) = self.level {
            entry = entry.level(usize::from(level));
        }
        match (self.delay, self.limit) {
            (Some(quiet), Some(limit)) => entry.debounce(quiet.duration(), limit.duration()),
            (Some(delay), None) => entry.after(delay.duration()),
            (None, _) => entry,
        }
    }
}

/// One step. Keys are taken modulo [`Setup::keys`]; a number that chooses among things is taken
/// modulo how many there are, and a step without any to choose from does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Op {
    Add(u16),
    /// Adds a key with settings.
    Enter(u16, Settings),
    /// Adds a key by its borrowed form.
    AddRef(u16),
    /// Adds `count` keys, from `first` on, each `stride` after the one before.
    AddAll {
        first: u16,
        stride: u8,
        count: u8,
    },
    AddAfter(u16, Span),
    AddLimited(u16),
    Cancel(u16),
    Forget(u16),
    NumRequeues(u16),
    Advance(Span),
    /// Adds the keys whose delays are over.
    FireDue,
    Handle(u16),
    HandleAdd(u8),
    HandleAddAfter(u8, Span),
    HandleClone(u8),
    HandleDrop(u8),
    TryGet,
    /// Takes a key, if that does not wait.
    Get,
    /// Takes a key, waiting for no time at all.
    GetTimeout,
    /// Takes up to this many keys, if that does not wait.
    GetBatch(u8),
    /// Says that an item is done.
    Done(u8),
    /// Is done with an item for now: rate limited.
    Retry(u8),
    /// Is done with an item for now.
    RetryAfter(u8, Span),
    DropItem(u8),
    /// Drops all items, in the order in which they came.
    DropItems,
    /// Polls one of a few getters with one of its two wakers.
    PollGet {
        who: u8,
        waker: bool,
    },
    DropGet(u8),
    PollDrain(u8),
    DropDrain(u8),
    ShutDown,
    ShutDownNow,
    /// Takes what is left.
    TakeLeft,
    /// Drains for no time at all.
    DrainNow,
    /// Forgets what is idle.
    Shrink,
    /// Looks at every key.
    Snapshot,
    /// Looks for keys that have been held for so long.
    Stuck(Span),
    /// Ends a delay now.
    RunNow(u16),
}

impl Op {
    /// Whether the queue takes no adds after this step.
    pub fn ends(&self) -> bool {
        matches!(
            self,
            Op::ShutDown | Op::ShutDownNow | Op::TakeLeft | Op::DrainNow | Op::PollDrain(_)
        )
    }
}
