//! Getters that linger look again when keys become deliverable by something other than one add each, and sweep idle
//! keys while they wait.
//!
//! The table of events is in `src/engine/lingering.rs`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::counted::Alive;
use crate::common::timed::{HOUR, built, secs, timed};
use crate::common::{Task, WakeCount, eventually, poll, poll_until_idle, scaled, there, watchdog};
use keyqueue::{Batch, Builder, Clock, MockClock, UpTo, WorkQueue, merge};

fn keys(batch: Option<Batch<'_, u64>>) -> Vec<u64> {
    batch.unwrap().iter().map(|item| **item).collect()
}

/// Lets a getter of at most `max` keys linger in a queue, runs `event`, and returns the batch. Fails unless `event`
/// wakes the getter.
#[track_caller]
fn batch_after(max: usize, queue: &WorkQueue<u64>, event: impl FnOnce()) -> Vec<u64> {
    let up_to = UpTo::new(max).linger(HOUR);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    let before = task.wakes();
    event();
    assert_eq!(task.wakes(), before + 1, "woken");
    keys(task.output())
}

/// A queue with a group of the even keys and one of the odd ones.
fn of_two_groups(set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> (WorkQueue<u64>, MockClock) {
    built(|builder| set(builder).group_by(|n| n % 2))
}

/// The same, with one even key that may be delivered and odd ones whose group is held for a second.
fn with_a_hold(odd: &[u64]) -> (WorkQueue<u64>, MockClock) {
    let (queue, time) = of_two_groups(|builder| builder);
    assert!(queue.hold_group(&1_u64, secs(1)));
    queue.add(2);
    queue.add_all(odd.iter().copied());
    (queue, time)
}

#[test] // C12 G7
fn a_resume_is_noticed_beside_a_getter_that_takes_one() {
    let (queue, _time) = built::<u64>(Builder::pausable);
    let mut other = None;
    queue.add(1);
    let batch = batch_after(4, &queue, || {
        queue.pause().unwrap();
        queue.add_all([2, 3, 4, 5]);
        let waits = other.insert(Task::waiting(queue.get_async()));
        assert!(queue.resume());
        assert_eq!(waits.wakes(), 1);
        assert_eq!(*waits.output().unwrap(), 1);
    });
    assert_eq!(batch, [2, 3, 4, 5]);
}

#[test] // C12 G6
fn a_release_is_noticed() {
    let (queue, _time) = with_a_hold(&[1, 3, 5, 7]);
    let release = || assert!(queue.hold_group(&1_u64, Duration::ZERO));
    let batch = batch_after(5, &queue, release);
    assert_eq!(batch, [2, 1, 3, 5, 7]);
}

#[test] // C12 G6
fn the_end_of_a_hold_is_noticed_whoever_sees_it() {
    let (queue, time) = with_a_hold(&[1, 3, 5, 7]);
    let batch = batch_after(5, &queue, || {
        time.advance(secs(1));
        queue.fire_due();
    });
    assert_eq!(batch, [2, 1, 3, 5, 7]);

    let (queue, time) = with_a_hold(&[1, 3, 5, 7, 9]);
    let batch = batch_after(5, &queue, || {
        time.advance(secs(1));
        assert_eq!(*queue.try_get().unwrap(), 2);
    });
    assert_eq!(batch, [1, 3, 5, 7, 9]);

    // An add of the group, which finds that its time has come.
    let (queue, time) = with_a_hold(&[1, 3, 5]);
    let batch = batch_after(5, &queue, || {
        time.advance(secs(1));
        queue.add(7);
    });
    assert_eq!(batch, [2, 1, 3, 5, 7]);
    // The same by the end of a delay, which is before the timer's look at the groups.
    let (queue, time) = with_a_hold(&[1, 3, 5]);
    queue.add_after(7, secs(1));
    let batch = batch_after(5, &queue, || {
        time.advance(secs(1));
        queue.fire_due();
    });
    assert_eq!(batch, [2, 1, 3, 5, 7]);

    // Another getter that lingers.
    let (queue, time) = with_a_hold(&[1, 3, 5, 7]);
    let batch = batch_after(5, &queue, || {
        time.advance(secs(1));
        let other = queue.get_batch_async(UpTo::new(9).linger(HOUR));
        drop(Task::waiting(Box::pin(other)));
    });
    assert_eq!(batch, [2, 1, 3, 5, 7]);
}

#[test] // C12 T2
fn the_end_of_intervals_is_noticed_whoever_sees_it() {
    for by_an_add in [false, true] {
        let (queue, time) = built::<u64>(|builder| builder.min_interval(secs(1)));
        queue.add_all([1, 3, 5, 7, 9]);
        assert_eq!(there(&queue).count(), 5);
        queue.add_all([1, 3, 5, 7]);
        queue.add(2);
        let batch = batch_after(5, &queue, || {
            time.advance(secs(1));
            match by_an_add {
                true => _ = queue.add(9),
                false => _ = queue.fire_due(),
            }
        });
        assert_eq!(batch, [2, 1, 3, 5, 7]);
    }
}

#[test] // C12 G5 T1
fn a_token_is_noticed() {
    // One token for four keys: it would be in vain to wait for more.
    let (queue, time) = of_two_groups(|builder| builder.group_rate(1.0, 4));
    queue.add_all([11, 13, 15, 17]);
    assert_eq!(there(&queue).count(), 4);
    queue.add_all([2, 1, 3, 5, 7]);
    let batch = batch_after(5, &queue, || {
        time.advance(secs(1));
        queue.fire_due();
    });
    assert_eq!(batch, [2, 1]);

    let (queue, time) = built::<u64>(|builder| builder.dispatch_rate(1.0, 3));
    queue.add(1);
    let up_to = UpTo::new(9).linger(HOUR);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.add_all([2, 3, 4]);
    assert_eq!(there(&queue).count(), 3);
    task.assert_pending(); // There is a key, and no token.
    let before = task.wakes();
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(task.wakes(), before + 1);
    assert_eq!(keys(task.output()), [4]);
}

#[test] // C12 G2
fn a_delivery_that_ends_at_its_groups_limit_is_noticed() {
    let (queue, _time) = of_two_groups(|builder| builder.group_limit(2));
    queue.add_all([1, 3]);
    let items = queue.get_batch(2).unwrap();
    queue.add_all([2, 5, 7, 9]);
    let mut items = items.into_iter();
    let batch = batch_after(9, &queue, || items.next().unwrap().done());
    assert_eq!(batch, [2, 5]);
}

#[test] // C12 G2
fn keys_of_a_group_that_is_nearly_at_its_limit_are_not_counted_on() {
    let up_to = UpTo::new(9).linger(HOUR);
    let (queue, _time) = of_two_groups(|builder| builder.group_limit(5));
    queue.add_all([1, 3, 5, 7]);
    let _items = queue.get_batch(4).unwrap();
    queue.add(2);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.add(9);
    task.assert_pending();
    queue.add(11); // would wait for this batch
    assert_eq!(keys(task.output()), [2, 9]);

    // Nothing is left when it looks, and then a group has more than its limit.
    let (queue, _time) = of_two_groups(|builder| builder.group_limit(2));
    queue.add(2);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(up_to)));
    queue.add_all([4, 6]);
    let _items = [queue.try_get().unwrap(), queue.try_get().unwrap()];
    task.assert_pending();
    for key in [1, 3, 5] {
        task.assert_pending();
        queue.add(key);
    }
    assert_eq!(keys(task.output()), [1, 3]);
}

