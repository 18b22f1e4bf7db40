//! How long an add waits for room, and what it does if there is none by then: `within` and `wait` with each verb (B2, V6).

use std::pin::Pin;
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, ms, secs};
use crate::common::{Task, WakeCount, eventually, poll, there, waiting_adds, watchdog};
use keyqueue::{Added, Clock, Ended, Full, WorkQueue, merge};
use pollster::block_on;

const SOON: Duration = ms(1);

type Queue = WorkQueue<&'static str>;
type Lists = WorkQueue<&'static str, Vec<u32>>;

/// A queue that is full, with "full".
fn full() -> Queue {
    let (queue, _time) = built(|builder| builder.levels(2).capacity(1));
    queue.add("full");
    queue
}

fn full_of_values() -> Lists {
    let builder = WorkQueue::builder().merge(merge::append).capacity(1);
    let queue = builder.build().unwrap();
    queue.put("full", vec![0]);
    queue
}

/// The keys that are queued, in their order.
fn keys<V, S>(queue: &WorkQueue<&'static str, V, S>) -> Vec<&'static str> {
    there(queue).map(|item| *item).collect()
}

#[test] // V6 B2 B3
fn an_add_that_has_waited_long_enough_exceeds_the_bound() {
    let _watchdog = watchdog(60);
    let queue = full();
    let handle = queue.handle("handle");
    assert_eq!(queue.entry("owned").within(SOON).add(), Added::Queued);
    assert_eq!(queue.entry_ref(&"ref").within(SOON).add(), Added::Queued);
    assert_eq!(handle.entry().within(SOON).add(), Added::Queued);
    let urgent = queue.entry("urgent").level(0).within(Duration::ZERO);
    assert_eq!(urgent.add(), Added::Queued);
    let delayed = queue.entry("delayed").after(HOUR).within(SOON);
    assert_eq!(delayed.add(), Added::Delayed);
    // In a queue without values, these add as well.
    assert_eq!(queue.entry("put").within(SOON).put(()), Added::Queued);
    let mut is_called = false;
    let update = queue.entry("update").within(SOON);
    assert_eq!(update.update(|()| is_called = true), Added::Queued);
    assert!(is_called);
    assert_eq!((queue.len(), queue.counts().delayed), (7, 1));
    assert_eq!(waiting_adds(&queue), 0);
    // What has exceeded the bound is counted.
    assert!(queue.cancel("delayed"));
    for left in (1..7).rev() {
        assert_eq!(queue.entry("new").try_add(), Err(Full("new")), "{left}");
        queue.get().unwrap().done();
    }
    queue.get().unwrap().done();
    assert_eq!(queue.entry("new").try_add(), Ok(Added::Queued));
}

#[test] // V6 B1
fn an_add_that_needs_no_room_does_not_wait_for_it() {
    let queue = full();
    queue.add("held");
    let held = queue.get().unwrap(); // "full", so that "held" fills the queue
    assert_eq!(queue.entry("held").within(HOUR).add(), Added::Merged);
    assert_eq!(queue.entry(*held).within(HOUR).add(), Added::Deferred);
    assert_eq!(queue.entry(*held).wait().try_add(), Ok(Added::Merged));
    assert_eq!(
        queue.entry("held").within(HOUR).try_add(),
        Ok(Added::Merged)
    );
    let roomy = Queue::new();
    assert_eq!(roomy.entry("a").within(HOUR).add(), Added::Queued);
    assert_eq!(roomy.entry("b").within(Duration::MAX).add(), Added::Queued);
}

#[test] // V6 B2
fn an_add_with_a_limit_gets_the_room_that_comes_in_time() {
    let _watchdog = watchdog(60);
    for limit in [HOUR, Duration::MAX] {
        let queue = full();
        thread::scope(|scope| {
            let add = scope.spawn(|| queue.entry("a").within(limit).add());
            eventually("it waits", || waiting_adds(&queue) == 1);
            assert!(!add.is_finished());
            assert_eq!(queue.len(), 1);
            queue.get().unwrap().done();
            assert_eq!(add.join().unwrap(), Added::Queued);
        });
        assert_eq!(queue.entry("b").try_add(), Err(Full("b")), "{limit:?}");
        assert_eq!(keys(&queue), ["a"]);
    }
}

#[test] // V6 B2
fn a_try_may_wait_for_room() {
    let _watchdog = watchdog(60);
    let queue = full();
    let handle = queue.handle("handle");
    thread::scope(|scope| {
        let adds = [
            scope.spawn(|| queue.entry("owned").wait().try_add().is_ok()),
            scope.spawn(|| queue.entry_ref(&"ref").within(HOUR).try_add().is_ok()),
            scope.spawn(|| handle.entry().level(0).wait().try_add().is_ok()),
            scope.spawn(|| queue.entry("delayed").after(HOUR).wait().try_add().is_ok()),
            scope.spawn(|| queue.entry("put").wait().try_put(()).is_ok()),
            scope.spawn(|| queue.entry("update").wait().try_update(|()| ()).is_ok()),
        ];
        eventually("all wait", || waiting_adds(&queue) == adds.len());
        for left in (0..adds.len()).rev() {
            // One at a time: each takes the room that this makes.
            if queue.counts().delayed == 1 {
                assert!(queue.cancel("delayed"));
            } else {
                // An add that has not ended may have a key that is counted, and cannot be taken yet.
                queue.get().unwrap().done();
            }
            eventually("one has got room", || waiting_adds(&queue) == left);
            let waits = || queue.counts().queued + queue.counts().delayed;
            eventually("it has added its key", || waits() == 1);
        }
        assert!(adds.into_iter().all(|add| add.join().unwrap()));
    });
}

#[test] // B2
fn an_add_that_gives_up_its_place_leaves_the_others_theirs() {
    let queue = full();
    let mut first = Task::waiting(Box::pin(queue.entry("first").add_async()));
    assert_eq!(
        queue.entry("late").within(SOON).try_add(),
        Err(Full("late"))
    );
    assert_eq!(queue.entry("over").within(SOON).add(), Added::Queued);
    let mut second = Task::waiting(Box::pin(queue.entry("second").add_async()));
    assert_eq!(waiting_adds(&queue), 2);
    queue.get().unwrap().done(); // "full": "over" takes the room
    first.assert_pending();
    queue.get().unwrap().done(); // "over"
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    assert_eq!(first.output(), Added::Queued);
    second.assert_pending();
    queue.get().unwrap().done();
    assert_eq!(second.output(), Added::Queued);
}

/// A task that adds "late" with a limit of a second.
fn limited(queue: &Queue) -> Task<Pin<Box<impl Future<Output = Added> + '_>>> {
    Task::waiting(Box::pin(queue.entry("late").within(secs(1)).add_async()))
}

