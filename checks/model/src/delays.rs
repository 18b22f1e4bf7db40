//! The delays of the reference queue: which are pending, and when they end (D1 to D8, T4, V7).

use std::collections::{BTreeMap, BTreeSet};

use crate::limit::Span;

const MILLISECOND: u64 = 1_000_000;
/// A hundred years; longer delays count as this one.
const LONGEST: u128 = 100 * 365 * 24 * 3600 * 1_000_000_000;
/// The last tick there is.
const LAST_TICK: u64 = (1 << 48) - 2;
/// The last nanosecond there is.
const END: u64 = (1 << 63) - 2;

/// Which of two delays of one key counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Policy {
    /// The one that is due earlier.
    #[default]
    Earliest,
    /// The one that is due later.
    Latest,
    /// The new one.
    Replace,
    /// The old one.
    KeepFirst,
}

/// A number for each delay, in the order in which they were set.
type Number = u64;

/// Pending delays, and the time.
#[derive(Clone, Debug, Default)]
pub struct Delays<K> {
    policy: Policy,
    /// Whether no key is added before its retry is due (V7).
    holds_retries: bool,
    /// The length of a tick in nanoseconds.
    tick: u64,
    /// Nanoseconds.
    now: u64,
    set: Number,
    /// The delay of each key that has one: its due tick and number.
    pending: BTreeMap<K, (u64, Number)>,
    /// The level of each of them.
    levels: BTreeMap<K, usize>,
    /// Those whose last delay, pending or not, was a retry.
    retries: BTreeSet<K>,
    /// The limits of those that are debounced: the tick in which each ends at the latest.
    limits: BTreeMap<K, u64>,
    /// Every delay that was set and whose time has not come, moved and cancelled ones included.
    entries: BTreeMap<(u64, Number), K>,
}

