//! The table compared with a plain map, for hashes that are spread and for hashes that are not.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::scaled::scaled;

/// Knows the hashes of all values ever made, and which of them are in the table.
#[derive(Default)]
struct Owner {
    hashes: Vec<ShortHash>,
    inside: BTreeSet<u32>,
    asked: Cell<usize>,
    told: Cell<usize>,
}

impl Owner {
    fn make(&mut self, hash: ShortHash) -> u32 {
        let value = u32::try_from(self.hashes.len()).unwrap();
        self.hashes.push(hash);
        value
    }
}

impl Hashes<u32> for Owner {
    unsafe fn hash(&self, value: u32) -> ShortHash {
        assert!(
            self.inside.contains(&value),
            "the hash of a value that is not in the table"
        );
        self.asked.set(self.asked.get() + 1);
        self.hashes[value as usize]
    }

    unsafe fn expect(&self, value: u32) {
        assert!(
            self.inside.contains(&value),
            "announced a value that is not in the table"
        );
        self.told.set(self.told.get() + 1);
    }
}

/// Checks the table's counts, and that a lookup finds each value.
fn assert_consistent(table: &Table<u32>, owner: &Owner) {
    let groups = table.groups.len();
    assert!(groups == 0 || groups.is_power_of_two());
    assert!(table.len() <= table.capacity());
    let mut passed = vec![0; groups];
    let mut found = BTreeSet::new();
    for (at, group) in table.groups.iter().enumerate() {
        for value in group.values() {
            assert!(found.insert(value), "{value} is there twice");
            let path = owner.hashes[value as usize].path(groups);
            path.take_while(|step| *step != at)
                .for_each(|step| passed[step] += 1);
        }
    }
    let counts: Vec<_> = table.groups.iter().map(Group::overflow_count).collect();
    assert_eq!(counts, passed, "keys that were passed on");
    assert_eq!(found, owner.inside);
    assert_eq!(found.len(), table.len());
    for (value, hash) in (0..).zip(&owner.hashes) {
        let there = table.find(*hash, |other| other == value);
        assert_eq!(there.is_some(), owner.inside.contains(&value), "{value}");
    }
}

fn insert(table: &mut Table<u32>, owner: &mut Owner, hash: ShortHash) -> u32 {
    let value = owner.make(hash);
    table.insert(hash, value, owner);
    owner.inside.insert(value);
    value
}

/// Removes the values for which `leaves` returns true.
fn remove(table: &mut Table<u32>, owner: &mut Owner, leaves: impl Fn(u32) -> bool) {
    let mut visited = BTreeSet::new();
    table.remove_if(owner, |owner, value| {
        assert!(visited.insert(value), "{value} was visited twice");
        leaves(value).then(|| {
            // The table may announce the value until it is removed.
            owner.inside.remove(&value);
            owner.hashes[value as usize]
        })
    });
    assert!(visited.is_superset(&owner.inside), "not all were visited");
}

#[derive(Clone, Debug)]
enum Op {
    Insert {
        hashes: Vec<u32>,
    },
    /// Removes the values whose number is `of` modulo `every`.
    Remove {
        every: u32,
        of: u32,
    },
    Shrink {
        to: usize,
    },
}

/// Hashes that are spread, that share their home, that share their tag, and that are the same.
fn hashes() -> impl Strategy<Value = Vec<u32>> {
    let any = prop_oneof![
        4 => any::<u32>(),
        2 => any::<u8>().prop_map(|tag| u32::from(tag) << 20 | 3),
        2 => any::<u16>().prop_map(u32::from),
        1 => Just(7),
    ];
    prop::collection::vec(any, 1..60)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => hashes().prop_map(|hashes| Op::Insert { hashes }),
        2 => (1..5_u32, 0..5_u32).prop_map(|(every, of)| Op::Remove { every, of }),
        1 => (0..300_usize).prop_map(|to| Op::Shrink { to }),
    ];
    prop::collection::vec(op, 1..if cfg!(miri) { 4 } else { 30 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(128) as u32))]

    #[test]
    fn the_table_holds_what_was_inserted_and_not_removed(ops in ops()) {
        let mut table = Table::new();
        let mut owner = Owner::default();
        for op in ops {
            match op {
                Op::Insert { hashes } => for bits in hashes {
                    insert(&mut table, &mut owner, ShortHash::from_bits(bits));
                },
                Op::Remove { every, of } => {
                    remove(&mut table, &mut owner, |value| value % every == of % every);
                }
                Op::Shrink { to } => {
                    table.shrink_to(to, &owner);
                    let fits = to.max(table.len());
                    prop_assert!(table.capacity() >= table.len());
                    prop_assert!(table.capacity() < (2 * fits.max(FULL)).max(1));
                }
            }
            assert_consistent(&table, &owner);
        }
        remove(&mut table, &mut owner, |_| true);
        assert_consistent(&table, &owner);
        table.shrink_to(0, &owner);
        prop_assert_eq!(table.capacity(), 0);
    }

    // Every group, so that a key finds the last free place of a table.
    #[test]
    fn a_path_meets_each_group_once(bits in any::<u32>(), groups in 0..10_u32) {
        let groups = 1_usize << groups;
        let hash = ShortHash::from_bits(bits);
        let path: Vec<_> = hash.path(groups).collect();
        prop_assert_eq!(path[0], bits as usize % groups);
        prop_assert_eq!(BTreeSet::from_iter(path).len(), groups);
    }
}

