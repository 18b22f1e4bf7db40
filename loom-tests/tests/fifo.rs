//! The ring and its overflow: the order is kept and no popper overlooks a key (C1).
#![cfg(keyqueue_loom)]

use keyqueue::WorkQueue;
use keyqueue_loom_tests::{check, queue, spawn_with};

/// One producer, one consumer, a ring of one: what overflows comes out in order.
#[test]
fn what_overflows_keeps_the_order() {
    check("overflow_order", 3, || {
        let queue = queue(1);
        let producer = spawn_with(&queue, |queue| {
            for key in 1..=3 {
                queue.add(key);
            }
        });
        for key in 1..=3 {
            assert_eq!(queue.get().map(|item| *item), Some(key));
        }
        producer.join().unwrap();
    });
}

/// Interleaving: one popper finds the ring empty; another refills it from the overflow and lowers
/// the count to 0, which the first reads; pushes find the ring full and go to the overflow; the
/// other takes what is in the ring; the first finds the ring empty, again; the other refills it,
/// and the count is 0, again. The first must not take the FIFO for empty.
#[test]
fn a_refill_hides_no_key_from_another_popper() {
    check("refill_hides_nothing", 5, || {
        let queue = queue(1);
        for key in 1..=3 {
            queue.add(key);
        }
        drop(queue.try_get());
        // 2 and 3 are in the overflow, the ring is empty. There is always a key left from now on.
        let other = spawn_with(&queue, |queue| {
            let take = || queue.try_get().map(|item| *item).expect("one is left");
            let first = take();
            queue.add(4);
            queue.add(5);
            [first, take(), take()]
        });
        let mine = queue.try_get().map(|item| *item).expect("one is left");
        let mut got = other.join().unwrap().to_vec();
        got.push(mine);
        got.sort_unstable();
        assert_eq!(got, [2, 3, 4, 5]);
    });
}

/// C5. Interleaving: one pusher is the overflow's tail, and not yet hung onto the list; the other hangs
/// itself behind it, and returns. Its key must not be taken for missing.
#[test]
fn a_key_behind_a_gap_in_the_overflow_is_not_overlooked() {
    check("overflow_gap", 5, || {
        let queue = queue(1);
        queue.add(1);
        let other = spawn_with(&queue, |queue| queue.add(2));
        queue.add(3);
        assert_eq!(queue.try_get().map(|item| *item), Ok(1));
        let next = queue.try_get().map(|item| *item).expect("3 was added");
        other.join().unwrap();
        let last = queue.try_get().map(|item| *item);
        assert_eq!(last, Ok(5 - next));
    });
}

/// C8. `len` never counts more than what was added and not taken.
#[test]
fn the_length_beside_an_add_is_what_is_left() {
    check("length", 5, || {
        let queue = queue(1);
        queue.add(1);
        queue.add(2);
        let adder = spawn_with(&queue, |queue| queue.add(3));
        for left in [2, 1] {
            queue.try_get().expect("two were there").done();
            let len = queue.len();
            assert!((left - 1..=left).contains(&len), "{len} of {left}");
        }
        adder.join().unwrap();
        assert_eq!(queue.len(), 1);
    });
}

/// C8. Interleaving: a refill has moved a key to the ring, and not yet taken it off the overflow's
/// count; `len` adds up both.
#[test]
fn the_length_beside_a_refill_counts_no_key_twice() {
    check("length_refill", 5, || {
        let queue = queue(1);
        (1..=3).for_each(|key| _ = queue.add(key));
        queue.try_get().expect("three were there").done();
        let counter = spawn_with(&queue, WorkQueue::len);
        queue.try_get().expect("two are left").done();
        let len = counter.join().unwrap();
        assert!(len == 1 || len == 2, "{len} of two, beside a getter of one");
        assert_eq!(queue.len(), 1);
    });
}

/// Interleaving: a popper finds the ring empty and goes for the overflow; meanwhile the overflow
/// is emptied, and the ring filled and overflowed again.
#[test]
fn a_late_popper_does_not_overtake_the_ring() {
    check("late_popper", 3, || {
        let queue = queue(1);
        queue.add(1);
        queue.add(2);
        drop(queue.try_get());
        // 2 is in the overflow, the ring is empty.
        let late = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        let adder = spawn_with(&queue, |queue| {
            queue.add(3);
            queue.add(4);
        });
        let mine = queue.get().map(|item| *item);
        let theirs = late.join().unwrap();
        adder.join().unwrap();
        // Three keys, two poppers: they have the two that were first.
        let mut got = [mine.unwrap(), theirs.unwrap()];
        got.sort_unstable();
        assert_eq!(got, [2, 3]);
        assert_eq!(*queue.try_get().unwrap(), 4);
    });
}
