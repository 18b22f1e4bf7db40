//! The reference queue.

mod end;

use std::collections::{BTreeMap, BTreeSet};

use keyqueue::{Added, GetError, LeftReason, State};

use crate::delays::Delays;
use crate::limit::NaiveLimits;
use crate::op::{Settings, Setup};
use crate::seen::{Seen, Since};
use crate::turns::Turns;
use crate::waiters::Waiters;

/// The queue as its documentation has it, for one thread.
///
/// Getters and drainers that wait are numbers of the caller's choice.
#[derive(Clone, Debug, Default)]
pub struct Naive<K> {
    queued: Turns<K>,
    /// With the level at which it was delivered.
    processing: BTreeMap<K, usize>,
    /// Whether other levels had keys, too, when the last key was taken.
    counted: bool,
    /// Those of `processing` that were added again, and at which level.
    dirty: BTreeMap<K, usize>,
    /// The keys that were queued or dirty as retries when they last were.
    retries: BTreeSet<K>,
    /// How many handles each key has.
    pins: BTreeMap<K, usize>,
    pub delays: Delays<K>,
    /// Since when each key is where it is.
    since: Since<K>,
    pub limits: NaiveLimits<K>,
    /// Whether a plain add ends a pending delay.
    supersede: bool,
    /// Whether adds wait for the retry of their key.
    wait_for_retries: bool,
    /// Whether a drain delivers what is delayed.
    drain_delays: bool,
    capacity: Option<usize>,
    shut_down: bool,
    /// The drains that deliver keys again that are retried.
    redelivers: usize,
    /// The retries that were refused.
    refused: usize,
    /// What was accepted and will not be delivered.
    left: BTreeMap<K, LeftReason>,
    /// How often drainers were told to go.
    releases: usize,
    /// The delays that a shut-down has dropped.
    dropped: usize,
    /// Who waits for a key.
    pub getters: Waiters,
    /// Who waits for the queue to come to rest.
    pub drainers: Waiters,
    /// The drainers that have begun, and how many releases there had been then.
    drains: BTreeMap<usize, usize>,
}

impl<K: Ord + Copy + Default + Into<u64>> Naive<K> {
    pub fn new(setup: Setup) -> Self {
        Naive {
            queued: Turns::new(setup),
            delays: Delays::new(setup.policy, setup.wait_for_retries, setup.tick()),
            wait_for_retries: setup.wait_for_retries,
            limits: NaiveLimits::new(setup.limits()),
            supersede: setup.supersede,
            drain_delays: setup.drain_delays,
            capacity: setup.capacity(),
            ..Naive::default()
        }
    }

    pub fn add(&mut self, key: K) -> Added {
        self.add_at(self.queued.default_level(), key)
    }

    pub fn add_at(&mut self, level: usize, key: K) -> Added {
        self.add_as(level, key, false)
    }

    fn add_as(&mut self, mut level: usize, key: K, mut retry: bool) -> Added {
        if !self.shut_down && self.delays.joins_retry(key, level) {
            return Added::Delayed;
        }
        if self.supersede
            && !self.shut_down
            && let Some(delayed) = self.delays.cancel(key)
        {
            level = level.min(delayed);
            retry = self.delays.was_retry(key);
        }
        let added = self.mark(key, level.min(self.queued.last_level()), retry);
        if added == Added::Queued {
            self.getters.wake(1);
        }
        added
    }

    /// Ends a delay now, as when it is over (X3).
    pub fn run_now(&mut self, key: K) -> Option<Added> {
        let level = self.delays.cancel(key)?;
        Some(self.add_as(level, key, self.delays.was_retry(key)))
    }

    /// Adds a key with settings (V6), unless it is refused.
    pub fn enter(&mut self, key: K, how: Settings) -> Option<Added> {
        if how.refuse && !self.has_room(key) {
            return None;
        }
        let usual = self.queued.default_level();
        let level = how.level.map_or(usual, usize::from);
        let level = level.min(self.queued.last_level());
        Some(match (how.delay, how.limit) {
            (Some(quiet), Some(limit)) => self.debounce(level, key, quiet.nanos(), limit.nanos()),
            (Some(delay), None) => self.add_at_after(level, key, delay.nanos(), false),
            (None, _) => self.add_at(level, key),
        })
    }

