//! The failures of each key: how often it failed, and when last. What the per-key limiters share.
//!
//! Keys are not kept. A key is hashed to a fingerprint of 128 bits, keyed with seeds that nobody
//! outside knows; two keys that share one (for a billion keys, one chance in 10^20) would share a count.
//!
//! | who | may touch what |
//! | --- | --- |
//! | a call | the shard of its fingerprint, under that shard's lock |
//! | every [`CALLS_PER_VISIT`]th `record` or `forget` of a shard | first its own again, then one other, each under its lock alone |
//!
//! Ground rules: the user's `Hash` runs, and the clock is read, before a lock is taken; under a lock
//! there is nothing but table look-ups. So no user code can panic or call back under one, and no
//! thread ever holds two.
//!
//! # How the idle are forgotten
//!
//! A count is valid until its key has been idle for longer than `memory`. Every look at it checks that.
//! To free its place as well without ever walking a table, a shard has two of them:
//!
//! ```text
//!     record --> young --turn--> old --turn--> freed as a whole
//!                  ^--- record ---'
//! ```
//!
//! A shard turns when its last turn is longer than `memory` ago. What is in `old` at a turn was last
//! recorded before the turn that put it there, so it has been idle for longer than `memory`. If nothing
//! at all was recorded in a shard for so long, both tables go at once.
//!
//! An idle count hence takes up space for at most two spans of `memory` and until the next visit, or for
//! one span if its neighbours are idle as well; the work of a call is bounded, and a table that a burst
//! made large goes back to the allocator. The visits are for limiters whose few remaining keys all live
//! in some shards, or no longer fail: they keep the others turning.

mod idle;

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::marker::PhantomData;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::Clock;
use crate::nanos;
use crate::sync::Locked;
use idle::Idle;

/// A power of two, well above the threads that fail keys at the same moment.
const SHARDS: usize = 64;

/// How often a shard's callers look after it and another one.
const CALLS_PER_VISIT: usize = 64;

/// An emptied table that has room for more than this is given back.
const KEPT_CAPACITY: usize = 64;

/// How long the counts of a limiter are remembered whose delays are all zero.
const MEMORY_WITHOUT_DELAY: Duration = Duration::from_secs(60);

/// Counts the failures of each key.
pub(super) struct PerKey<K: ?Sized> {
    fingerprints: Fingerprints,
    shards: Box<[CachePadded<Locked<Shard>>]>,
    idle: Idle,
    // Keys are only ever borrowed: sharing the counts asks nothing of K.
    keys: PhantomData<fn(&K)>,
}

#[derive(Default)]
struct Shard {
    young: Table,
    old: Table,
    /// When `young` last became `old`, in nanoseconds of the clock.
    turned: u64,
    /// When a key last failed, in nanoseconds of the clock.
    latest: u64,
    /// How many records and forgets there were.
    calls: usize,
}

type Table = HashMap<u128, Failures, BuildHasherDefault<Identity>>;

#[derive(Clone, Copy)]
struct Failures {
    /// When the key last failed, in nanoseconds of the clock.
    last: u64,
    count: u32,
}

impl<K: ?Sized> PerKey<K> {
    /// For a limiter whose longest delay is `max_delay`: idle keys are remembered for twice that.
    pub(super) fn new(max_delay: Duration) -> Self {
        let memory = if max_delay.is_zero() {
            MEMORY_WITHOUT_DELAY
        } else {
            max_delay.saturating_mul(2)
        };
        Self {
            fingerprints: Fingerprints::new(),
            shards: (0..SHARDS)
                .map(|_| CachePadded::new(Locked::new(Shard::default())))
                .collect(),
            idle: Idle::new(Clock::new(), nanos::saturating(memory)),
            keys: PhantomData,
        }
    }

    pub(super) fn with_clock(mut self, clock: Clock) -> Self {
        self.idle = self.idle.with_clock(clock);
        self
    }

    /// Remembers idle keys for at least `idle`.
    pub(super) fn remember_for(mut self, idle: Duration) -> Self {
        self.idle = self.idle.at_least(nanos::saturating(idle));
        self
    }

    /// How many keys take up space, the forgotten ones included that are not yet freed.
    pub(super) fn tracked(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.lock();
                shard.young.len() + shard.old.len()
            })
            .sum()
    }
}

impl<K: Hash + ?Sized> PerKey<K> {
    /// Records one more failure, and returns how many there were before it.
    pub(super) fn record(&self, key: &K) -> u32 {
        let print = self.fingerprints.of(key);
        let now = self.idle.now();
        let home = shard_of(print);
        let mut shard = self.shards[home].lock();
        shard.turn_if_due(now, self.idle.span());
        let before = shard.record(print, now, self.idle.span());
        let visit = shard.visit_after_call(home);
        drop(shard);
        self.visit(home, visit);
        before
    }

    /// How many failures there were.
    pub(super) fn count(&self, key: &K) -> u32 {
        let print = self.fingerprints.of(key);
        let now = self.idle.now();
        let shard = self.shards[shard_of(print)].lock();
        shard
            .young
            .get(&print)
            .or_else(|| shard.old.get(&print))
            .map_or(0, |failures| failures.valid(now, self.idle.span()))
    }

