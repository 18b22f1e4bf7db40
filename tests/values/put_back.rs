//! A delivery that fails gives its value back, under what came meanwhile (V3).

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use super::{assert_nothing_delivered, deliveries, lists, timed_lists};
use crate::common::timed::{HOUR, MS, ms};
use keyqueue::limiter::{Bucket, ItemExponentialFailure, MaxOf, RateLimiter};
use keyqueue::{Added, Clock, Item, WorkQueue, merge};

/// Runs `retry` on a delivery of `[1]`, before and after another value is put.
fn retried(retry: impl Fn(Item<'_, &'static str, Vec<u32>>)) -> [Vec<u32>; 2] {
    [true, false].map(|put_before| {
        let (queue, time) = timed_lists(|builder| builder);
        queue.put("a", vec![1]);
        let item = queue.get().unwrap();
        if put_before {
            queue.put("a", vec![2]);
        }
        retry(item);
        if !put_before {
            queue.put("a", vec![2]);
        }
        let mut delivered = deliveries(&queue);
        assert_eq!(delivered.len(), 1, "one delivery has both values");
        time.advance(HOUR);
        queue.fire_due();
        assert_nothing_delivered(&queue);
        delivered.remove(0).1
    })
}

#[test] // V3
fn a_retry_puts_the_value_under_newer_ones() {
    let both = [vec![1, 2], vec![1, 2]];
    assert_eq!(retried(|item| assert!(item.retry().is_accepted())), both);
    assert_eq!(
        retried(|item| assert_eq!(item.retry_after(MS), Added::Delayed)),
        both
    );
    assert_eq!(retried(|item| drop(item.retry_on_drop())), both);
    let panics = |item: Item<'_, &'static str, Vec<u32>>| {
        let guard = item.retry_on_drop();
        let work = move || {
            let _guard = guard;
            resume_unwind(Box::new("the work fails"));
        };
        assert!(catch_unwind(work).is_err());
    };
    assert_eq!(retried(panics), both);
}

#[test] // V3
fn an_owned_item_puts_its_value_back() {
    let queue = Arc::new(lists::<&str>());
    queue.put("a", vec![1]);
    let mut item = queue.get().map(Item::into_owned).unwrap();
    queue.put("a", vec![3]);
    item.value_mut().push(2);
    assert_eq!(*item.value(), [1, 2]);
    assert_eq!(item.retry(), Added::Merged); // with [3]
    let mut item = queue.get().map(Item::into_owned).unwrap();
    assert_eq!(item.take(), Some(vec![1, 2, 3]));
    drop(item);
    queue.put("a", vec![4]);
    drop(queue.get().map(Item::into_owned).unwrap().retry_on_drop());
    assert_eq!(deliveries(&queue), [("a", vec![4])]);
}

#[test] // V3
fn what_is_changed_is_retried() {
    let queue = lists::<&str>();
    queue.put("a", vec![1, 2, 3]);
    let mut item = queue.get().unwrap();
    item.value_mut().retain(|n| *n > 1);
    assert_eq!(item.retry(), Added::Deferred);
    assert_eq!(deliveries(&queue), [("a", vec![2, 3])]);
}

#[test] // V3
fn a_value_that_was_taken_is_not_retried() {
    let queue = lists::<&str>();
    queue.put("a", vec![1]);
    let mut item = queue.get().unwrap();
    assert_eq!(item.take(), Some(vec![1]));
    assert_eq!(item.retry(), Added::Deferred);
    assert_nothing_delivered(&queue);
    // Another one is.
    queue.put("a", vec![2]);
    let mut item = queue.get().unwrap();
    assert_eq!(item.take(), Some(vec![2]));
    queue.put("a", vec![3]);
    let _ = item.retry();
    assert_eq!(deliveries(&queue), [("a", vec![3])]);
}

#[test] // V3
fn a_delayed_retry_is_delivered_with_its_value_at_its_time() {
    let (queue, time) = timed_lists(|builder| builder);
    queue.put("a", vec![1]);
    let _ = queue.get().unwrap().retry_after(ms(5));
    time.advance(ms(4));
    assert_eq!(queue.fire_due(), 0);
    time.advance(MS);
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(deliveries(&queue), [("a", vec![1])]);
}

#[test] // V3 L1
fn a_rate_limited_retry_keeps_its_value_and_is_counted() {
    let limiter = ItemExponentialFailure::new(ms(5), HOUR).unwrap();
    let (clock, time) = keyqueue::Clock::mock();
    let queue = WorkQueue::builder()
        .rate_limiter(limiter)
        .clock(clock)
        .manual_timers()
        .merge(merge::append)
        .build()
        .unwrap();
    queue.put("a", vec![0]);
    for (failures, delay) in (1..).zip([5, 10, 20]) {
        let mut item = queue.try_get().unwrap();
        item.value_mut().push(failures);
        assert_eq!(item.retry(), Added::Delayed);
        assert_eq!(queue.num_requeues(&"a"), failures);
        time.advance(ms(delay));
        assert_eq!(queue.fire_due(), 1);
    }
    assert_eq!(*queue.try_get().unwrap().value(), [0, 1, 2, 3]);
}

#[test] // V2
fn a_dropped_item_drops_its_value() {
    let queue = lists::<&str>();
    queue.put("a", vec![1]);
    drop(queue.get().unwrap());
    assert_eq!(queue.state(&"a"), None);
    queue.put("a", vec![2]);
    queue.get().unwrap().retry_on_drop().done();
    queue.put("a", vec![3]);
    assert_eq!(deliveries(&queue), [("a", vec![3])]);
}

// The limiter was set for the keys, before they carried values.
#[test] // L1 L2 L14
fn a_limiter_may_be_set_before_the_keys_carry_values() {
    let (clock, time) = Clock::mock();
    let back_off = ItemExponentialFailure::<&str>::new(ms(100), ms(800)).unwrap();
    let bucket = Bucket::new(5.0, 1).unwrap().with_clock(clock.clone());
    let bucket = Arc::new(bucket);
    let both: [Box<dyn RateLimiter<&str>>; 2] = [Box::new(back_off), Box::new(Arc::clone(&bucket))];
    let builder = WorkQueue::builder().rate_limiter(MaxOf::new(both));
    let builder = builder.merge(merge::append).clock(clock).manual_timers();
    let queue = builder.build().unwrap();
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    assert_eq!(item.retry(), Added::Delayed, "after 100 ms");
    assert_eq!(queue.num_requeues(&"a"), 1);
    // The next token is there after 200 ms. It is given back, because the retry comes sooner.
    assert_eq!(queue.add_rate_limited("a"), Added::Delayed);
    assert_eq!(RateLimiter::<str>::when(&*bucket, "b"), ms(200));
    time.advance(ms(100));
    assert_eq!(queue.fire_due(), 1);
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert_eq!(deliveries(&queue), [("a", vec![1])]);
}
