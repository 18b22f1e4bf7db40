//! The policy of sweeping, shard by shard: what stays, what leaves, when, and how keys are dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::sweep::{CREDIT_PER_NODE_SWEPT, SLEEPS_PER_CREDIT};
use super::*;
use crate::caught::Bomb;
use crate::scaled::scaled;

/// As many nodes as a shard keeps without looking, here.
const ROOM: usize = 128;

/// Two shards with little room; the hashes of [`insert`] all belong to the first.
fn keys<K>() -> Keys<K> {
    let mut keys = Keys::new(2, false);
    keys.residents = ROOM;
    keys.shards().for_each(|mut shard| shard.store.limit = ROOM);
    keys
}

/// The hash of a number. None of them is sampled by the shard's memory of what it has swept.
fn hash_of(number: usize) -> u64 {
    hash_with(1 << 24 | number)
}

/// The hash whose bits are those of a number where shards and tables look.
fn hash_with(bits: usize) -> u64 {
    (bits as u64) << ShortHash::LEFT_OUT
}

/// Interns `key`, whose number gives its hash, as queued.
fn insert<K>(keys: &Keys<K>, number: usize, key: K) -> Queued<K> {
    insert_as(keys, hash_of(number), key)
}

fn insert_as<K>(keys: &Keys<K>, hash: u64, key: K) -> Queued<K> {
    assert_eq!(keys.shard_of(hash), 0, "small hashes share a shard");
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

fn insert_and_work(keys: &Keys<usize>, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        work(insert(keys, number, number));
    }
}

/// Adds an idle key once more, and works it off.
fn recur(keys: &Keys<usize>, number: usize) {
    let hash = hash_of(number);
    match keys.lock(hash).add(hash, |key| *key == number) {
        Some(Added::Queued(entry)) => work(entry),
        _ => panic!("{number} is not idle and interned"),
    }
}

/// The interned keys of the first shard, in order.
fn interned(keys: &Keys<usize>) -> Vec<usize> {
    let mut found = Vec::new();
    keys.lock(0).for_each(|node| found.push(node.key));
    found.sort_unstable();
    found
}

fn limit<K>(keys: &Keys<K>) -> usize {
    keys.lock(0).store.limit
}

fn is_due<K>(keys: &Keys<K>) -> bool {
    keys.due.load(Ordering::Relaxed) != 0
}

/// More keys in the first shard than are ever kept without looking, all of them being processed
/// when they were inserted, so that no adder's sweep has taken any.
fn burst(keys: &Keys<usize>, count: usize) {
    let entries: Vec<_> = (0..count).map(|key| insert(keys, key, key)).collect();
    assert_eq!(interned(keys).len(), count, "busy keys stay");
    entries.into_iter().for_each(work);
}

#[test]
fn a_key_is_found_by_its_hash_and_then_by_itself() {
    let keys = keys();
    // One hash for both.
    let (hash, other) = (hash_with(7), hash_with(8));
    let mut shard = keys.lock(hash);
    for key in ["a", "b"] {
        assert!(shard.add(hash, |known| *known == key).is_none());
        let (entry, _swept) = shard.insert_queued(hash, key);
        work(entry);
    }
    assert!(shard.add(hash, |known| *known == "c").is_none());
    let unknown = shard.add(other, |_| panic!("asked about another hash"));
    assert!(unknown.is_none());
    let mut asked = Vec::new();
    let added = shard.add(hash, |known| {
        asked.push(*known);
        *known == "b"
    });
    assert!(matches!(added, Some(Added::Queued(_))));
    assert!(asked.contains(&"b"));
    let mut phases = Vec::new();
    shard.for_each(|node| phases.push((node.key, node.state.phase())));
    phases.sort_by_key(|(key, _)| *key);
    assert_eq!(phases, [("a", Phase::Idle), ("b", Phase::Queued)]);
}

