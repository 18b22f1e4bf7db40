//! The limits: bare queues without a map, which say what a FIFO alone costs.
//!
//! They run only the workloads in which no key is added twice, and spin where a keyed queue blocks.

use std::hint;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::{ArrayQueue, SegQueue};
use crossbeam_utils::Backoff;

use super::Contender;
use crate::queue::Queue;
use crate::spec::{Kind, Round, Scale};
use crate::workloads;

/// A bounded ring.
pub(super) fn array_queue() -> impl Contender {
    Limit::<ArrayQueue<u64>>::named("array-queue")
}

/// Linked blocks, unbounded.
pub(super) fn seg_queue() -> impl Contender {
    Limit::<SegQueue<u64>>::named("seg-queue")
}

/// A queue of `u64` keys without a map.
struct Limit<U> {
    name: &'static str,
    queue: PhantomData<fn() -> U>,
}

impl<U> Limit<U> {
    fn named(name: &'static str) -> Self {
        Self {
            name,
            queue: PhantomData,
        }
    }
}

impl<U> Contender for Limit<U>
where
    Bare<U>: Queue<u64>,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>> {
        let applies = match workload {
            Kind::Cycle { .. } | Kind::Flow { .. } => !workload.is_of_strings(),
            _ => false,
        };
        applies.then(|| workloads::run::<u64, Bare<U>>(workload, scale, round))
    }
}

/// What `crossbeam-queue`'s two queues have in common.
trait PushPop: Send + Sync + 'static {
    fn new() -> Self;
    fn push(&self, key: u64);
    fn pop(&self) -> Option<u64>;
    fn len(&self) -> usize;
}

impl PushPop for ArrayQueue<u64> {
    /// As long as a first-level cache is large, so that the limit is not one of memory.
    fn new() -> Self {
        Self::new(1024)
    }

    fn push(&self, key: u64) {
        let backoff = Backoff::new();
        while self.push(key).is_err() {
            backoff.snooze();
        }
    }

    fn pop(&self) -> Option<u64> {
        self.pop()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl PushPop for SegQueue<u64> {
    fn new() -> Self {
        Self::new()
    }

    fn push(&self, key: u64) {
        self.push(key);
    }

    fn pop(&self) -> Option<u64> {
        self.pop()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// A queue without a map, and the flag that ends it.
struct Bare<U> {
    queue: U,
    shut_down: AtomicBool,
}

impl<U: PushPop> Queue<u64> for Bare<U> {
    type Key = u64;
    type Item<'a> = u64;
    type Handle = u64;

    fn new() -> Self {
        Self {
            queue: U::new(),
            shut_down: AtomicBool::new(false),
        }
    }

    fn key(key: u64) -> u64 {
        key
    }

    fn key_of(item: &u64) -> &u64 {
        item
    }

    fn add(&self, key: u64) {
        self.queue.push(key);
    }

    fn add_ref(&self, key: &u64) {
        self.queue.push(*key);
    }

    fn handle(&self, key: u64) -> u64 {
        key
    }

    fn add_handle(&self, handle: &u64) {
        self.queue.push(*handle);
    }

    fn get(&self) -> Option<u64> {
        let backoff = Backoff::new();
        loop {
            // Ordering: Acquire; pairs with the Release store in `shut_down`. Read before the
            // pop: a queue found empty after the flag was set stays empty.
            let last = self.shut_down.load(Ordering::Acquire);
            let key = self.queue.pop();
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
        self.queue.len()
    }

    fn shut_down(&self) {
        // Ordering: Release; pairs with the Acquire load in `get`, after every push that happened
        // before.
        self.shut_down.store(true, Ordering::Release);
    }

    fn shrink(&self) {}
}
