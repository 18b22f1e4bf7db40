//! The baseline: the best keyed queue with one mutex that we could write. A design without it has
//! to win here first.
//!
//! One mutex guards a map (key to ticket) and a `VecDeque` of queued keys. Every key that is
//! queued draws the next ticket; `head` is the ticket of the oldest queued one. A key's state
//! follows from the two, so that `get` does not look at the map:
//!
//! | in the map | state |
//! | --- | --- |
//! | absent | idle |
//! | a ticket of `head` or more | queued |
//! | a ticket below `head` | processing |
//! | [`DIRTY`] | processing, and added again |
//!
//! Where keys carry values, those of a queued key are with it in the `VecDeque`, where its ticket says.
//! Those put to a key that is processed wait in the map.
//!
//! An operation takes the lock once; `add` and `done` hash once, before they take it, and probe
//! once. Strings are `Arc<str>`: adding one by `&str` allocates only for an idle key. An
//! operation that queues a key wakes a consumer only if one sleeps that has not been woken yet, and
//! after it has released the lock. Keys are dropped after that, too.
//!
//! Tickets instead of a state that `get` must look up made a cycle of `u64` 6 % faster. Slower were
//! idle keys that stay until the map is full (20 %), and `SmolStr` instead of `Arc<str>` (3 %, or
//! 60 % for keys too long to be stored inline). No clear difference: `std`'s mutex and condvar, a
//! short spin before sleeping, separate cache lines for lock, hasher and hint.

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::hash_table::{Entry, HashTable};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::grouped_lock::GroupedLock;
use super::leveled_lock::LeveledLock;
use super::locked::spin;
use crate::keys::{Key, Tally};
use crate::queue::{Event, Inboxes, Queue, Tasked};
use crate::workload::{Kind, Round};
use crate::workloads::{self, backlog, groups, levels, limiter, values};

/// Stands for the ticket of a key that was added while it is processed.
const DIRTY: u64 = 0;

pub(super) fn run(round: &Round<'_>) -> Option<Vec<f64>> {
    match round.kind {
        Kind::Backlog => Some(backlog::run::<SingleLock<u64>>(round.count)),
        _ => workloads::run_u64::<SingleLock<u64>>(round)
            .or_else(|| workloads::run_str::<SingleLock<Arc<str>>>(round))
            .or_else(|| limiter::locked(round))
            .or_else(|| values::run::<SingleLock<u64, Vec<Event>>>(round))
            .or_else(|| levels::run(round, LeveledLock::new, LeveledLock::add_at))
            .or_else(|| groups::run(round, GroupedLock::with)),
    }
}

/// A queue of keys with values `V`, by default without.
struct SingleLock<K, V = ()> {
    hasher: CachePadded<RandomState>,
    state: CachePadded<Mutex<State<K, V>>>,
    /// Whether the queue holds a key or is shut down, for consumers that spin. Written under the lock.
    ready: CachePadded<AtomicBool>,
    wake_up: Condvar,
}

struct State<K, V> {
    tickets: HashTable<(K, u64, V)>,
    queued: VecDeque<(K, V)>,
    head: u64,
    /// Consumers that sleep, less those being woken.
    sleepers: usize,
    shut_down: bool,
}

/// What the queue keeps of a key that it is lent; cheap to clone.
trait Stored<Q: ?Sized + ToOwned>:
    Borrow<Q> + From<Q::Owned> + Hash + Eq + Clone + Send + Sync + 'static
{
    fn store(key: &Q) -> Self;
}

impl Stored<u64> for u64 {
    fn store(key: &u64) -> Self {
        *key
    }
}

impl Stored<str> for Arc<str> {
    fn store(key: &str) -> Self {
        key.into()
    }
}

impl<K, V> State<K, V> {
    fn next_ticket(&self) -> u64 {
        self.head + self.queued.len() as u64
    }
}

