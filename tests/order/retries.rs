//! How much room keys take that have failed (B5), in loops of one's own. Workers have their own tests.

use std::time::Duration;

use crate::common::Task;
use crate::common::timed::{HOUR, built};
use keyqueue::{Added, WorkQueue};

type Queue = WorkQueue<u64>;

/// How many keys fit now. They are delivered and done again.
fn room(queue: &Queue) -> usize {
    let fits = |key| queue.entry(key).try_add().is_ok();
    let room = (1000..).take_while(|key| fits(*key)).count();
    let left: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    for item in left {
        match *item < 1000 {
            true => assert!(item.retry_after(Duration::ZERO).is_accepted()),
            false => item.done(),
        }
    }
    room
}

/// A key fails.
fn fail(queue: &Queue, key: u64, delay: Duration) {
    queue.add(key);
    let item = queue.get_batch(1000).unwrap().into_iter();
    for item in item {
        let delay = if *item == key { delay } else { Duration::ZERO };
        assert!(item.retry_after(delay).is_accepted());
    }
}

/// Room of four, after this many keys have failed: half is taken, then none, and beyond the limit of six all.
const ROOM: [usize; 10] = [4, 3, 2, 2, 2, 2, 2, 1, 0, 0];

#[test] // B5 B3
fn keys_that_fail_take_half_of_the_room_and_more_only_beyond_their_limit() {
    // Delayed; queued again at once; and queued after the delay.
    for (delay, passes) in [(HOUR, false), (Duration::ZERO, false), (HOUR, true)] {
        let (queue, time) = built(|builder| builder.capacity(4));
        for (key, expected) in (0..).zip(ROOM) {
            assert_eq!(room(&queue), expected, "{key} {delay:?} {passes}");
            assert_eq!(queue.counts().retrying, key as usize);
            fail(&queue, key, delay);
            if passes {
                time.advance(HOUR);
                assert_eq!(queue.fire_due(), 1);
                assert_eq!(queue.counts().queued, key as usize + 1);
            }
        }
        // All that was accepted is there, and each that ends gives back what it has taken.
        for (left, expected) in ROOM.into_iter().enumerate().rev() {
            match delay.is_zero() || passes {
                true => queue.get().unwrap().done(),
                false => assert!(queue.cancel(&(left as u64))),
            }
            assert_eq!((room(&queue), queue.counts().retrying), (expected, left));
        }
    }
}

#[test] // B5
fn a_delay_that_a_failing_key_has_already_is_a_retry_from_then_on() {
    let (queue, _time) = built(|builder| builder.capacity(4));
    for key in 0..3 {
        queue.add_after(key, HOUR);
    }
    assert_eq!((room(&queue), queue.counts().retrying), (1, 0));
    // One that is kept, and one that is moved.
    fail(&queue, 0, 2 * HOUR);
    fail(&queue, 1, HOUR / 2);
    assert_eq!((room(&queue), queue.counts().retrying), (1, 2));
    // A retry stays one.
    for key in 3..6 {
        fail(&queue, key, HOUR);
    }
    queue.add_after(3, HOUR / 2);
    assert_eq!((queue.counts().delayed, queue.counts().retrying), (6, 5));
    assert_eq!(room(&queue), 1);
    for key in 0..6 {
        assert!(queue.cancel(&key));
    }
    assert_eq!((room(&queue), queue.counts().retrying), (4, 0));
}

#[test] // B5
fn a_retry_that_is_run_now_superseded_or_cleared_gives_back_what_it_has_taken() {
    for supersede in [false, true] {
        let (queue, _time) = built(|builder| builder.capacity(4).supersede_delays(supersede));
        for key in 0..8 {
            fail(&queue, key, HOUR);
        }
        assert_eq!(room(&queue), 0);
        assert_eq!(queue.run_now(&0), Some(Added::Queued));
        assert_eq!((room(&queue), queue.counts().retrying), (0, 8));
        // Queued, and delayed unless it is superseded.
        assert_eq!(queue.entry(1).try_add(), Ok(Added::Queued));
        let counts = queue.counts();
        let delayed = if supersede { 6 } else { 7 };
        assert_eq!(
            (counts.queued, counts.delayed, counts.retrying),
            (2, delayed, 8)
        );
        assert_eq!(queue.clear(), 2);
        for key in 0..8 {
            assert_eq!(queue.cancel(&key), key > 1 || key == 1 && !supersede);
        }
        assert_eq!((room(&queue), queue.counts().retrying), (4, 0));
    }
}

