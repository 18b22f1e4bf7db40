//! The limits: bare queues, which say what a FIFO alone costs. They run only workloads in which no
//! key is added while it is queued or processing, and spin where a keyed queue blocks.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::{ArrayQueue, SegQueue};
use crossbeam_utils::Backoff;

use crate::queue::Queue;
use crate::workload::{Kind, Round};
use crate::workloads;

/// `ArrayQueue` if bounded, and otherwise `SegQueue`, and the flag that ends it.
struct Bare<const BOUNDED: bool> {
    ring: ArrayQueue<u64>,
    blocks: SegQueue<u64>,
    shut_down: AtomicBool,
}

pub(super) fn run<const BOUNDED: bool>(round: &Round<'_>) -> Option<Vec<f64>> {
    match round.kind {
        Kind::Cycle | Kind::CycleHandle | Kind::Unique | Kind::Work => {
            workloads::run_u64::<Bare<BOUNDED>>(round)
        }
        _ => None,
    }
}

impl<const BOUNDED: bool> Queue<u64> for Bare<BOUNDED> {
    type Key = u64;
    type Item<'a> = u64;

    fn new() -> Self {
        Self {
            // As long as a first-level cache is large, so that the limit is not one of memory.
            ring: ArrayQueue::new(if BOUNDED { 1024 } else { 1 }),
            blocks: SegQueue::new(),
            shut_down: AtomicBool::new(false),
        }
    }

    fn key(item: &u64) -> &u64 {
        item
    }

    fn add(&self, key: u64) {
        self.add_ref(&key);
    }

    fn add_ref(&self, key: &u64) {
        if BOUNDED {
            let backoff = Backoff::new();
            while self.ring.push(*key).is_err() {
                backoff.snooze();
            }
        } else {
            self.blocks.push(*key);
        }
    }

    fn get(&self) -> Option<u64> {
        let backoff = Backoff::new();
        loop {
            // Ordering: Acquire; pairs with the Release store in `shut_down`. Read before the
            // pop: a queue found empty after the flag was set stays empty.
            let last = self.shut_down.load(Ordering::Acquire);
            let key = if BOUNDED {
                self.ring.pop()
            } else {
                self.blocks.pop()
            };
            if key.is_some() || last {
                return key;
            }
            backoff.snooze();
        }
    }

    fn done(&self, item: u64) {
        hint::black_box(item);
    }

    fn len(&self) -> usize {
        self.ring.len() + self.blocks.len()
    }

    fn shut_down(&self) {
        // Ordering: Release; pairs with the Acquire load in `get`.
        self.shut_down.store(true, Ordering::Release);
    }
}
