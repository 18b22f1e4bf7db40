//! The ring by itself: its laps, its limits, and races of few threads in few slots.

use std::collections::VecDeque;
use std::sync::{Arc, Barrier};
use std::thread;

use super::*;
use crate::fifo::overflow::boxed::Boxed;
use crate::scaled::scaled;
use crate::sync::atomic::AtomicUsize;

fn value<T: Copy>(entry: Option<Boxed<T>>) -> Option<T> {
    entry.map(|entry| *entry.value())
}

#[test]
fn a_ring_holds_what_it_was_made_for_rounded_up_and_gives_the_rest_back() {
    for (capacity, holds) in [
        (1, 1),
        (2, 2),
        (3, 4),
        (4, 4),
        (5, 8),
        (127, 128),
        (128, 128),
    ] {
        let ring = Ring::new(capacity);
        for entry in 0..holds {
            assert!(ring.push(Boxed::new(entry)).is_ok());
        }
        assert_eq!(ring.len(), holds);
        let refused = ring.push(Boxed::new(holds)).err();
        assert_eq!(value(refused), Some(holds), "capacity {capacity}");
        for entry in 0..holds {
            assert!(!ring.is_empty());
            assert_eq!(value(ring.pop()), Some(entry));
        }
        assert!(ring.is_empty());
        assert!(ring.pop().is_none());
    }
}

// C1: in every lap, from every slot on, with any number of entries in the ring.
#[test]
fn laps_follow_each_other() {
    for capacity in [1, 2, 4, 8] {
        for filled in 0..=capacity {
            let ring = Ring::new(capacity);
            let mut model = VecDeque::new();
            for entry in 0..filled {
                assert!(ring.push(Boxed::new(entry)).is_ok());
                model.push_back(entry);
            }
            for entry in filled..filled + 5 * capacity {
                if filled == capacity {
                    assert_eq!(value(ring.pop()), model.pop_front());
                }
                assert!(ring.push(Boxed::new(entry)).is_ok());
                model.push_back(entry);
                if filled < capacity {
                    assert_eq!(value(ring.pop()), model.pop_front());
                }
                assert_eq!(ring.len(), model.len());
                assert_eq!(ring.is_empty(), model.is_empty());
            }
        }
    }
}

/// Pushes and pops through five laps of a ring that holds half of what it could, and calls `disturb`
/// before each.
fn five_laps(ring: &Ring<Boxed<usize>>, disturb: impl Fn(&Ring<Boxed<usize>>)) {
    let capacity = ring.slots.len();
    for entry in 0..capacity / 2 {
        assert!(ring.push(Boxed::new(entry)).is_ok());
    }
    for entry in 0..5 * capacity {
        disturb(ring);
        assert_eq!(ring.len(), capacity / 2);
        assert_eq!(ring.is_empty(), capacity == 1);
        assert!(ring.push(Boxed::new(entry + capacity / 2)).is_ok());
        assert_eq!(value(ring.pop()), Some(entry));
    }
}

// C1: as if a thread had slept between its exchange and its store of the hint, for a step or for laps.
#[test]
fn a_hint_that_lags_by_any_distance_is_harmless() {
    for capacity in [1, 2, 8] {
        for lag in 0..4 * capacity as u64 {
            let ring = Ring::new(capacity);
            five_laps(&ring, |ring| {
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

#[test]
fn what_is_left_is_dropped_with_the_ring() {
    let entry = Arc::new(());
    let ring = Ring::new(4);
    for _ in 0..6 {
        let _ = ring.push(Boxed::new(Arc::clone(&entry)));
    }
    drop(ring.pop());
    assert_eq!(Arc::strong_count(&entry), 4);
    drop(ring);
    assert_eq!(Arc::strong_count(&entry), 1);
}

// C2, C3: few slots, so that laps follow each other quickly.
#[test]
fn racing_threads_get_every_entry_once() {
    const THREADS: usize = 3;
    const ENTRIES: usize = scaled(20_000);
    for capacity in [1, 2, 4] {
        let ring = Ring::new(capacity);
        let popped: Vec<_> = (0..THREADS * ENTRIES)
            .map(|_| AtomicUsize::new(0))
            .collect();
        let left = AtomicUsize::new(THREADS * ENTRIES);
        let start = Barrier::new(2 * THREADS);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (ring, start, popped, left) = (&ring, &start, &popped, &left);
                scope.spawn(move || {
                    start.wait();
                    for entry in thread * ENTRIES..(thread + 1) * ENTRIES {
                        let mut entry = Boxed::new(entry);
                        while let Err(refused) = ring.push(entry) {
                            entry = refused;
                            thread::yield_now();
                        }
                    }
                });
                scope.spawn(move || {
                    start.wait();
                    while left.load(Ordering::SeqCst) > 0 {
                        match value(ring.pop()) {
                            Some(entry) => {
                                popped[entry].fetch_add(1, Ordering::SeqCst);
                                left.fetch_sub(1, Ordering::SeqCst);
                            }
                            None => thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert!(popped.iter().all(|times| times.load(Ordering::SeqCst) == 1));
        assert!(ring.is_empty());
    }
}
