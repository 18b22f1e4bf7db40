//! The number of failures of each key, and the time of the last one, by the key's hash.
//!
//! | field | written by | read by |
//! | --- | --- | --- |
//! | `Shard::failures` | the holder of its lock | the holder |
//! | `Shard::failing` | the holder of that lock | every call, without it |
//! | `Shard::swept` | the thread that sweeps the shard | a thread that searches for a shard to sweep |
//! | `next_look` | a thread that found no shard to sweep | every `record`, each `forget` that finds no count |
//!
//! Most keys succeed without ever having failed, and `forget` is called for them as well. So
//! `forget` and `get` read `failing` first, and return if it is zero. That misses no failure: if a
//! `record` happened before the call, the call reads the `failing` that `record` stored, or a later
//! value; a later zero was stored under the lock, after the last count had been cleared.
//!
//! Hashes are [mixed](mix) here, so that keys spread over the shards whatever the hasher and its seed are.
//!
//! # How memory is freed
//!
//! `forget` sets a count to zero and leaves the entry for the key's next failure, which is twice as
//! fast as removing and reinserting it. A shard that has more entries than twice those with a
//! count, plus [`SPARE_ENTRIES`], is rebuilt without the zero entries.
//!
//! A count is valid until its key has been idle for longer than `memory`, and for the wait of its retry where that is known, or time has gone back by more, which is that of the
//! processor's counter and may begin anew; every reader checks that.
//! Each `record`, and each `forget` that does not find a count of its key among others, rebuilds one shard
//! that has counts and was not swept for longer than `memory`, if there is one. So an invalid count
//! is freed within another `memory`. A thread considers its key's own shard last, so that repeated
//! calls of `forget` for one key sweep all shards. To rebuild a shard takes as long as an insertion
//! that grows it.

use std::collections::HashMap;

use crossbeam_utils::CachePadded;

use crate::DefaultHasher;
use crate::keys::hash::mix;
pub(super) use crate::sync::LIMITER_SHARDS as SHARDS;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many more entries without a count than with one a shard may keep.
pub(super) const SPARE_ENTRIES: usize = 64;

/// Counts failures by hash. All times are nanoseconds of one clock.
pub(super) struct Counts {
    shards: Box<[CachePadded<Shard>]>,
    /// How long a key may be idle before it is forgotten.
    pub(super) memory: u64,
    /// No shard has to be swept before this time.
    next_look: CachePadded<AtomicU64>,
}

#[derive(Default)]
struct Failures {
    /// When the key last failed.
    last: u64,
    count: u32,
    /// How many seconds the retry waits, if that is known.
    wait: u32,
}

#[derive(Default)]
struct Shard {
    failures: SpinLock<HashMap<u64, Failures, DefaultHasher>>,
    /// The number of entries with a count above zero, valid or not.
    failing: AtomicUsize,
    /// When the shard was last swept.
    swept: AtomicU64,
}

impl Counts {
    pub(super) fn new(memory: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            memory,
            next_look: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// The number of keys with a count, valid or not.
    pub(super) fn failing(&self) -> usize {
        self.shards.iter().map(|shard| shard.failing()).sum()
    }

    /// The number of entries of each shard.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = usize> {
        let shards = self.shards.iter();
        shards.map(|shard| shard.failures.lock().len())
    }

    fn shard_of(hash: u64) -> usize {
        (hash >> 48) as usize % SHARDS
    }

    /// Records one more failure, at the time `now`, and returns how many there were before it.
    #[inline]
    pub(super) fn record(&self, hash: u64, now: u64) -> u32 {
        self.record_waiting(hash, now, 0)
    }

    /// The same of a failure whose retry waits for this many seconds.
    #[inline]
    pub(super) fn record_waiting(&self, hash: u64, now: u64, wait: u32) -> u32 {
        let hash = mix(hash);
        let at = Self::shard_of(hash);
        let shard = &self.shards[at];
        let mut all = shard.failures.lock();
        let failures = all.entry(hash).or_default();
        let before = failures.valid(now, self.memory);
        if failures.count == 0 {
            shard.set_failing(shard.failing() + 1);
        }
        failures.count = before.saturating_add(1);
        failures.wait = wait;
        failures.last = match before {
            0 => now,
            // A thread that was delayed before it took the lock must not set the time back.
            _ => failures.last.max(now),
        };
        drop(all);
        self.sweep_if_due(at, now);
        before
    }

