//! The ring and its overflow: the order is kept and nobody overlooks a key (C1).
#![cfg(keyqueue_loom)]

use keyqueue_loom_tests::{check, queue};
use loom::sync::Arc;
use loom::thread;

/// One producer, one consumer, a ring of one: what overflows comes out in order.
///
/// Fails when `push` goes to the ring whenever the ring has room, or when `refill` lowers the
/// count before it has moved the entries.
#[test]
fn what_overflows_keeps_the_order() {
    check("overflow_order", 3, || {
        let queue = queue(1);
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for key in 1..=3 {
                    queue.add(key);
                }
            })
        };
        for key in 1..=3 {
            assert_eq!(queue.get().map(|item| *item), Some(key));
        }
        producer.join().unwrap();
    });
}

/// Interleaving: one popper finds the ring empty; another refills it from the overflow and lowers
/// the count to 0; the first reads 0. It must not take the FIFO for empty.
///
/// Fails when `pop_slow` reads `backlog` only once.
#[test]
fn a_refill_hides_no_key_from_another_popper() {
    check("refill_hides_nothing", 5, || {
        let queue = queue(1);
        for key in 1..=3 {
            queue.add(key);
        }
        let popper = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.try_get().map(|item| *item))
        };
        // Three keys, two poppers: neither may come away with nothing.
        let mine = queue.try_get().map(|item| *item);
        let theirs = popper.join().unwrap();
        let mut got = [mine.expect("two are left"), theirs.expect("two are left")];
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
        assert_eq!(*queue.try_get().unwrap(), 3);
    });
}

/// Interleaving: a popper finds the ring empty and goes for the overflow; meanwhile the overflow
/// is emptied, and the ring filled and overflowed again.
///
/// Fails when `refill` does not look at the ring again.
#[test]
fn a_late_popper_does_not_overtake_the_ring() {
    check("late_popper", 3, || {
        let queue = queue(1);
        queue.add(1);
        queue.add(2);
        drop(queue.try_get());
        // 2 is in the overflow, the ring is empty.
        let late = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.get().map(|item| *item))
        };
        let adder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.add(3);
                queue.add(4);
            })
        };
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
