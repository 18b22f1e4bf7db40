//! The policy of sweeping, shard by shard: what stays, what leaves, when, and how keys are dropped.

use super::sweep::{MOST_DOUBLINGS, REST, REST_PER_NODE};
use super::*;
use crate::scaled::scaled;

mod drops;

/// The number of nodes that a shard always keeps in these tests.
const ROOM: usize = 128;

/// Two shards with little room; the hashes of [`insert`] all belong to the first.
fn keys<K>() -> Keys<K, ()> {
    let mut keys = Keys::new(2, SideData::default());
    keys.residents = ROOM;
    keys.shards().for_each(|mut shard| shard.store.limit = ROOM);
    keys
}

/// The hash of a number. None of them is sampled by the shard's ghost list.
fn hash_of(number: usize) -> u64 {
    hash_with(1 << 24 | number)
}

/// The hash whose bits are those of a number where shards and tables look.
fn hash_with(bits: usize) -> u64 {
    (bits as u64) << ShortHash::LEFT_OUT
}

/// Interns `key`, whose number gives its hash, as queued.
fn insert<K>(keys: &Keys<K, ()>, number: usize, key: K) -> Queued<K> {
    insert_as(keys, hash_of(number), key)
}

fn insert_as<K>(keys: &Keys<K, ()>, hash: u64, key: K) -> Queued<K> {
    assert_eq!(keys.shard_of(hash).0, 0, "small hashes share a shard");
    let mut shard = keys.lock(hash);
    let (entry, swept) = shard.insert_queued(hash, key);
    drop(shard);
    drop(swept);
    entry
}

/// Delivers the key and finishes it.
fn work<K>(entry: Queued<K>) {
    assert!(entry.begin().0.finish().0.is_none(), "the key was dirty");
}

fn insert_and_work(keys: &Keys<usize, ()>, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        work(insert(keys, number, number));
    }
}

/// Adds an idle key once more, delivers it and finishes it.
fn recur(keys: &Keys<usize, ()>, number: usize) {
    let hash = hash_of(number);
    match keys.lock(hash).add(hash, |key| *key == number) {
        Some(Added::Queued(entry)) => work(entry),
        _ => panic!("{number} is not idle and interned"),
    }
}

/// The interned keys of the first shard, in order.
fn interned(keys: &Keys<usize, ()>) -> Vec<usize> {
    let mut found = Vec::new();
    keys.lock(0).for_each(|node| found.push(node.key));
    found.sort_unstable();
    found
}

fn limit<K>(keys: &Keys<K, ()>) -> usize {
    keys.lock(0).store.limit
}

/// Looks at this time, until no pass is under way.
fn look<K>(keys: &Keys<K, ()>, now: u64) {
    while keys.look(|| now) {}
}

fn next_look<K>(keys: &Keys<K, ()>) -> Option<u64> {
    keys.next_look(|| 0)
}

/// Interns `count` keys in the first shard, and works on them only then: no adder sweeps any.
fn burst<K>(keys: &Keys<K, ()>, count: usize, key: impl Fn(usize) -> K) {
    let entries: Vec<_> = (0..count)
        .map(|number| insert(keys, number, key(number)))
        .collect();
    assert_eq!(keys.lock(0).table.len(), count, "busy keys stay");
    entries.into_iter().for_each(work);
}

/// Interns a new pinned key.
fn insert_pinned(keys: &Keys<usize, ()>, number: usize, closed: bool) -> Pin<usize> {
    let hash = hash_of(number);
    keys.lock(hash).insert_pinned(hash, number, closed).0
}

#[test]
fn a_key_is_found_by_its_hash_and_then_by_itself() {
    let keys = keys();
    let (hash, other) = (hash_with(7), hash_with(8));
    for key in ["a", "b"] {
        work(insert_as(&keys, hash, key));
    }
    let shard = keys.lock(hash);
    assert!(shard.add(hash, |known| *known == "c").is_none());
    let unknown = shard.add(other, |_| panic!("asked about another hash"));
    assert!(unknown.is_none());
    let added = shard.add(hash, |known| *known == "b");
    assert!(matches!(added, Some(Added::Queued(_))));
    let mut phases = Vec::new();
    shard.for_each(|node| phases.push((node.key, node.state.phase())));
    phases.sort_by_key(|(key, _)| *key);
    assert_eq!(phases, [("a", State::Idle), ("b", State::Queued)]);
}