#[test]
fn an_empty_table_takes_no_memory_and_finds_nothing() {
    let table = Table::<u32>::new();
    assert_eq!((table.len(), table.capacity()), (0, 0));
    assert_eq!(table.find(ShortHash::of(1), |_| true), None);
    assert_eq!(table.for_some(0, 100, |_| panic!("there is nothing")), None);
}

#[test]
fn a_value_is_told_apart_by_its_tag_before_it_is_asked_about() {
    let mut table = Table::new();
    let mut owner = Owner::default();
    let hash = |tag: u32| ShortHash::from_bits(tag << 20);
    let first = insert(&mut table, &mut owner, hash(1));
    let second = insert(&mut table, &mut owner, hash(2));
    let only = |hash, value| {
        let mut asked = Vec::new();
        table.find(hash, |value| {
            asked.push(value);
            false
        });
        assert_eq!(asked, [value]);
    };
    only(hash(1), first);
    only(hash(2), second);
    assert_eq!(table.find(hash(3), |_| panic!("of another tag")), None);
    // 0 is the tag of a free place, so those hashes have the next.
    only(hash(0), first);
}

// Without the overflow count, a lookup of a missing key would visit every group.
#[test]
fn a_lookup_ends_where_nobody_was_passed_on() {
    let mut table = Table::new();
    let mut owner = Owner::default();
    // Room for more groups than one.
    for bits in 0..100 {
        insert(&mut table, &mut owner, ShortHash::from_bits(bits * 12_345));
    }
    let groups = table.groups.len();
    remove(&mut table, &mut owner, |_| true);
    assert!(groups > 4 && table.groups.len() == groups);
    // One more than the home has places for.
    for _ in 0..=PLACES {
        insert(&mut table, &mut owner, ShortHash::from_bits(0));
    }
    assert_eq!(table.groups[0].overflow_count(), 1);
    let mut asked = 0;
    table.find(ShortHash::from_bits(0), |_| {
        asked += 1;
        false
    });
    assert_eq!(asked, PLACES + 1);
    // Once the keys in the home are removed, the one that was passed on is still found.
    let away = u32::try_from(owner.hashes.len() - 1).unwrap();
    remove(&mut table, &mut owner, |value| value != away);
    assert_eq!(table.find(ShortHash::from_bits(0), |_| true), Some(away));
    remove(&mut table, &mut owner, |_| true);
    assert_eq!(
        table.groups[0].overflow_count(),
        0,
        "no key is away from its home any more"
    );
}

#[test]
fn growing_asks_for_each_hash_once() {
    let mut table = Table::new();
    let mut owner = Owner::default();
    for bits in 0..80_u32 {
        insert(
            &mut table,
            &mut owner,
            ShortHash::from_bits(bits.wrapping_mul(0x9E37_79B1)),
        );
    }
    assert_eq!((table.len(), table.capacity()), (80, 80));
    // 10, 20 and 40 were full before.
    assert_eq!(owner.asked.get(), 10 + 20 + 40);
    insert(&mut table, &mut owner, ShortHash::from_bits(5));
    assert_eq!((owner.asked.get(), table.capacity()), (70 + 80, 160));
    // A table that fits is not moved.
    table.shrink_to(160, &owner);
    table.shrink_to(81, &owner);
    assert_eq!((owner.asked.get(), table.capacity()), (70 + 80, 160));
}

// They are a cache miss each.
#[test]
fn the_owner_is_told_of_all_values_that_a_walk_comes_to_but_the_first() {
    let mut table = Table::new();
    let mut owner = Owner::default();
    for bits in 0..80_u32 {
        let hash = ShortHash::from_bits(bits.wrapping_mul(0x9E37_79B1));
        insert(&mut table, &mut owner, hash);
    }
    let first: usize = table.groups[..AHEAD]
        .iter()
        .map(|g| g.values().count())
        .sum();
    owner.told.set(0);
    remove(&mut table, &mut owner, |_| false);
    assert_eq!(owner.told.take(), 80 - first);
    table.resize(16, &owner);
    assert_eq!(owner.told.take(), 80 - first);
}

#[test]
fn a_walk_in_steps_meets_every_value_once() {
    let mut table = Table::new();
    let mut owner = Owner::default();
    for bits in 0..500_u32 {
        insert(
            &mut table,
            &mut owner,
            ShortHash::from_bits(bits.wrapping_mul(0x9E37_79B1)),
        );
    }
    for most in [1, 12, 13, 100, usize::MAX] {
        let mut met = BTreeMap::new();
        let mut place = Some(0);
        let mut steps = 0;
        while let Some(from) = place {
            place = table.for_some(from, most, |value| *met.entry(value).or_insert(0) += 1);
            steps += 1;
        }
        assert!(met.len() == 500 && met.values().all(|times| *times == 1));
        assert_eq!(steps, table.groups.len().div_ceil(most.div_ceil(PLACES)));
    }
    let mut all = 0;
    table.for_each(|_| all += 1);
    assert_eq!(all, 500);
}

#[test]
fn a_short_hash_is_made_of_28_bits_below_those_of_the_shard() {
    let kept = ShortHash::LEFT_OUT..ShortHash::LEFT_OUT + ShortHash::BITS;
    // There are 2^16 shards at most.
    assert_eq!(kept.end, 64 - 16);
    for hash in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
        for bit in 0..64 {
            let flipped = ShortHash::of(hash ^ 1 << bit).bits() ^ ShortHash::of(hash).bits();
            let expected = match kept.contains(&bit) {
                true => 1 << (bit - kept.start),
                false => 0,
            };
            assert_eq!(flipped, expected, "bit {bit} of {hash:#x}");
        }
    }
}
