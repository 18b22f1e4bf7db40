//! The baseline for groups: one mutex around a map of states, a map of groups with a `VecDeque` each, and a
//! `VecDeque` of the groups that have keys. Which take turns, one key each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::queue::Queue;

/// As in the queue without groups.
const SPINS: u32 = 16;
const PAUSES: u32 = 64;
const YIELDS: u32 = 4;

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Queued,
    Processing,
    Dirty,
}

#[derive(Default)]
struct Group {
    keys: VecDeque<u64>,
    in_flight: usize,
}

#[derive(Default)]
struct State {
    phases: HashMap<u64, Phase, RandomState>,
    groups: HashMap<u64, Group, RandomState>,
    ring: VecDeque<u64>,
    queued: usize,
    /// Consumers that sleep, less those being woken.
    sleepers: usize,
    shut_down: bool,
}

pub(super) struct GroupedLock {
    groups: u64,
    state: CachePadded<Mutex<State>>,
    /// Whether the queue holds a key or is shut down, for consumers that spin. Written under the lock.
    ready: CachePadded<AtomicBool>,
    wake_up: Condvar,
}

impl State {
    fn push(&mut self, name: u64, key: u64) {
        let group = self.groups.entry(name).or_default();
        if group.keys.is_empty() {
            self.ring.push_back(name);
        }
        group.keys.push_back(key);
        self.queued += 1;
    }

    fn pop(&mut self) -> Option<u64> {
        let name = self.ring.pop_front()?;
        let group = self.groups.get_mut(&name)?;
        let key = group.keys.pop_front()?;
        group.in_flight += 1;
        if !group.keys.is_empty() {
            self.ring.push_back(name);
        }
        self.queued -= 1;
        self.phases.insert(key, Phase::Processing);
        Some(key)
    }
}

impl GroupedLock {
    pub(super) fn with(groups: u64) -> Self {
        GroupedLock {
            groups,
            state: CachePadded::default(),
            ready: CachePadded::default(),
            wake_up: Condvar::new(),
        }
    }

    fn push(&self, mut state: MutexGuard<'_, State>, key: u64) {
        state.push(key % self.groups, key);
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

impl Queue<u64> for GroupedLock {
    type Key = u64;
    type Item<'a> = u64;

    fn new() -> Self {
        Self::with(1)
    }

    fn key(item: &u64) -> &u64 {
        item
    }

    fn add(&self, key: u64) {
        let mut state = self.state.lock();
        match state.phases.entry(key) {
            Entry::Vacant(new) => {
                new.insert(Phase::Queued);
                self.push(state, key);
            }
            Entry::Occupied(mut known) => {
                if *known.get() == Phase::Processing {
                    known.insert(Phase::Dirty);
                }
            }
        }
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
        let state = &mut *guard;
        let name = key % self.groups;
        if let hashbrown::hash_map::Entry::Occupied(mut group) = state.groups.entry(name) {
            group.get_mut().in_flight -= 1;
            if group.get().in_flight == 0 && group.get().keys.is_empty() {
                group.remove();
            }
        }
        if let Entry::Occupied(mut known) = state.phases.entry(key) {
            if *known.get() == Phase::Dirty {
                known.insert(Phase::Queued);
                self.push(guard, key);
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