#[test]
fn the_shard_of_a_pinned_key_is_that_of_its_hash() {
    let keys = Keys::<u64, ()>::new(8, SideData::default());
    // So many that the second chunk of a shard is in use, too.
    for key in 0..2000_u64 {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (pin, _) = keys.lock(hash).insert_pinned(hash, key, false);
        assert!(
            keys.lock_of(&pin)
                .find(hash, |known| *known == key)
                .is_some()
        );
        pin.unpin();
    }
}

// C10: the fixed cache.
#[test]
fn as_many_idle_keys_as_residents_are_kept_and_one_more_sweeps_them() {
    let keys = keys();
    insert_and_work(&keys, 0..ROOM);
    keys.look(|| unreachable!("there is nothing to sweep"));
    assert_eq!(next_look(&keys), None);
    assert_eq!(interned(&keys), Vec::from_iter(0..ROOM));
    insert_and_work(&keys, [1000]);
    assert_eq!(interned(&keys), [1000]);
    assert_eq!(limit(&keys), ROOM);
}

// C10: recurring keys stay for one sweep, and for each after which they came again.
#[test]
fn keys_that_recur_are_spared_once() {
    let keys = keys();
    insert_and_work(&keys, 0..ROOM);
    (0..10).for_each(|number| recur(&keys, number));
    insert_and_work(&keys, [1000]);
    assert_eq!(interned(&keys), Vec::from_iter((0..10).chain([1000])));
    // Half of them again; then one key too many once more.
    (0..5).for_each(|number| recur(&keys, number));
    let room = limit(&keys) - interned(&keys).len();
    insert_and_work(&keys, 2000..2000 + room);
    assert_eq!(interned(&keys).len(), ROOM);
    insert_and_work(&keys, [3000]);
    assert_eq!(interned(&keys), Vec::from_iter((0..5).chain([3000])));
}

#[test]
fn busy_keys_stay_and_double_the_limit() {
    let keys = keys();
    let mut entries = Vec::new();
    let mut limits = Vec::new();
    for number in 0..=8 * ROOM {
        entries.push(insert(&keys, number, number));
        if limits.last() != Some(&limit(&keys)) {
            limits.push(limit(&keys));
        }
    }
    // One sweep each time the shard has doubled: adding n keys visits less than 2 n nodes.
    let expected = [1, 2, 4, 8, 16].map(|times| times * ROOM);
    assert_eq!(limits, expected);
    assert_eq!(interned(&keys).len(), 8 * ROOM + 1);
    // Queued, processing and dirty keys are all busy.
    let held = entries.pop().unwrap().begin().0;
    keys.shrink();
    assert_eq!(interned(&keys).len(), 8 * ROOM + 1);
    let hash = hash_of(*held.key());
    let dirty = keys.lock(hash).add(hash, |key| key == held.key());
    assert!(matches!(dirty, Some(Added::Deferred)));
    keys.shrink();
    assert_eq!(interned(&keys).len(), 8 * ROOM + 1);
    entries.extend(held.finish().0);
    entries.into_iter().for_each(work);
    keys.shrink();
    assert!(interned(&keys).is_empty());
}

// C11: a handle keeps its key interned.
#[test]
fn pinned_keys_stay_until_the_last_pin_is_gone() {
    let keys = keys();
    let pin = insert_pinned(&keys, 5, false);
    let hash = hash_of(5);
    let same = keys.lock(hash).pin(hash, |key| *key == 5).unwrap();
    let third = same.clone();
    insert_and_work(&keys, 1000..1000 + 3 * ROOM);
    for pin in [pin, same, third] {
        keys.shrink();
        assert_eq!(interned(&keys), [5]);
        assert_eq!((*pin.key(), pin.phase()), (5, State::Idle));
        pin.unpin();
    }
    keys.shrink();
    assert!(interned(&keys).is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "100 000 keys in one thread")]
fn a_steady_backlog_does_not_make_the_table_grow_and_shrink_in_turns() {
    // Nearly half of what the table has room for: its removed nodes make it double.
    let backlog = 3225;
    let keys = keys();
    let mut queued = std::collections::VecDeque::new();
    let (mut capacity, mut changes) = (0, 0);
    for number in 0..100_000 {
        queued.push_back(insert(&keys, number, number));
        if queued.len() > backlog {
            work(queued.pop_front().expect("not empty"));
        }
        let now = keys.lock(0).table.capacity();
        changes += usize::from(now != capacity);
        capacity = now;
    }
    // By doubling, from room for 3 to room for 28 672.
    assert!(changes <= 15, "{changes} changes");
    queued.into_iter().for_each(work);
}

