//! The reference queue of values: the reference queue of keys, and two maps of values.

use std::collections::{BTreeMap, BTreeSet};

use keyqueue::{Added, Ended, LeftReason, Remaining};

use super::Verb;
use crate::limit::{Limits, NaiveLimits, Span};
use crate::{Naive, Settings, Setup};

/// What one delivery has, or will have.
#[derive(Clone, Debug, Default)]
struct Load {
    /// The numbers that were put, oldest first.
    value: Option<Vec<u32>>,
    /// Those of `value`, or of a value that was taken, whose puts were tracked.
    receipts: Vec<u32>,
}

impl Load {
    /// Puts a newer load behind this one.
    fn append(&mut self, newer: Load) {
        if let Some(newer) = newer.value {
            self.value.get_or_insert_default().extend(newer);
        }
        self.receipts.extend(newer.receipts);
    }
}

pub(super) struct Model {
    keys: Naive<u16>,
    /// What waits for the next delivery of each key.
    waiting: BTreeMap<u16, Load>,
    /// What the delivery in progress has.
    loaded: BTreeMap<u16, Load>,
    /// The keys whose values wait for a retry.
    retries: BTreeSet<u16>,
    ended: BTreeMap<u32, Ended>,
    /// How many delays with a value to deliver a shut-down has dropped.
    dropped: usize,
    capacity: Option<usize>,
}

impl Model {
    pub(super) fn new(setup: Setup, capacity: Option<usize>, backs_off: bool) -> Self {
        let mut keys = Naive::new(Setup {
            limiter: 0,
            ..setup
        });
        if backs_off {
            keys.limits = NaiveLimits::new(Limits::unset());
        }
        Model {
            keys,
            waiting: BTreeMap::new(),
            loaded: BTreeMap::new(),
            retries: BTreeSet::new(),
            ended: BTreeMap::new(),
            dropped: 0,
            capacity,
        }
    }

    /// Adds a key, with a value if there is one.
    pub(super) fn put(&mut self, key: u16, number: Option<u32>) -> Added {
        let added = self.keys.add(key);
        self.accept(key, number, added)
    }

    fn accept(&mut self, key: u16, number: Option<u32>, added: Added) -> Added {
        if added.is_accepted() && number.is_some() {
            let value = number.map(|number| vec![number]);
            let receipts = Vec::new();
            let waiting = self.waiting.entry(key).or_default();
            waiting.append(Load { value, receipts });
        }
        added
    }

    /// Adds with settings and a value (V6), unless it is refused.
    pub(super) fn enter(
        &mut self,
        key: u16,
        number: u32,
        how: Settings,
        verb: Verb,
    ) -> Option<Added> {
        let waits = || self.waiting.iter().filter(|(_, load)| load.value.is_some());
        let retrying = waits().filter(|(key, _)| self.retries.contains(key));
        let (waits, retrying) = (waits().count(), retrying.count());
        let full = self.capacity.is_some_and(|capacity| {
            let beyond_half = retrying.saturating_sub(capacity / 2);
            waits - beyond_half.min(capacity) >= capacity
        });
        let merges = self
            .waiting
            .get(&key)
            .is_some_and(|load| load.value.is_some());
        if how.refuse && full && !merges && !self.keys.is_shutting_down() {
            return None;
        }
        // The bound of a queue of values is that of its values.
        let added = self.keys.enter(
            key,
            Settings {
                refuse: false,
                ..how
            },
        )?;
        self.accept(key, Some(number), added);
        match self.waiting.get_mut(&key) {
            _ if !verb.tracked => {}
            Some(waiting) if added.is_accepted() => waiting.receipts.push(number),
            _ => _ = self.ended.insert(number, Ended::Dropped),
        }
        Some(added)
    }

    pub(super) fn remove(&mut self, key: u16) -> Option<Vec<u32>> {
        self.keys.delays.cancel(key);
        self.retries.remove(&key);
        let has_value = self.waiting.get(&key)?.value.is_some();
        if !has_value && self.keys.will_be_delivered(key) {
            // The receipts are of adds without a value, which stay.
            return None;
        }
        let load = self.waiting.remove(&key)?;
        if has_value {
            self.keys.end_dirty(key);
        }
        self.end(&load.receipts, Ended::Dropped);
        load.value
    }

    pub(super) fn run_now(&mut self, key: u16) -> Option<Added> {
        self.keys.run_now(key)
    }

    pub(super) fn cancel(&mut self, key: u16) -> bool {
        let cancelled = self.keys.delays.cancel(key).is_some();
        if cancelled && !self.keys.will_be_delivered(key) {
            self.remove(key);
        }
        cancelled
    }

    /// Returns the next key that has a value, and the value. Those that have none are passed over.
    pub(super) fn get(&mut self) -> Option<(u16, Vec<u32>)> {
        let mut key = self.keys.get().ok()?;
        loop {
            if let Some(value) = self.load(key) {
                return Some((key, value));
            }
            self.keys.refund(key);
            self.done(key);
            key = self.keys.get().ok()?;
        }
    }

