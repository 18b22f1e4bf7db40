//! Delays on a clock that the test advances: when a key is added, in which order, and what
//! cancels a delay (D1, D2, D4, D6, D8, D9). No test here sleeps.

use std::time::Duration;

use crate::common::timed::{DAY, MS, NS, after, built, ms, secs, timed};
use crate::common::{Task, scaled, take_all};
use keyqueue::{Added, DelayPolicy};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Ticks of the sizes that there can be, and one that divides nothing evenly.
const TICKS: [Duration; 4] = [
    Duration::from_micros(100),
    Duration::from_nanos(333_333),
    MS,
    secs(60),
];

// ---- when -----------------------------------------------------------------------------------

#[test] // D1 D9
fn a_delay_never_ends_early_and_a_tick_late_at_most() {
    for tick in TICKS {
        for begin in [Duration::ZERO, NS, tick - NS, tick, tick * 7 / 2, DAY + NS] {
            for delay in [NS, tick - NS, tick, tick + NS, tick * 100, ms(86_399_999)] {
                let case = format!("tick {tick:?}, called at {begin:?}, delay {delay:?}");
                let (queue, time) = built::<u64>(|builder| builder.tick(tick));
                time.advance(begin);
                assert_eq!(queue.add_after(1, delay), Added::Delayed, "{case}");
                assert_eq!(after(&queue, &time, delay - NS), [], "early: {case}");
                assert_eq!(after(&queue, &time, tick), [1], "late: {case}");
                assert_eq!(after(&queue, &time, 10 * YEAR), [], "twice: {case}");
            }
        }
    }
}

#[test] // D1: not a tick early either when the clock is far off the wheel's time
fn a_delay_set_long_after_the_last_turn_counts_from_the_call() {
    let (queue, time) = timed::<u64>();
    queue.add_after(1, MS);
    time.advance(DAY);
    // The wheel has not moved yet; this delay is far ahead of it, and short all the same.
    queue.add_after(2, ms(5));
    assert_eq!(after(&queue, &time, ms(5) - NS), [1]);
    assert_eq!(after(&queue, &time, NS), [2]);
}

#[test] // D2
fn a_delay_of_zero_is_a_plain_add() {
    let (queue, _time) = timed::<u64>();
    assert_eq!(queue.add_after(1, Duration::ZERO), Added::Queued);
    assert_eq!(queue.add_after(1, Duration::ZERO), Added::Merged);
    assert_eq!(queue.len(), 1, "without `fire_due`");
    let item = queue.get().unwrap();
    assert_eq!(queue.add_after(1, Duration::ZERO), Added::Deferred);
    let handle = queue.handle(1);
    assert_eq!(handle.add_after(Duration::ZERO), Added::Merged);
    assert_eq!(item.retry_after(Duration::ZERO), Added::Merged);
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(handle.add_after(Duration::ZERO), Added::Queued);
}

// ---- the end of a delay is an add -----------------------------------------------------------

#[test] // D4
fn a_delay_that_ends_on_a_processing_key_makes_it_dirty() {
    let (queue, time) = timed::<u64>();
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add_after(1, ms(5));
    time.advance(ms(5));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(queue.len(), 0, "never two workers on one key");
    assert_eq!(queue.add(1), Added::Merged, "dirty already");
    item.done();
    assert_eq!(take_all(&queue), [1]);
}

#[test] // D4
fn a_delay_of_a_queued_key_is_merged_or_adds_the_key_once_more() {
    let (queue, time) = timed::<u64>();
    queue.add_after(1, ms(5));
    queue.add_all([1, 2]);
    time.advance(ms(5));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(take_all(&queue), [1, 2], "merged, and keeps its place");

    queue.add(1);
    assert_eq!(queue.add_after(1, ms(5)), Added::Delayed);
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(after(&queue, &time, ms(5)), [1], "after its delivery");
}

#[test] // C8 D4
fn a_delay_that_ends_queues_at_the_tail_and_wakes_a_waiter() {
    let (queue, time) = timed::<u64>();
    queue.add_after(1, ms(5));
    assert!(queue.is_empty(), "a delayed key is not queued");
    queue.add(2);
    assert_eq!(after(&queue, &time, ms(5)), [2, 1]);
    let mut task = Task::waiting(queue.get_async());
    queue.add_after(3, ms(5));
    assert_eq!(task.wakes(), 0);
    time.advance(ms(5));
    queue.fire_due();
    assert_eq!((queue.len(), task.wakes()), (1, 1));
    assert_eq!(*task.output().unwrap(), 3);
}

// ---- cancelling -----------------------------------------------------------------------------

#[test] // D6: also by a borrowed form of the key
fn cancel_removes_the_delay_and_says_whether_there_was_one() {
    let (queue, time) = timed::<&str>();
    assert!(!queue.cancel("a"), "unknown");
    queue.add_after("a", ms(5));
    queue.add_after("b", ms(5));
    assert!(queue.cancel("a"));
    assert!(!queue.cancel("a"));
    assert_eq!(after(&queue, &time, DAY), ["b"]);
    assert!(!queue.cancel("b"), "its delay is over");
}

#[test] // D6
fn cancel_never_touches_a_queued_or_processing_key() {
    let (queue, time) = timed::<u64>();
    queue.add(1);
    assert!(!queue.cancel(&1));
    queue.add_after(1, ms(5));
    assert!(queue.cancel(&1), "the delay beside it");
    assert_eq!(queue.len(), 1);
    let item = queue.get().unwrap();
    queue.add(1);
    queue.add_after(1, ms(5));
    assert!(queue.cancel(&1));
    item.done();
    assert_eq!(take_all(&queue), [1], "dirty all the same");
    assert_eq!(after(&queue, &time, DAY), []);
}

