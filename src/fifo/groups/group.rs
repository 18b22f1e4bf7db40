//! One group: its queued keys, and when one of them may be delivered.
//!
//! All of it is plain data behind the lock of the groups. [`super`] has the protocol.

use crate::sync::Arc;

use super::list::Levels;
use super::table::Links;
use crate::keys::node::Queued;
use crate::keys::seat::Seated;
use crate::keys::state::Level;
use crate::time::rate::Rate;

/// What is the same for all groups. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The most keys in flight. Without it, nothing counts them.
    pub(super) limit: Option<u32>,
    pub(super) rate: Option<Rate>,
    pub(super) levels: usize,
    pub(super) starvation_limit: usize,
}

impl Rules {
    /// Returns whether a group may be able to deliver fewer keys than it has.
    pub(super) fn restrict(&self) -> bool {
        self.limit.is_some() || self.rate.is_some()
    }

    /// Returns whether the delivery of this number goes to a less urgent level.
    fn relieves(&self, number: u64) -> bool {
        let limit = self.starvation_limit as u64;
        number % limit == limit - 1
    }
}

/// Where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// In the line of groups of which a key may be delivered now.
    Ready,
    /// In no line: it is at its limit, or all its keys are in flight or wait for the ends of their intervals, or it has
    /// no keys and no name.
    Busy,
    /// Among those that wait for this time, because it is held, or has no token. Without keys, until its
    /// hold is over and its bucket full, so that neither is forgotten.
    Waits(u64),
    /// In no line: it may be forgotten.
    Idle,
}

pub(super) struct Group<K, G> {
    /// `None` is the group of queues without `group_by`, and of the keys for which that has panicked.
    pub(super) name: Option<Arc<G>>,
    pub(super) hash: u32,
    pub(super) stamp: u64,
    /// The number of the next group whose name has the same hash.
    pub(super) same: u32,
    pub(super) links: Links,
    pub(super) whereabouts: Whereabouts,
    /// When it became idle, in the schedule's epochs.
    pub(super) idle_since: u32,
    pub(super) keys: Levels<K>,
    pub(super) queued: u32,
    pub(super) in_flight: u32,
    /// Keys that wait for the ends of their intervals. While there are any, the group is not forgotten.
    pub(super) cooling: u32,
    /// The number of keys in a turn, and how many are left of this one.
    weight: u32,
    turn: u32,
    /// The deliveries at which more than one level had keys.
    number: u64,
    /// The less urgent level that was preferred last.
    relieved: Level,
    /// When its bucket is full, in the units of the rate.
    full: u64,
    /// 0 if it is not held.
    pub(super) held_until: u64,
}

impl<K, G> Group<K, G> {
    pub(super) fn new(
        name: Option<Arc<G>>,
        hash: u32,
        stamp: u64,
        same: u32,
        weight: u32,
        rules: &Rules,
    ) -> Self {
        Group {
            name,
            hash,
            stamp,
            same,
            links: Links::default(),
            whereabouts: Whereabouts::Busy,
            idle_since: 0,
            keys: Levels::new(rules.levels),
            queued: 0,
            in_flight: 0,
            cooling: 0,
            weight,
            turn: 0,
            number: 0,
            relieved: 0,
            full: 0,
            held_until: 0,
        }
    }

    pub(super) fn push(&mut self, entry: Queued<K>, seated: &Seated) {
        self.keys.push(entry, seated);
        self.queued += 1;
    }

    /// Returns where the group belongs; `now` reads the clock.
    pub(super) fn belongs(&mut self, rules: &Rules, now: impl Fn() -> u64) -> Whereabouts {
        let is_full = rules.limit.is_some_and(|limit| self.in_flight >= limit);
        let at = if self.queued > 0 && !is_full {
            self.held_until.max(self.at(rules, Rate::next))
        } else if self.queued > 0 || self.in_flight > 0 || self.cooling > 0 {
            return Whereabouts::Busy;
        } else {
            self.held_until.max(self.at(rules, |_, full| full))
        };
        // A group that waits for nothing costs no look at the clock.
        if at > 0 && at > now() {
            return Whereabouts::Waits(at);
        }
        self.held_until = 0;
        match (self.queued, &self.name) {
            (0, None) => Whereabouts::Busy,
            (0, Some(_)) => Whereabouts::Idle,
            _ => Whereabouts::Ready,
        }
    }

