//! What is forgotten with a group's last key, and what is not (G3).

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::grouped;
use crate::common::timed::{DAY, HOUR, built, ms, secs};
use crate::common::{eventually, scaled, take_all, watchdog};
use keyqueue::{Builder, MockClock, WorkQueue};

thread_local! {
    /// The last of this number of clones of groups in this thread panics.
    static CLONES_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A group that counts how many there are.
#[derive(Debug)]
struct Counted(u64, Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        let left = CLONES_LEFT.get();
        CLONES_LEFT.set(left.saturating_sub(1));
        if left == 1 {
            resume_unwind(Box::new("this clone panics"));
        }
        Counted(self.0, Arc::clone(&self.1))
    }
}

/// A queue with a group for each key, and the count of the groups that are alive, which is 2 too high.
fn counted(set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> (WorkQueue<u64>, MockClock, Arc<()>) {
    let alive = Arc::new(());
    let count = Arc::clone(&alive);
    let by = move |key: &u64| Counted(*key, Arc::clone(&count));
    let (queue, time) = built(move |builder| set(builder).group_by(by));
    (queue, time, alive)
}

#[test] // G3
fn groups_without_keys_are_forgotten() {
    let (queue, _time, alive) = counted(|builder| builder);
    let keys = scaled(100_000) as u64;
    for key in 0..keys {
        queue.add(key);
        drop(queue.try_get().unwrap());
    }
    let left = Arc::strong_count(&alive);
    assert!(left < 20_000, "{left} of {keys} groups are left");
    queue.add(0);
    queue.shrink();
    assert_eq!(Arc::strong_count(&alive), 3, "a group with a key");
    let item = queue.try_get().unwrap();
    queue.shrink();
    // Nothing is to be remembered of it without a limit, and `groups` finds it again.
    assert_eq!(Arc::strong_count(&alive), 2);
    let groups = queue.groups::<Counted>();
    assert_eq!((groups[0].group.0, groups[0].in_flight), (0, 1));
    drop((item, groups));
    queue.shrink();
    assert_eq!(Arc::strong_count(&alive), 2);
}

#[test] // G3 G6
fn a_hold_and_an_empty_bucket_are_not_forgotten_with_the_last_key() {
    let (queue, time) = grouped(|builder| builder.group_rate(1.0, 1));
    queue.add(("a", 1));
    drop(queue.try_get().unwrap());
    assert!(queue.hold_group(&"b", HOUR));
    queue.shrink();
    queue.add_all([("a", 2), ("b", 1)]);
    assert!(queue.try_get().is_err());
    time.advance(secs(1));
    assert_eq!(take_all(&queue), [("a", 2)]);
    queue.shrink();
    time.advance(HOUR);
    assert_eq!(take_all(&queue), [("b", 1)]);
    time.advance(HOUR);
    assert!(queue.try_get().is_err());
    queue.shrink();
    assert!(queue.groups::<&str>().is_empty());
}

#[test] // G3 G6
fn groups_whose_hold_was_ended_are_forgotten() {
    for hold in [secs(1), DAY, Duration::MAX] {
        let (queue, _time, alive) = counted(|builder| builder);
        for number in 0..scaled(1000) as u64 {
            let group = Counted(number, Arc::clone(&alive));
            assert!(queue.hold_group(&group, hold));
            // Some of them have had a key meanwhile.
            if number % 2 == 0 {
                queue.add(number);
            }
            assert!(queue.hold_group(&group, Duration::ZERO));
            queue.try_get().ok();
        }
        queue.shrink();
        let left = Arc::strong_count(&alive) - 2;
        assert_eq!(left, 0, "groups that were held for {hold:?}");
    }
}

#[test] // G3 C10: the last sweep of the keys is later than that of their groups
#[cfg_attr(miri, ignore = "50 000 keys in one thread")]
fn groups_of_keys_that_recurred_are_forgotten_by_a_thread_that_waits() {
    let _watchdog = watchdog(60);
    let alive = Arc::new(());
    let count = Arc::clone(&alive);
    let by = move |key: &u64| Counted(*key, Arc::clone(&count));
    let queue = WorkQueue::builder().group_by(by).build().unwrap();
    for _ in 0..2 {
        queue.add_all(0..50_000);
        (0..50_000).for_each(|_| queue.try_get().unwrap().done());
    }
    thread::scope(|scope| {
        let _end = queue.shut_down_on_drop();
        scope.spawn(|| assert!(queue.get().is_none()));
        eventually("the groups are forgotten", || {
            Arc::strong_count(&alive) < 20_000
        });
    });
}

#[test] // G3
fn groups_are_forgotten_although_a_clone_of_one_has_panicked() {
    let (queue, _time, alive) = counted(|builder| builder);
    queue.add_all(0..100);
    let group = Counted(7, Arc::clone(&alive));
    // However often the queue clones each.
    for clone in [1, 2, 3, 50, 51, 100] {
        CLONES_LEFT.set(clone);
        let list = AssertUnwindSafe(|| queue.groups::<Counted>().len());
        assert!(catch_unwind(list).is_err(), "clone {clone}");
        CLONES_LEFT.set(1);
        // It need not clone.
        let _ = catch_unwind(AssertUnwindSafe(|| queue.hold_group(&group, HOUR)));
        CLONES_LEFT.set(usize::MAX);
        assert!(queue.hold_group(&group, Duration::ZERO));
    }
    drop(group);
    assert_eq!(queue.groups::<Counted>().len(), 100);
    assert_eq!(take_all(&queue).len(), 100);
    queue.shrink();
    assert_eq!(Arc::strong_count(&alive) - 2, 0, "groups are left");
}

#[test] // G1 G3
fn a_key_whose_group_was_forgotten_goes_to_no_other() {
    let (queue, _time) = grouped(|builder| builder);
    let handle = queue.handle(("a", 1));
    handle.add();
    drop(queue.try_get().unwrap());
    queue.shrink();
    // This group takes the place of the one that was forgotten.
    assert!(queue.hold_group(&"b", HOUR));
    handle.add();
    assert_eq!(take_all(&queue), [("a", 1)]);
}

/// Groups that all have the same hash.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OneHash(u64);

impl Hash for OneHash {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test] // G1 G3
fn groups_with_the_same_hash_are_told_apart() {
    let (queue, _time) = built(|builder| builder.group_by(|key: &u64| OneHash(*key)));
    for key in 0..4 {
        match key % 2 {
            0 => assert!(queue.hold_group(&OneHash(key), HOUR)),
            _ => {
                queue.add(key);
                drop(queue.try_get().unwrap());
            }
        }
    }
    // Groups before, between and behind others are forgotten.
    queue.shrink();
    queue.add_all(0..4);
    assert_eq!(take_all(&queue), [1, 3]);
    let mut held: Vec<_> = queue.groups::<OneHash>();
    held.sort_by_key(|group| group.group.0);
    let held: Vec<_> = held
        .iter()
        .map(|held| (held.group.0, held.queued))
        .collect();
    assert_eq!(held, [(0, 1), (2, 1)]);
}

#[test] // G3 C10
fn the_groups_of_a_burst_are_forgotten_by_getters_that_find_nothing() {
    let alive = Arc::new(());
    let count = Arc::clone(&alive);
    let (queue, time) =
        built(move |builder| builder.group_by(move |key: &u64| Counted(*key, Arc::clone(&count))));
    let keys = scaled(5000) as u64;
    queue.add_all(0..keys);
    assert_eq!(queue.groups::<Counted>().len() as u64, keys);
    while queue.try_get().is_ok() {}
    let young = Arc::strong_count(&alive) as u64;
    assert!(young > keys, "{young} groups are left that were just used");
    for _ in 0..9 {
        time.advance(secs(1));
        assert!(queue.try_get().is_err());
    }
    let left = Arc::strong_count(&alive);
    assert!(left < 1100, "{left} groups are left");
    assert!(left > scaled(1024), "{left} groups are left");
}

#[test] // G3
fn idle_groups_stay_few_though_they_are_between_others() {
    let (queue, _time, alive) = counted(|builder| builder.group_limit(1));
    let keys = scaled(12_800) as u64;
    let mut held = Vec::new();
    for key in 0..keys {
        queue.add(key);
        let item = queue.try_get().unwrap();
        held.extend((key % 64 == 0).then_some(item));
    }
    let mut most = 0;
    for key in 0..keys {
        queue.add(keys + key);
        drop(queue.try_get().unwrap());
        if key > keys / 2 {
            most = most.max(Arc::strong_count(&alive));
        }
    }
    assert!(most < 1400, "{most} groups, {} with a key", held.len());
}

#[test] // C1 T2
fn a_key_that_waits_for_its_interval_keeps_its_place_though_groups_are_forgotten() {
    let (queue, time) = built(|builder| {
        let builder = builder.min_interval(secs(1));
        builder.group_by(|key: &u64| key / 10)
    });
    let deliver = |key| {
        queue.add(key);
        assert_eq!(*queue.try_get().unwrap(), key);
    };
    let groups = scaled(2000) as u64;
    (0..groups).for_each(|group| deliver(10 * group));
    deliver(71);
    queue.add(71);
    (groups..2 * groups).for_each(|group| deliver(10 * group));
    queue.shrink();
    time.advance(ms(1));
    deliver(72);
    queue.add(72);
    time.advance(secs(2));
    assert_eq!(take_all(&queue), [71, 72]);
}

#[test] // G3 T2
fn a_key_that_waits_for_its_interval_keeps_its_group_until_then() {
    let (queue, time, alive) = counted(|builder| builder.min_interval(secs(1)));
    for _ in 0..2 {
        queue.add(1);
        drop(queue.try_get().unwrap());
        queue.add(1);
        queue.shrink();
        assert_eq!(Arc::strong_count(&alive), 3);
        time.advance(secs(1));
        assert_eq!(queue.clear(), 1);
        time.advance(secs(1));
        queue.shrink();
        assert_eq!(Arc::strong_count(&alive), 2);
    }
}

/// What `group_by` does, once, before it panics.
type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

#[test] // P3 G1 G4
fn a_key_that_is_queued_while_groups_are_listed_is_in_the_group_that_it_was_queued_in() {
    let hook = Hook::default();
    let of_queue = Arc::clone(&hook);
    let (queue, _time) = built(move |builder| {
        builder.levels(2).group_by(move |key: &u64| {
            let armed = of_queue.lock().unwrap().take();
            if let Some(call) = armed {
                call();
                resume_unwind(Box::new("this call panics"));
            }
            key % 10
        })
    });
    let queue = Arc::new(queue);
    queue.add(1);
    let item = queue.get().unwrap().into_owned();
    queue.shrink(); // forgets the group, which has no limit
    let again = Arc::clone(&queue);
    *hook.lock().unwrap() = Some(Box::new(move || {
        drop(item);
        again.add_all([1, 11, 21]);
    }));
    assert_eq!(queue.groups::<u64>()[0].queued, 3);
    assert!(
        hook.lock().unwrap().is_none(),
        "nothing was queued meanwhile"
    );
    queue.entry(21).level(0).add();
    queue.entry(1).level(0).add();
    assert_eq!(take_all(&queue), [21, 1, 11]);
}

/// The keys of a random run in their order, with their levels; if `forgets`, idle groups are forgotten at each step.
fn random_run(seed: u64, forgets: bool) -> Vec<(u64, usize)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let limit = random.bool().then_some(2);
    let rate = random.bool().then_some(100.0);
    let interval = random.bool().then_some(15);
    let (queue, time) = built(|builder| {
        let builder = builder.levels(3).group_by(|key: &u64| key % 7);
        let mut builder = builder.group_weight(|group: &u64| *group as u32 % 3);
        if let Some(limit) = limit {
            builder = builder.group_limit(limit);
        }
        if let Some(rate) = rate {
            builder = builder.group_rate(rate, 2);
        }
        match interval {
            None => builder,
            Some(interval) => builder.min_interval(ms(interval)),
        }
    });
    let (mut delivered, mut held) = (Vec::new(), Vec::new());
    for _ in 0..scaled(2000) {
        // No two times are the same.
        time.advance(Duration::from_nanos(random.u64(1000..5000)));
        let key = random.u64(..30);
        match random.u8(..10) {
            0..=3 => _ = queue.entry(key).level(random.usize(..3)).add(),
            4..=6 => held.extend(queue.try_get()),
            7 => time.advance(ms(random.u64(..20))),
            8 => _ = queue.hold_group(&(key % 7), ms(random.u64(..20))),
            _ if held.is_empty() => {}
            _ => {
                let item = held.swap_remove(random.usize(..held.len()));
                delivered.push((*item, item.level()));
            }
        }
        // What has waited until now comes before what is added after.
        queue.fire_due();
        if forgets {
            queue.shrink();
        }
    }
    delivered
}

#[test] // C1 G1 G3 T2
fn that_idle_groups_are_forgotten_changes_no_order() {
    for seed in 0..scaled(50) as u64 {
        let (kept, forgotten) = (random_run(seed, false), random_run(seed, true));
        assert_eq!(kept, forgotten, "seed {seed}");
    }
}