#[test] // B5 B2
fn the_end_of_a_retry_lets_an_add_in_only_if_it_had_room() {
    let (queue, _time) = built(|builder| builder.capacity(4));
    for key in 0..8 {
        fail(&queue, key, HOUR);
    }
    let mut add = Task::waiting(Box::pin(queue.entry(10).add_async()));
    assert!(queue.cancel(&0));
    assert_eq!((add.wakes(), add.output()), (1, Added::Queued));
    let mut add = Task::waiting(Box::pin(queue.entry(11).add_async()));
    assert!(queue.cancel(&1));
    assert_eq!((add.wakes(), add.output()), (1, Added::Queued));
    let mut add = Task::waiting(Box::pin(queue.entry(12).add_async()));
    for key in 2..6 {
        assert!(queue.cancel(&key));
        add.assert_pending();
    }
    assert!(queue.cancel(&6));
    assert_eq!((add.wakes(), add.output()), (1, Added::Queued));
}

#[test] // B5
fn a_retry_that_ends_while_its_key_is_processed_takes_its_room_again() {
    let (queue, time) = built(|builder| builder.capacity(4));
    for key in 0..8 {
        fail(&queue, key, HOUR);
    }
    queue.add(7);
    let item = queue.get().unwrap();
    time.advance(HOUR);
    assert_eq!(queue.fire_due(), 8);
    assert_eq!((queue.len(), queue.counts().retrying), (7, 7));
    item.done();
    assert_eq!((queue.len(), queue.counts().retrying), (8, 8));
    assert_eq!(queue.clear(), 8);
    assert_eq!(room(&queue), 4);
}

#[test] // B5 D5: the failure comes after an add that has made the key dirty
fn a_key_that_fails_is_retrying_although_it_was_added_meanwhile() {
    for (delay, supersede) in [
        (Duration::ZERO, false),
        (Duration::ZERO, true),
        (HOUR, true),
    ] {
        let (queue, _time) = built(|builder| builder.capacity(4).supersede_delays(supersede));
        for (key, expected) in (0..8).zip(&ROOM[1..]) {
            queue.add(key);
            for item in queue.get_batch(1000).unwrap() {
                let is_new = *item == key;
                if is_new {
                    assert_eq!(queue.add(key), Added::Deferred);
                }
                let added = item.retry_after(if is_new { delay } else { Duration::ZERO });
                assert_eq!(added == Added::Merged, is_new);
            }
            assert_eq!(queue.counts().retrying, key as usize + 1);
            assert_eq!(room(&queue), *expected, "{key} {delay:?} {supersede}");
        }
        assert_eq!(queue.clear(), 8);
        assert_eq!((room(&queue), queue.counts().retrying), (4, 0));
    }
}

#[test] // B5
fn a_retry_that_ends_while_its_key_is_dirty_takes_its_room_again() {
    let (queue, time) = built(|builder| builder.capacity(4));
    for key in 0..8 {
        fail(&queue, key, HOUR);
    }
    queue.add(7);
    let item = queue.get().unwrap();
    assert_eq!(queue.add(7), Added::Deferred);
    time.advance(HOUR);
    assert_eq!(queue.fire_due(), 8);
    item.done();
    assert_eq!((queue.len(), queue.counts().retrying), (8, 8));
    assert_eq!(queue.clear(), 8);
    assert_eq!(room(&queue), 4);
}

#[test] // S5 S12 B5
fn what_is_left_of_a_queue_full_of_retries_is_what_was_accepted() {
    for deliver in [false, true] {
        let (queue, _time) = built(|builder| builder.capacity(4).drain_delays(deliver));
        for key in 0..9 {
            fail(&queue, key, HOUR);
        }
        fail(&queue, 9, Duration::ZERO);
        assert_eq!(queue.counts().retrying, 10);
        let left = queue.shut_down();
        assert_eq!(left.queued + left.delayed, 10);
        assert_eq!(queue.take_left().len(), 10);
    }
}

#[test] // B5 P3
fn a_retry_that_is_raised_is_still_one() {
    let (queue, _time) = built(|builder| builder.capacity(2).levels(3));
    fail(&queue, 1, Duration::ZERO);
    fail(&queue, 2, Duration::ZERO);
    assert_eq!((queue.counts().retrying, room(&queue)), (2, 1));
    assert_eq!(queue.entry(1).level(0).add(), Added::Merged);
    // In this order: looking for room delivers the keys, and retries them.
    assert_eq!((queue.counts().retrying, room(&queue)), (2, 1));
    assert_eq!(queue.clear(), 2);
    assert_eq!(room(&queue), 2);
}

#[test] // B4 B5
fn a_queue_without_a_bound_counts_what_is_retrying() {
    let (queue, _time) = built(|builder| builder);
    fail(&queue, 1, Duration::ZERO);
    fail(&queue, 2, HOUR);
    assert_eq!(queue.counts().retrying, 2);
    queue.get().unwrap().done();
    queue.add(1);
    assert_eq!((queue.counts().queued, queue.counts().retrying), (1, 1));
}
