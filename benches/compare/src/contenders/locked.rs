//! What the queues with one lock have in common: one mutex around everything, consumers that spin before they sleep, and of
//! those that sleep one is woken for each key, after the lock is released.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::queue::Queue;

/// Looks at an empty queue before sleeping: some after pauses of the processor, the others after a
/// yield.
const SPINS: u32 = 16;
const PAUSES: u32 = 64;
const YIELDS: u32 = 4;

/// Spins until the hint is set, for a while.
pub(super) fn spin(ready: &AtomicBool) {
    for look in 0..SPINS + YIELDS {
        // Ordering: Relaxed; a hint.
        if ready.load(Ordering::Relaxed) {
            return;
        }
        if look < SPINS {
            (0..PAUSES).for_each(|_| hint::spin_loop());
        } else {
            thread::yield_now();
        }
    }
}

/// The keys of a queue, whose states are in a map, in their order.
pub(super) trait Ordered: Send + 'static {
    /// Returns whether the key was queued, or moved.
    fn add(&mut self, key: u64, level: usize) -> bool;
    fn pop(&mut self) -> Option<u64>;
    /// Ends the processing of a key. Returns whether it was queued again.
    fn done(&mut self, key: u64) -> bool;
    fn len(&self) -> usize;
}

/// A queue of keys in an order.
pub(super) struct Locked<O> {
    state: CachePadded<Mutex<State<O>>>,
    /// Whether the queue holds a key or is shut down, for consumers that spin. Written under the lock.
    ready: CachePadded<AtomicBool>,
    wake_up: Condvar,
}

struct State<O> {
    keys: O,
    /// Consumers that sleep, less those being woken.
    sleepers: usize,
    shut_down: bool,
}

impl<O: Ordered> Locked<O> {
    pub(super) fn over(keys: O) -> Self {
        Locked {
            state: CachePadded::new(Mutex::new(State {
                keys,
                sleepers: 0,
                shut_down: false,
            })),
            ready: CachePadded::default(),
            wake_up: Condvar::new(),
        }
    }

    pub(super) fn add_at(&self, level: usize, key: u64) {
        let mut state = self.state.lock();
        if state.keys.add(key, level) {
            self.pushed(state);
        }
    }

    fn pushed(&self, mut state: MutexGuard<'_, State<O>>) {
        // Ordering: Relaxed; a hint.
        self.ready.store(true, Ordering::Relaxed);
        let wakes = state.sleepers > 0;
        state.sleepers -= usize::from(wakes);
        drop(state);
        if wakes {
            self.wake_up.notify_one();
        }
    }
}

impl<O: Ordered + Default> Queue<u64> for Locked<O> {
    type Key = u64;
    type Item<'a> = u64;

    fn new() -> Self {
        Self::over(O::default())
    }

    fn key(item: &u64) -> &u64 {
        item
    }

    fn add(&self, key: u64) {
        self.add_at(1, key);
    }

    fn add_ref(&self, key: &u64) {
        self.add(*key);
    }

    fn get(&self) -> Option<u64> {
        let mut has_spun = false;
        let mut state = self.state.lock();
        loop {
            if let Some(key) = state.keys.pop() {
                // Ordering: Relaxed; a hint.
                self.ready
                    .store(state.keys.len() > 0 || state.shut_down, Ordering::Relaxed);
                return Some(key);
            }
            if state.shut_down {
                return None;
            }
            if has_spun {
                state.sleepers += 1;
                self.wake_up.wait(&mut state);
            } else {
                has_spun = true;
                drop(state);
                spin(&self.ready);
                state = self.state.lock();
            }
        }
    }

    fn done(&self, key: u64) {
        let mut state = self.state.lock();
        if state.keys.done(key) {
            self.pushed(state);
        }
    }

    fn len(&self) -> usize {
        self.state.lock().keys.len()
    }

    fn shut_down(&self) {
        self.state.lock().shut_down = true;
        // Ordering: Relaxed; a hint.
        self.ready.store(true, Ordering::Relaxed);
        self.wake_up.notify_all();
    }
}