    /// How many keys are queued and how many delayed as retries.
    pub fn retrying(&self) -> (BTreeSet<K>, BTreeSet<K>) {
        let queued = self.queued.iter().filter(|key| self.retries.contains(key));
        let delayed = self.delays.pending();
        let delayed = delayed.filter(|key| self.delays.was_retry(**key));
        (queued.copied().collect(), delayed.copied().collect())
    }

    /// Whether a key is there already, or there is room for it (B1, B2, B5).
    fn has_room(&self, key: K) -> bool {
        // A key that is queued and delayed counts twice.
        let waits = self.queued.len() + self.delays.pending().count();
        let capacity = self.capacity.unwrap_or(0);
        let (queued, delayed) = self.retrying();
        let beyond_half = (queued.len() + delayed.len()).saturating_sub(capacity / 2);
        let used = waits - beyond_half.min(capacity);
        let is_present = self.queued.contains(&key)
            || self.processing.contains_key(&key)
            || self.delays.is_pending(key);
        let fits = self.capacity.is_none_or(|capacity| used < capacity);
        self.shut_down || is_present || fits
    }

    /// Adds a key without a word to those who wait.
    fn mark(&mut self, key: K, level: usize, retry: bool) -> Added {
        if self.shut_down {
            return Added::ShutDown;
        }
        if self.queued.contains(&key) {
            self.queued.raise(key, level);
            return Added::Merged;
        }
        if let Some(own) = self.dirty.get_mut(&key) {
            *own = level.min(*own);
            self.retries.extend(retry.then_some(key));
            return Added::Merged;
        }
        self.since.added(key, self.delays.now());
        self.retries.remove(&key);
        self.retries.extend(retry.then_some(key));
        if self.processing.contains_key(&key) {
            self.dirty.insert(key, level);
            return Added::Deferred;
        }
        self.queued.push(key, level);
        Added::Queued
    }

    /// Adds a key after this many nanoseconds.
    pub fn add_after(&mut self, key: K, nanos: u128) -> Added {
        self.add_at_after(self.queued.default_level(), key, nanos, false)
    }

    /// The same for a key that is held: it keeps its level. If the queue is shut down, a key that is dirty merges;
    /// another is delivered again at once, or is left.
    pub fn retry_after(&mut self, key: K, nanos: u128) -> Added {
        let level = self.processing[&key];
        if !self.shut_down {
            return self.add_at_after(level, key, nanos, true);
        }
        if let Some(own) = self.dirty.get_mut(&key) {
            *own = level.min(*own);
            return Added::Merged;
        }
        if self.redelivers > 0 {
            self.since.added(key, self.delays.now());
            self.dirty.insert(key, level);
            self.retries.remove(&key);
            return Added::Deferred;
        }
        self.refused += 1;
        self.leave(key, LeftReason::Refused);
        Added::ShutDown
    }

    /// Forgets what is left of keys that are idle, and have no handle.
    pub fn shrink(&mut self) {
        let mut left = std::mem::take(&mut self.left);
        left.retain(|key, _| {
            let is_held = self.processing.contains_key(key) || self.pins.contains_key(key);
            is_held || self.queued.contains(key)
        });
        self.left = left;
    }

    fn add_at_after(&mut self, mut level: usize, key: K, nanos: u128, retry: bool) -> Added {
        let waits = self.wait_for_retries && retry && nanos > 0 && !self.shut_down;
        if waits && let Some(dirty) = self.dirty.remove(&key) {
            // What made it dirty waits as well.
            level = level.min(dirty);
            self.since.waits(key);
        }
        if nanos == 0 {
            self.add_as(level, key, retry)
        } else if self.shut_down {
            Added::ShutDown
        } else if self.supersede && (self.queued.contains(&key) || self.dirty.contains_key(&key)) {
            self.mark(key, level, retry)
        } else {
            self.delays.set(key, level, nanos, retry);
            Added::Delayed
        }
    }

