//! The ring by itself: its laps, its limits, and races of few threads in few slots.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Barrier;
use std::thread;

use super::*;
use crate::scaled::scaled;
use crate::sync::atomic::AtomicUsize;

/// Pushes a number in its own allocation. Returns whether there was room.
fn push(ring: &Ring, number: usize) -> bool {
    let place = NonNull::from(Box::leak(Box::new(number)));
    let pushed = ring.push(place.cast());
    if !pushed {
        free(place.cast());
    }
    pushed
}

fn pop(ring: &Ring) -> Option<usize> {
    ring.pop().map(free)
}

fn free(link: NonNull<Link>) -> usize {
    // SAFETY: from `push`, and freed once.
    *unsafe { Box::from_raw(link.cast().as_ptr()) }
}

#[test]
fn a_ring_holds_what_it_was_made_for_rounded_up() {
    for capacity in [1_usize, 2, 3, 4, 5, 127, 128] {
        let holds = capacity.next_power_of_two();
        let ring = Ring::new(capacity);
        assert!((0..holds).all(|number| push(&ring, number)));
        assert_eq!(ring.len(), holds);
        assert!(!push(&ring, holds), "capacity {capacity}");
        for number in 0..holds {
            assert!(!ring.is_empty());
            assert_eq!(pop(&ring), Some(number));
        }
        assert!(ring.is_empty());
        assert_eq!(pop(&ring), None);
    }
}

// C1: in every lap, from every slot on, with any number of entries in the ring.
#[test]
fn laps_follow_each_other() {
    for capacity in [1, 2, 4, 8] {
        for filled in 0..=capacity {
            let ring = Ring::new(capacity);
            let mut model = VecDeque::new();
            for number in 0..filled + 5 * capacity {
                if model.len() == capacity {
                    assert_eq!(pop(&ring), model.pop_front());
                }
                assert!(push(&ring, number));
                model.push_back(number);
                if model.len() > filled {
                    assert_eq!(pop(&ring), model.pop_front());
                }
                assert_eq!(ring.len(), model.len());
                assert_eq!(ring.is_empty(), model.is_empty());
            }
            assert!(std::iter::from_fn(|| pop(&ring)).eq(model));
        }
    }
}

/// Pushes and pops through five laps of a ring that holds half of what it could, and calls
/// `disturb` before each.
fn five_laps(ring: &Ring, disturb: impl Fn(&Ring)) {
    let capacity = ring.slots.len();
    assert!((0..capacity / 2).all(|number| push(ring, number)));
    for number in 0..5 * capacity {
        disturb(ring);
        assert_eq!(ring.len(), capacity / 2);
        assert_eq!(ring.is_empty(), capacity == 1);
        assert!(push(ring, number + capacity / 2));
        assert_eq!(pop(ring), Some(number));
    }
    assert_eq!(std::iter::from_fn(|| pop(ring)).count(), capacity / 2);
}

// C1: as if a thread had slept between its exchange and its store of the hint, for a step or for
// laps.
#[test]
fn a_hint_that_lags_by_any_distance_is_harmless() {
    for capacity in [1, 2, 8] {
        for lag in 0..4 * capacity as u64 {
            five_laps(&Ring::new(capacity), |ring| {
                for hint in [&ring.tail, &ring.head] {
                    let lagging = hint.load(Ordering::Relaxed).saturating_sub(lag);
                    hint.store(lagging, Ordering::Relaxed);
                }
            });
        }
    }
}

// C1
#[test]
fn laps_begin_again_at_zero() {
    for capacity in [1, 2, 8] {
        let ring = Ring::new(capacity);
        let lap = LAPS - 2;
        for slot in &ring.slots {
            slot.store(Word::empty(lap).0, Ordering::Relaxed);
        }
        for hint in [&ring.tail, &ring.head] {
            hint.store(lap << ring.slot_bits, Ordering::Relaxed);
        }
        five_laps(&ring, |_| {});
    }
}

// C2, C3: few slots, so that laps follow each other quickly.
#[test]
fn racing_threads_get_every_entry_once() {
    const THREADS: usize = 3;
    const ENTRIES: usize = scaled(20_000);
    for capacity in [1, 2, 4] {
        let ring = Ring::new(capacity);
        let left = AtomicUsize::new(THREADS * ENTRIES);
        let start = Barrier::new(2 * THREADS);
        let push_all = |numbers: Range<usize>| {
            start.wait();
            for number in numbers {
                while !push(&ring, number) {
                    thread::yield_now();
                }
            }
        };
        let pop_all = || {
            let mut popped = Vec::new();
            start.wait();
            while left.load(Ordering::SeqCst) > 0 {
                match pop(&ring) {
                    Some(number) => {
                        popped.push(number);
                        left.fetch_sub(1, Ordering::SeqCst);
                    }
                    None => thread::yield_now(),
                }
            }
            popped
        };
        let mut popped: Vec<_> = thread::scope(|scope| {
            let poppers = [(); THREADS].map(|()| scope.spawn(pop_all));
            for thread in 0..THREADS {
                scope.spawn(move || push_all(thread * ENTRIES..(thread + 1) * ENTRIES));
            }
            let popped = poppers.map(|popper| popper.join().unwrap());
            popped.into_iter().flatten().collect()
        });
        popped.sort_unstable();
        assert!(popped.into_iter().eq(0..THREADS * ENTRIES));
        assert!(ring.is_empty());
    }
}