#[test]
fn a_key_that_is_pinned_after_the_shut_down_is_born_closed() {
    let keys = keys();
    let pin = insert_pinned(&keys, 5, true);
    assert!(matches!(pin.add(), Added::Closed));
    pin.unpin();
}

// C10: a consumer with nothing to do removes a burst that has been processed.
#[test]
fn a_worked_off_burst_is_swept_by_an_idle_consumer() {
    let keys = keys();
    burst(&keys, scaled(100_000), |number| number);
    assert!(keys.lock(0).table.capacity() >= scaled(100_000));
    look(&keys, 0);
    assert_eq!(next_look(&keys), None);
    assert_eq!(interned(&keys).len(), 0);
    let shard = keys.lock(0);
    let capacity = shard.table.capacity();
    assert!(capacity <= 4 * ROOM, "room for {capacity} keys is kept");
    assert_eq!(shard.store.limit, ROOM);
}

// C10: keys that recurred leave with the second pass, and no earlier than a rest after the first.
#[test]
fn keys_of_a_burst_that_recurred_leave_after_a_rest() {
    let keys = keys();
    let count = 2 * ROOM;
    burst(&keys, count, |number| number);
    (0..count).for_each(|number| recur(&keys, number));
    look(&keys, 7);
    assert_eq!(interned(&keys).len(), count, "all of them recurred");
    assert_eq!(limit(&keys), 2 * count);
    let rest = REST + count as u64 * REST_PER_NODE;
    assert_eq!(next_look(&keys), Some(7 + rest));
    (0..1000).for_each(|_| look(&keys, 7 + rest - 1));
    assert_eq!(interned(&keys).len(), count);
    look(&keys, 7 + rest);
    assert!(interned(&keys).is_empty());
    assert_eq!(next_look(&keys), None);
}

// C10: a working set that recurs within a rest stays.
#[test]
fn keys_that_keep_recurring_are_never_swept() {
    let keys = keys();
    let count = 2 * ROOM;
    burst(&keys, count, |number| number);
    let rest = REST + count as u64 * REST_PER_NODE;
    for round in 0..20 {
        (0..count).for_each(|number| recur(&keys, number));
        look(&keys, round * rest);
    }
    assert_eq!(interned(&keys).len(), count);
}

// C10: a new key among many known ones is no burst.
#[test]
fn one_key_more_makes_no_pass_due_before_its_time() {
    let keys = keys();
    let entries: Vec<_> = (0..2 * ROOM).map(|key| insert(&keys, key, key)).collect();
    look(&keys, 0);
    entries.into_iter().for_each(work);
    insert_and_work(&keys, [2 * ROOM]);
    look(&keys, 1);
    assert_eq!(interned(&keys).len(), 2 * ROOM + 1);
}

// C10: what was busy or pinned at one pass leaves with a later one, whenever it is idle.
#[test]
fn passes_that_change_nothing_come_at_longer_and_longer_intervals() {
    let keys = keys();
    let count = 2 * ROOM;
    let pins: Vec<_> = (0..count)
        .map(|key| insert_pinned(&keys, key, false))
        .collect();
    let mut now = 0;
    let mut rests = Vec::new();
    for _ in 0..MOST_DOUBLINGS + 3 {
        look(&keys, now);
        let next = next_look(&keys).expect("the shard is crowded");
        rests.push(next - now - count as u64 * REST_PER_NODE);
        now = next;
    }
    let doubled: Vec<_> = (1..=MOST_DOUBLINGS).map(|times| REST << times).collect();
    assert_eq!(rests[..doubled.len()], doubled);
    assert_eq!(rests[doubled.len()..], [REST << MOST_DOUBLINGS; 3]);
    pins.iter().for_each(Pin::unpin);
    look(&keys, now);
    assert!(interned(&keys).is_empty());
}