impl<K: Hash + Eq + Clone, V: Default> SingleLock<K, V> {
    fn create() -> Self {
        Self {
            hasher: CachePadded::default(),
            state: CachePadded::new(Mutex::new(State {
                tickets: HashTable::new(),
                queued: VecDeque::new(),
                head: DIRTY + 1,
                sleepers: 0,
                shut_down: false,
            })),
            ready: CachePadded::default(),
            wake_up: Condvar::new(),
        }
    }

    /// Adds a key: an idle one with what `own` returns, a known one by `merge`.
    #[inline]
    fn add_with(
        &self,
        hash: u64,
        is_same: impl Fn(&K) -> bool,
        own: impl FnOnce() -> (K, V),
        merge: impl FnOnce(&mut V),
    ) {
        let mut state = self.state.lock();
        if self.add_locked(&mut state, hash, is_same, own, merge) {
            self.pushed(state, 1);
        }
    }

    /// Adds a key, and returns whether it is queued now.
    #[inline]
    fn add_locked(
        &self,
        state: &mut State<K, V>,
        hash: u64,
        is_same: impl Fn(&K) -> bool,
        own: impl FnOnce() -> (K, V),
        merge: impl FnOnce(&mut V),
    ) -> bool {
        if state.shut_down {
            return false;
        }
        let ticket = state.next_ticket();
        let rehash = |(key, ..): &(K, u64, V)| self.hasher.hash_one(key);
        match state.tickets.entry(hash, |(key, ..)| is_same(key), rehash) {
            Entry::Occupied(mut known) => {
                let (_, known, values) = known.get_mut();
                if *known < state.head {
                    *known = DIRTY;
                    merge(values);
                } else if let Some((_, values)) =
                    state.queued.get_mut((*known - state.head) as usize)
                {
                    merge(values);
                }
                false
            }
            Entry::Vacant(place) => {
                let (key, values) = own();
                place.insert((key.clone(), ticket, V::default()));
                state.queued.push_back((key, values));
                true
            }
        }
    }

    /// Unlocks, after `keys` were queued, and wakes consumers.
    #[inline]
    fn pushed(&self, mut state: MutexGuard<'_, State<K, V>>, keys: usize) {
        if state.queued.len() == keys {
            // Ordering: Relaxed; a hint; a consumer that sees it takes the lock.
            self.ready.store(true, Ordering::Relaxed);
        }
        let wakes = keys.min(state.sleepers);
        if wakes > 0 {
            state.sleepers -= wakes;
            drop(state);
            (0..wakes).for_each(|_| _ = self.wake_up.notify_one());
        }
    }

    #[inline]
    fn pop(&self, state: &mut State<K, V>) -> Option<(K, V)> {
        let queued = state.queued.pop_front()?;
        state.head += 1;
        if state.queued.is_empty() {
            // Ordering: Relaxed; a hint.
            self.ready.store(false, Ordering::Relaxed);
        }
        Some(queued)
    }

    #[inline]
    fn next(&self) -> Option<(K, V)> {
        let mut state = self.state.lock();
        let queued = self.pop(&mut state);
        queued.or_else(|| self.wait(state))
    }

    /// Pops up to `most` keys with the lock taken once, after waiting for the first.
    fn next_some(&self, most: usize, queued: &mut Vec<(K, V)>) {
        let mut pop = || {
            let mut state = self.state.lock();
            queued.extend((0..most).map_while(|_| self.pop(&mut state)));
            queued.is_empty().then_some(state)
        };
        if let Some(state) = pop() {
            let first = self.wait(state);
            queued.extend(first);
            if !queued.is_empty() && most > 1 {
                let mut state = self.state.lock();
                queued.extend((1..most).map_while(|_| self.pop(&mut state)));
            }
        }
    }

