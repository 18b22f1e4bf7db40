//! Delays that are pending when the queue shuts down: dropped and counted, or delivered first (S5);
//! never lost in between.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::counted::Alive;
use crate::common::timed::{HOUR, NS, built, ms, secs, timed};
use crate::common::{eventually, figures, scaled, watchdog};
use keyqueue::{Added, GetError, Remaining, WorkQueue};

/// Takes what is left until the queue ends.
fn rest(queue: &WorkQueue<u64>) -> Vec<u64> {
    queue.iter().map(|item| *item).collect()
}

#[test] // S1
fn add_after_on_a_queue_that_is_shut_down_is_refused() {
    for delay in [Duration::ZERO, NS, ms(5), Duration::MAX] {
        let (queue, time) = timed();
        queue.add("held");
        let item = queue.get().unwrap();
        queue.shut_down();
        assert_eq!(queue.add_after("foo", delay), Added::ShutDown);
        assert_eq!(queue.add_rate_limited("foo"), Added::ShutDown);
        assert_eq!(item.retry_after(delay), Added::ShutDown);
        queue.shut_down_with_drain();
        assert_eq!(queue.add_after("foo", delay), Added::ShutDown, "drained");
        time.advance(HOUR);
        assert_eq!(queue.fire_due(), 0);
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
    }
}

#[test] // S5
fn pending_delays_are_dropped_and_counted() {
    let (queue, time) = timed();
    for key in 0..1000 {
        queue.add_after(key, ms(key + 1));
    }
    queue.cancel(&999);
    queue.add_after(998, ms(1)); // moved; counts once
    time.advance(ms(100));
    queue.fire_due();
    queue.get().unwrap().done();
    let item = queue.get().unwrap();
    // A key with a delay is counted as what it is, and the delay by itself.
    queue.add_after(*item, ms(5));
    queue.add_after(50, ms(5));
    // 101 have fired, one is done, one is processing; one was cancelled.
    assert_eq!(figures(queue.shut_down()), (99, 1, 900));
    item.done();
    time.advance(ms(10_000));
    assert_eq!(queue.fire_due(), 0);
    assert_eq!(queue.iter().count(), 99);
    assert_eq!(figures(queue.shut_down()), (0, 0, 900));
}

#[test] // S5 S7
fn every_way_to_end_a_queue_reports_the_dropped_delays_and_retries() {
    fn finished(drained: Remaining) -> usize {
        assert!(drained.is_finished());
        drained.delayed
    }
    let ends: [fn(&WorkQueue<u64>) -> usize; 6] = [
        |queue| queue.shut_down().delayed,
        |queue| queue.shut_down_now().delayed,
        |queue| finished(queue.shut_down_with_drain()),
        |queue| finished(queue.drain_timeout(ms(0))),
        |queue| finished(pollster::block_on(queue.drain_async())),
        |queue| {
            drop(queue.shut_down_on_drop());
            finished(queue.drain_timeout(ms(0)))
        },
    ];
    for end in ends {
        let (queue, _time) = timed();
        queue.add_all([1, 2]);
        let _ = queue.get().unwrap().retry_after(ms(5));
        let _ = queue.get().unwrap().retry_after(ms(5));
        queue.add_after(3, ms(5));
        assert_eq!(end(&queue), 3);
        assert_eq!(figures(queue.shut_down()), (0, 0, 3));
        for again in ends {
            assert_eq!(again(&queue), 3);
        }
        assert!(queue.get().is_none());
    }
}

#[test] // S4 S5 S7
fn a_drain_that_ends_early_says_so_with_what_is_left() {
    let _watchdog = watchdog(60);
    let (queue, _time) = timed::<u64>();
    queue.add_all([1, 2, 3]);
    let item = queue.get().unwrap();
    queue.add_after(4, ms(5));
    let left = queue.drain_timeout(ms(0));
    assert_eq!(figures(left), (2, 1, 1));
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        let limited = scope.spawn(|| queue.drain_timeout(Duration::MAX));
        eventually("both are released", || {
            queue.shut_down();
            drain.is_finished() && limited.is_finished()
        });
        let drained = drain.join().unwrap();
        assert!(!drained.is_finished());
        assert_eq!(figures(drained), (2, 1, 1));
        assert_eq!(limited.join().unwrap(), drained);
    });
    drop(item);
}

#[test] // S5 D8
#[cfg_attr(miri, ignore = "3000 keys in one thread")]
fn a_drain_delivers_delays_now_and_in_due_order_if_told_to() {
    let (queue, _time) = built(|builder| builder.drain_delays(true));
    for key in (0..3000).rev() {
        queue.add_after(key, secs(key + 1));
    }
    queue.add_after(3000, Duration::MAX);
    queue.add(7000);
    let left = queue.drain_timeout(Duration::ZERO);
    assert_eq!(figures(left), (3002, 0, 0));
    assert_eq!(queue.add_after(1, ms(1)), Added::ShutDown);
    let all = rest(&queue);
    assert_eq!(all[0], 7000, "it was queued before");
    assert!(all[1..].iter().copied().eq(0..=3000));
    assert!(queue.drain_timeout(Duration::ZERO).is_finished());
}

