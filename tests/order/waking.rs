//! No getter sleeps while a key may be delivered, with groups, a pace and levels (C9).

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, ms, secs};
use crate::common::{Task, poll, take_all, watchdog};
use crate::groups::{Key, grouped, keys};
use keyqueue::{Builder, WorkQueue, merge};

#[test] // C9 G6
fn a_getter_that_finds_the_end_of_holds_wakes_another() {
    let (queue, time) = grouped(|builder| builder);
    for group in ["a", "b"] {
        assert!(queue.hold_group(&group, secs(1)));
        queue.add((group, 1));
    }
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    time.advance(secs(1));
    // Comes before the timer, which finds nothing to do after it.
    let item = queue.try_get().unwrap();
    queue.fire_due();
    assert_eq!(task.wakes(), 1);
    assert_ne!(task.output().unwrap().0, item.0);
}

#[test] // C9 G5 G6 T2
fn a_getter_that_finds_the_end_of_many_waits_wakes_as_many() {
    type Set = fn(Builder<Key>) -> Builder<Key>;
    let sets: [Set; 3] = [
        |builder| builder,
        |builder| builder.group_rate(1.0, 1),
        |builder| builder.min_interval(secs(1)),
    ];
    for set in sets {
        let (queue, time) = grouped(set);
        let names = ["a", "b", "c", "d"];
        queue.add_all(names.map(|name| (name, 1)));
        // Takes a token of each, and begins the intervals.
        assert_eq!(take_all(&queue).len(), 4);
        for name in names {
            assert!(queue.hold_group(&name, secs(1)));
            queue.add((name, 1));
        }
        let mut tasks = [(); 3].map(|()| Task::waiting(Box::pin(queue.get_async())));
        time.advance(secs(1));
        // Comes before the timer, which finds nothing to do after it.
        let mut items = vec![queue.try_get().unwrap()];
        queue.fire_due();
        for (number, task) in tasks.iter_mut().enumerate() {
            assert_eq!(task.wakes(), 1, "task {number} sleeps while there is a key");
            items.extend(task.output());
        }
        assert_eq!(items.len(), 4);
    }
}

#[test] // C9 G6
fn a_getter_that_leaves_keys_in_its_group_wakes_another() {
    let (queue, _time) = grouped(|builder| builder);
    assert!(queue.hold_group(&"a", HOUR));
    queue.add_all(keys("a", 0..2));
    let mut tasks = [(); 2].map(|()| Task::waiting(Box::pin(queue.get_async())));
    assert!(queue.hold_group(&"a", Duration::ZERO));
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 0]);
    let _item = tasks[0].output();
    assert_eq!(tasks[1].wakes(), 1);
}

#[test] // C9 G6
fn a_getter_wakes_no_other_for_keys_that_have_woken_theirs() {
    let (queue, _time) = grouped(|builder| builder);
    assert!(queue.hold_group(&"a", HOUR));
    queue.add(("a", 1));
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    assert!(queue.hold_group(&"a", Duration::ZERO));
    drop(task.output());
    let mut tasks = [(); 3].map(|()| Task::waiting(Box::pin(queue.get_async())));
    keys("a", 2..4).for_each(|key| _ = queue.add(key));
    let _item = tasks[0].output();
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 1, 0]);
}

#[test] // C9 G5 G6
fn an_add_that_finds_the_end_of_a_wait_wakes_a_getter_for_each_key() {
    let held: fn(Builder<Key>) -> Builder<Key> = |builder| builder;
    for set in [held, |builder| builder.group_rate(1.0, 3)] {
        let (queue, time) = grouped(set);
        queue.add_all(keys("a", 0..3));
        drop(take_all(&queue)); // and the tokens
        assert!(queue.hold_group(&"a", secs(3)));
        queue.add_all(keys("a", 1..3));
        let mut tasks = [(); 3].map(|()| Task::waiting(Box::pin(queue.get_async())));
        time.advance(secs(3));
        // Comes before the timer, which finds nothing to do after it.
        queue.add(("a", 3));
        queue.fire_due();
        let mut items = Vec::new();
        for (number, task) in tasks.iter_mut().enumerate() {
            assert_eq!(task.wakes(), 1, "task {number} sleeps while there is a key");
            items.extend(task.output());
        }
    }
}

#[test] // C9 G6
fn the_timers_thread_that_sleeps_until_a_hold_ends_is_woken_for_an_earlier_one() {
    let _watchdog = watchdog(30);
    let builder = WorkQueue::builder().group_by(|key: &Key| key.0);
    let queue = builder.build().unwrap();
    assert!(queue.hold_group(&"a", HOUR));
    queue.add(("a", 1));
    for n in 0..3 {
        // Time for the thread to fall asleep. If it has not, it looks by itself.
        thread::sleep(ms(20));
        assert!(queue.hold_group(&"b", ms(20)));
        queue.add(("b", n));
        assert_eq!(*queue.get().unwrap(), ("b", n));
    }
}

#[test] // C9 G3 T2
fn a_key_whose_group_was_forgotten_in_its_interval_wakes_a_getter() {
    let (queue, time) = grouped(|builder| builder.min_interval(secs(1)));
    queue.add(("a", 1));
    queue.try_get().unwrap().done();
    queue.shrink();
    queue.add(("a", 1));
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(task.wakes(), 1);
    assert_eq!(*task.output().unwrap(), ("a", 1));
}

#[test] // C9 T1
fn each_token_wakes_a_getter() {
    let (queue, time) = grouped(|builder| builder.dispatch_rate(10.0, 1));
    queue.add_all([("a", 1), ("b", 1), ("c", 1)]);
    queue.try_get().unwrap().done();
    let mut tasks = [(); 2].map(|()| Task::waiting(Box::pin(queue.get_async())));
    for task in &mut tasks {
        time.advance(ms(100));
        queue.fire_due();
        assert!(task.wakes() > 0, "sleeps while there is a token and a key");
        drop(task.output());
    }
    assert!(queue.is_empty());
}

/// Takes a key as it is woken: an executor that polls at once.
struct TakesAtOnce(Arc<WorkQueue<Key, u32>>);

impl Wake for TakesAtOnce {
    fn wake(self: Arc<Self>) {
        drop(self.0.try_get());
    }
}

#[test] // C9 P3 V1
fn a_waker_may_take_the_key_that_a_put_queues_and_a_raise_wakes_no_other() {
    let _watchdog = watchdog(10);
    let builder = WorkQueue::builder().merge(merge::latest).levels(2);
    let queue = Arc::new(builder.build().unwrap());
    let waker = Waker::from(Arc::new(TakesAtOnce(Arc::clone(&queue))));
    let mut takes = Box::pin(queue.get_async());
    assert!(poll(&mut takes, &waker).is_pending());
    queue.entry(("a", 1)).level(1).put(1);
    assert!(queue.is_empty());
    // The first put wakes a getter that leaves its key there.
    let _leaves = Task::waiting(Box::pin(queue.get_async()));
    let mut takes = Box::pin(queue.get_async());
    assert!(poll(&mut takes, &waker).is_pending());
    queue.entry(("a", 1)).level(1).put(1);
    assert!(!queue.is_empty());
    // The getter that was woken for the key will find it at its new level.
    queue.entry(("a", 1)).level(0).put(2);
    assert!(!queue.is_empty());
    let item = queue.try_get().unwrap();
    assert_eq!((*item.value(), item.level()), (2, 0));
}
