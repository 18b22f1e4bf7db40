//! The memory of delays.

use crate::common::timed::{HOUR, built, ms, secs};
use crate::common::{alone, eventually, watchdog};
use crate::{CACHE, assert_flat, million};
use keyqueue::{Added, DelayPolicy, MockClock, WorkQueue};
use rig::heap::held;

fn queue(policy: DelayPolicy) -> (WorkQueue<u64>, MockClock) {
    built(|builder| builder.delay_policy(policy).shards(16))
}

/// Asserts that no more than a cache is held beyond what was `before`.
#[track_caller]
fn assert_left(before: isize) {
    let left = held() - before;
    println!("{left} bytes left");
    assert!(left <= CACHE, "{left} bytes left");
}

#[test] // D3 C10
fn moving_one_delay_a_million_times_holds_no_more() {
    alone(|| {
        let (queue, _time) = queue(DelayPolicy::Replace);
        assert_flat(|n| {
            let delay = HOUR + secs(n % 1000);
            assert_eq!(queue.add_after(1, delay), Added::Delayed);
        });
        assert_eq!(queue.shut_down().delayed, 1);
    });
}

#[test] // D6 C10
fn cancelling_a_million_delays_of_one_or_as_many_keys_holds_no_more() {
    alone(|| {
        for keys in [1, million()] {
            let (queue, _time) = queue(DelayPolicy::Earliest);
            assert_flat(|n| {
                assert_eq!(queue.add_after(n % keys, HOUR), Added::Delayed);
                assert!(queue.cancel(&(n % keys)));
            });
            assert_eq!(queue.shut_down().delayed, 0);
        }
    });
}

#[test] // D6 C10
fn a_burst_of_cancelled_delays_is_forgotten_by_the_next_turn() {
    alone(|| {
        let (queue, time) = queue(DelayPolicy::Earliest);
        queue.fire_due();
        let before = held();
        (0..million()).for_each(|key| _ = queue.add_after(key, HOUR));
        let each = (held() - before) / million().cast_signed() as isize;
        println!("{each} bytes a delayed u64 key");
        assert!(each <= 128, "{each} bytes a delayed key");
        assert!((0..million()).all(|key| queue.cancel(&key)));
        time.advance(secs(1));
        assert_eq!(queue.fire_due(), 0);
        queue.shrink();
        assert_left(before);
    });
}

#[test] // D6 C10: though the thread has nothing to do for an hour
fn the_timers_thread_wakes_to_sweep_a_burst_of_cancelled_delays() {
    alone(|| {
        let _watchdog = watchdog(120);
        let queue = WorkQueue::builder().shards(16).build().unwrap();
        queue.add_after(million(), HOUR);
        let before = held();
        (0..million()).for_each(|key| _ = queue.add_after(key, HOUR));
        assert!((0..million()).all(|key| queue.cancel(&key)));
        eventually("the entries and their keys are swept", || {
            held() - before <= CACHE
        });
    });
}

#[test] // C10
fn a_burst_of_delays_that_fired_is_forgotten() {
    alone(|| {
        let (queue, time) = queue(DelayPolicy::Earliest);
        let before = held();
        for key in 0..million() {
            queue.add_after(key, ms(1 + key % 1000));
        }
        time.advance(secs(1));
        assert_eq!(queue.fire_due() as u64, million());
        while let Ok(item) = queue.try_get() {
            item.done();
        }
        queue.shrink();
        assert_left(before);
    });
}
