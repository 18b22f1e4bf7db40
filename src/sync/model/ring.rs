//! crossbeam-queue's `ArrayQueue` on the checker's atomics: the same stamps, orderings and fences.
//!
//! A stamp is a lap and an index. A slot whose stamp equals the tail is free for the push of that
//! lap; one whose stamp is one above the head is full for the pop of that lap.

use super::checker::atomic::{AtomicUsize, Ordering, fence};
use super::checker::{UnsafeCell, yield_now};

pub(crate) struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[Slot<T>]>,
    one_lap: usize,
}

struct Slot<T> {
    stamp: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: a slot's value is touched only by the thread that won its lap, and loom checks it.
unsafe impl<T: Send> Send for ArrayQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for ArrayQueue<T> {}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        ArrayQueue {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: (0..capacity)
                .map(|index| Slot {
                    stamp: AtomicUsize::new(index),
                    value: UnsafeCell::new(None),
                })
                .collect(),
            one_lap: (capacity + 1).next_power_of_two(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn next(&self, stamp: usize) -> usize {
        let index = stamp & (self.one_lap - 1);
        if index + 1 < self.capacity() {
            stamp + 1
        } else {
            (stamp - index) + self.one_lap
        }
    }

    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        // Ordering: Relaxed; a guess, checked against the stamp and by the exchange.
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[tail & (self.one_lap - 1)];
            // Ordering: Acquire; pairs with the Release of the pop of the lap before.
            let stamp = slot.stamp.load(Ordering::Acquire);
            if tail == stamp {
                // Ordering: SeqCst; as the original. loom takes it as AcqRel.
                match self.tail.compare_exchange_weak(
                    tail,
                    self.next(tail),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: this thread won the slot's lap.
                        slot.value.with_mut(|place| unsafe { *place = Some(value) });
                        // Ordering: Release; pairs with the Acquire in `pop`.
                        slot.stamp.store(tail + 1, Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => tail = now,
                }
            } else if stamp + self.one_lap == tail + 1 {
                // Ordering: SeqCst; as the original, before the look at the head.
                fence(Ordering::SeqCst);
                // Ordering: Relaxed; ordered by the fence.
                let head = self.head.load(Ordering::Relaxed);
                if head + self.one_lap == tail {
                    return Err(value);
                }
                yield_now();
                // Ordering: Relaxed; a guess.
                tail = self.tail.load(Ordering::Relaxed);
            } else {
                yield_now();
                // Ordering: Relaxed; a guess.
                tail = self.tail.load(Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        // Ordering: Relaxed; a guess, checked against the stamp and by the exchange.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[head & (self.one_lap - 1)];
            // Ordering: Acquire; pairs with the Release in `push`.
            let stamp = slot.stamp.load(Ordering::Acquire);
            if head + 1 == stamp {
                // Ordering: SeqCst; as the original. loom takes it as AcqRel.
                match self.head.compare_exchange_weak(
                    head,
                    self.next(head),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: this thread won the slot's lap.
                        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
                        // Ordering: Release; pairs with the Acquire in `push`.
                        slot.stamp.store(head + self.one_lap, Ordering::Release);
                        return value;
                    }
                    Err(now) => head = now,
                }
            } else if stamp == head {
                // Ordering: SeqCst; as the original, before the look at the tail.
                fence(Ordering::SeqCst);
                // Ordering: Relaxed; ordered by the fence.
                if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
                yield_now();
                // Ordering: Relaxed; a guess.
                head = self.head.load(Ordering::Relaxed);
            } else {
                yield_now();
                // Ordering: Relaxed; a guess.
                head = self.head.load(Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        loop {
            // Ordering: SeqCst; as the original.
            let tail = self.tail.load(Ordering::SeqCst);
            let head = self.head.load(Ordering::SeqCst);
            if self.tail.load(Ordering::SeqCst) == tail {
                let place = |stamp| {
                    let lap = stamp / self.one_lap;
                    lap * self.capacity() + (stamp & (self.one_lap - 1))
                };
                return place(tail) - place(head);
            }
            yield_now();
        }
    }
}