// C10: the fixed cache.
#[test]
fn as_many_idle_keys_as_residents_are_kept_whatever_happens() {
    let keys = keys();
    insert_and_work(&keys, 0..ROOM);
    for _ in 0..scaled(100 * SLEEPS_PER_CREDIT) {
        keys.note_sleep();
    }
    keys.sweep_if_due();
    assert!(!is_due(&keys));
    assert_eq!(interned(&keys), Vec::from_iter(0..ROOM));
}

#[test]
fn the_adder_of_one_key_too_many_sweeps_the_idle_ones() {
    let keys = keys();
    insert_and_work(&keys, 0..ROOM);
    insert_and_work(&keys, [1000]);
    assert_eq!(interned(&keys), [1000]);
    assert_eq!(limit(&keys), ROOM);
}

#[test]
fn a_stream_of_unique_keys_keeps_no_more_than_the_residents() {
    let keys = keys();
    for number in 0..scaled(10_000) * ROOM / 100 {
        insert_and_work(&keys, [number]);
        let kept = keys.lock(0).store.table.len();
        assert!(kept <= ROOM, "{kept} keys after {number}");
    }
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
    let held = entries.pop().expect("one was inserted").begin().0;
    keys.shrink();
    assert_eq!(interned(&keys).len(), 8 * ROOM + 1);
    let hash = hash_of(*held.key());
    let dirty = keys.lock(hash).add(hash, |key| key == held.key());
    assert!(matches!(dirty, Some(Added::Deferred(_))));
    keys.shrink();
    assert_eq!(interned(&keys).len(), 8 * ROOM + 1);
    entries.extend(held.finish().0);
    entries.into_iter().for_each(work);
    keys.shrink();
    assert_eq!(interned(&keys), []);
}

// C11: a handle keeps its key interned.
#[test]
fn pinned_keys_stay_until_the_last_pin_is_gone() {
    let keys = keys();
    let (pin, _swept) = keys.lock(5).insert_pinned(5, 5, false);
    let same = keys.lock(5).pin(5, |key| *key == 5).expect("interned");
    let third = same.clone();
    insert_and_work(&keys, 1000..1000 + 3 * ROOM);
    for pin in [pin, same, third] {
        keys.shrink();
        assert_eq!(interned(&keys), [5]);
        assert_eq!((*pin.key(), pin.phase()), (5, Phase::Idle));
        pin.unpin();
    }
    keys.shrink();
    assert_eq!(interned(&keys), []);
}

#[test]
fn a_key_that_is_pinned_after_the_shut_down_is_born_closed() {
    let keys = keys();
    let (pin, _swept) = keys.lock(5).insert_pinned(5, 5, true);
    assert!(matches!(pin.add(), Added::Closed));
    pin.unpin();
}

// C10: a burst that has been worked off is cleared away by a consumer with nothing to do.
#[test]
fn a_worked_off_burst_is_swept_by_an_idle_consumer() {
    let keys = keys();
    burst(&keys, scaled(100_000));
    assert!(keys.lock(0).store.table.capacity() >= scaled(100_000));
    assert!(is_due(&keys));
    keys.sweep_if_due();
    assert!(!is_due(&keys));
    assert_eq!(interned(&keys).len(), 0);
    let shard = keys.lock(0);
    let capacity = shard.store.table.capacity();
    assert!(capacity <= 4 * ROOM, "room for {capacity} keys is kept");
    assert_eq!(shard.store.limit, ROOM);
    assert_eq!(shard.store.credit, 0);
}