impl<K: Ord + Copy + Default> Delays<K> {
    /// No delays, at time 0; ticks of this many milliseconds.
    pub fn new(policy: Policy, holds_retries: bool, tick: u64) -> Self {
        Delays {
            policy,
            holds_retries,
            tick: tick * MILLISECOND,
            ..Delays::default()
        }
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u128 {
        self.now.into()
    }

    /// Moves the time on.
    pub fn advance(&mut self, by: Span) {
        let by = u64::try_from(by.nanos()).unwrap_or(u64::MAX);
        self.now = self.now.saturating_add(by).min(END);
    }

    /// Sets a delay of this many nanoseconds, of a retry or not, unless the one that is pending counts. That one
    /// becomes as urgent as this.
    pub fn set(&mut self, key: K, level: usize, nanos: u128, retry: bool) {
        let due = self.tick_after(nanos);
        let pending = self.pending_tick(key);
        let mut replaces = pending.is_none_or(|pending| match self.policy {
            Policy::Earliest => due < pending,
            Policy::Latest => due > pending,
            Policy::Replace => due != pending,
            Policy::KeepFirst => false,
        });
        if let Some(pending) = pending.filter(|_| self.holds_retries) {
            match (self.was_retry(key), retry) {
                (true, false) if due < pending => replaces = false,
                (false, true) if due > pending => replaces = true,
                _ => {}
            }
        }
        if replaces {
            self.limits.remove(&key);
        } else if matches!(self.policy, Policy::Earliest | Policy::Replace) {
            // A burst moves no further than to this one.
            self.limits
                .entry(key)
                .and_modify(|limit| *limit = due.min(*limit));
        }
        self.set_at(key, level, replaces.then_some(due), retry);
    }

    /// Sets or moves a debounced delay (T4), unless another one that is pending ends sooner.
    pub fn debounce(&mut self, key: K, level: usize, quiet: u128, limit: u128) {
        if self.joins_retry(key, level) {
            return;
        }
        let (quiet, limit) = (self.tick_after(quiet), self.tick_after(limit));
        let pending = self.pending_tick(key);
        let due = match (self.limits.get(&key), pending) {
            (Some(first), _) => Some(quiet.min(*first)),
            (None, Some(other)) if other <= quiet.min(limit) => None,
            _ => {
                let limit_or_other = pending.map_or(limit, |other| limit.min(other));
                self.limits.insert(key, limit_or_other);
                Some(quiet.min(limit))
            }
        };
        let moved = due.filter(|due| pending != Some(*due));
        self.set_at(key, level, moved, false);
    }

    /// Whether an add of the key waits for its retry.
    pub fn holds(&self, key: K) -> bool {
        self.holds_retries && self.is_pending(key) && self.was_retry(key)
    }

    /// Lets an add wait for the key's retry, if one is pending.
    pub fn joins_retry(&mut self, key: K, level: usize) -> bool {
        let holds = self.holds(key);
        if holds {
            self.set_at(key, level, None, false);
        }
        holds
    }

    /// The first tick that does not begin before: no delay is early.
    fn tick_after(&self, nanos: u128) -> u64 {
        let at = (self.now() + nanos.min(LONGEST)).min(u64::MAX.into()) as u64;
        at.div_ceil(self.tick).min(LAST_TICK).min(END / self.tick)
    }

    /// The tick in which a key's delay ends.
    pub fn pending_tick(&self, key: K) -> Option<u64> {
        self.pending.get(&key).map(|(due, _)| *due)
    }

    /// Sets a delay for this tick, or keeps the one that is pending.
    fn set_at(&mut self, key: K, level: usize, new: Option<u64>, retry: bool) {
        let pending = self.pending_tick(key);
        let turns = pending.is_some() && retry && !self.was_retry(key);
        if pending.is_none() || turns {
            self.retries.remove(&key);
            self.retries.extend(retry.then_some(key));
        }
        let level = pending.map_or(level, |_| level.min(self.levels[&key]));
        if pending.or(new).is_some() {
            self.levels.insert(key, level);
        }
        if let Some(due) = new {
            self.set += 1;
            self.pending.insert(key, (due, self.set));
            self.entries.insert((due, self.set), key);
        }
    }

    /// Ends a delay before its time; its level if there was one.
    pub fn cancel(&mut self, key: K) -> Option<usize> {
        self.limits.remove(&key);
        self.pending.remove(&key).map(|_| self.levels[&key])
    }

    /// Whether the key's last delay was a retry.
    pub fn was_retry(&self, key: K) -> bool {
        self.retries.contains(&key)
    }

    /// Whether a key has a delay.
    pub fn is_pending(&self, key: K) -> bool {
        self.pending.contains_key(&key)
    }

    /// The keys that have a delay.
    pub fn pending(&self) -> impl Iterator<Item = &K> {
        self.pending.keys()
    }

    /// How many nanoseconds are left of a key's delay: 0 if its tick has begun.
    pub fn due_in(&self, key: K) -> Option<u128> {
        let (due, _) = self.pending.get(&key)?;
        let left = due.saturating_mul(self.tick).saturating_sub(self.now);
        Some(left.into())
    }

    /// Ends the delays whose time has come, and says at which levels, in due order, and in one tick in that of the calls.
    pub fn take_due(&mut self) -> Vec<(K, usize)> {
        self.take(self.now / self.tick)
    }

    /// Ends all delays, in the same order.
    pub fn take_all(&mut self) -> Vec<(K, usize)> {
        self.take(u64::MAX)
    }

    fn take(&mut self, until: u64) -> Vec<(K, usize)> {
        let mut taken = Vec::new();
        while let Some(entry) = self.entries.first_entry() {
            let (stamp, key) = (*entry.key(), *entry.get());
            if stamp.0 > until {
                break;
            }
            entry.remove();
            if self.pending.get(&key) == Some(&stamp) {
                taken.extend(self.cancel(key).map(|level| (key, level)));
            }
        }
        taken
    }
}