    /// Starts over with `key`.
    pub(super) fn forget(&self, key: &K) {
        let print = self.fingerprints.of(key);
        let home = shard_of(print);
        let mut shard = self.shards[home].lock();
        shard.forget(print);
        let visit = shard.visit_after_call(home);
        drop(shard);
        self.visit(home, visit);
    }

    /// Frees the places of keys that are idle in another shard, if one is to be looked after, and at home.
    #[inline]
    fn visit(&self, home: usize, other: Option<usize>) {
        if let Some(other) = other {
            let now = self.idle.now();
            for shard in [home, other] {
                self.shards[shard].lock().turn_if_due(now, self.idle.span());
            }
        }
    }
}

impl<K: ?Sized> fmt::Debug for PerKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKey")
            .field("tracked", &self.tracked())
            .field("memory", &self.idle.memory())
            .finish_non_exhaustive()
    }
}

impl Shard {
    /// Frees the places of keys that are known to be idle.
    #[inline]
    fn turn_if_due(&mut self, now: u64, memory: u64) {
        if now.saturating_sub(self.turned) > memory {
            self.old = std::mem::take(&mut self.young);
            self.turned = now;
        }
        if now.saturating_sub(self.latest) > memory {
            self.young = Table::default();
            self.old = Table::default();
        }
    }

    /// Counts a call, and says which shard is to be looked after, if it is time to.
    #[inline]
    fn visit_after_call(&mut self, home: usize) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        let visits = self.calls / CALLS_PER_VISIT;
        let due = self.calls.is_multiple_of(CALLS_PER_VISIT);
        due.then(|| home.wrapping_add(visits) % SHARDS)
    }

    #[inline]
    fn record(&mut self, print: u128, now: u64, memory: u64) -> u32 {
        self.latest = now;
        match self.young.entry(print) {
            Entry::Occupied(mut entry) => {
                let failures = entry.get_mut();
                let before = failures.valid(now, memory);
                *failures = Failures::after(before, now);
                before
            }
            Entry::Vacant(entry) => {
                let moved = remove(&mut self.old, print);
                let before = moved.map_or(0, |failures| failures.valid(now, memory));
                entry.insert(Failures::after(before, now));
                before
            }
        }
    }

    #[inline]
    fn forget(&mut self, print: u128) {
        // A print is in one of them at most.
        if remove(&mut self.young, print).is_none() {
            remove(&mut self.old, print);
        }
    }
}

impl Failures {
    #[inline]
    fn after(before: u32, now: u64) -> Self {
        Self {
            last: now,
            count: before.saturating_add(1),
        }
    }

    /// The count, unless the key has been idle for too long.
    #[inline]
    fn valid(&self, now: u64, memory: u64) -> u32 {
        if now.saturating_sub(self.last) > memory {
            0
        } else {
            self.count
        }
    }
}

/// Removes an entry, and with the last one the memory of a large table.
#[inline]
fn remove(table: &mut Table, print: u128) -> Option<Failures> {
    // Most often there is nothing at all: a key that succeeds is forgotten without having failed.
    if table.is_empty() {
        return None;
    }
    let removed = table.remove(&print);
    if table.is_empty() && table.capacity() > KEPT_CAPACITY {
        *table = Table::default();
    }
    removed
}

/// The shard comes from the half of the fingerprint that the tables do not hash by.
#[inline]
fn shard_of(print: u128) -> usize {
    (print >> 64) as usize % SHARDS
}

/// Turns keys into fingerprints: two hashes of 64 bits with independent random seeds.
struct Fingerprints {
    low: Seed,
    high: Seed,
}

struct Seed {
    shared: SharedSeed,
    own: u64,
}

impl Fingerprints {
    fn new() -> Self {
        Self {
            low: Seed::random(),
            high: Seed::random(),
        }
    }

    /// Runs the user's `Hash` once, over both hashers.
    fn of<K: Hash + ?Sized>(&self, key: &K) -> u128 {
        let mut pair = Pair(self.low.hasher(), self.high.hasher());
        key.hash(&mut pair);
        u128::from(pair.0.finish()) | u128::from(pair.1.finish()) << 64
    }
}

impl Seed {
    fn random() -> Self {
        // The standard library's hasher is keyed by the operating system's randomness.
        let random = || RandomState::new().hash_one("fingerprint");
        Self {
            shared: SharedSeed::from_u64(random()),
            own: random(),
        }
    }

    fn hasher(&self) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.own, &self.shared)
    }
}

/// Two hashers that read the same key.
struct Pair<'a>(FoldHasher<'a>, FoldHasher<'a>);

/// Passes each kind of write on to both hashers as it is: integers are much faster than byte slices.
macro_rules! write_both {
    ($($write:ident: $value:ty),* $(,)?) => {$(
        #[inline]
        fn $write(&mut self, value: $value) {
            self.0.$write(value);
            self.1.$write(value);
        }
    )*};
}

impl Hasher for Pair<'_> {
    write_both! {
        write: &[u8],
        write_u8: u8,
        write_u16: u16,
        write_u32: u32,
        write_u64: u64,
        write_u128: u128,
        write_usize: usize,
    }

    /// The low half; a fingerprint takes both.
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Hashes a fingerprint to its low half: it is a good hash already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a fingerprint is hashed as one u128")
    }

    #[inline]
    fn write_u128(&mut self, print: u128) {
        self.0 = print as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