    #[cold]
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State<K, V>>) -> Option<(K, V)> {
        while !state.shut_down {
            drop(state);
            spin(&self.ready);
            state = self.state.lock();
            if state.queued.is_empty() && !state.shut_down {
                state.sleepers += 1;
                self.wake_up.wait(&mut state);
            }
            if let Some(queued) = self.pop(&mut state) {
                return Some(queued);
            }
        }
        self.pop(&mut state)
    }

    /// Ends the processing of a key, whose values are handled. What they leave is used again.
    #[inline]
    fn finish(&self, key: K, handled: V) {
        let hash = self.hasher.hash_one(&key);
        let mut state = self.state.lock();
        match self.finish_locked(&mut state, hash, key, handled) {
            None => self.pushed(state, 1),
            finished => {
                drop(state);
                drop(finished);
            }
        }
    }

    /// Ends the processing of keys with the lock taken once.
    fn finish_all(&self, keys: &mut Vec<(K, V)>) {
        let hashes: Vec<u64> = keys
            .iter()
            .map(|(key, _)| self.hasher.hash_one(key))
            .collect();
        let mut finished = Vec::with_capacity(keys.len());
        let mut state = self.state.lock();
        let mut pushed = 0;
        for (hash, (key, handled)) in hashes.into_iter().zip(keys.drain(..)) {
            match self.finish_locked(&mut state, hash, key, handled) {
                None => pushed += 1,
                done => finished.push(done),
            }
        }
        match pushed {
            0 => drop(state),
            _ => self.pushed(state, pushed),
        }
        drop(finished);
    }

    /// Ends the processing of a key. Returns what is to be dropped, or `None` if the key is queued again.
    #[inline]
    fn finish_locked(
        &self,
        state: &mut State<K, V>,
        hash: u64,
        key: K,
        handled: V,
    ) -> Option<(K, K, V)> {
        let ticket = state.next_ticket();
        let Ok(mut known) = state.tickets.find_entry(hash, |(known, ..)| *known == key) else {
            unreachable!("a key that is processed is in the map");
        };
        let (_, known_ticket, values) = known.get_mut();
        if *known_ticket == DIRTY {
            *known_ticket = ticket;
            let values = mem::replace(values, handled);
            state.queued.push_back((key, values));
            None
        } else {
            let ((known, ..), _) = known.remove();
            Some((known, key, handled))
        }
    }

    fn end(&self) {
        self.state.lock().shut_down = true;
        // Ordering: Relaxed; a hint.
        self.ready.store(true, Ordering::Relaxed);
        self.wake_up.notify_all();
    }
}

impl<Q: Key + ?Sized, K: Stored<Q>> Queue<Q> for SingleLock<K> {
    type Key = K;
    type Item<'a> = K;

    fn new() -> Self {
        Self::create()
    }

    fn key(item: &K) -> &Q {
        item.borrow()
    }

    fn add(&self, key: K) {
        let hash = self.hasher.hash_one(&key);
        self.add_with(hash, |known| *known == key, || (key.clone(), ()), |()| ());
    }

    fn add_ref(&self, key: &Q) {
        let hash = self.hasher.hash_one(key);
        self.add_with(
            hash,
            |known| known.borrow() == key,
            || (K::store(key), ()),
            |()| (),
        );
    }

    fn add_all(&self, keys: impl Iterator<Item = K>) {
        let keys: Vec<(u64, K)> = keys.map(|key| (self.hasher.hash_one(&key), key)).collect();
        let mut state = self.state.lock();
        let mut queued = 0;
        for (hash, key) in &keys {
            let own = || (key.clone(), ());
            let is_queued = self.add_locked(&mut state, *hash, |known| known == key, own, |()| ());
            queued += usize::from(is_queued);
        }
        if queued > 0 {
            self.pushed(state, queued);
        }
    }

    fn deliver_some(&self, most: usize, delivered: &mut Tally) {
        let mut keys = Vec::with_capacity(most);
        self.next_some(most, &mut keys);
        keys.iter()
            .for_each(|(key, ())| delivered.count(key.borrow()));
        self.finish_all(&mut keys);
    }