#[test] // V6 B2 B3
fn a_task_that_has_waited_long_enough_exceeds_the_bound() {
    let (queue, time) = built(|builder| builder.capacity(1));
    queue.add("full");
    let mut first = Task::waiting(Box::pin(queue.entry("first").wait().add_async()));
    let mut late = limited(&queue);
    let soon = queue.entry("soon").after(HOUR).within(ms(1));
    let mut soon = Task::waiting(Box::pin(soon.add_async()));
    let over = queue.entry("over").within(Duration::ZERO);
    assert_eq!(block_on(over.add_async()), Added::Queued);
    time.advance(ms(1));
    queue.fire_due();
    assert_eq!((late.wakes(), soon.wakes()), (0, 1));
    late.assert_pending();
    assert_eq!(soon.output(), Added::Delayed);
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!((first.wakes(), late.wakes()), (0, 1));
    assert_eq!(late.output(), Added::Queued);
    first.assert_pending();
    assert_eq!(waiting_adds(&queue), 1);
    // What has exceeded the bound is counted.
    assert!(queue.cancel("soon"));
    for key in ["full", "over"] {
        assert_eq!(*queue.get().unwrap(), key);
        first.assert_pending();
    }
    assert_eq!(*queue.get().unwrap(), "late");
    assert_eq!(first.output(), Added::Queued);
}

#[test] // V6 B2 B3
fn a_task_with_a_value_that_has_waited_long_enough_exceeds_the_bound() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.merge(merge::append).capacity(2).weight(Vec::len);
    let queue: Lists = builder.build().unwrap();
    queue.put("full", vec![0; 2]);
    let mut first = Task::waiting(Box::pin(queue.entry("first").put_async(vec![1])));
    let (put, receipt) = queue.entry("put").within(secs(1)).tracked();
    let mut put = Task::waiting(Box::pin(put.put_async(vec![2, 3])));
    let (update, updated) = queue.entry("update").within(secs(2)).tracked();
    let mut update = Task::waiting(Box::pin(update.update_async(|list| list.push(4))));
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!((first.wakes(), put.wakes(), update.wakes()), (0, 1, 0));
    assert_eq!(put.output(), Added::Queued);
    update.assert_pending();
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(update.output(), Added::Queued);
    // What has exceeded the bound is counted, by its weight.
    assert_eq!(*queue.get().unwrap().value(), [0; 2]);
    first.assert_pending();
    assert_eq!((receipt.ended(), updated.ended()), (None, None));
    assert_eq!(*queue.get().unwrap().value(), [2, 3]);
    assert_eq!(receipt.ended(), Some(Ended::Done));
    assert_eq!(first.output(), Added::Queued);
    assert!(queue.entry("new").try_put(vec![5]).is_err());
    assert_eq!(*queue.get().unwrap().value(), [4]);
    assert_eq!(updated.ended(), Some(Ended::Done));
    assert!(queue.entry("new").try_put(vec![5]).is_ok());
}

