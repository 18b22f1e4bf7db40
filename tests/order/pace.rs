//! How fast keys are handed out, in all and each (T1, T2).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::timed::{HOUR, MS, built, ms, secs};
use crate::common::{take_all, watchdog};
use crate::groups::grouped;
use keyqueue::{Added, WorkQueue};

#[test] // T1
fn a_dispatch_rate_holds_and_the_order_stays() {
    let (queue, time) = built::<u64>(|builder| builder.dispatch_rate(10.0, 2));
    queue.add_all(0..6);
    assert_eq!(take_all(&queue), [0, 1]);
    assert_eq!(queue.add(3), Added::Merged);
    assert_eq!((queue.len(), queue.is_empty()), (4, false));
    time.advance(ms(100));
    assert_eq!(take_all(&queue), [2]);
    time.advance(ms(99));
    assert!(queue.try_get().is_err());
    time.advance(ms(201));
    assert_eq!(take_all(&queue), [3, 4]);
    time.advance(HOUR);
    queue.add_all(10..20);
    assert_eq!(take_all(&queue), [5, 10]);
}

#[test] // T1
fn no_token_is_spent_on_a_key_that_is_not_handed_out() {
    let (queue, time) = built(|builder| {
        let builder = builder.group_by(|key: &(&'static str, u32)| key.0);
        builder.group_limit(1).dispatch_rate(1.0, 1)
    });
    for _ in 0..9 {
        assert!(queue.try_get().is_err());
    }
    queue.add_all([("a", 1), ("a", 2)]);
    let item = queue.try_get().unwrap();
    time.advance(secs(1));
    // The group is at its limit.
    for _ in 0..9 {
        assert!(queue.try_get().is_err());
    }
    // Another one is held.
    queue.add(("c", 1));
    assert!(queue.hold_group(&"c", HOUR));
    assert!(queue.try_get().is_err());
    queue.add(("b", 1));
    assert_eq!(*queue.try_get().unwrap(), ("b", 1));
    drop(item);
    assert!(queue.try_get().is_err());
}

#[test] // T1 G1
fn a_group_that_misses_a_token_keeps_its_place() {
    let (queue, time) = grouped(|builder| builder.dispatch_rate(1.0, 1));
    queue.add_all([("a", 1), ("a", 2), ("b", 1)]);
    assert_eq!(*queue.try_get().unwrap(), ("a", 1));
    for _ in 0..3 {
        assert!(queue.try_get().is_err());
    }
    time.advance(secs(1));
    assert_eq!(*queue.try_get().unwrap(), ("b", 1));
}

#[test] // T1 P1
fn a_dispatch_rate_and_levels_work_together() {
    let (queue, time) = built(|builder| builder.levels(2).dispatch_rate(1.0, 1));
    queue.add_all(["a", "b"]);
    assert_eq!(take_all(&queue), ["a"]);
    queue.entry("urgent").level(0).add();
    time.advance(secs(1));
    assert_eq!(take_all(&queue), ["urgent"]);
    time.advance(secs(1));
    assert_eq!(take_all(&queue), ["b"]);
}

#[test] // T1
fn getters_that_wait_for_a_token_are_woken() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::builder()
        .dispatch_rate(1000.0, 1)
        .build()
        .unwrap();
    queue.add_all(0..50_u64);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| queue.iter().for_each(drop));
        }
        // The drain keeps the pace.
        assert!(queue.shut_down_with_drain().is_finished());
    });
    // Not faster: the last of 50 has waited for 49 tokens.
    assert!(began.elapsed() >= ms(49));
    let queue = WorkQueue::builder()
        .dispatch_rate(1000.0, 1)
        .build()
        .unwrap();
    queue.add_all(0..20_u64);
    for key in 0..20 {
        assert_eq!(*pollster::block_on(queue.get_async()).unwrap(), key);
    }
}

#[test] // T2
fn a_key_is_delivered_again_after_its_interval() {
    let (queue, time) = built(|builder| builder.min_interval(secs(1)));
    queue.add("a");
    let item = queue.try_get().unwrap();
    time.advance(ms(400));
    // Dirty, done, and added again: one delivery.
    queue.add("a");
    drop(item);
    queue.add_all(["a", "b", "a"]);
    assert_eq!(take_all(&queue), ["b"]);
    assert_eq!((queue.len(), queue.is_empty()), (1, false));
    time.advance(ms(599));
    assert!(queue.try_get().is_err());
    time.advance(MS);
    assert_eq!(take_all(&queue), ["a"]);
    // It counts from the begin of the last delivery.
    time.advance(ms(999));
    queue.add("a");
    assert!(queue.try_get().is_err());
    time.advance(MS);
    assert_eq!(take_all(&queue), ["a"]);
    time.advance(secs(1));
    queue.add("a");
    assert_eq!(take_all(&queue), ["a"]);
}

