//! Delays: set, moved, cancelled and ended, beside each other and beside a shut-down.
//!
//! Most models end delays by `fire_due`, on a thread of the model; those about sleeping have the
//! driver's own thread.
#![cfg(keyqueue_loom)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use keyqueue::{Added, Clock, Cursor, KeyHandle, Listed, WorkQueue};
use keyqueue_loom_tests::{Queue, Settings, check, delayed_queue, queue_of, spawn, spawn_with};
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;

const NS: Duration = Duration::from_nanos(1);
/// A tick.
const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A queue with a key whose delay is over, and ends with the next `fire_due`.
fn due_queue(set: fn(Settings) -> Settings) -> Arc<Queue> {
    let (queue, time) = delayed_queue(|builder| set(builder.manual_timers()));
    queue.add_after(1, NS);
    time.advance(MS);
    queue
}

/// Takes what is queued, each key done before the next, and says how many deliveries that were.
fn deliveries(queue: &Queue) -> usize {
    std::iter::from_fn(|| queue.try_get().ok()).count()
}

/// D7. Interleaving: the driver finds nothing to do until an hour from now; the delay is
/// registered; the clock is advanced; the driver goes to sleep, for good.
#[test]
fn an_earlier_delay_wakes_the_sleeping_driver() {
    check("register_sleep", 2, || {
        let (queue, time) = delayed_queue(|builder| builder);
        queue.add_after(1, HOUR);
        let adder = spawn_with(&queue, move |queue| {
            queue.add_after(2, NS);
            time.advance(MS);
        });
        assert_eq!(queue.get().map(|item| *item), Some(2));
        adder.join().unwrap();
    });
}

/// D1. Interleaving: the driver finds nothing due; a delay is registered, and moved to the wheel by another thread; the driver goes to
/// sleep.
#[test]
fn a_delay_that_another_thread_has_moved_to_the_wheel_wakes_the_driver() {
    let moves: [fn(&Queue); 2] = [Queue::shrink, |queue| _ = queue.fire_due()];
    for moves in moves {
        check("register_move_sleep", 2, move || {
            let (queue, time) = delayed_queue(|builder| builder);
            queue.add_after(1, HOUR);
            let adder = spawn_with(&queue, move |queue| {
                queue.add_after(2, NS);
                moves(queue);
                time.advance(MS);
            });
            assert_eq!(queue.get().map(|item| *item), Some(2));
            adder.join().unwrap();
        });
    }
}

/// D9. Interleaving: the driver finds that the delay is not due; the clock is advanced; the driver
/// goes to sleep.
#[test]
fn an_advance_wakes_the_sleeping_driver() {
    check("advance_sleep", 2, || {
        let (queue, time) = delayed_queue(|builder| builder);
        queue.add_after(1, NS);
        let hand = spawn(move || time.advance(MS));
        assert_eq!(queue.get().map(|item| *item), Some(1));
        hand.join().unwrap();
    });
}

/// D6. Exactly one of the two ends the delay.
#[test]
fn a_cancel_beside_the_end_of_the_delay_has_one_winner() {
    check("cancel_fire", 5, || {
        let queue = due_queue(|builder| builder);
        let driver = spawn_with(&queue, WorkQueue::fire_due);
        let cancelled = queue.cancel(&1);
        let fired = driver.join().unwrap();
        assert_eq!(fired + usize::from(cancelled), 1);
        assert_eq!(deliveries(&queue), fired);
    });
}

/// D4. A plain add and the add of a delay, of an idle key: none is lost, none is double.
#[test]
fn an_add_beside_the_end_of_the_delay_is_an_add_beside_an_add() {
    check("add_fire", 3, || {
        let queue = due_queue(|builder| builder);
        let driver = spawn_with(&queue, |queue| assert_eq!(queue.fire_due(), 1));
        let added = queue.add(1);
        let early = deliveries(&queue);
        driver.join().unwrap();
        let all = early + deliveries(&queue);
        match added {
            Added::Queued => assert!(all == 1 || all == 2, "{all}"),
            Added::Merged => assert_eq!(all, 1),
            other => panic!("{other:?}"),
        }
        assert_eq!(queue.add(1), Added::Queued, "idle again");
    });
}