    /// Adds a key once it is quiet, and no later than a limit after the first such add (T4).
    fn debounce(&mut self, level: usize, key: K, quiet: u128, limit: u128) -> Added {
        let merges = self.supersede && self.will_be_delivered(key);
        if quiet.min(limit) == 0 || self.shut_down || merges {
            return self.add_at_after(level, key, quiet.min(limit), false);
        }
        self.delays.debounce(key, level, quiet, limit);
        Added::Delayed
    }

    /// Adds a key after the delay that the limiter says.
    pub fn add_limited(&mut self, key: K) -> Added {
        if self.shut_down {
            return Added::ShutDown;
        }
        self.charge(key, |queue, nanos| queue.add_after(key, nanos))
    }

    /// Charges the limiter, adds the key after its delay, and gives that back if it is not used (L14).
    fn charge(&mut self, key: K, add: impl FnOnce(&mut Self, u128) -> Added) -> Added {
        let before = self.delays.pending_tick(key);
        let wait = self.limits.when(key, self.delays.now());
        let added = add(self, wait.nanos);
        let is_used = match added {
            Added::Delayed => self.delays.pending_tick(key) != before,
            _ => matches!(added, Added::Queued | Added::Deferred),
        };
        if !is_used {
            self.limits.give_back();
        }
        added
    }

    /// The same for a key that is held: it keeps its level.
    pub fn retry(&mut self, key: K) -> Added {
        if self.shut_down {
            return self.retry_after(key, 0);
        }
        self.charge(key, |queue, nanos| queue.retry_after(key, nanos))
    }

    pub fn num_requeues(&self, key: K) -> u32 {
        self.limits.num_requeues(key, self.delays.now())
    }

    /// Adds the keys whose delays are over, and says which.
    pub fn fire_due(&mut self) -> Vec<K> {
        let due = self.delays.take_due();
        self.mark_all(&due);
        due.into_iter().map(|(key, _)| key).collect()
    }

    fn mark_all(&mut self, keys: &[(K, usize)]) {
        let mut queued = 0;
        for (key, level) in keys {
            let added = self.mark(*key, *level, self.delays.was_retry(*key));
            queued += usize::from(added == Added::Queued);
        }
        self.getters.wake(queued);
    }

    /// Adds many keys, and says how many became queued.
    pub fn add_all(&mut self, keys: impl IntoIterator<Item = K>) -> usize {
        let added = keys.into_iter().map(|key| self.add(key));
        added.filter(|added| *added == Added::Queued).count()
    }

    pub fn get(&mut self) -> Result<K, GetError> {
        if self.has_ended() {
            return Err(GetError::ShutDown);
        }
        let (key, level, counted) = self.queued.pop().ok_or(GetError::Empty)?;
        self.counted = counted;
        self.hand_out(key, level);
        Ok(key)
    }

    fn hand_out(&mut self, key: K, level: usize) {
        let before = self.processing.insert(key, level);
        assert_eq!(before, None, "a key in two states");
        self.since.handed_out(key, self.delays.now());
        if self.has_ended() {
            self.getters.wake_all();
        }
    }

    /// Gives back the turn of the key that was taken last, and is not delivered.
    pub(crate) fn refund(&mut self, held: K) {
        let level = self.processing[&held];
        self.queued.refund(held, level, self.counted);
    }

    /// Takes all keys of a queue with levels or groups.
    pub(crate) fn take_groups(&mut self) -> Option<Vec<K>> {
        if !self.queued.has_order() {
            return None;
        }
        let all = self.queued.take_all();
        for (key, level) in &all {
            self.hand_out(*key, *level);
        }
        Some(all.into_iter().map(|(key, _)| key).collect())
    }

    /// Whether nothing is queued nor will be. Keys may still be held.
    pub fn has_ended(&self) -> bool {
        let may_come = self.redelivers > 0 && !self.processing.is_empty();
        self.shut_down && self.queued.is_empty() && self.dirty.is_empty() && !may_come
    }

    pub fn would_wait(&self) -> bool {
        self.queued.is_empty() && !self.has_ended()
    }