    /// Returns how many keys of a group that is ready may be delivered now.
    pub(super) fn allowed(&self, rules: &Rules, now: impl Fn() -> u64) -> usize {
        let limit = rules.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(self.in_flight) as usize
        });
        let rate = rules.rate;
        let tokens = rate.map_or(usize::MAX, |rate| rate.tokens(self.full, rate.units(now())));
        limit.min(tokens)
    }

    /// Returns when the bucket is in some state, in nanoseconds; 0 if there is none.
    fn at(&self, rules: &Rules, state: impl FnOnce(Rate, u64) -> u64) -> u64 {
        let rate = rules.rate;
        rate.map_or(0, |rate| rate.nanos_after(state(rate, self.full)))
    }

    /// Takes the next key of a group that is ready.
    pub(super) fn take(
        &mut self,
        rules: &Rules,
        now: impl Fn() -> u64,
        seated: &Seated,
    ) -> Option<Queued<K>> {
        let (level, counted) = self.choose(rules);
        let entry = self.keys.pop(level, seated)?;
        entry.seat(seated).deliver(level, counted);
        self.queued -= 1;
        self.in_flight += u32::from(rules.limit.is_some());
        if self.queued == 0 {
            // No level is owed anything, so it makes no difference whether the group is forgotten.
            (self.number, self.relieved) = (0, 0);
        }
        if let Some(rate) = rules.rate {
            self.full = rate.take(self.full, rate.units(now()));
        }
        self.turn = if self.turn == 0 {
            self.weight
        } else {
            self.turn
        } - 1;
        Some(entry)
    }

    /// Whether the group keeps its turn after a delivery, if it is ready.
    pub(super) fn goes_on(&self) -> bool {
        self.turn > 0
    }

    pub(super) fn end_turn(&mut self) {
        self.turn = 0;
    }

    /// Gives back what the delivery of a key has taken that is not delivered: its token, its place in the
    /// turn, and the number that it has drawn for its level.
    pub(super) fn refund(&mut self, level: Level, counted: bool, rules: &Rules) {
        if let Some(rate) = rules.rate {
            self.full = rate.put_back(self.full);
        }
        // A group that has left the line has a whole turn when it comes back.
        if self.whereabouts == Whereabouts::Ready {
            self.turn = self.turn.saturating_add(1).min(self.weight);
        }
        if counted && self.queued > 0 {
            self.number = self.number.wrapping_sub(1);
            if rules.relieves(self.number) {
                self.relieved = level.saturating_sub(1);
            }
        }
    }

    /// Takes all keys out, for deliveries that wait for nothing.
    pub(super) fn take_all(&mut self, rules: &Rules, seated: &Seated) -> Vec<Queued<K>> {
        let mut all = Vec::with_capacity(self.queued as usize);
        for level in 0..rules.levels as Level {
            while let Some(entry) = self.keys.pop(level, seated) {
                all.push(entry);
            }
        }
        self.queued = 0;
        (self.turn, self.number, self.relieved) = (0, 0, 0);
        if rules.limit.is_some() {
            self.in_flight += all.len() as u32;
        }
        all
    }

    /// Chooses the level of the next delivery (P1, P2): the most urgent one that has keys. If a less urgent
    /// one has keys, too, the delivery counts, and of as many of these as the starvation limit says, one
    /// goes to a less urgent level. These take turns. Returns also whether the delivery counts.
    fn choose(&mut self, rules: &Rules) -> (Level, bool) {
        if !self.keys.has_others() {
            return (0, false);
        }
        let filled = self.keys.filled();
        let first = filled.trailing_zeros() as Level;
        let others = filled & filled.wrapping_sub(1);
        if others == 0 {
            return (first, false);
        }
        let number = self.number;
        self.number = number.wrapping_add(1);
        if !rules.relieves(number) {
            return (first, true);
        }
        let behind = others & (u8::MAX << self.relieved << 1);
        let next = if behind == 0 { others } else { behind };
        self.relieved = next.trailing_zeros() as Level;
        (self.relieved, true)
    }
}