/// D4. The delay of a key ends while a worker is about to be done with it: one more delivery.
#[test]
fn a_done_beside_the_end_of_the_delay_is_followed_by_one_delivery() {
    check("done_fire", 5, || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add_after(1, NS);
        time.advance(MS);
        let driver = spawn_with(&queue, |queue| assert_eq!(queue.fire_due(), 1));
        item.done();
        let early = deliveries(&queue);
        driver.join().unwrap();
        assert_eq!(early + deliveries(&queue), 1);
    });
}

/// D3. Two delays of one key beside the end of the first: the key is added once or twice, and no
/// delay is left over.
#[test]
fn two_delays_beside_the_end_of_one() {
    check("two_delays_fire", 3, || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        let handle = queue.handle(1);
        let other = handle.clone();
        let adder = spawn(move || other.add_after(2 * MS));
        let hand = time.clone();
        let driver = spawn_with(&queue, move |queue| {
            hand.advance(MS);
            queue.fire_due()
        });
        assert_eq!(handle.add_after(NS), Added::Delayed);
        assert_eq!(adder.join().unwrap(), Added::Delayed);
        let early = driver.join().unwrap();
        time.advance(HOUR);
        let fired = early + queue.fire_due();
        if early == 0 {
            assert_eq!(fired, 1, "both were pending at the same time");
        }
        assert!(fired == 1 || fired == 2, "{fired}");
        assert_eq!(queue.shut_down().delayed, 0);
    });
}

/// D1, D3, T4. A delay beside a change of a key that is debounced. Interleaving: the delay is not set, because the debounced
/// one is due sooner; that moves beyond it.
#[test]
fn a_debounced_delay_that_moves_passes_no_other_delay() {
    check("delay_debounce", 3, || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        let debounce = |queue: &Queue| queue.entry(1).debounce(2 * MS, HOUR).add();
        debounce(&queue);
        time.advance(MS);
        let handle = queue.handle(1);
        let adder = spawn(move || handle.add_after(MS));
        assert_eq!(debounce(&queue), Added::Delayed);
        assert_eq!(adder.join().unwrap(), Added::Delayed);
        time.advance(MS);
        assert_eq!(queue.fire_due(), 1);
        time.advance(HOUR);
        assert_eq!(queue.fire_due(), 0);
    });
}

/// D3, C5. Interleaving: the data is still in the caller's store buffer when it finds an earlier
/// delay pending; that one ends; the worker reads the data.
#[test]
fn what_came_before_a_delay_that_is_not_needed_is_visible_to_the_delivery() {
    check("kept_visible", 3, || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        let data = Arc::new(AtomicUsize::new(0));
        queue.add_after(1, NS);
        let handle = queue.handle(1);
        time.advance(MS);
        let theirs = Arc::clone(&data);
        let worker = spawn_with(&queue, move |queue| {
            queue.fire_due();
            let item = queue.try_get().unwrap();
            // Ordering: Relaxed; the queue's own ordering is what is tested.
            let seen = theirs.load(Ordering::Relaxed);
            item.done();
            seen
        });
        // Ordering: Relaxed; as above.
        data.store(1, Ordering::Relaxed);
        assert_eq!(handle.add_after(HOUR), Added::Delayed);
        let seen = worker.join().unwrap();
        time.advance(2 * HOUR);
        let later = queue.fire_due();
        assert!(seen == 1 || later == 1, "no delivery saw the data");
    });
}

/// S5. A delay that ends beside a shut-down is delivered, or counted as dropped.
#[test]
fn a_delay_that_ends_beside_a_shut_down_is_delivered_or_counted() {
    check("shut_down_fire", 3, || {
        let queue = due_queue(|builder| builder);
        let driver = spawn_with(&queue, WorkQueue::fire_due);
        let left = queue.shut_down();
        let fired = driver.join().unwrap();
        assert_eq!(deliveries(&queue), fired);
        assert_eq!(fired + left.delayed, 1, "{left:?}");
    });
}

/// S5. With a drain that delivers delays it is delivered, by whichever of the two.
#[test]
fn a_delay_that_ends_beside_a_delivering_drain_is_delivered() {
    check("drain_fire", 3, || {
        let queue = due_queue(|builder| builder.drain_delays(true));
        let driver = spawn_with(&queue, WorkQueue::fire_due);
        let _ = queue.drain_timeout(Duration::ZERO);
        driver.join().unwrap();
        assert_eq!(deliveries(&queue), 1);
    });
}