    fn deliver_batches(&self, most: usize) -> Tally {
        let mut delivered = Tally::default();
        let mut keys = Vec::with_capacity(most);
        loop {
            self.next_some(most, &mut keys);
            if keys.is_empty() {
                return delivered;
            }
            keys.iter()
                .for_each(|(key, ())| delivered.count(key.borrow()));
            self.finish_all(&mut keys);
        }
    }

    fn get(&self) -> Option<K> {
        self.next().map(|(key, ())| key)
    }

    fn done(&self, key: K) {
        self.finish(key, ());
    }

    fn len(&self) -> usize {
        self.state.lock().queued.len()
    }

    fn shut_down(&self) {
        self.end();
    }

    fn shrink(&self) {
        let State {
            queued, tickets, ..
        } = &mut *self.state.lock();
        queued.shrink_to_fit();
        tickets.shrink_to_fit(|(key, ..)| self.hasher.hash_one(key));
    }
}

/// Has no wakers, and needs none: no worker of a backlog waits before all keys are done.
impl Tasked for SingleLock<u64> {
    async fn get_in_task(&self) -> Option<u64> {
        loop {
            {
                let mut state = self.state.lock();
                let queued = self.pop(&mut state);
                if queued.is_some() || state.shut_down {
                    return queued.map(|(key, ())| key);
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

thread_local! {
    /// The inbox of the next key that is new, allocated without the lock.
    static SPARE: Cell<Vec<Event>> = const { Cell::new(Vec::new()) };
}

impl Inboxes for SingleLock<u64, Vec<Event>> {
    fn new(_workers: usize) -> Self {
        Self::create()
    }

    fn put(&self, key: u64, event: Event) {
        let hash = self.hasher.hash_one(key);
        let mut spare = SPARE.take();
        spare.reserve_exact(1);
        let own = || {
            let mut events = mem::take(&mut spare);
            events.push(event);
            (key, events)
        };
        let merge = |events: &mut Vec<Event>| events.push(event);
        self.add_with(hash, |known| *known == key, own, merge);
        SPARE.set(spare);
    }

    fn put_all(&self, events: impl Iterator<Item = (u64, Event)>) {
        // A buffer for each, in case that its key is idle; what is not needed is freed without the lock.
        let mut spares = Vec::with_capacity(events.size_hint().0);
        let hashed = |(key, event)| {
            spares.push(Vec::with_capacity(1));
            (self.hasher.hash_one(key), key, event)
        };
        let events: Vec<(u64, u64, Event)> = events.map(hashed).collect();
        let mut state = self.state.lock();
        let mut queued = 0;
        for (hash, key, event) in events {
            let own = || {
                let mut events = spares.pop().unwrap_or_default();
                events.push(event);
                (key, events)
            };
            let merge = |events: &mut Vec<Event>| events.push(event);
            let is_queued = self.add_locked(&mut state, hash, |known| *known == key, own, merge);
            queued += usize::from(is_queued);
        }
        if queued > 0 {
            self.pushed(state, queued);
        }
    }

    fn deliver_batches(&self, most: usize, mut work: impl FnMut(u64, &[Event])) {
        let mut keys = Vec::with_capacity(most);
        loop {
            self.next_some(most, &mut keys);
            if keys.is_empty() {
                return;
            }
            for (key, events) in &mut keys {
                work(*key, events);
                events.clear();
            }
            self.finish_all(&mut keys);
        }
    }

    fn deliver(&self, mut work: impl FnMut(u64, &[Event])) {
        while let Some((key, mut events)) = self.next() {
            work(key, &events);
            events.clear();
            self.finish(key, events);
        }
    }

    fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.queued.is_empty() && state.tickets.is_empty()
    }

    fn shut_down(&self) {
        self.end();
    }
}
