//! The baseline for levels: one mutex around a map of states and a `VecDeque` for each level.
//!
//! A queued key that becomes more urgent goes to the end of its new level. What it leaves behind is dropped when it
//! comes up: the map says another level by then. (The key may have come back to its old level; then it
//! comes out too early.) One of 16 deliveries goes to a less urgent level that has keys, as in keyqueue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::{Condvar, Mutex};

use crate::queue::Queue;

const LEVELS: usize = 3;
const STARVATION_LIMIT: usize = 16;

/// As in the queue without levels.
const SPINS: u32 = 16;
const PAUSES: u32 = 64;
const YIELDS: u32 = 4;

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Queued(usize),
    Processing,
    Dirty(usize),
}

#[derive(Default)]
struct State {
    phases: HashMap<u64, Phase, RandomState>,
    lanes: [VecDeque<u64>; LEVELS],
    queued: usize,
    number: usize,
    /// Consumers that sleep, less those being woken.
    sleepers: usize,
    shut_down: bool,
}

#[derive(Default)]
pub(super) struct LeveledLock {
    state: CachePadded<Mutex<State>>,
    /// Whether the queue holds a key or is shut down, for consumers that spin. Written under the lock.
    ready: CachePadded<AtomicBool>,
    wake_up: Condvar,
}

impl State {
    fn push(&mut self, level: usize, key: u64) {
        self.lanes[level].push_back(key);
        self.queued += 1;
    }

    fn pop(&mut self) -> Option<u64> {
        loop {
            let mut filled = (0..LEVELS).filter(|level| !self.lanes[*level].is_empty());
            let first = filled.next()?;
            let level = match filled.next() {
                Some(other) => {
                    self.number += 1;
                    let relieves = self.number.is_multiple_of(STARVATION_LIMIT);
                    if relieves { other } else { first }
                }
                None => first,
            };
            let key = self.lanes[level].pop_front()?;
            let phase = self.phases.get_mut(&key);
            if let Some(phase) = phase.filter(|phase| **phase == Phase::Queued(level)) {
                *phase = Phase::Processing;
                self.queued -= 1;
                return Some(key);
            }
        }
    }
}

impl LeveledLock {
    pub(super) fn add_at(&self, level: usize, key: u64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        match state.phases.entry(key) {
            Entry::Vacant(new) => {
                new.insert(Phase::Queued(level));
            }
            Entry::Occupied(mut known) => match *known.get() {
                Phase::Queued(own) if level < own => {
                    known.insert(Phase::Queued(level));
                    state.queued -= 1;
                }
                Phase::Queued(_) => return,
                Phase::Processing => {
                    known.insert(Phase::Dirty(level));
                    return;
                }
                Phase::Dirty(own) => {
                    known.insert(Phase::Dirty(level.min(own)));
                    return;
                }
            },
        }
        self.push(guard, level, key);
    }

    fn push(&self, mut state: parking_lot::MutexGuard<'_, State>, level: usize, key: u64) {
        state.push(level, key);
        // Ordering: Relaxed; a hint.
        self.ready.store(true, Ordering::Relaxed);
        let wakes = state.sleepers > 0;
        state.sleepers -= usize::from(wakes);
        drop(state);
        if wakes {
            self.wake_up.notify_one();
        }
    }

    fn spin(&self) {
        for look in 0..SPINS + YIELDS {
            // Ordering: Relaxed; a hint.
            if self.ready.load(Ordering::Relaxed) {
                return;
            }
            if look < SPINS {
                (0..PAUSES).for_each(|_| hint::spin_loop());
            } else {
                thread::yield_now();
            }
        }
    }
}

impl Queue<u64> for LeveledLock {
    type Key = u64;
    type Item<'a> = u64;

    fn new() -> Self {
        Self::default()
    }

    fn key(item: &u64) -> &u64 {
        item
    }

    fn add(&self, key: u64) {
        self.add_at(LEVELS / 2, key);
    }

    fn add_ref(&self, key: &u64) {
        self.add(*key);
    }

    fn get(&self) -> Option<u64> {
        let mut has_spun = false;
        let mut state = self.state.lock();
        loop {
            if let Some(key) = state.pop() {
                // Ordering: Relaxed; a hint.
                self.ready
                    .store(state.queued > 0 || state.shut_down, Ordering::Relaxed);
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
                self.spin();
                state = self.state.lock();
            }
        }
    }

    fn done(&self, key: u64) {
        let mut guard = self.state.lock();
        if let Entry::Occupied(mut known) = guard.phases.entry(key) {
            if let Phase::Dirty(level) = *known.get() {
                known.insert(Phase::Queued(level));
                self.push(guard, level, key);
            } else {
                known.remove();
            }
        }
    }

    fn len(&self) -> usize {
        self.state.lock().queued
    }

    fn shut_down(&self) {
        self.state.lock().shut_down = true;
        // Ordering: Relaxed; a hint.
        self.ready.store(true, Ordering::Relaxed);
        self.wake_up.notify_all();
    }
}