#[test] // S5 D4: a plain add, with all its rules
fn a_drain_delivers_delays_of_queued_and_processing_keys_by_the_rules() {
    let (queue, _time) = built::<u64>(|builder| builder.drain_delays(true));
    queue.add_all([1, 2, 3]);
    let item = queue.get().unwrap();
    for key in 1..=3 {
        queue.add_after(key, ms(5));
    }
    assert!(queue.cancel(&3));
    let left = queue.drain_timeout(Duration::ZERO);
    assert_eq!(figures(left), (2, 1, 0));
    item.done();
    assert_eq!(rest(&queue), [2, 3, 1]);
}

#[test] // S5: a plain shut-down drops them whatever `drain_delays` says
fn a_plain_shut_down_always_drops_delays() {
    let (queue, _time) = built::<u64>(|builder| builder.drain_delays(true));
    queue.add_after(1, ms(5));
    assert_eq!(figures(queue.shut_down()), (0, 0, 1));
    queue.shut_down_with_drain();
    assert!(queue.get().is_none());
}

#[test] // S5 C10
fn a_delay_that_was_dropped_or_cancelled_does_not_keep_its_key() {
    for cancel in [false, true] {
        let alive = Alive::default();
        let (queue, time) = timed();
        queue.add_after(alive.of(7_u64), ms(5));
        if cancel {
            queue.cancel(&alive.of(7));
            // It is forgotten once the timer has seen it.
            time.advance(ms(5));
            assert_eq!(queue.fire_due(), 0);
        } else {
            queue.shut_down();
        }
        queue.shrink();
        assert_eq!(alive.count(), 0, "cancel: {cancel}");
    }
}

#[test] // S5: what was accepted is delivered or counted, what was refused is neither
fn a_delay_that_ends_beside_a_shut_down_or_a_delivering_drain_is_not_lost() {
    const KEYS: u64 = 64;
    let _watchdog = watchdog(120);
    for round in 0..scaled(600) as u32 {
        let deliver = round % 2 == 1;
        let (queue, time) = built::<u64>(|builder| builder.drain_delays(deliver).shards(2));
        let start = Barrier::new(3);
        let handles: Vec<_> = (0..KEYS).map(|key| queue.handle(key)).collect();
        // With them the driver is in the middle of something when the end comes.
        for handle in &handles[..32] {
            assert_eq!(handle.add_after(ms(1)), Added::Delayed);
        }
        time.advance(ms(1));
        let (accepted, left) = thread::scope(|scope| {
            let adder = scope.spawn(|| {
                start.wait();
                let added = handles[32..].iter().map(|handle| handle.add_after(NS));
                added.filter(|added| *added == Added::Delayed).count()
            });
            scope.spawn(|| {
                start.wait();
                time.advance(ms(1));
                for _ in 0..3 {
                    queue.fire_due();
                }
            });
            start.wait();
            for _ in 0..round / 2 % 30 * 20 {
                std::hint::spin_loop();
            }
            let left = if deliver {
                let _ = queue.drain_timeout(Duration::ZERO);
                Remaining::default()
            } else {
                queue.shut_down()
            };
            (adder.join().unwrap(), left)
        });
        let owed = 32 + accepted;
        let delivered = queue.iter().count();
        if deliver {
            // A delay set through a handle in the middle of the shut-down may be dropped.
            assert!((32..=owed).contains(&delivered), "{delivered} of {owed}");
        } else {
            assert_eq!(delivered + left.delayed, owed, "round {round}: {left:?}");
        }
    }
}

#[test] // S5 D5: each key has a delay, then is added in its place or refused
fn a_superseding_add_beside_a_shut_down_loses_no_delay() {
    let _watchdog = watchdog(120);
    for round in 0..scaled(300) as u32 {
        let (queue, _time) = built::<u64>(|builder| builder.supersede_delays(true).shards(2));
        let handles: Vec<_> = (0..64).map(|key| queue.handle(key)).collect();
        for handle in &handles {
            handle.add_after(ms(5));
        }
        let left = thread::scope(|scope| {
            scope.spawn(|| {
                for handle in &handles {
                    handle.add();
                }
            });
            for _ in 0..round % 30 * 20 {
                std::hint::spin_loop();
            }
            queue.shut_down()
        });
        let delivered = queue.iter().count();
        assert_eq!(delivered + left.delayed, 64, "round {round}: {left:?}");
    }
}

#[test] // D7 S5: client-go's channel of 1000 is full here, and its callers are stuck forever
fn add_after_never_waits_for_room() {
    const MANY: usize = scaled(20_000);
    let _watchdog = watchdog(60);
    for drain in [false, true] {
        // No thread ever takes what is registered.
        let (queue, _time) = timed::<u64>();
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..4 {
                let (queue, accepted) = (&queue, &accepted);
                scope.spawn(move || {
                    let mut key = n;
                    while queue.add_after(key, HOUR) == Added::Delayed {
                        key += 4;
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            eventually("a lot is delayed", || {
                accepted.load(Ordering::SeqCst) > MANY
            });
            if drain {
                queue.shut_down_with_drain();
            } else {
                queue.shut_down();
            }
        });
        let delayed = queue.shut_down().delayed;
        if drain {
            assert!(delayed >= MANY, "{delayed}");
        } else {
            assert_eq!(delayed, accepted.into_inner());
        }
    }
}