#[test]
fn an_idle_sweep_spares_keys_that_recur_and_sleeps_earn_the_next() {
    let keys = keys();
    let count = 2 * ROOM;
    burst(&keys, count);
    (0..count).for_each(|number| recur(&keys, number));
    keys.sweep_if_due();
    assert_eq!(interned(&keys).len(), count, "all of them recurred");
    assert_eq!(limit(&keys), 2 * count);
    // Nothing happens any more but that consumers go to sleep. The shards are credited in turn.
    for _ in 0..SLEEPS_PER_CREDIT - 1 {
        keys.note_sleep();
        assert!(!is_due(&keys));
    }
    keys.note_sleep();
    assert_eq!(keys.lock(0).store.credit, SLEEPS_PER_CREDIT);
    for _ in 0..SLEEPS_PER_CREDIT {
        keys.note_sleep();
    }
    assert_eq!(keys.lock(0).store.credit, SLEEPS_PER_CREDIT);
    assert_eq!(keys.shard(1).store.credit, SLEEPS_PER_CREDIT);
    const { assert!(SLEEPS_PER_CREDIT == 2 * ROOM * CREDIT_PER_NODE_SWEPT) };
    assert!(is_due(&keys));
    keys.sweep_if_due();
    assert_eq!(interned(&keys), []);
}

#[test]
fn an_idle_consumer_without_credit_does_not_sweep() {
    let keys = keys();
    let count = 2 * ROOM;
    burst(&keys, count);
    keys.lock(0).store.credit = count * CREDIT_PER_NODE_SWEPT - 1;
    keys.sweep_if_due();
    assert_eq!(interned(&keys).len(), count);
    keys.lock(0).earn(1);
    keys.sweep_if_due();
    assert_eq!(interned(&keys), []);
}

#[test]
fn a_sweep_that_finds_busy_keys_earns_the_credit_for_another_look() {
    let keys = keys();
    let entries: Vec<_> = (0..ROOM).map(|key| insert(&keys, key, key)).collect();
    insert_and_work(&keys, [1000]);
    let credit = keys.lock(0).store.credit;
    assert_eq!(credit, (ROOM + 1) * CREDIT_PER_NEW_KEY);
    entries.into_iter().for_each(work);
    keys.sweep_if_due();
    assert_eq!(interned(&keys), []);
}

#[test]
fn shrink_takes_even_keys_that_recur_and_gives_the_table_back() {
    let keys = keys();
    burst(&keys, 10_000);
    (0..100).for_each(|number| recur(&keys, number));
    keys.shrink();
    assert_eq!(interned(&keys), []);
    assert_eq!(keys.lock(0).store.table.capacity(), 0);
    assert_eq!(limit(&keys), ROOM);
}

// C10: the room is shared out among the shards.
#[test]
fn the_cache_is_as_large_for_many_shards_as_for_few() {
    for shards in [2, 4, 64, 256] {
        let keys = Keys::<u64>::new(shards, false);
        assert_eq!(shards * keys.residents, RESIDENTS);
        let residents = keys.residents;
        assert!(keys.shards().all(|shard| shard.store.limit == residents));
    }
    assert_eq!(Keys::<u64>::new(1024, false).residents, FEWEST_RESIDENTS);
}

/// Passes `count` keys with sampled hashes through the first shard, in order.
fn pass(keys: &Keys<usize>, count: usize) {
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

// C10: keys that were swept and came back make the shard grow, until they need not leave.
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

/// Counts its drops, and panics in those that are told to.
struct Counted {
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            std::panic::panic_any(Bomb);
        }
    }
}

#[test]
fn every_key_is_dropped_once_whatever_its_state() {
    let drops = Arc::new(AtomicUsize::new(0));
    let key = || Counted {
        drops: Arc::clone(&drops),
        panics: false,
    };
    let keys = keys();
    let dropped = || drops.load(Ordering::Relaxed);
    for number in 0..ROOM {
        work(insert(&keys, number, key()));
    }
    assert_eq!(dropped(), 0);
    work(insert(&keys, 1000, key()));
    assert_eq!(dropped(), ROOM, "by the adder that swept");
    let _queued = insert(&keys, 1001, key());
    let _processing = insert(&keys, 1002, key()).begin();
    keys.shrink();
    assert_eq!(dropped(), ROOM + 1);
    drop(keys);
    assert_eq!(dropped(), ROOM + 3);
}