#[test] // B2
fn a_task_whose_limit_is_over_uses_the_room_that_it_was_granted() {
    let (queue, time) = built(|builder| builder.capacity(1));
    queue.add("full");
    let mut late = limited(&queue);
    let mut next = Task::waiting(Box::pin(queue.entry("next").add_async()));
    time.advance(secs(2));
    queue.get().unwrap().done();
    queue.fire_due();
    assert_eq!(late.output(), Added::Queued);
    next.assert_pending();
    assert_eq!(queue.entry("new").try_add(), Err(Full("new")));
    queue.get().unwrap().done();
    assert_eq!(next.output(), Added::Queued);
}

#[test] // B2
fn a_task_with_a_limit_may_be_cancelled_at_each_point() {
    for point in 0..4 {
        let (queue, time) = built(|builder| builder.capacity(1));
        queue.add("full");
        let (wakes, waker) = WakeCount::new();
        let mut late = Box::pin(queue.entry("late").within(secs(1)).add_async());
        assert!(poll(&mut late, &waker).is_pending());
        let mut next = Task::waiting(Box::pin(queue.entry("next").add_async()));
        match point {
            0 => {}
            1 => queue.get().unwrap().done(),
            _ => {
                time.advance(secs(1));
                queue.fire_due();
            }
        }
        if point == 3 {
            queue.get().unwrap().done();
        }
        let woken = wakes.get();
        drop(late);
        if let 0 | 2 = point {
            next.assert_pending();
            queue.get().unwrap().done();
        }
        assert_eq!(next.output(), Added::Queued, "{point}");
        assert_eq!(keys(&queue), ["next"], "{point}");
        time.advance(secs(1));
        queue.fire_due();
        assert_eq!(wakes.get(), woken, "{point}: nobody waits any more");
        assert_eq!(queue.entry("new").try_add(), Ok(Added::Queued), "{point}");
    }
}

#[test] // B2 D9
fn the_timers_thread_ends_the_limit_of_a_task() {
    let _watchdog = watchdog(60);
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::<&str>::builder().clock(clock).capacity(1);
    let queue = builder.build().unwrap();
    queue.add("full");
    let mut late = Task::waiting(Box::pin(queue.entry("late").within(secs(1)).add_async()));
    time.advance(secs(1));
    eventually("it is woken", || late.wakes() == 1);
    assert_eq!(late.output(), Added::Queued);
    // A limit that the clock cannot represent is none.
    let ends = Duration::from_nanos(u64::MAX);
    for limit in [Duration::MAX, ends] {
        let mut endless = Task::waiting(Box::pin(queue.entry("new").within(limit).add_async()));
        time.advance(limit);
        endless.assert_pending();
    }
}

#[test] // B2 D9
fn a_limit_of_a_task_comes_before_the_delay_until_which_the_timers_thread_sleeps() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u32>::builder().capacity(1).build().unwrap();
    queue.add_after(0, HOUR);
    // Before some of them it sleeps.
    for key in 1..=20 {
        let add = queue.entry(key).within(ms(1)).add_async();
        assert_eq!(block_on(add), Added::Queued);
    }
}

#[test] // V6: as `within` says
fn a_try_that_has_waited_too_long_is_refused_also_if_its_key_has_come() {
    let _watchdog = watchdog(60);
    let queue = full();
    thread::scope(|scope| {
        let tried = scope.spawn(|| queue.entry("a").within(ms(300)).try_add());
        eventually("it waits", || {
            waiting_adds(&queue) == 1 || tried.is_finished()
        });
        queue.add("a");
        assert_eq!(tried.join().unwrap(), Err(Full("a")));
    });
    assert_eq!(queue.entry("a").within(SOON).add(), Added::Merged);
    assert_eq!(keys(&queue), ["full", "a"]);
}