    /// Loads the value of a key that was taken.
    fn load(&mut self, key: u16) -> Option<Vec<u32>> {
        self.retries.remove(&key);
        let load = self.waiting.remove(&key).unwrap_or_default();
        let value = load.value.clone();
        self.loaded.insert(key, load);
        value
    }

    pub(super) fn loaded(&mut self, key: u16) -> Option<&mut Vec<u32>> {
        self.loaded.get_mut(&key)?.value.as_mut()
    }

    pub(super) fn take(&mut self, key: u16) -> Option<Vec<u32>> {
        self.loaded.get_mut(&key)?.value.take()
    }

    pub(super) fn done(&mut self, key: u16) {
        self.finish(key, Ended::Done);
    }

    fn finish(&mut self, key: u16, ended: Ended) {
        let load = self.loaded.remove(&key).unwrap_or_default();
        self.end(&load.receipts, ended);
        self.keys.done(key);
    }

    pub(super) fn retry(&mut self, key: u16) -> Added {
        let added = self.keys.retry(key);
        self.retried(key, added)
    }

    pub(super) fn retry_after(&mut self, key: u16, nanos: u128) -> Added {
        let added = self.keys.retry_after(key, nanos);
        self.retried(key, added)
    }

    /// Puts the value of a retry under what waits, and finishes the key.
    fn retried(&mut self, key: u16, added: Added) -> Added {
        let mut load = self.loaded.remove(&key).unwrap_or_default();
        if load.value.is_none() {
            // It was taken, and cannot be delivered again.
            self.end(&std::mem::take(&mut load.receipts), Ended::GivenUp);
        }
        load.append(self.waiting.remove(&key).unwrap_or_default());
        self.retries.extend(load.value.is_some().then_some(key));
        self.waiting.insert(key, load);
        if !added.is_accepted() {
            self.strand();
        }
        self.finish(key, Ended::Dropped);
        added
    }

    pub(super) fn clear(&mut self) -> usize {
        let mut cleared = 0;
        if let Some(keys) = self.keys.take_groups() {
            for key in keys {
                let ended = match self.load(key) {
                    Some(_) => Ended::Dropped,
                    None => Ended::Done,
                };
                cleared += usize::from(ended == Ended::Dropped);
                self.finish(key, ended);
            }
            return cleared;
        }
        for _ in 0..self.len() {
            let Some((key, _)) = self.get() else { break };
            self.finish(key, Ended::Dropped);
            cleared += 1;
        }
        cleared
    }

    pub(super) fn shut_down(&mut self) -> Remaining {
        self.count_dropped();
        let left = self.keys.shut_down();
        self.left(left)
    }

    pub(super) fn drain_now(&mut self, deliver: bool) -> Remaining {
        if !deliver {
            self.count_dropped();
        }
        let left = self.keys.drain_now();
        self.left(left)
    }

    pub(super) fn shut_down_now(&mut self) -> Remaining {
        self.count_dropped();
        let left = self.keys.shut_down_now();
        self.left(left)
    }

    /// Counts the delays that a shut-down drops, if it is the first.
    fn count_dropped(&mut self) {
        if !self.keys.is_shutting_down() {
            let has_value = |key: &u16| self.waiting.get(key).is_some_and(|it| it.value.is_some());
            let delayed = self.keys.delays.pending();
            let delayed = delayed.filter(|key| has_value(key));
            let delayed = delayed.filter(|key| !self.keys.will_be_delivered(**key));
            self.dropped = delayed.count();
        }
    }

    fn left(&mut self, mut left: Remaining) -> Remaining {
        self.strand();
        left.delayed = self.dropped;
        left
    }

    pub(super) fn take_left(&mut self) -> BTreeMap<u16, (Vec<u32>, LeftReason)> {
        self.count_dropped();
        let left = self.keys.take_left().into_iter();
        self.strand();
        left.filter_map(|(key, reason)| Some((key, (self.waiting.remove(&key)?.value?, reason))))
            .collect()
    }

    /// Reports what will not be delivered. The values stay where they are.
    fn strand(&mut self) {
        let stranded = self.waiting.iter_mut();
        let stranded = stranded.filter(|(key, _)| !self.keys.will_be_delivered(**key));
        let receipts: Vec<_> = stranded
            .flat_map(|(_, load)| std::mem::take(&mut load.receipts))
            .collect();
        self.end(&receipts, Ended::Dropped);
    }

    fn end(&mut self, receipts: &[u32], ended: Ended) {
        for number in receipts {
            let before = self.ended.insert(*number, ended);
            assert_eq!(before, None, "a receipt ends once");
        }
    }

    pub(super) fn ended(&self, number: u32) -> Option<Ended> {
        self.ended.get(&number).copied()
    }

    pub(super) fn fire_due(&mut self) -> usize {
        self.keys.fire_due().len()
    }

    pub(super) fn now(&self) -> u128 {
        self.keys.delays.now()
    }

    pub(super) fn advance(&mut self, by: Span) {
        self.keys.delays.advance(by);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.keys.is_shutting_down()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.keys.has_ended()
    }

    /// How many numbers exist.
    pub(super) fn alive(&self) -> usize {
        let loads = self.waiting.values().chain(self.loaded.values());
        loads.flat_map(|load| &load.value).map(Vec::len).sum()
    }
}