#[test]
fn an_adder_drops_what_it_swept_when_it_likes() {
    let drops = Arc::new(AtomicUsize::new(0));
    let key = || Counted {
        drops: Arc::clone(&drops),
        panics: false,
    };
    let keys = keys();
    for number in 0..ROOM {
        work(insert(&keys, number, key()));
    }
    let mut shard = keys.lock(1000);
    let (entry, swept) = shard.insert_queued(1000, key());
    assert_eq!(drops.load(Ordering::Relaxed), 0, "dropped under the lock");
    drop(shard);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(swept);
    assert_eq!(drops.load(Ordering::Relaxed), ROOM);
    work(entry);
}

/// A key that, when it is dropped, uses the table it was in.
struct Nosy {
    keys: Weak<Keys<Nosy>>,
    visits: Arc<AtomicUsize>,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(keys) = self.keys.upgrade() {
            // Never returns if a shard is locked now.
            keys.shards()
                .for_each(|shard| assert!(shard.add(0, |_| false).is_none()));
            self.visits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn swept_keys_are_dropped_with_every_shard_unlocked() {
    let keys = Arc::new(keys());
    let visits = Arc::new(AtomicUsize::new(0));
    let key = || Nosy {
        keys: Arc::downgrade(&keys),
        visits: Arc::clone(&visits),
    };
    let visited = || visits.swap(0, Ordering::Relaxed);
    for number in 0..=ROOM {
        work(insert(&keys, number, key()));
    }
    assert_eq!(visited(), ROOM, "by an adder's sweep");
    keys.shrink();
    assert_eq!(visited(), 1, "by a shrink");
    let entries: Vec<_> = (0..2 * ROOM)
        .map(|number| insert(&keys, number, key()))
        .collect();
    entries.into_iter().for_each(work);
    keys.sweep_if_due();
    assert_eq!(visited(), 2 * ROOM, "by an idle consumer's sweep");
}

#[test]
fn a_panicking_drop_takes_no_other_key_with_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let key = |panics| Counted {
        drops: Arc::clone(&drops),
        panics,
    };
    let dropped = || drops.swap(0, Ordering::Relaxed);
    let keys = keys();
    // Several in one sweep, so that a second panic meets the first.
    for number in 0..ROOM {
        work(insert(&keys, number, key(number % 40 == 0)));
    }
    work(insert(&keys, 1000, key(true)));
    assert_eq!(dropped(), ROOM);
    keys.shrink();
    assert_eq!(dropped(), 1);
    // The table goes on.
    work(insert(&keys, 1, key(true)));
    work(insert(&keys, 2, key(false)));
    drop(keys);
    assert_eq!(dropped(), 2);
}

// With the lock beside it, four threads that add queued keys waited for that line half as long again.
#[test]
fn what_a_lookup_reads_of_a_shard_is_on_one_line_and_not_on_that_of_a_lock() {
    const LINE: usize = 64;
    let keys = keys::<u64>();
    let locks: Vec<_> = keys
        .shards
        .iter()
        .map(|lock| std::ptr::from_ref(lock).addr())
        .collect();
    let shard = keys.shard(1);
    let end = |start: usize, bytes: usize| start + bytes - 1;
    let store = std::ptr::from_ref(&**shard.store).addr();
    let chunks = shard.store.slab.address_of_chunks();
    for address in [
        end(
            std::ptr::from_ref(&shard.store.table).addr(),
            size_of::<Table<NodeIndex>>(),
        ),
        end(
            std::ptr::from_ref(&shard.store.limit).addr(),
            size_of::<usize>(),
        ),
        end(chunks, size_of::<Vec<*mut ()>>()),
    ] {
        assert_eq!(address / LINE, store / LINE);
    }
    for lock in locks {
        assert_ne!(lock / LINE, store / LINE);
    }
}
