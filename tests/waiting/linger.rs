//! Batches that wait for more than their first key.

use std::iter;
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, MS, built, ms, secs, timed};
use crate::common::{Config, with_these_queues};
use crate::common::{Queue, Task, eager, eventually, poll_until_idle, take_all, waiting, watchdog};
use keyqueue::worker::{Job, Workers};
use keyqueue::{Batch, Clock, GetError, UpTo, WorkQueue, merge};

fn keys(batch: &Batch<'_, u64>) -> Vec<u64> {
    batch.iter().map(|item| **item).collect()
}

#[test] // C12
fn a_batch_is_delivered_when_it_is_full_or_its_time_is_over() {
    let (queue, time) = timed::<u64>();
    let up_to = UpTo::new(3).linger(secs(1));
    let get = || Box::pin(queue.get_batch_async(up_to));
    let mut full = Task::waiting(get());
    queue.add_all([1, 2]);
    full.assert_pending();
    let before = full.wakes();
    queue.add(2); // is merged
    assert_eq!((full.wakes(), queue.len()), (before, 2));
    queue.add(3);
    assert_eq!(full.wakes(), before + 1);
    assert_eq!(keys(&full.output().unwrap()), [1, 2, 3]);

    queue.add(4);
    let mut late = Task::waiting(get());
    time.advance(secs(1) - MS);
    queue.fire_due();
    assert_eq!(late.wakes(), 0);
    time.advance(MS);
    queue.fire_due();
    assert_eq!(late.wakes(), 1);
    assert_eq!(keys(&late.output().unwrap()), [4]);

    // It is full already, beyond what one batch has.
    queue.add_all(0..7);
    let mut sizes = Vec::new();
    while let Some(Some(batch)) = poll_now(get()) {
        sizes.push(batch.len());
    }
    assert_eq!((sizes, queue.len()), (vec![3, 3], 1));
}

fn poll_now<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    match poll_until_idle(&mut future) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[test] // C12
fn the_time_begins_with_the_first_key() {
    let (queue, time) = timed::<u64>();
    let mut task = Task::waiting(Box::pin(
        queue.get_batch_async(UpTo::new(9).linger(secs(1))),
    ));
    time.advance(HOUR);
    queue.add(1);
    task.assert_pending();
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(task.output().unwrap().len(), 1);
}

#[test] // C2 C12 V1
fn while_a_batch_is_waited_for_its_keys_merge_adds() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder.merge(merge::append).build().unwrap();
    let mut task = Task::waiting(Box::pin(
        queue.get_batch_async(UpTo::new(2).linger(secs(1))),
    ));
    queue.put(1_u64, vec![1_u32]);
    task.assert_pending();
    queue.put(1, vec![2]);
    queue.entry(1).update(|all| all.push(4));
    time.advance(secs(1));
    queue.fire_due();
    let batch = task.output().unwrap();
    assert_eq!((batch.len(), batch[0].value()), (1, &vec![1, 2, 4]));
    batch.done();
    assert!(queue.is_empty());
}

#[test] // C9 C12
fn a_getter_that_lingers_leaves_each_wake_up_to_the_others() {
    let (queue, _time) = timed::<u64>();
    let get = || Box::pin(queue.get_batch_async(UpTo::new(5).linger(HOUR)));
    // In line before the other getter, so that the first key wakes it.
    let mut first = Task::waiting(get());
    let mut other = Task::waiting(queue.get_async());
    queue.add(1);
    assert_eq!((first.wakes(), other.wakes()), (1, 0));
    first.assert_pending(); // begins to linger, and passes the wake-up on
    assert_eq!(other.wakes(), 1);
    assert_eq!(*other.output().unwrap(), 1);

    // Lingers while the queue is empty, and another getter waits.
    let mut other = Task::waiting(queue.get_async());
    let before = first.wakes();
    queue.add(2);
    assert_eq!((first.wakes(), other.wakes()), (before, 1));
    drop(other.output());
    queue.add_all([3, 4, 5]);
    assert_eq!(first.wakes(), before);
    // The key that was there at first is gone, so it is woken too early, once.
    queue.add(6);
    assert_eq!(first.wakes(), before + 1);
    first.assert_pending();
    queue.add(7);
    assert_eq!(first.wakes(), before + 2);
    assert_eq!(keys(&first.output().unwrap()), [3, 4, 5, 6, 7]);
}

