//! Puts that wait for the retry of their key (V7). `tests/delays/held.rs` has adds.

use super::{Lists, assert_nothing_delivered, deliveries, timed_lists, tracked};
use crate::common::timed::{HOUR, secs};
use keyqueue::{Added, Ended, Left, LeftReason, MockClock, merge};

/// A queue whose key "a" has failed with value 1, and is retried in an hour.
fn failed() -> (Lists, MockClock) {
    let (queue, time) = timed_lists(|builder| builder.adds_wait_for_retries(true));
    queue.put("a", vec![1]);
    assert_eq!(queue.get().unwrap().retry_after(HOUR), Added::Delayed);
    (queue, time)
}

#[test] // V7 V1 V3 V6
fn puts_of_any_form_wait_for_the_retry_and_are_delivered_with_it() {
    let (queue, time) = failed();
    let handle = queue.handle("a");
    assert_eq!(queue.put("a", vec![2]), Added::Delayed);
    assert_eq!(queue.put_all([("a", vec![3]), ("b", vec![1])]), 1);
    assert_eq!(queue.entry("a").put(vec![4]), Added::Delayed);
    assert_eq!(queue.entry("a").update(|list| list.push(5)), Added::Delayed);
    assert_eq!(handle.put(vec![6]), Added::Delayed);
    let put = handle.entry().try_put(vec![7]);
    assert_eq!(put.ok(), Some(Added::Delayed));
    assert_eq!(queue.entry("a").after(secs(1)).put(vec![8]), Added::Delayed);
    let put = pollster::block_on(queue.entry("a").put_async(vec![9]));
    assert_eq!((put, queue.add("a")), (Added::Delayed, Added::Delayed));
    assert_eq!(deliveries(&queue), [("b", vec![1])]);
    time.advance(HOUR - secs(1));
    queue.fire_due();
    assert_nothing_delivered(&queue);
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(deliveries(&queue), [("a", (1..10).collect())]);
    assert_eq!(queue.put("a", vec![1]), Added::Queued);
}

#[test] // V7 V2 V3
fn a_put_during_the_delivery_that_fails_waits_for_the_retry_under_what_failed() {
    let (queue, time) = timed_lists(|builder| builder.adds_wait_for_retries(true));
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    assert_eq!(queue.put("a", vec![2]), Added::Deferred);
    assert_eq!(item.retry_after(HOUR), Added::Delayed);
    assert_nothing_delivered(&queue);
    queue.put("a", vec![3]);
    time.advance(HOUR);
    queue.fire_due();
    assert_eq!(deliveries(&queue), [("a", vec![1, 2, 3])]);
    // One that succeeds does not keep it.
    queue.put("a", vec![4]);
    let item = queue.get().unwrap();
    queue.put("a", vec![5]);
    item.done();
    assert_eq!(deliveries(&queue), [("a", vec![5])]);
}

#[test] // V7
fn a_receipt_waits_with_its_put() {
    let (queue, time) = failed();
    let receipt = tracked(&queue, "a", vec![2]);
    assert_eq!(receipt.ended(), None);
    time.advance(HOUR);
    queue.fire_due();
    let item = queue.get().unwrap();
    assert_eq!((&**item.value(), receipt.ended()), (&[1, 2][..], None));
    item.done();
    assert_eq!(receipt.ended(), Some(Ended::Done));
}

#[test] // V7 D6
fn what_takes_the_retry_back_takes_what_waits_for_it() {
    let (queue, _time) = failed();
    let receipt = tracked(&queue, "a", vec![2]);
    assert!(queue.cancel(&"a"));
    assert_eq!(receipt.ended(), Some(Ended::Dropped));
    assert_eq!(queue.put("a", vec![3]), Added::Queued);
    assert_eq!(deliveries(&queue), [("a", vec![3])]);

    let (queue, _time) = failed();
    queue.put("a", vec![2]);
    assert_eq!(queue.remove(&"a"), Some(vec![1, 2]));
    assert_eq!(queue.put("a", vec![3]), Added::Queued);

    let (queue, _time) = failed();
    queue.put("a", vec![2]);
    assert_eq!(queue.run_now(&"a"), Some(Added::Queued));
    assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
}

#[test] // V7 S5 S12
fn what_waits_for_a_retry_that_a_shut_down_drops_is_left_with_it() {
    let (queue, _time) = failed();
    let receipt = tracked(&queue, "a", vec![2]);
    queue.shut_down();
    assert_eq!(receipt.ended(), Some(Ended::Dropped));
    let left = queue.take_left();
    let [
        Left {
            key, value, reason, ..
        },
    ] = &left[..]
    else {
        panic!("{left:?}");
    };
    assert_eq!((*key, value), ("a", &Some(vec![1, 2])));
    assert_eq!(*reason, LeftReason::Delayed);
}

#[test] // V7 B1 B5
fn a_put_that_waits_for_a_retry_counts_as_the_retry() {
    let (clock, _time) = keyqueue::Clock::mock();
    let builder = keyqueue::WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.merge(merge::append).capacity(4).weight(Vec::len);
    let queue = builder.adds_wait_for_retries(true).build().unwrap();
    queue.put("a", vec![1]);
    assert_eq!(queue.get().unwrap().retry_after(HOUR), Added::Delayed);
    // Of what retries, no more than half of the capacity takes room.
    for n in 2..6 {
        assert_eq!(queue.put("a", vec![n]), Added::Delayed);
    }
    assert_eq!(queue.entry("b").try_put(vec![1, 2]), Ok(Added::Queued));
    assert!(queue.entry("c").try_put(vec![1]).is_err());
    assert_eq!(queue.remove(&"a").map(|list| list.len()), Some(5));
    assert_eq!(queue.entry("c").try_put(vec![1, 2]), Ok(Added::Queued));
}
