//! A limit of keys in flight (G2).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{grouped, keys};
use crate::common::{Task, scaled, there, watchdog};
use keyqueue::WorkQueue;
use keyqueue::limiter::NoLimit;

#[test] // G2
fn a_limit_holds_and_delays_no_other_group() {
    let (queue, _) = grouped(|builder| builder.group_limit(2));
    queue.add_all(keys("a", 0..5).chain(keys("b", 0..1)));
    let mut items: Vec<_> = there(&queue).take(9).collect();
    let held: Vec<_> = items.iter().map(|item| item.0).collect();
    assert_eq!(held, ["a", "b", "a"]);
    assert!(queue.try_get().is_err());
    assert_eq!(queue.len(), 3);
    // One that is done makes place for the next, also for one that waits.
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    items.remove(1).done(); // "b"
    assert_eq!(task.wakes(), 0);
    items.remove(0).done();
    assert_eq!(task.wakes(), 1);
    let next = task.output().unwrap();
    assert_eq!(*next, ("a", 2));
    assert!(queue.try_get().is_err());
    // A dirty key that comes back is one that is done.
    queue.add(("a", 2));
    next.done();
    assert_eq!(*queue.try_get().unwrap(), ("a", 3));
}

#[test] // G2
fn a_limit_holds_for_batches_tasks_and_threads_at_every_moment() {
    let _watchdog = watchdog(120);
    const LIMIT: usize = 3;
    let builder = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .group_by(|key: &u64| key % 4);
    let queue = builder.group_limit(LIMIT).build().unwrap();
    let in_flight: [AtomicUsize; 4] = Default::default();
    let begin = |key: u64| {
        let group = &in_flight[(key % 4) as usize];
        let before = group.fetch_add(1, Ordering::Relaxed);
        assert!(before < LIMIT, "{before} of group {}", key % 4);
    };
    let end = |key: u64| _ = in_flight[(key % 4) as usize].fetch_sub(1, Ordering::Relaxed);
    let done = AtomicUsize::new(0);
    let keys = scaled(40_000) as u64;
    thread::scope(|scope| {
        for worker in 0..4 {
            let (queue, done, begin, end) = (&queue, &done, &begin, &end);
            scope.spawn(move || {
                loop {
                    let batch: Vec<_> = match worker {
                        0 => queue.get_batch(5).into_iter().flatten().collect(),
                        1 => pollster::block_on(queue.get_async()).into_iter().collect(),
                        _ => queue.get().into_iter().collect(),
                    };
                    if batch.is_empty() {
                        return;
                    }
                    batch.iter().for_each(|item| begin(**item));
                    for item in batch {
                        end(*item);
                        done.fetch_add(1, Ordering::Relaxed);
                        if *item % 7 == 0 && done.load(Ordering::Relaxed) % 3 == 0 {
                            let _ = item.retry();
                        }
                    }
                }
            });
        }
        (0..keys).for_each(|key| _ = queue.add(key));
        queue.shut_down_with_drain();
    });
    assert!(done.into_inner() >= keys as usize);
}

#[test] // G2
fn an_item_that_is_dropped_by_a_panic_makes_place() {
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..2));
    let worker = std::panic::AssertUnwindSafe(|| {
        let _item = queue.get();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(std::panic::catch_unwind(worker).is_err());
    assert_eq!(*queue.try_get().unwrap(), ("a", 1));
}

#[test] // G1 G2
fn a_limit_that_binds_cuts_a_turn_short() {
    let (queue, _) = grouped(|builder| builder.group_limit(2).group_weight(|_: &&str| 3));
    queue.add_all(keys("a", 0..4).chain(keys("b", 0..4)));
    let mut items: Vec<_> = there(&queue).take(4).collect();
    let groups: Vec<_> = items.iter().map(|item| item.0).collect();
    assert_eq!(groups, ["a", "a", "b", "b"]);
    // The group that comes back has a whole turn, up to its limit.
    items.drain(..2).for_each(keyqueue::Item::done);
    items.extend(there(&queue).take(2));
    assert_eq!((*items[2], *items[3]), (("a", 2), ("a", 3)));
    assert!(queue.try_get().is_err());
}
