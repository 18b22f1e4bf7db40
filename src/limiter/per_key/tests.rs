//! Tests of the failure counts.

use std::collections::HashMap;

use super::counts::{Counts, SHARDS, SPARE_ENTRIES};
use super::*;
use crate::MockClock;
use crate::limiter::FastSlow;
use crate::scaled::scaled;
use proptest::prelude::*;

const MAX: Duration = Duration::from_secs(1);
const MEMORY: u64 = 2_000_000_000;

fn mocked() -> (PerKeyLimiter<u64, FastSlow>, MockClock) {
    let (clock, mock) = Clock::mock();
    let limiter = crate::limiter::ItemFastSlow::new(MAX, MAX, 0).unwrap();
    (limiter.with_clock(clock), mock)
}

fn entries(limiter: &PerKeyLimiter<u64, FastSlow>) -> usize {
    limiter.counts.entries().sum()
}

fn record(limiter: &PerKeyLimiter<u64, FastSlow>, key: u64, now: u64) -> u32 {
    limiter.counts.record(limiter.hasher.hash_one(key), now)
}

// L12: a thread is delayed between reading the clock and taking the lock, and records after another
// thread.
#[test]
fn a_late_thread_turns_back_no_time() {
    let (limiter, mock) = mocked();
    assert_eq!(record(&limiter, 1, MEMORY), 0);
    assert_eq!(record(&limiter, 1, MEMORY - 50), 1);
    mock.advance(MAX * 4);
    assert_eq!(limiter.num_requeues(&1), 2);
    mock.advance(Duration::from_nanos(1));
    assert_eq!(limiter.num_requeues(&1), 0);
}

// L12: after a suspend the processor's counter, and with it this time, may begin anew.
#[test]
fn a_time_that_begins_anew_ends_the_failures_from_before() {
    let counts = Counts::new(MEMORY);
    let month = 30 * 24 * 3600 * 1_000_000_000;
    for key in 0..8 * SHARDS as u64 {
        counts.record(key, month);
    }
    assert_eq!(counts.record(1, 0), 0);
    assert_eq!(counts.record(1, 10), 1);
    assert_eq!(counts.get(2, || 10), 0);
    for now in 0..4 * SHARDS as u64 {
        counts.record(1, MEMORY + now);
    }
    assert_eq!(counts.failing(), 1);
}

#[test] // W2
fn a_failure_is_remembered_until_its_retry_and_as_long_as_others_behind_it() {
    let (limiter, mock) = mocked();
    let week = Duration::from_secs(7 * 24 * 3600);
    limiter.count(&1, week);
    mock.advance(week);
    // Sweeps.
    for key in 2..4 * SHARDS as u64 {
        limiter.when(&key);
    }
    assert_eq!(limiter.num_requeues(&1), 1);
    // It waits once more, which is no failure.
    limiter.postpone(&1, week);
    limiter.postpone(&0, week);
    mock.advance(week + MAX * 2);
    assert_eq!([0, 1].map(|key| limiter.num_requeues(&key)), [0, 1]);
    mock.advance(Duration::from_nanos(1));
    assert_eq!(limiter.num_requeues(&1), 0);
}

#[test]
fn hashes_that_differ_in_few_bits_spread_over_the_shards() {
    let mean = scaled(200);
    for stride in [1, 10, 1 << 12, 1 << 20, 1 << 32, 1 << 48] {
        let counts = Counts::new(MEMORY);
        for key in 0..(SHARDS * mean) as u64 {
            counts.record(key * stride, 0);
        }
        let most = counts.entries().max();
        assert!(most <= Some(2 * mean + 8), "{stride}: {most:?} of {mean}");
    }
}

// L2, L12
#[test]
fn a_burst_that_is_forgotten_leaves_a_few_entries_in_each_shard() {
    let (limiter, _mock) = mocked();
    let keys = scaled(100_000) as u64;
    for key in 0..keys {
        limiter.when(&key);
    }
    assert_eq!(entries(&limiter), keys as usize);
    for key in 0..keys {
        limiter.forget(&key);
    }
    assert_eq!(limiter.tracked(), 0);
    assert!(entries(&limiter) <= SHARDS * SPARE_ENTRIES);
}

// L12
#[test]
fn a_sweep_frees_the_entries_of_idle_keys_and_keeps_the_others() {
    let (limiter, mock) = mocked();
    for key in 0..scaled(10_000) as u64 {
        limiter.when(&key);
    }
    mock.advance(MAX);
    for key in 0..100 {
        limiter.when(&key);
    }
    mock.advance(MAX + Duration::from_nanos(1));
    for _ in 0..=SHARDS {
        limiter.forget(&u64::MAX);
    }
    assert_eq!((limiter.tracked(), entries(&limiter)), (100, 100));
    assert!((0..100).all(|key| limiter.num_requeues(&key) == 2));
}

// L12: nothing but keys that have failed before, and succeed now, is left of a burst.
#[test]
fn a_sweep_needs_no_key_that_is_new() {
    let (limiter, mock) = mocked();
    for key in 0..scaled(10_000) as u64 {
        limiter.when(&key);
    }
    limiter.forget(&0);
    mock.advance(MAX * 2 + Duration::from_nanos(1));
    for _ in 0..=SHARDS {
        limiter.forget(&0);
    }
    assert_eq!((limiter.tracked(), entries(&limiter)), (0, 0));
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Record,
    Forget,
    /// Many other keys fail and are forgotten, so that shards are rebuilt.
    Others,
}

proptest! {
    // L2, L12: compared with a plain map as the model.
    #[test]
    fn counts_are_those_of_a_map_with_the_time_of_each_failure(
        calls in prop::collection::vec(
            (
                0..6_u64,
                prop_oneof![
                    8 => Just(Call::Record),
                    6 => Just(Call::Forget),
                    1 => Just(Call::Others),
                ],
                prop_oneof![Just(0), 0..MEMORY, 0..3 * MEMORY],
            ),
            1..100,
        ),
    ) {
        let (limiter, mock) = mocked();
        let mut model = HashMap::<u64, (u32, u64)>::new();
        let mut now = 0;
        for (key, call, later) in calls {
            now += later;
            mock.advance(Duration::from_nanos(later));
            model.retain(|_, (_, last)| now - *last <= MEMORY);
            match call {
                Call::Record => {
                    let failed = model.entry(key).or_insert((0, now));
                    prop_assert_eq!(record(&limiter, key, now), failed.0);
                    *failed = (failed.0 + 1, now);
                }
                Call::Forget => {
                    limiter.forget(&key);
                    model.remove(&key);
                }
                Call::Others => for other in 0..4000 {
                    limiter.when(&(10 + other));
                    limiter.forget(&(10 + other));
                },
            }
            for key in 0..6 {
                let expected = model.get(&key).map_or(0, |failed| failed.0);
                prop_assert_eq!(limiter.num_requeues(&key), expected);
            }
            prop_assert!(limiter.tracked() >= model.len());
        }
        for key in 0..6 {
            limiter.forget(&key);
        }
        prop_assert_eq!(limiter.tracked(), 0);
    }
}