    /// Clears the count of a key. Calls `now` only if there may be something to sweep or rebuild.
    #[inline]
    pub(super) fn forget(&self, hash: u64, now: impl FnOnce() -> u64) {
        let hash = mix(hash);
        let at = Self::shard_of(hash);
        let shard = &self.shards[at];
        if shard.failing() == 0 {
            return;
        }
        let mut all = shard.failures.lock();
        let known = all.get_mut(&hash);
        let Some(failures) = known.filter(|failures| failures.count > 0) else {
            drop(all);
            return self.sweep_if_due(at, now());
        };
        failures.count = 0;
        shard.set_failing(shard.failing() - 1);
        if all.len() > 2 * shard.failing() + SPARE_ENTRIES {
            drop(all);
            self.rebuild(at, now());
        }
    }

    pub(super) fn get(&self, hash: u64, now: impl FnOnce() -> u64) -> u32 {
        let hash = mix(hash);
        let shard = &self.shards[Self::shard_of(hash)];
        if shard.failing() == 0 {
            return 0;
        }
        let now = now();
        let all = shard.failures.lock();
        all.get(&hash)
            .map_or(0, |failures| failures.valid(now, self.memory))
    }

    /// Keeps the count of a key until its next try, which comes after this many seconds.
    pub(super) fn postpone(&self, hash: u64, now: impl FnOnce() -> u64, wait: u32) {
        let hash = mix(hash);
        let shard = &self.shards[Self::shard_of(hash)];
        if shard.failing() == 0 {
            return;
        }
        let now = now();
        if let Some(failures) = shard.failures.lock().get_mut(&hash)
            && failures.valid(now, self.memory) > 0
        {
            failures.last = failures.last.max(now);
            failures.wait = wait;
        }
    }

    #[inline]
    fn sweep_if_due(&self, home: usize, now: u64) {
        // Ordering: Relaxed; a time for comparison, which publishes nothing.
        let left = self.next_look.load(Ordering::Relaxed).saturating_sub(now);
        if left == 0 || left > self.memory {
            self.sweep_one(home, now);
        }
    }

    /// Drops the idle keys of one shard, if there is one to sweep.
    #[cold]
    fn sweep_one(&self, home: usize, now: u64) {
        let mut from_next_on = (1..=SHARDS).map(|step| (home + step) & (SHARDS - 1));
        let Some(due) = from_next_on.find(|at| self.shards[*at].is_due(now, self.memory)) else {
            let next_look = now.saturating_add(self.memory / SHARDS as u64);
            // Ordering: Relaxed; see `sweep_if_due`.
            self.next_look.store(next_look, Ordering::Relaxed);
            return;
        };
        // Ordering: Relaxed; a time, which tells other threads that this one sweeps. The lock
        // orders the rest.
        self.shards[due].swept.store(now, Ordering::Relaxed);
        self.rebuild(due, now);
    }

    /// Drops the counts of a shard that are zero or not valid, and the memory for them.
    fn rebuild(&self, at: usize, now: u64) {
        let shard = &self.shards[at];
        let mut all = shard.failures.lock();
        all.retain(|_, failures| failures.valid(now, self.memory) > 0);
        all.shrink_to_fit();
        shard.set_failing(all.len());
    }
}

impl Failures {
    /// Returns the count, or zero if the key has been idle for longer than `memory` and its wait.
    #[inline]
    fn valid(&self, now: u64, memory: u64) -> u32 {
        let idle = now.abs_diff(self.last);
        let wait = u64::from(self.wait) * 1_000_000_000;
        if idle > memory && idle - memory > wait {
            0
        } else {
            self.count
        }
    }
}

impl Shard {
    #[inline]
    fn failing(&self) -> usize {
        // Ordering: Relaxed; a failure that a thread must observe happens before its call, and no
        // other read depends on this one.
        self.failing.load(Ordering::Relaxed)
    }

    /// Only the holder of the shard's lock calls this, so no other change intervenes.
    #[inline]
    fn set_failing(&self, failing: usize) {
        // Ordering: Relaxed; see `failing`.
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Returns whether the shard has counts, and was not swept for longer than `memory`.
    fn is_due(&self, now: u64, memory: u64) -> bool {
        // Ordering: Relaxed; a time for comparison. Two threads that read the same time both sweep,
        // which is harmless.
        let swept = self.swept.load(Ordering::Relaxed);
        self.failing() > 0 && now.abs_diff(swept) > memory
    }
}