    /// A key that is dirty is not, unless the queue is shut down.
    pub(crate) fn end_dirty(&mut self, key: K) {
        if !self.shut_down && self.dirty.remove(&key).is_some() {
            self.since.waits(key);
        }
    }

    pub fn done(&mut self, key: K) {
        let held = self.processing.remove(&key);
        assert!(held.is_some(), "done with a key not held");
        self.since.done(key);
        if let Some(level) = self.dirty.remove(&key) {
            self.queued.push(key, level);
            self.getters.wake(1);
        } else if self.is_at_rest() {
            self.end_redelivery();
            self.drainers.wake_all();
        }
    }

    /// Polls getter `who`; `None` is pending.
    pub fn poll_get(&mut self, who: usize) -> Option<Result<K, GetError>> {
        if self.getters.waits(who) {
            return None;
        }
        let overtaken = self.getters.come_back(who);
        let got = (!self.would_wait()).then(|| self.get());
        if !self.queued.is_empty() {
            self.getters.wake(overtaken);
        }
        if got.is_none() {
            self.getters.register(who);
        }
        got
    }

    /// Getter `who` does not want to wait any longer.
    pub fn drop_get(&mut self, who: usize) {
        if self.getters.leave(who) && !self.queued.is_empty() {
            self.getters.wake(1);
        }
    }

    pub fn pin(&mut self, key: K) {
        *self.pins.entry(key).or_default() += 1;
    }

    pub fn unpin(&mut self, key: K) {
        let pins = self.pins.get_mut(&key).expect("the key has a handle");
        *pins -= 1;
        if *pins == 0 {
            self.pins.remove(&key);
        }
    }

    pub fn len(&self) -> usize {
        self.queued.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    pub fn by_level(&self) -> Vec<usize> {
        self.queued.by_level()
    }

    /// The level at which a key that is held was delivered.
    pub fn level(&self, key: K) -> usize {
        self.processing[&key]
    }

    pub fn is_shutting_down(&self) -> bool {
        self.shut_down
    }

    /// How long the key waited for the delivery that is under way.
    pub fn queue_time(&self, key: K) -> u128 {
        self.since.queue_time(key)
    }

    /// Every key that is queued, held or delayed, and what can be seen of it.
    pub fn snapshot(&self) -> BTreeMap<K, Seen> {
        let mut keys: BTreeSet<K> = self.queued.iter().copied().collect();
        keys.extend(self.processing.keys());
        keys.extend(self.delays.pending());
        keys.into_iter().map(|key| (key, self.seen(key))).collect()
    }

    fn seen(&self, key: K) -> Seen {
        let state = if self.dirty.contains_key(&key) {
            State::Dirty
        } else if self.processing.contains_key(&key) {
            State::Processing
        } else if self.queued.contains(&key) {
            State::Queued
        } else {
            State::Idle
        };
        let now = self.delays.now();
        Seen {
            state,
            age: self.since.age(key, state, now),
            held: self.since.held(key, now),
            requeues: self.num_requeues(key),
            due_in: self.delays.due_in(key),
        }
    }

    /// How many keys the queue cannot forget: queued, processing, with a handle or a pending delay.
    pub fn in_use(&self) -> usize {
        let mut keys: BTreeSet<_> = self.queued.iter().collect();
        keys.extend(self.processing.keys());
        keys.extend(self.pins.keys());
        keys.extend(self.delays.pending());
        keys.len()
    }

    /// Whether the key is queued, or will be when it is done.
    pub fn will_be_delivered(&self, key: K) -> bool {
        self.queued.contains(&key) || self.dirty.contains_key(&key)
    }

    /// Checks what must hold at any moment (C9 among it).
    pub fn assert_consistent(&self) {
        let (waiting, notified) = self.getters.counts();
        assert!(
            waiting == 0 || notified >= self.queued.len(),
            "{waiting} sleep beside {} keys, and {notified} were woken",
            self.queued.len(),
        );
        assert!(waiting == 0 || !self.has_ended(), "{waiting} wait forever");
        let (draining, _) = self.drainers.counts();
        let rest = self.is_at_rest();
        assert!(draining == 0 || !rest, "{draining} drain forever");
    }
}
