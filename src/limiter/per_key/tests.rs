//! Counts of failures on their own.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;

use super::place::CALLS_PER_VISIT;
use super::print::Identity;
use super::shard::KEPT_CAPACITY;
use super::*;
use crate::scaled::scaled;
use proptest::prelude::*;

const MAX: Duration = Duration::from_secs(1);

fn mocked() -> (PerKey<u64>, crate::MockClock) {
    let (clock, mock) = Clock::mock();
    (PerKey::new(MAX).with_clock(clock), mock)
}

fn capacity(counts: &PerKey<u64>) -> usize {
    counts.places.iter().map(|place| place.capacity()).sum()
}

// L12
#[test]
fn one_busy_key_frees_the_shards_of_all_others() {
    let (counts, mock) = mocked();
    for key in 0..scaled(10_000) as u64 {
        counts.record(&key);
    }
    for _ in 0..2 {
        mock.advance(MAX * 2 + Duration::from_nanos(1));
        for _ in 0..SHARDS * CALLS_PER_VISIT as usize {
            counts.record(&0);
        }
    }
    assert_eq!(counts.tracked(), 1);
    assert!(capacity(&counts) <= 8, "{} places", capacity(&counts));
}

// L12
#[test]
fn forgetting_the_last_key_of_a_burst_gives_its_table_back() {
    let (counts, _mock) = mocked();
    for key in 0..scaled(100_000) as u64 {
        counts.record(&key);
    }
    for key in 0..scaled(100_000) as u64 {
        counts.forget(&key);
    }
    assert_eq!(counts.tracked(), 0);
    assert!(capacity(&counts) <= SHARDS * 2 * KEPT_CAPACITY);
}

// L12
#[test]
fn a_count_survives_turns_while_its_key_is_not_idle() {
    let (counts, mock) = mocked();
    for n in 0..scaled(100) as u32 {
        assert_eq!(counts.record(&7), n);
        // Busy neighbours turn every shard whenever that is due.
        for key in 1000..2000 {
            counts.record(&key);
        }
        mock.advance(MAX * 2);
    }
}

proptest! {
    // L2, L12: against one map that never frees anything.
    #[test]
    fn counts_are_those_of_a_map_with_the_time_of_each_failure(
        calls in prop::collection::vec((0..4_u64, 0..3_u8, 0..1300_u32), 1..200),
    ) {
        let (counts, mock) = mocked();
        let memory = MAX * 2;
        let mut model = HashMap::<u64, (u32, Duration)>::new();
        for (key, call, thousandths) in calls {
            mock.advance(memory * thousandths / 1000 / 2);
            let now = mock.clock().now();
            let failed = model.entry(key).or_insert((0, now));
            if now - failed.1 > memory {
                failed.0 = 0;
            }
            prop_assert_eq!(counts.count(&key), failed.0);
            if call == 0 {
                counts.forget(&key);
                failed.0 = 0;
            } else {
                prop_assert_eq!(counts.record(&key), failed.0);
                *failed = (failed.0 + 1, now);
                // In the same shard or not: look after all of them.
                for place in counts.places.iter() {
                    place.turn_if_due(counts.idle.now(), counts.idle.span());
                }
            }
        }
    }
}

#[test]
fn equal_keys_have_one_fingerprint_and_each_limiter_its_own_seeds() {
    let (one, other) = (Fingerprints::new(), Fingerprints::new());
    assert_eq!(one.of("key"), one.of(&String::from("key")));
    assert_ne!(one.of("key"), one.of("kez"));
    assert_ne!(one.of("key"), other.of("key"));
    assert_ne!(one.of(&1_u64).low(), one.of(&1_u64).high());
}

#[test]
fn keys_spread_over_the_shards_by_one_half_of_the_fingerprint_and_over_a_table_by_the_other() {
    // Whatever the seeds are.
    for _ in 0..scaled(200) {
        let prints = Fingerprints::new();
        let homes = (0..4000_u64).map(|key| home_of(prints.of(&key)));
        assert_eq!(homes.collect::<HashSet<usize>>().len(), SHARDS);
    }
    let prints = Fingerprints::new();
    let prints = (0..100_u64).map(|key| prints.of(&key));
    for print in prints {
        assert_eq!(home_of(print), home_of(Print::new(0, print.high())));
        let mut hasher = Identity::default();
        print.hash(&mut hasher);
        assert_eq!(hasher.finish(), print.low());
    }
}

/// A key's `Hash` may look at the hash so far.
#[test]
fn a_fingerprint_in_the_making_has_a_hash() {
    let prints = Fingerprints::new();
    let mut pair = prints.pair();
    7_u64.hash(&mut pair);
    assert_eq!(pair.finish(), prints.of(&7_u64).low());
}