// C10, F2: a look does not wait for the thread that has locked a shard.
#[test]
fn a_locked_shard_is_left_to_the_next_pass() {
    let keys = keys();
    let count = 2 * ROOM;
    burst(&keys, count, |number| number);
    let shard = keys.lock(0);
    look(&keys, 0);
    assert_eq!(shard.table.len(), count);
    drop(shard);
    let next = next_look(&keys).expect("the shard may be crowded");
    assert!(next <= 2 * REST, "it is swept {next} ns later");
    look(&keys, next);
    assert!(interned(&keys).is_empty());
    assert_eq!(next_look(&keys), None);
}

// C10: an idle consumer of a large queue sweeps each shard, however many there are.
#[test]
#[cfg_attr(miri, ignore = "many keys in one thread")]
fn a_burst_leaves_whatever_the_number_of_shards() {
    for shards in [2, 64, 128, 1024] {
        let keys = Keys::new(shards, SideData::default());
        let many = 4 * shards * keys.fewest_swept();
        let entries: Vec<_> = (0..many as u64)
            .map(|key| {
                let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                keys.lock(hash).insert_queued(hash, key).0
            })
            .collect();
        entries.into_iter().for_each(work);
        look(&keys, 0);
        let left: usize = keys.shards().map(|shard| shard.table.len()).sum();
        assert_eq!(left, 0, "{shards} shards");
    }
}

#[test]
fn shrink_takes_even_keys_that_recur_and_gives_the_table_back() {
    let keys = keys();
    burst(&keys, 8 * ROOM, |number| number);
    (0..100).for_each(|number| recur(&keys, number));
    keys.shrink();
    assert!(interned(&keys).is_empty());
    assert_eq!(keys.lock(0).table.capacity(), 0);
    assert_eq!(limit(&keys), ROOM);
}

// C10: the fixed cache is shared among the shards.
#[test]
#[cfg_attr(miri, ignore = "thousands of shards, for half an hour")]
fn the_cache_is_as_large_for_many_shards_as_for_few() {
    for shards in [2, 4, 64, 256] {
        let keys = Keys::<u64, ()>::new(shards, SideData::default());
        assert_eq!(shards * keys.residents, RESIDENTS);
        let residents = keys.residents;
        assert!(keys.shards().all(|shard| shard.store.limit == residents));
    }
    for (shards, residents) in [(1024, 8), (8192, 1), (65_536, 1)] {
        let keys = Keys::<u64, ()>::new(shards, SideData::default());
        assert_eq!(keys.residents, residents);
    }
}

/// Passes `count` keys with sampled hashes through the first shard, in order.
fn pass(keys: &Keys<usize, ()>, count: usize) {
    for number in 0..count {
        let hash = hash_with(number);
        let known = keys.lock(hash).add(hash, |key| *key == number);
        match known {
            Some(Added::Queued(entry)) => work(entry),
            Some(_) => panic!("{number} is not idle"),
            None => work(insert_as(keys, hash, number)),
        }
    }
}

// C10: keys that were swept and return make the shard grow, until it has room for all of them.
#[test]
fn a_shard_grows_for_keys_that_return() {
    let keys = keys();
    let count = 2 * ROOM;
    pass(&keys, count);
    assert_eq!(limit(&keys), ROOM, "none of them has returned yet");
    assert_eq!(interned(&keys).len(), ROOM);
    pass(&keys, count);
    pass(&keys, count);
    assert!(limit(&keys) >= count, "a limit of {}", limit(&keys));
    pass(&keys, count);
    assert_eq!(interned(&keys), Vec::from_iter(0..count));
    // Shrinking forgets that they returned.
    keys.shrink();
    pass(&keys, count);
    assert_eq!(limit(&keys), ROOM);
}

// With the lock on the same line, four threads that add queued keys waited half as long again for
// that line.
#[test]
fn what_an_add_reads_of_a_store_is_on_one_line_and_not_on_that_of_a_lock() {
    let keys = keys::<u64>();
    let line = |address: usize| address / 64;
    let shard = keys.shard(1);
    let store = line(std::ptr::from_ref(&**shard.store).addr());
    let limit = std::ptr::from_ref(&shard.store.limit).addr();
    assert_eq!(line(limit + size_of::<usize>() - 1), store);
    let chunks = shard.store.slab.address_of_chunks();
    assert_eq!(line(chunks + size_of::<Vec<*mut ()>>() - 1), store);
    for lock in &keys.shards {
        assert_ne!(line(std::ptr::from_ref(lock).addr()), store);
    }
}