#[test] // D6: neither early nor twice, and with the same due tick
fn a_key_delayed_again_after_a_cancel_fires_once() {
    let (queue, time) = timed::<u64>();
    for _ in 0..100 {
        queue.add_after(1, ms(5));
        assert!(queue.cancel(&1));
    }
    queue.add_after(1, ms(5));
    time.advance(ms(5));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(take_all(&queue), [1]);
}

// ---- lengths and order ----------------------------------------------------------------------

#[test] // D8
fn delays_of_any_length_end_in_due_order() {
    let (queue, time) = timed::<u64>();
    let lengths = [
        Duration::MAX,
        200 * YEAR,
        100 * YEAR - ms(10),
        10 * YEAR,
        DAY,
        ms(65),
        ms(64),
        ms(63),
        MS + NS,
        MS,
    ];
    for (key, length) in (0..).zip(lengths) {
        assert_eq!(queue.add_after(key, length), Added::Delayed, "{length:?}");
    }
    for (length, key) in [(MS, 9), (MS, 8), (ms(61), 7), (MS, 6), (MS, 5)] {
        assert_eq!(after(&queue, &time, length), [key]);
    }
    assert_eq!(after(&queue, &time, DAY - ms(66)), []);
    assert_eq!(after(&queue, &time, MS), [4]);
    assert_eq!(after(&queue, &time, 10 * YEAR - DAY - NS), []);
    assert_eq!(after(&queue, &time, NS), [3]);
    assert_eq!(after(&queue, &time, 90 * YEAR - MS), [2]);
    assert_eq!(after(&queue, &time, MS - NS), []);
    assert_eq!(after(&queue, &time, NS), [0, 1], "a hundred years");
}

#[test] // D8: no length of delay panics, at any time
fn the_longest_delay_at_the_end_of_time_does_no_harm() {
    for tick in TICKS {
        let (queue, time) = built::<u64>(|builder| builder.tick(tick));
        for key in 0..3 {
            queue.add_after(key, Duration::MAX);
            time.advance(Duration::MAX);
            queue.add_after(key, Duration::MAX);
            queue.add_after(key, NS);
            queue.fire_due();
        }
        let left = queue.shut_down();
        assert_eq!(left.queued + left.delayed, 3, "tick {tick:?}");
    }
}

#[test] // D8 D9: in one leap, and step by step over the edges of the wheel's levels
fn keys_of_different_ticks_come_out_in_due_order_and_of_one_tick_in_the_order_of_the_calls() {
    const KEYS: u64 = scaled(20_000) as u64;
    // Two of each tick, called in an order that is all but sorted.
    let due = |key: &u64| key * 7919 % (KEYS / 2) + 1;
    let delayed = || {
        let (queue, time) = timed();
        for key in 0..KEYS {
            queue.add_after(key, ms(due(&key)));
        }
        (queue, time)
    };
    let mut expected: Vec<u64> = (0..KEYS).collect();
    expected.sort_by_key(due);
    let (queue, time) = delayed();
    assert_eq!(after(&queue, &time, DAY), expected);
    let (queue, time) = delayed();
    for tick in expected.chunk_by(|a, b| due(a) == due(b)) {
        assert_eq!(after(&queue, &time, MS), tick);
    }
}

#[test] // D8: of a key that was moved the call that counts decides
fn a_moved_delay_takes_its_place_by_its_new_time() {
    let (queue, time) = built::<u64>(|builder| builder.delay_policy(DelayPolicy::Replace));
    queue.add_after(1, ms(10));
    queue.add_after(2, ms(20));
    queue.add_after(3, ms(30));
    queue.add_after(1, ms(25));
    queue.add_after(3, ms(20));
    assert_eq!(after(&queue, &time, ms(30)), [2, 3, 1]);
}

// ---- other ways to delay --------------------------------------------------------------------

#[test] // D1 C11
fn a_handle_delays_by_the_same_rules() {
    let (queue, time) = timed::<u64>();
    let handle = queue.handle(1);
    assert_eq!(handle.add_after(ms(50)), Added::Delayed);
    assert_eq!(queue.add_after(1, ms(30)), Added::Delayed);
    assert_eq!(after(&queue, &time, ms(30)), [1]);
    assert_eq!(handle.add_after(ms(30)), Added::Delayed);
    assert!(queue.cancel(&1));
    assert_eq!(after(&queue, &time, DAY), []);
    handle.add_after(ms(30));
    drop(handle);
    assert_eq!(after(&queue, &time, ms(30)), [1], "it outlives the handle");
    let handle = queue.handle(1);
    drop(queue);
    assert_eq!(handle.add_after(ms(30)), Added::ShutDown);
}

#[test] // D1 D4
fn an_item_can_be_tried_again_after_a_while() {
    let (queue, time) = timed::<u64>();
    queue.add(1);
    let item = queue.get().unwrap();
    assert_eq!(item.retry_after(ms(5)), Added::Delayed);
    assert_eq!(queue.add(1), Added::Queued, "it is done");
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(after(&queue, &time, ms(5) - NS), []);
    assert_eq!(after(&queue, &time, NS), [1]);
}