#[test] // T2 C1
fn a_key_whose_interval_is_over_keeps_its_place_in_the_order() {
    let (queue, time) = built(|builder| builder.min_interval(secs(1)));
    for key in ["a", "b"] {
        queue.add(key);
        drop(queue.try_get().unwrap());
        time.advance(ms(500));
    }
    // The interval of one is over, and that of the other is not.
    queue.add_all(["b", "a", "c"]);
    time.advance(secs(1));
    assert_eq!(take_all(&queue), ["a", "c", "b"]);
    time.advance(secs(2));
    queue.add_all(["b", "e", "a"]);
    assert_eq!(take_all(&queue), ["b", "e", "a"]);
}

#[test] // T2 C10
fn an_interval_is_not_forgotten_with_the_key() {
    let (queue, time) = built(|builder| builder.min_interval(secs(1)));
    queue.add("a");
    drop(queue.try_get().unwrap());
    queue.shrink();
    queue.add("a");
    assert!(queue.try_get().is_err());
    time.advance(secs(1));
    assert_eq!(take_all(&queue), ["a"]);
    time.advance(secs(1));
    assert!(queue.try_get().is_err());
}

#[test] // T2 C10
fn a_key_is_forgotten_after_its_interval() {
    let (queue, time) = built(|builder| builder.min_interval(secs(1)));
    let key = Arc::new(1);
    queue.add(Arc::clone(&key));
    queue.try_get().unwrap().done();
    queue.shrink();
    assert_eq!(Arc::strong_count(&key), 2);
    time.advance(secs(1));
    queue.shrink();
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test] // T2
fn a_getter_is_woken_at_the_end_of_an_interval() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::builder().min_interval(ms(5)).build().unwrap();
    for _ in 0..10 {
        queue.add("a");
        let began = Instant::now();
        let item = queue.get().unwrap();
        queue.add("a");
        item.done();
        let item = pollster::block_on(queue.get_async()).unwrap();
        assert!(began.elapsed() >= ms(5) - MS);
        item.done();
    }
}

#[test] // T2
fn an_interval_and_a_delay_work_together() {
    let (queue, time) = built(|builder| builder.min_interval(secs(10)));
    queue.add("a");
    queue.try_get().unwrap().done();
    queue.add_after("a", secs(1));
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(queue.len(), 1);
    assert!(queue.try_get().is_err());
    time.advance(secs(9));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test] // T2 G1 G2
fn an_interval_and_a_limit_work_together() {
    let (queue, time) = built(|builder| {
        let builder = builder.group_by(|key: &(&'static str, u32)| key.0);
        builder.group_limit(1).min_interval(secs(1))
    });
    queue.add_all([("a", 1), ("a", 2)]);
    let item = queue.try_get().unwrap();
    queue.add(("a", 1));
    // Done and dirty, but its interval is not over: the other one is next.
    item.done();
    let item = queue.try_get().unwrap();
    assert_eq!(*item, ("a", 2));
    time.advance(secs(1));
    assert!(queue.try_get().is_err());
    item.done();
    assert_eq!(take_all(&queue), [("a", 1)]);
}

#[test] // T1 T2 S8
fn a_shut_down_now_waits_for_no_pace() {
    let (queue, _) = built(|builder| builder.min_interval(HOUR).dispatch_rate(0.001, 1));
    queue.add("a");
    queue.try_get().unwrap().done();
    queue.add_all(["a", "b"]);
    assert_eq!(queue.shut_down_now().queued, 2);
    assert!(queue.get().is_none());
    assert_eq!(queue.len(), 0);
}

#[test] // T1 T2 S8 C10
fn keys_that_wait_when_the_queue_is_abandoned_are_forgotten() {
    let (queue, _time) = built(|builder| builder.min_interval(HOUR).dispatch_rate(0.001, 1));
    let keys = [Arc::new(1), Arc::new(2)];
    queue.add(Arc::clone(&keys[0]));
    queue.try_get().unwrap().done();
    // The one waits for its interval, the other one for a token.
    queue.add_all(keys.iter().cloned());
    assert_eq!(queue.shut_down_now().queued, 2);
    queue.shrink();
    assert_eq!(keys.each_ref().map(Arc::strong_count), [1, 1]);
}

#[test] // T1 S6
fn a_queue_with_a_pace_ends_with_its_thread() {
    let _watchdog = watchdog(60);
    for _ in 0..20 {
        let queue = WorkQueue::builder()
            .dispatch_rate(100.0, 1)
            .build()
            .unwrap();
        queue.add_all(0..3_u64);
        let _ = queue.get();
        let _: Option<_> = queue.get_timeout(Duration::ZERO).ok();
        if queue.len() % 2 == 0 {
            queue.shut_down();
        }
    }
}