#[test] // V6 B2 S1
fn a_shut_down_ends_each_wait_and_nothing_is_added() {
    let _watchdog = watchdog(60);
    let ways: [fn(&Queue) -> Added; 6] = [
        |queue| queue.entry("a").within(HOUR).add(),
        |queue| queue.entry("b").wait().try_add().unwrap(),
        |queue| queue.entry("c").within(HOUR).try_add().unwrap(),
        |queue| queue.entry("d").after(HOUR).within(HOUR).add(),
        |queue| queue.handle("e").entry().within(HOUR).put(()),
        |queue| {
            let change = |(): &mut ()| panic!("it is refused");
            queue.entry("f").within(HOUR).update(change)
        },
    ];
    for now in [false, true] {
        let queue = full();
        let mut task = Task::waiting(Box::pin(queue.entry("g").add_async()));
        let mut delayed = Task::waiting(Box::pin(queue.entry("h").after(HOUR).add_async()));
        thread::scope(|scope| {
            let adds = ways.map(|way| {
                scope.spawn({
                    let queue = &queue;
                    move || way(queue)
                })
            });
            eventually("all wait", || waiting_adds(&queue) == ways.len() + 2);
            match now {
                true => _ = queue.shut_down_now(),
                false => _ = queue.shut_down(),
            }
            for add in adds {
                assert_eq!(add.join().unwrap(), Added::ShutDown);
            }
        });
        assert_eq!([task.output(), delayed.output()], [Added::ShutDown; 2]);
        for way in ways {
            assert_eq!(way(&queue), Added::ShutDown, "without a wait");
        }
        assert_eq!(keys(&queue), if now { vec![] } else { vec!["full"] });
    }
}

#[test] // V6: of two settings, the later one counts
fn a_limit_and_a_wait_replace_each_other() {
    let _watchdog = watchdog(60);
    let queue = full();
    let limited = queue.entry("a").wait().within(SOON);
    assert_eq!(limited.try_add(), Err(Full("a")));
    let limited = queue.entry("a").within(HOUR).within(Duration::ZERO);
    assert_eq!(limited.try_add(), Err(Full("a")));
    thread::scope(|scope| {
        let add = scope.spawn(|| queue.entry("a").within(Duration::ZERO).wait().try_add());
        eventually("it waits", || waiting_adds(&queue) == 1);
        queue.get().unwrap().done();
        assert_eq!(add.join().unwrap(), Ok(Added::Queued));
    });
}

#[test] // V6 B1 B2 V2
fn puts_and_updates_with_a_limit_exceed_the_bound_or_come_back() {
    let queue = full_of_values();
    let handle = queue.handle("handle");
    let put = queue.entry("put").within(SOON);
    assert_eq!(put.put(vec![1]), Added::Queued);
    let update = queue.entry_ref(&"update").within(SOON);
    assert_eq!(update.update(|list| list.push(2)), Added::Queued);
    let delayed = handle.entry().after(secs(1)).within(SOON);
    assert_eq!(delayed.put(vec![3]), Added::Delayed);
    let refused = queue.entry("new").within(SOON).try_put(vec![4]);
    assert_eq!(refused, Err(Full(("new", vec![4]))));
    let refused = queue.entry("new").within(SOON);
    let Full((key, change)) = refused
        .try_update(|list: &mut Vec<u32>| list.push(5))
        .unwrap_err();
    let mut list = vec![];
    change(&mut list);
    assert_eq!((key, list), ("new", vec![5]));
    // A key without a value needs no room, and a value that waits already is not more with another one.
    assert_eq!(
        queue.entry("none").within(SOON).try_add(),
        Ok(Added::Queued)
    );
    let merged = queue.entry("put").within(HOUR);
    assert_eq!(merged.try_put(vec![6]), Ok(Added::Merged));
    assert_eq!(handle.entry().within(HOUR).put(vec![7]), Added::Queued);
    let lists = there(&queue).map(|mut item| (*item, item.take().unwrap()));
    let lists: Vec<_> = lists.collect();
    assert_eq!(
        lists,
        [
            ("full", vec![0]),
            ("put", vec![1, 6]),
            ("update", vec![2]),
            ("handle", vec![3, 7])
        ]
    );
}

#[test] // V6 B2 V2
fn puts_and_updates_with_a_limit_get_the_room_that_comes_in_time() {
    let _watchdog = watchdog(60);
    let ways: [fn(&Lists) -> Added; 4] = [
        |queue| queue.entry("a").within(HOUR).put(vec![1]),
        |queue| queue.entry("a").within(HOUR).update(|list| list.push(1)),
        |queue| queue.entry("a").wait().try_put(vec![1]).unwrap(),
        |queue| {
            let entry = queue.entry("a").within(HOUR);
            entry
                .try_update(|list| list.push(1))
                .unwrap_or(Added::ShutDown)
        },
    ];
    for way in ways {
        let queue = full_of_values();
        thread::scope(|scope| {
            let add = scope.spawn(|| way(&queue));
            eventually("it waits", || waiting_adds(&queue) == 1);
            assert_eq!(*queue.get().unwrap().value(), [0]);
            assert_eq!(add.join().unwrap(), Added::Queued);
        });
        assert!(queue.entry("b").try_put(vec![2]).is_err());
        assert_eq!(*queue.get().unwrap().value(), [1]);
    }
}
