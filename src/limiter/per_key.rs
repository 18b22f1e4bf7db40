//! The failures of each key: how often it failed, and when last. What the per-key limiters share.
//!
//! Keys are not kept. A key is hashed to a [fingerprint](mod@print) of 128 bits, keyed with seeds that nobody
//! outside knows; two keys that share one (for a billion keys, one chance in 10^20) would share a count.
//!
//! | who | may touch what |
//! | --- | --- |
//! | a call | the [place] of its fingerprint, and the [shard] there under its lock |
//! | every [`CALLS_PER_VISIT`](place::CALLS_PER_VISIT)th `record` or `forget` at a place | then its shard again, and one other, each under its lock alone |
//!
//! Ground rules: the user's `Hash` runs, and the [clock](idle) is read, before a lock is taken; under a lock
//! there is nothing but a comparison, or table look-ups. So no user code can panic or call back under one, and
//! no thread ever holds two.
//!
//! # How the idle are forgotten
//!
//! A count is valid until its key has been idle for longer than `memory`. Every look at it checks that.
//! To free its space as well without ever walking a table, a shard has two of them, and turns when its last
//! turn is longer than `memory` ago: the old one is freed, and the young one becomes the old. What is in `old`
//! at a turn was last recorded before the turn that put it there, so it has been idle for longer than
//! `memory`. If nothing at all was recorded in the tables for so long, both go at once.
//!
//! An idle count hence takes up space for at most two spans of `memory` and until the next visit, or for
//! one span if its neighbours are idle as well; the work of a call is bounded, and a table that a burst
//! made large goes back to the allocator. The visits are for limiters whose few remaining keys all live
//! in some shards, or no longer fail: they keep the others turning.

mod idle;
mod place;
mod print;
mod shard;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::Clock;
use crate::nanos;
use idle::Idle;
use place::Place;
use print::{Fingerprints, Print};

/// A power of two, well above the threads that fail keys at the same moment.
const SHARDS: usize = 64;

/// How long the counts of a limiter are remembered whose delays are all zero.
const MEMORY_WITHOUT_DELAY: Duration = Duration::from_secs(60);

/// Counts the failures of each key.
pub(super) struct PerKey<K: ?Sized> {
    fingerprints: Fingerprints,
    places: Box<[CachePadded<Place>; SHARDS]>,
    idle: Idle,
    // Keys are only ever borrowed: sharing the counts asks nothing of K.
    keys: PhantomData<fn(&K)>,
}

impl<K: ?Sized> PerKey<K> {
    /// For a limiter whose longest delay is `max_delay`: idle keys are remembered for twice that.
    pub(super) fn new(max_delay: Duration) -> Self {
        let memory = if max_delay.is_zero() {
            MEMORY_WITHOUT_DELAY
        } else {
            max_delay.saturating_mul(2)
        };
        // Not made on the stack, and of a length that is known: the index needs no check.
        let places: Box<[_]> = (0..SHARDS)
            .map(|_| CachePadded::new(Place::new()))
            .collect();
        let Ok(places) = places.try_into() else {
            unreachable!("there are so many")
        };
        Self {
            fingerprints: Fingerprints::new(),
            places,
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
        self.places.iter().map(|place| place.tracked()).sum()
    }

    /// After a call, frees the places of keys that are idle at home and in another shard, if it is time to.
    #[inline]
    fn visit(&self, home: usize) {
        if let Some(visits) = self.places[home].visit_after_call() {
            self.visit_both(home, home.wrapping_add(visits) % SHARDS);
        }
    }

    #[cold]
    fn visit_both(&self, home: usize, other: usize) {
        let now = self.idle.now();
        for place in [home, other] {
            self.places[place].turn_if_due(now, self.idle.span());
        }
    }
}

impl<K: Hash + ?Sized> PerKey<K> {
    /// Records one more failure, and returns how many there were before it.
    #[inline]
    pub(super) fn record(&self, key: &K) -> u32 {
        let now = self.idle.now();
        let print = self.fingerprints.of(key);
        let home = home_of(print);
        let before = self.places[home].record(print, now, self.idle.span());
        self.visit(home);
        before
    }

    /// How many failures there were.
    pub(super) fn count(&self, key: &K) -> u32 {
        let now = self.idle.now();
        let print = self.fingerprints.of(key);
        let home = home_of(print);
        self.places[home].count(print, now, self.idle.span())
    }

    /// Starts over with `key`.
    #[inline]
    pub(super) fn forget(&self, key: &K) {
        let print = self.fingerprints.of(key);
        let home = home_of(print);
        self.places[home].forget(print);
        self.visit(home);
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

/// The place of a key: by the half of its fingerprint that the tables do not hash by.
///
/// Multiplied once more (by 2^64 over the golden ratio), because with one seed in forty the low bits of the
/// hashes of a few thousand consecutive numbers leave shards out.
#[inline]
fn home_of(print: Print) -> usize {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    (print.high().wrapping_mul(SPREAD) >> (u64::BITS - SHARDS.ilog2())) as usize
}

#[cfg(test)]
mod tests;