#[test] // C1 C9 C12
fn a_linger_that_is_dropped_leaves_every_key_in_its_place() {
    let (queue, _time) = timed::<u64>();
    queue.add_all([1, 2, 3]);
    let get = || Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR)));
    drop(Task::waiting(get()));
    // In the first wait, with a wake-up that it passes on.
    assert_eq!(take_all(&queue), [1, 2, 3]);
    let first = Task::waiting(get());
    let mut second = Task::waiting(queue.get_async());
    queue.add(4);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1);
    assert_eq!(*second.output().unwrap(), 4);
    assert_eq!(waiting(&queue), 0);
    // After a shut-down too, when a key that was held could not be put back.
    queue.add(5);
    let task = Task::waiting(get());
    queue.shut_down();
    drop(task);
    assert_eq!(take_all(&queue), [5]);
}

#[test] // C12
fn if_another_getter_has_taken_all_the_wait_begins_again() {
    let (queue, time) = timed::<u64>();
    let mut task = Task::waiting(Box::pin(
        queue.get_batch_async(UpTo::new(9).linger(secs(1))),
    ));
    queue.add(1);
    task.assert_pending();
    assert_eq!(take_all(&queue), [1]);
    time.advance(secs(1));
    queue.fire_due();
    assert!(task.is_idle());
}

#[test] // C12 S1 S3
fn a_shut_down_ends_the_wait_with_what_is_there() {
    let _watchdog = watchdog(60);
    let up_to = UpTo::new(9).linger(HOUR);
    let (queue, _time) = timed::<u64>();
    queue.add_all([1, 2]);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.shut_down();
    assert_eq!(task.wakes(), 1);
    let batch = task.output().unwrap();
    assert_eq!(keys(&batch), [1, 2]);
    // No one lingers from now on, and a drain waits for the batch.
    let mut drain = Task::waiting(Box::pin(queue.drain_async()));
    batch.done();
    assert!(drain.output().is_nothing());
    assert!(queue.get_batch(up_to).is_none());

    // A drain is not kept by a linger, and a key that is dirty then is delivered without one.
    let queue = WorkQueue::<u64>::new();
    queue.add(0);
    let item = queue.get().unwrap();
    queue.add_all(0..3);
    thread::scope(|scope| {
        let getter = scope.spawn(|| {
            iter::from_fn(|| queue.get_batch(up_to))
                .map(Batch::done)
                .count()
        });
        eventually("it lingers", || waiting(&queue) == 1);
        scope.spawn(|| queue.shut_down_with_drain());
        eventually("the batch is taken", || queue.is_empty());
        item.done();
        assert_eq!(getter.join().unwrap(), 2);
    });
}

#[test] // C12 S8
fn shut_down_now_ends_the_wait_with_nothing() {
    let (queue, _time) = timed::<u64>();
    queue.add(1);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR))));
    assert_eq!(queue.shut_down_now().queued, 1);
    assert!(task.output().is_none());
}