#[test] // C12
fn what_makes_no_key_deliverable_wakes_no_getter_that_lingers() {
    let (queue, time) = of_two_groups(|builder| builder.group_limit(9));
    queue.add_all([1, 2, 3]);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(UpTo::new(5).linger(HOUR))));
    let before = task.wakes();
    queue.pause().unwrap();
    queue.add(5);
    assert!(queue.hold_group(&0_u64, secs(1)));
    assert_eq!(queue.clear(), 4);
    time.advance(secs(1));
    queue.fire_due();
    queue.shrink(); // forgets the groups
    assert!(queue.resume());
    assert_eq!(task.wakes(), before);
    task.assert_pending();
    queue.add_all(0..4);
    task.assert_pending();
    queue.add(4);
    assert_eq!(keys(task.output()), [0, 1, 2, 3, 4]);
}

#[test] // B2 C12
fn a_getter_does_not_linger_if_an_add_waits_for_room_before() {
    let builder = WorkQueue::<u64>::builder().merge(merge::append::<Vec<u32>>);
    let queue = builder.weight(Vec::len).capacity(4).build().unwrap();
    queue.put(1, vec![0; 3]);
    let put = Task::waiting(Box::pin(queue.entry(2).put_async(vec![0; 2])));
    // Room is left, but not for the add.
    let mut get = Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR)));
    assert!(poll_until_idle(&mut get).is_ready());
    drop(put);
}