/// S1, S5. A delay that is set beside a shut-down is refused, or counted as dropped.
#[test]
fn a_delay_set_beside_a_shut_down_is_refused_or_counted() {
    check("shut_down_delay", 3, || {
        let (queue, _time) = delayed_queue(keyqueue::Builder::manual_timers);
        let known = queue.handle(1);
        let adder = spawn_with(&queue, move |queue| {
            let delayed = |added| usize::from(added == Added::Delayed);
            delayed(known.add_after(NS)) + delayed(queue.add_after(2, NS))
        });
        let left = queue.shut_down();
        assert_eq!(adder.join().unwrap(), left.delayed);
        assert_eq!(deliveries(&queue), 0);
    });
}

/// S5. A delay that is set beside a drain that delivers delays is refused, or delivered.
#[test]
fn a_delay_set_beside_a_delivering_drain_is_refused_or_delivered() {
    check("drain_delay", 3, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().drain_delays(true));
        let known = queue.handle(1);
        let adder = spawn(move || usize::from(known.add_after(NS) == Added::Delayed));
        let left = queue.drain_timeout(Duration::ZERO);
        assert_eq!(adder.join().unwrap(), deliveries(&queue), "{left:?}");
    });
}

/// C10, S5. A delay that is set beside a shut-down keeps no key from being forgotten.
///
/// Does not show the fences of `register`: the model's registrations are behind a mutex.
#[test]
fn a_delay_set_beside_a_shut_down_leaves_no_pin_behind() {
    check("shut_down_pin", 3, || {
        let queue = queue_of(|builder| builder.clock(Clock::mock().0).manual_timers());
        let key = std::sync::Arc::new(1_u8);
        let added = std::sync::Arc::clone(&key);
        let adder = spawn_with(&queue, |queue| queue.add_after(added, NS));
        queue.shut_down();
        adder.join().unwrap();
        queue.shrink();
        assert_eq!(std::sync::Arc::strong_count(&key), 1);
    });
}

/// D5, S5. An add in place of a delay, beside a shut-down: the add is delivered, or the delay is
/// counted as dropped.
#[test]
fn a_superseding_add_beside_a_shut_down_loses_no_delay() {
    check("shut_down_supersede", 3, || {
        let (queue, _time) =
            delayed_queue(|builder| builder.manual_timers().supersede_delays(true));
        let handle = queue.handle(1);
        handle.add_after(NS);
        let adder = spawn(move || handle.add());
        let left = queue.shut_down();
        let added = adder.join().unwrap();
        assert_eq!(deliveries(&queue), usize::from(added == Added::Queued));
        assert_eq!(usize::from(added == Added::ShutDown), left.delayed);
    });
}

/// The key is being processed as `add` adds it in place of its delay. Whoever takes it after that
/// knows that the delay is over.
fn is_superseded_first(
    name: &str,
    add: impl Fn(&Queue, &KeyHandle<u8>) -> Added + Copy + Send + Sync + 'static,
) {
    check(name, 3, move || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().supersede_delays(true));
        let handle = queue.handle(1);
        handle.add();
        let first = queue.try_get().expect("queued");
        handle.add_after(NS);
        time.advance(MS);
        let adder = spawn_with(&queue, move |queue| add(queue, &handle));
        first.done();
        // Queued by nothing but the add.
        if let Ok(_second) = queue.try_get() {
            assert_eq!(queue.fire_due(), 0);
        }
        adder.join().unwrap();
    });
}

/// D5. Interleaving: the add makes the key dirty; its worker finishes, and gets it again; the driver
/// ends the delay, and the key is dirty once more.
#[test]
fn a_delay_that_an_add_supersedes_adds_nothing_after_it() {
    is_superseded_first("supersede_add", |queue, _| queue.add(1));
}

/// D5. The same through a handle.
#[test]
fn a_delay_that_an_add_through_a_handle_supersedes_adds_nothing_after_it() {
    is_superseded_first("supersede_handle", |_, handle| handle.add());
}