#[test] // B2 C12
fn a_bound_that_is_used_up_ends_the_wait() {
    let up_to = UpTo::new(9).linger(HOUR);
    let (queue, _time) = built::<u64>(|builder| builder.capacity(3));
    let get = || Box::pin(queue.get_batch_async(up_to));
    queue.add(1);
    let mut task = Task::waiting(get());
    queue.add(2);
    assert_eq!(task.wakes(), 0);
    queue.add(3);
    assert_eq!(task.wakes(), 1);
    let batch = task.output().unwrap();
    assert_eq!(keys(&batch), [1, 2, 3]);
    // What is in hand has left the bound. A delay takes room, which an add that is refused says.
    queue.add(4);
    let mut task = Task::waiting(get());
    queue.add_after(9, HOUR);
    queue.add(5);
    assert_eq!((task.wakes(), queue.entry(6).try_add().is_err()), (0, true));
    assert_eq!(task.wakes(), 1);
    assert_eq!(keys(&task.output().unwrap()), [4, 5]);
    assert!(queue.entry(6).try_add().is_ok());
    let task = Task::waiting(get());
    drop(task);
    assert_eq!(take_all(&queue), [6]);

    // Values by weight: one waits for room that is not there, although there is some.
    let weighted = WorkQueue::<u64>::builder()
        .merge(merge::append::<Vec<u32>>)
        .weight(Vec::len)
        .capacity(4);
    let queue = weighted.build().unwrap();
    queue.put(1, vec![0; 3]);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    let mut put = Task::waiting(Box::pin(queue.entry(2).put_async(vec![0; 2])));
    assert_eq!(task.wakes(), 1);
    task.output().unwrap().done();
    assert!(put.output().is_accepted());
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    assert!(queue.entry(1).try_put(vec![0; 3]).is_err());
    assert_eq!((task.wakes(), task.output().unwrap().len()), (1, 1));
}

#[test] // C12 G2 G5 T1
fn limits_and_rates_that_leave_keys_over_end_the_wait() {
    let up_to = UpTo::new(9).linger(HOUR);
    // Two of a group, and the third would have to wait for these.
    let (queue, _time) = built::<u64>(|builder| builder.group_by(|n| n % 3).group_limit(2));
    queue.add_all([1, 4]);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.add(2); // of another group
    task.assert_pending();
    queue.add(7);
    let batch = task.output().unwrap();
    assert_eq!(keys(&batch), [1, 2, 4]);
    // The group is at its limit, by the keys in hand: its key counts for nothing.
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.add(3);
    task.assert_pending();
    queue.add(6);
    let woken = task.wakes();
    task.assert_pending();
    assert_eq!((task.wakes(), queue.len()), (woken, 3));
    batch.done();

    let (queue, time) = built::<u64>(|builder| builder.dispatch_rate(1.0, 2));
    queue.add(1);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.add(2); // as many as there are tokens
    task.output().unwrap().done();
    queue.add_all([3, 4]);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(keys(&task.output().unwrap()), [3]);
    assert_eq!(queue.len(), 1);

    let (queue, _time) = built::<u64>(|builder| builder.group_by(|n| n % 2).group_rate(1.0, 1));
    queue.add_all([1, 3]);
    assert_eq!(
        poll_now(Box::pin(queue.get_batch_async(up_to)))
            .unwrap()
            .unwrap()
            .len(),
        1
    );
}

#[test] // C9 G6
fn a_group_that_is_released_wakes_a_getter_behind_one_that_lingers() {
    let (queue, time) = built::<u64>(|builder| builder.group_by(|n| *n));
    assert!(queue.hold_group(&1_u64, secs(1)));
    queue.add(1);
    let mut lingers = Task::waiting(Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR))));
    let mut other = Task::waiting(queue.get_async());
    time.advance(secs(1));
    // Whoever looks first.
    lingers.assert_pending();
    queue.fire_due();
    lingers.assert_pending();
    assert_eq!(other.wakes(), 1);
    assert_eq!(*other.output().unwrap(), 1);
}

#[test] // C12 D9
fn threads_linger_by_the_queues_clock() {
    with_these_queues(
        &[Config::usual(), Config::leveled(), Config::grouped()],
        |_| {
            let (clock, time) = Clock::mock();
            let queue = WorkQueue::<u64>::builder().clock(clock).build().unwrap();
            let up_to = UpTo::new(9).linger(secs(5));
            let limit = Duration::from_millis(1);
            let none = queue.get_batch_timeout(up_to, limit).unwrap_err();
            assert_eq!(none, GetError::Empty);
            thread::scope(|scope| {
                let get = || queue.get_batch_timeout(up_to, HOUR).unwrap().len();
                let getter = scope.spawn(get);
                queue.add_all([1, 2]);
                // `advance` wakes the timer's thread, perhaps before the getter lingers.
                eventually("the time is over", || {
                    time.advance(secs(5));
                    getter.is_finished()
                });
                assert_eq!(getter.join().unwrap(), 2);
            });
            assert_eq!(queue.shut_down_now().queued, 0);
        },
    );
}