#[test] // C10 C12
fn a_linger_that_is_dropped_leaves_nothing_behind() {
    let (queue, _time) = built::<u64>(|builder| builder.capacity(9));
    queue.add(1);
    let (wakes, waker) = WakeCount::new();
    let mut get = Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR)));
    assert!(poll(&mut get, &waker).is_pending());
    drop((get, waker));
    assert_eq!(Arc::strong_count(&wakes), 1);
}

// ---- idle keys ------------------------------------------------------------------------------

const BURST: usize = scaled(100_000);
/// More than the fixed cache.
const FEW: usize = 10_000;

#[test] // C10 C12
fn a_task_that_lingers_sweeps_idle_keys_though_its_batches_are_full() {
    for last in [0, 1] {
        let (queue, _time) = timed();
        let alive = Alive::default();
        queue.add_all((0..BURST + last).map(|n| alive.of(n)));
        let get = || Box::pin(queue.get_batch_async(UpTo::new(100).linger(HOUR)));
        for _ in 0..BURST / 100 {
            assert!(poll_until_idle(&mut get()).is_ready());
        }
        // It waits for a first key, or for more.
        let _task = Task::waiting(get());
        assert_eq!(queue.len(), last);
        assert!(alive.count() <= FEW, "{} keys", alive.count());
    }
}

#[test] // C10 C12
fn a_thread_that_lingers_sweeps_idle_keys_when_that_is_due() {
    let _watchdog = watchdog(120);
    for (is_manual, last) in [(false, 0), (true, 0), (true, 1)] {
        let mut builder = WorkQueue::builder().clock(Clock::new());
        if is_manual {
            builder = builder.manual_timers();
        }
        let queue = builder.build().unwrap();
        let alive = Alive::default();
        let add = |count| queue.add_all((0..count).map(|n| alive.of(n)));
        // They recur, so the first look spares them.
        add(BURST);
        drop(queue.get_batch(BURST));
        add(BURST + last);
        thread::scope(|scope| {
            let _end = queue.shut_down_on_drop();
            scope.spawn(|| while queue.get_batch(UpTo::new(100).linger(HOUR)).is_some() {});
            eventually("the burst is forgotten", || {
                queue.len() == last && alive.count() <= FEW
            });
        });
    }
}

#[test] // C9 C12 T1
fn two_getters_that_linger_without_a_token_do_not_wake_each_other() {
    let (queue, time) = built(|builder| builder.dispatch_rate(1.0, 1).manual_timers());
    queue.add_all([1, 2]);
    assert_eq!(*queue.try_get().unwrap(), 1);
    let get = || Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR)));
    let [mut first, second] = [Task::waiting(get()), Task::waiting(get())];
    queue.add(3);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    first.assert_pending();
    assert_eq!(second.wakes(), 0, "there is no token for it either");
    // One that leaves with its wake-up loses nothing: the token that comes wakes the other one.
    queue.add(4);
    assert_eq!(second.wakes(), 1);
    drop(second);
    assert_eq!(first.wakes(), 1);
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(first.wakes(), 2);
    assert_eq!(first.output().unwrap().len(), 1);
}

#[test] // C12 T1 G2 G5
fn a_key_that_another_getter_takes_leaves_a_batch_less_room() {
    for set in [
        |builder: Builder<u64>| builder.dispatch_rate(1.0, 3),
        |builder: Builder<u64>| builder.group_by(|_| 0).group_limit(3),
        |builder: Builder<u64>| builder.group_by(|_| 0).group_rate(1.0, 3),
    ] {
        let (queue, _time) = built(set);
        let mut others = [(); 2].map(|()| Task::waiting(queue.get_async()));
        queue.add(1);
        let get = || Box::pin(queue.get_batch_async(UpTo::new(9).linger(HOUR)));
        let mut task = Task::waiting(get());
        queue.add(2);
        assert_eq!(others.each_ref().map(Task::wakes), [1, 1]);
        let _taken = others[0].output();
        queue.add_all([3, 4]);
        assert_eq!(task.wakes(), 1);
        assert!(task.output().unwrap().len() >= 2);
    }
}
