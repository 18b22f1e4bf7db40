//! Receipts of adds that add no value, and of adds that do not happen (V6). Those of puts have their tests among those of
//! queues of values.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, ms};
use crate::common::{Task, WakeCount, eventually, poll, there, waiting_adds, watchdog};
use keyqueue::limiter::NoLimit;
use keyqueue::{
    Added, Builder, Clock, Ended, Entry, Full, GetError, MockClock, Receipt, WorkQueue, merge,
};

type Lists = WorkQueue<&'static str, Vec<u32>>;

fn lists(set: impl FnOnce(Builder<&'static str>) -> Builder<&'static str>) -> (Lists, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = set(WorkQueue::builder().rate_limiter(NoLimit))
        .clock(clock)
        .manual_timers();
    let queue = builder.merge(merge::append).build();
    (queue.expect("in range"), time)
}

/// Adds "a" without a value.
fn add(queue: &Lists) -> (Added, Receipt) {
    let (entry, receipt) = queue.entry("a").tracked();
    (entry.add(), receipt)
}

const DROPPED: Option<Ended> = Some(Ended::Dropped);
const DONE: Option<Ended> = Some(Ended::Done);

#[test] // V2 V6
fn an_add_without_a_value_ends_at_the_delivery_that_finds_none() {
    type Set = fn(Builder<&'static str>) -> Builder<&'static str>;
    let sets: [Set; 4] = [
        |builder| builder,
        |builder| builder.levels(3),
        |builder| builder.group_by(|_| ()),
        |builder| builder.timing(true).capacity(9),
    ];
    for set in sets {
        let (queue, _time) = lists(set);
        let (added, mut receipt) = add(&queue);
        assert_eq!((added, queue.len()), (Added::Queued, 1));
        let (again, second) = add(&queue);
        assert_eq!(again, Added::Merged);
        let (wakes, waker) = WakeCount::new();
        assert!(poll(&mut receipt, &waker).is_pending());
        assert_eq!((receipt.ended(), second.ended()), (None, None));
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
        assert_eq!((receipt.ended(), second.ended()), (DROPPED, DROPPED));
        assert_eq!((wakes.get(), queue.len()), (1, 0));
        // The key goes on.
        let (added, receipt) = add(&queue);
        assert_eq!(added, Added::Queued);
        assert_eq!(queue.put("a", vec![1]), Added::Merged);
        assert_eq!(*queue.get().unwrap().value(), [1]);
        assert_eq!(receipt.wait(), Ended::Done);
    }
}

#[test] // V2 V6
fn an_add_without_a_value_ends_with_the_value_that_waits() {
    let (queue, _time) = lists(|builder| builder);
    let handle = queue.handle("a");
    queue.put("a", vec![1]);
    let (entry, owned) = queue.entry("a").tracked();
    assert_eq!(entry.add(), Added::Merged);
    let (entry, borrowed) = queue.entry_ref(&"a").tracked();
    assert_eq!(entry.try_add(), Ok(Added::Merged));
    let (entry, by_handle) = handle.entry().tracked();
    assert_eq!(entry.wait().add(), Added::Merged);
    let (entry, in_task) = handle.entry().tracked();
    assert_eq!(pollster::block_on(entry.add_async()), Added::Merged);
    let receipts = [owned, borrowed, by_handle, in_task];
    let ends = || receipts.each_ref().map(Receipt::ended);
    let item = queue.get().unwrap();
    assert_eq!(*item.value(), [1], "nothing was put");
    let _ = item.retry();
    assert_eq!(ends(), [None; 4], "a retry keeps them");
    queue.get().unwrap().done();
    assert_eq!(ends(), [DONE; 4]);

    queue.put("a", vec![2]);
    let (_, receipt) = add(&queue);
    let fails = || {
        let _item = queue.get().unwrap();
        resume_unwind(Box::new("the work fails"));
    };
    assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
    assert_eq!(receipt.wait(), Ended::GivenUp);
}

#[test] // C4 V2 V3 V6
fn an_add_without_a_value_of_a_key_in_work_is_for_its_next_delivery() {
    let (queue, _time) = lists(|builder| builder);
    // None follows.
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    let (added, receipt) = add(&queue);
    assert_eq!(added, Added::Deferred);
    item.done();
    assert_eq!((receipt.ended(), queue.len()), (None, 1));
    assert!(queue.try_get().is_err());
    assert_eq!(receipt.ended(), DROPPED);

    // One is put.
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    let (_, receipt) = add(&queue);
    queue.put("a", vec![2]);
    item.done();
    let item = queue.get().unwrap();
    assert_eq!((item.value().as_slice(), receipt.ended()), (&[2][..], None));
    item.done();
    assert_eq!(receipt.ended(), DONE);

    // The same comes back.
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    let (_, receipt) = add(&queue);
    assert_eq!(item.retry(), Added::Merged);
    let item = queue.get().unwrap();
    assert_eq!((item.value().as_slice(), receipt.ended()), (&[1][..], None));
    item.done();
    assert_eq!(receipt.ended(), DONE);

    // It would, but it was taken.
    queue.put("a", vec![1]);
    let mut item = queue.get().unwrap();
    let (_, receipt) = add(&queue);
    assert_eq!(item.take(), Some(vec![1]));
    assert_eq!(item.retry(), Added::Merged);
    assert_eq!(receipt.ended(), None);
    assert!(queue.try_get().is_err());
    assert_eq!(receipt.ended(), DROPPED);
}

#[test] // V2 V6
fn an_add_without_a_value_stays_if_there_is_none_to_take_back() {
    for is_in_work in [false, true] {
        let (queue, _time) = lists(|builder| builder);
        let item = is_in_work.then(|| {
            queue.put("a", vec![1]);
            queue.get().unwrap()
        });
        let (_, receipt) = add(&queue);
        assert_eq!((queue.remove("a"), receipt.ended()), (None, None));
        drop(item);
        assert_eq!((queue.remove("a"), receipt.ended()), (None, None));
        queue.put("a", vec![2]);
        let item = queue.get().unwrap();
        assert_eq!((item.value().as_slice(), receipt.ended()), (&[2][..], None));
        item.done();
        assert_eq!(receipt.ended(), DONE);
    }
}

#[test] // D4 D6 V6
fn a_delayed_add_without_a_value_ends_with_its_delay_or_an_earlier_value() {
    let delayed = |queue: &Lists| {
        let (entry, receipt) = queue.entry("a").after(HOUR).tracked();
        assert_eq!(entry.add(), Added::Delayed);
        receipt
    };
    let (queue, time) = lists(|builder| builder);
    let receipt = delayed(&queue);
    assert!(queue.try_get().is_err());
    assert_eq!(receipt.ended(), None, "it is delayed");
    time.advance(HOUR);
    assert_eq!((queue.fire_due(), receipt.ended()), (1, None));
    assert!(queue.try_get().is_err());
    assert_eq!(receipt.ended(), DROPPED);

    let receipt = delayed(&queue);
    queue.put("a", vec![1]);
    queue.get().unwrap().done();
    assert_eq!(receipt.ended(), DONE);
    assert!(queue.cancel("a"));

    let receipt = delayed(&queue);
    assert!(queue.cancel("a"));
    assert_eq!(receipt.ended(), DROPPED);
}

#[test] // S1 S8 V2 V6
fn an_add_without_a_value_that_is_taken_back_or_refused_is_dropped() {
    let ends: [fn(&Lists); 6] = [
        |queue| _ = queue.clear(),
        |queue| {
            // Nothing is taken back, so it is the delivery that ends it.
            assert_eq!(queue.remove("a"), None);
            assert!(queue.try_get().is_err());
        },
        |queue| _ = queue.shut_down_now(),
        |queue| assert!(queue.take_left().is_empty()),
        |queue| {
            queue.shut_down();
            assert!(queue.get().is_none());
        },
        |queue| assert!(queue.shut_down_with_drain().is_nothing()),
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let (queue, _time) = lists(|builder| builder);
        let (_, receipt) = add(&queue);
        thread::scope(|scope| {
            let _end = queue.shut_down_on_drop();
            if n == 5 {
                // A drain needs a getter that finds no value.
                scope.spawn(|| assert!(queue.get().is_none()));
            }
            end(&queue);
        });
        assert_eq!(receipt.ended(), DROPPED, "{n}");
    }
    let (queue, _time) = lists(|builder| builder);
    let (_, receipt) = add(&queue);
    drop(queue);
    assert_eq!(receipt.ended(), DROPPED);

    let (queue, _time) = lists(|builder| builder);
    queue.shut_down();
    let (added, receipt) = add(&queue);
    assert_eq!((added, receipt.ended()), (Added::ShutDown, DROPPED));
    let (entry, receipt) = queue.entry("a").after(HOUR).tracked();
    assert_eq!(entry.try_add(), Ok(Added::ShutDown));
    assert_eq!(receipt.ended(), DROPPED);
}

#[test] // V6
fn an_entry_that_is_dropped_ends_its_receipt_and_adds_nothing() {
    let (queue, _time) = lists(|builder| builder);
    let (entry, mut receipt) = queue.entry("a").tracked();
    let (wakes, waker) = WakeCount::new();
    assert!(poll(&mut receipt, &waker).is_pending());
    let entry = entry.level(0).after(HOUR).wait();
    assert_eq!((receipt.ended(), wakes.get()), (None, 0));
    drop(entry);
    assert_eq!((receipt.ended(), wakes.get()), (DROPPED, 1));
    assert!(queue.state("a").is_none());
    // Of two receipts of one entry, the later one counts.
    let (entry, first) = queue.entry("a").tracked();
    let (entry, second) = entry.tracked();
    assert_eq!((first.ended(), second.ended()), (DROPPED, None));
    entry.put(vec![1]);
    queue.get().unwrap().done();
    assert_eq!(second.ended(), DONE);
    // A receipt that is dropped changes nothing for the add.
    let (entry, receipt) = queue.entry("a").tracked();
    drop(receipt);
    assert_eq!(entry.put(vec![2]), Added::Queued);
    assert_eq!(*queue.get().unwrap().value(), [2]);
}

/// The entry of a key for which there is no room, and its receipt.
fn refused<'q, K, V, X>(entry: Entry<'q, K, V, X>) -> (Entry<'q, K, V, X>, Receipt) {
    let (entry, receipt) = entry.tracked();
    assert_eq!(receipt.ended(), None);
    (entry, receipt)
}

#[test] // B2 V6
fn an_entry_that_is_refused_ends_its_receipt_and_gives_back_the_rest() {
    let _watchdog = watchdog(60);
    let (queue, _time) = lists(|builder| builder.capacity(1));
    queue.put("full", vec![0]);
    let handle = queue.handle("handle");

    let (entry, receipt) = refused(queue.entry("a"));
    assert_eq!(entry.try_put(vec![1]), Err(Full(("a", vec![1]))));
    assert_eq!(receipt.ended(), DROPPED);
    let (entry, receipt) = refused(queue.entry_ref(&"a").after(HOUR));
    assert!(entry.within(ms(1)).try_put(vec![1]).is_err());
    assert_eq!(receipt.ended(), DROPPED);
    let (entry, receipt) = refused(handle.entry());
    assert!(entry.try_update(|list| list.push(1)).is_err());
    assert_eq!(receipt.ended(), DROPPED);
    for key in ["a", "handle"] {
        assert!(queue.state(key).is_none(), "{key}");
    }

    // One that exceeds the bound is not refused.
    let (entry, over) = refused(queue.entry("over"));
    assert_eq!(entry.within(ms(1)).put(vec![1]), Added::Queued);
    assert_eq!(over.ended(), None);
    // Dropping the future of one that waits is as dropping the entry.
    let (entry, receipt) = refused(queue.entry("a"));
    let task = Task::waiting(Box::pin(entry.put_async(vec![1])));
    assert_eq!(receipt.ended(), None);
    drop(task);
    assert_eq!(receipt.ended(), DROPPED);
    // A shut-down refuses one that waits.
    thread::scope(|scope| {
        let (entry, receipt) = refused(queue.entry("a"));
        let put = scope.spawn(|| entry.wait().put(vec![1]));
        eventually("it waits", || waiting_adds(&queue) == 1);
        assert_eq!(receipt.ended(), None);
        queue.shut_down();
        assert_eq!(put.join().unwrap(), Added::ShutDown);
        assert_eq!(receipt.ended(), DROPPED);
    });
    assert_eq!(there(&queue).count(), 2);
    assert_eq!(over.wait(), Ended::Done);
}

#[test] // B1 B2 V6
fn an_add_without_a_value_takes_no_room() {
    let (queue, _time) = lists(|builder| builder.capacity(1));
    let (added, receipt) = add(&queue);
    assert_eq!(added, Added::Queued);
    assert_eq!(queue.entry("b").try_put(vec![1]), Ok(Added::Queued));
    let (entry, other) = queue.entry("a").within(Duration::ZERO).tracked();
    assert_eq!(entry.add(), Added::Merged);
    assert!(queue.entry("c").try_put(vec![1]).is_err());
    assert_eq!(*queue.get().unwrap(), "b");
    assert_eq!((receipt.ended(), other.ended()), (DROPPED, DROPPED));
    assert_eq!(queue.entry("c").try_put(vec![1]), Ok(Added::Queued));
    // One that has waited for room gives it back.
    let (entry, receipt) = queue.entry("c").tracked();
    assert_eq!(entry.wait().add(), Added::Merged);
    queue.get().unwrap().done();
    assert_eq!(receipt.ended(), DONE);
    assert_eq!(queue.entry("d").try_put(vec![1]), Ok(Added::Queued));
}