/// D5. An add beside the end of the delay that it supersedes, and its delivery: one delivery. Interleaving: the driver
/// ends the delay; the add finds none, queues the key, and it is delivered; the driver queues it once more.
#[test]
fn an_add_beside_the_end_of_the_delay_that_it_supersedes_is_delivered_once() {
    check("supersede_end", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().supersede_delays(true));
        queue.add_after(1, NS);
        time.advance(MS);
        let firing = spawn_with(&queue, WorkQueue::fire_due);
        let added = queue.add(1);
        let delivered = queue.try_get().map(drop).is_ok();
        let fired = firing.join().unwrap();
        let later = queue.try_get().map(drop).is_ok();
        assert_eq!(usize::from(delivered) + usize::from(later), 1);
        assert_eq!(usize::from(added == Added::Queued) + fired, 1);
    });
}

/// X4. A look at a key beside the end of its delay. Interleaving: the look finds that the key is not queued; the driver
/// ends the delay and queues the key; the look finds no delay.
fn is_seen(name: &str, look: impl Fn(&Queue) -> bool + Copy + Send + Sync + 'static) {
    check(name, 3, move || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        queue.add_after(1, NS);
        time.advance(MS);
        let firing = spawn_with(&queue, WorkQueue::fire_due);
        assert!(look(&queue), "neither delayed nor queued");
        assert_eq!(firing.join().unwrap(), 1);
    });
}

#[test]
fn a_key_is_contained_beside_the_end_of_its_delay() {
    is_seen("contains_end", |queue| queue.state(&1).is_some());
}

#[test]
fn a_key_is_on_a_page_beside_the_end_of_its_delay() {
    is_seen("page_end", |queue| {
        let page = queue.page(Cursor::default(), Listed::All, 10);
        page.keys.len() == 1 && page.counts.queued + page.counts.delayed == 1
    });
}

/// D5. A delay and an add at the same time: one delivery, and no delay is pending after it. Interleaving: the delay
/// finds that the key is idle; the add finds no delay, and queues the key; the delay is set.
#[test]
fn a_delay_beside_a_superseding_add_is_dropped_or_cancelled() {
    check("supersede_or_drop", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().supersede_delays(true));
        let handle = queue.handle(1);
        let delayer = spawn_with(&queue, |queue| queue.add_after(1, NS));
        assert_eq!(handle.add(), Added::Queued);
        let delayed = delayer.join().unwrap();
        assert!(matches!(delayed, Added::Delayed | Added::Merged));
        time.advance(MS);
        assert_eq!(queue.fire_due(), 0);
        assert_eq!(deliveries(&queue), 1);
    });
}

/// S6. The queue is dropped while the driver is about to go to sleep, or to end a delay.
#[test]
fn dropping_the_queue_ends_the_driver() {
    check("drop_driver", 2, || {
        let (queue, time) = delayed_queue(|builder| builder);
        queue.add_after(1, NS);
        let hand = spawn(move || time.advance(MS));
        drop(queue);
        hand.join().unwrap();
    });
}

/// D8. Interleaving: a turn takes the registrations, one; another delay, due earlier, is
/// registered; the clock passes both.
#[test]
fn of_two_delays_the_one_due_earlier_comes_first() {
    check("due_order", 3, || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        queue.add_after(1, 2 * MS);
        let driver = spawn_with(&queue, WorkQueue::fire_due);
        queue.add_after(2, MS);
        time.advance(2 * MS);
        queue.fire_due();
        driver.join().unwrap();
        queue.fire_due();
        let order: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        assert_eq!(order, [2, 1]);
    });
}

/// D9, G6. Interleaving: the driver finds nothing to do until an hour from now; a group is held; the clock
/// passes the end of the hold; the driver goes to sleep, for good.
#[test]
fn a_hold_wakes_the_sleeping_driver() {
    check("hold_sleep", 2, || {
        let (queue, time) = delayed_queue(|builder| builder.group_by(|key| *key));
        queue.add_after(1, HOUR);
        let holder = spawn_with(&queue, move |queue| {
            assert!(queue.hold_group(&2_u8, NS));
            queue.add(2);
            time.advance(MS);
        });
        assert_eq!(queue.get().map(|item| *item), Some(2));
        holder.join().unwrap();
    });
}