#[test] // C5 C9 C12
fn lingering_and_other_getters_take_every_key_once() {
    let _watchdog = watchdog(120);
    for queue in [Config::usual(), Config::tiny(), Config::grouped()].map(|config| config.queue()) {
        let queue: Queue<u64> = queue;
        let count = if cfg!(miri) { 50 } else { 20_000 };
        let taken: usize = thread::scope(|scope| {
            let by_batch = |max| {
                let up_to = UpTo::new(max).linger(ms(1));
                let queue = &queue;
                move || {
                    iter::from_fn(|| queue.get_batch(up_to))
                        .map(|batch| batch.len())
                        .sum()
                }
            };
            let by_task = || {
                let mut taken = 0;
                pollster::block_on(async {
                    while let Some(batch) = queue.get_batch_async(UpTo::new(7).linger(ms(1))).await
                    {
                        taken += batch.len();
                    }
                });
                taken
            };
            let getters = [
                scope.spawn(by_batch(3)),
                scope.spawn(by_batch(500)),
                scope.spawn(by_task),
                scope.spawn(|| queue.iter().count()),
            ];
            for half in [0..count / 2, count / 2..count] {
                queue.add_all(half);
            }
            queue.shut_down_with_drain();
            getters
                .map(|getter| getter.join().unwrap())
                .into_iter()
                .sum()
        });
        assert_eq!(taken as u64, count);
    }
}

#[test] // C7 S11 S12
fn a_batch_is_retried_in_order_or_left() {
    let queue = eager([1, 2, 3]);
    assert_eq!(queue.get_batch(2).unwrap().retry(), 0);
    assert_eq!(keys(&queue.get_batch(9).unwrap()), [3, 1, 2]);

    // A drain that delivers delays delivers them again, in order, and another one leaves them.
    for (redelivers, refused) in [(true, 0), (false, 2)] {
        let queue = WorkQueue::builder()
            .drain_delays(redelivers)
            .build()
            .unwrap();
        queue.add_all([1, 2]);
        let batch = queue.get_batch(9).unwrap();
        let mut drain = Task::waiting(Box::pin(queue.drain_async()));
        assert_eq!(batch.retry(), refused);
        let again = queue.try_get_batch(9);
        assert_eq!(
            again.as_ref().map_or(0, |batch| keys(batch).len()),
            2 - refused
        );
        drop(again);
        assert_eq!(drain.output().refused, refused);
        assert_eq!(queue.take_left().len(), refused);
    }
}

#[test] // C7 L1
fn a_limiter_that_panics_for_one_key_of_a_batch_costs_that_key_alone() {
    struct Picky;
    impl keyqueue::limiter::RateLimiter<u64> for Picky {
        fn when(&self, key: &u64) -> Duration {
            assert_ne!(*key, 2, "this limiter does not like it");
            Duration::ZERO
        }
        fn forget(&self, _: &u64) {}
        fn num_requeues(&self, _: &u64) -> u32 {
            0
        }
    }
    let queue = WorkQueue::builder().rate_limiter(Picky).build().unwrap();
    queue.add_all([1, 2, 3, 4]);
    let batch = queue.get_batch(9).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batch.retry()));
    assert!(panicked.is_err());
    assert_eq!(keys(&queue.get_batch(9).unwrap()), [1, 3, 4]);
    // The guard, too.
    queue.add_all([1, 2, 3]);
    drop(queue.get_batch(9).unwrap().retry_on_drop());
    assert_eq!(keys(&queue.get_batch(9).unwrap()), [1, 3]);
}

#[test] // C12 W4
fn workers_take_keys_beside_a_batch_that_is_waited_for() {
    let (queue, _time) = timed::<u64>();
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR))));
    queue.add(1);
    task.assert_pending();
    queue.add(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let stop = |job: Job<'_, u64>| _ = (*job == 2).then(|| queue.shut_down());
            Workers::new(&queue).concurrency(1).run(stop).unwrap();
        });
    });
    assert!(task.output().is_none());
}
