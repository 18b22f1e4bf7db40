//! What is behind the lock of the groups: which group may deliver a key, and which waits for what.
//!
//! No user code runs here: groups come with their numbers, and names leave as reference counts.

mod forget;

use std::collections::BTreeSet;

use super::NEVER;
use super::cooling::Cooling;
use super::group::{Rules, Whereabouts};
use super::grouping::Ready;
use super::settings::Parts;
use super::table::{Line, Table};
use crate::Clock;
use crate::keys::node::{Held, Pin, Queued};
use crate::keys::seat::{GroupId, Seat, Seated};
use crate::sync::Arc;
use crate::time::nanos;
use crate::time::rate::Rate;

/// The token bucket of the whole queue (T1).
struct Pace {
    rate: Rate,
    /// When it is full, in the units of the rate.
    full: u64,
    /// When it has a token again, if a getter has missed one; [`NEVER`] if not.
    missed: u64,
}

/// A part of a queue's groups' names, to be dropped once nothing is locked: that is user code.
pub(super) type Names<G> = Vec<Arc<G>>;

/// In this order: what every push and pop changes shares the cache line of the lock.
#[repr(C)]
pub(super) struct Schedule<K, G> {
    /// The number of keys in groups.
    queued: usize,
    ready: Line,
    /// Whether there is only the group without a name. It waits for nothing (limits, rates and holds need
    /// names), so it is always in the line of those that are ready, also without keys.
    is_one: bool,
    /// Whether anything may wait for a time: a group, a key or a token.
    pub(super) waits: bool,
    /// Whether keys have become ready for which no getter was notified. Then each getter that takes a key
    /// and leaves others notifies one more.
    catches_up: bool,
    /// Whether nothing is delivered, whatever is ready (G7).
    pub(super) is_paused: bool,
    /// What follows a push of a key to a group that is ready: one key, or one that is counted.
    one: Ready,
    seated: Seated,
    pub(super) groups: Table<K, G>,
    rules: Rules,
    clock: Clock,
    /// The number of idle groups. They are in no line.
    idle: usize,
    /// The slot at which the next sweep of the table begins.
    next_swept: u32,
    /// The groups that wait for a time, by time.
    waiting: BTreeSet<(u64, u32)>,
    cooling: Option<Cooling<K>>,
    pace: Option<Pace>,
    /// Counts the ends of sweeps that are due by time, and when one is due again.
    epoch: u32,
    next_look: u64,
}

impl<K, G> Schedule<K, G> {
    /// `is_one` says that there is only the group without a name.
    pub(super) fn new(parts: Parts, is_one: bool) -> Self {
        let Parts {
            order,
            pacing,
            seated,
            clock,
        } = parts;
        let rate = |(per_second, burst)| Rate::new(per_second, burst);
        let rules = Rules {
            limit: pacing.group_limit.map(|limit| limit as u32),
            rate: pacing.group_rate.map(rate),
            levels: order.levels,
            starvation_limit: order.starvation_limit,
        };
        let interval = pacing.min_interval.map(nanos::saturating);
        let pace = pacing.dispatch_rate.map(rate);
        let one = match rules.restrict() || pace.is_some() {
            true => Ready::Counted,
            false => Ready::One,
        };
        let mut groups = Table::new();
        let unnamed = groups.insert(None, 1, &rules).number;
        let mut ready = Line::new();
        if is_one {
            groups.get(unnamed).whereabouts = Whereabouts::Ready;
            ready.push_back(&mut groups, unnamed);
        }
        Schedule {
            rules,
            seated,
            clock,
            is_one,
            waits: !is_one || interval.is_some() || pace.is_some(),
            groups,
            ready,
            idle: 0,
            next_swept: 0,
            waiting: BTreeSet::new(),
            cooling: interval.map(|interval| Cooling::new(interval, seated)),
            pace: pace.map(|rate| Pace {
                rate,
                full: 0,
                missed: NEVER,
            }),
            queued: 0,
            catches_up: false,
            is_paused: false,
            one,
            epoch: 0,
            next_look: 0,
        }
    }

    /// The group without a name.
    pub(super) fn unnamed() -> GroupId {
        GroupId {
            number: 0,
            stamp: 1,
        }
    }

    /// Creates a group. Returns also the names of some that were forgotten for it.
    pub(super) fn create(&mut self, hash: u32, name: G, weight: u32) -> (GroupId, Names<G>) {
        let forgotten = self.forget_for_new();
        let id = self.groups.insert(Some((hash, name)), weight, &self.rules);
        self.relocate(id.number);
        (id, forgotten)
    }

    /// Returns the number of a key's group, unless that is not known or was forgotten.
    #[inline]
    pub(super) fn number_of(&self, seat: &Seat) -> Option<u32> {
        match self.is_one {
            true => Some(0),
            false => self.groups.number_of(seat.group()?),
        }
    }

    /// Puts a group where it belongs. Returns whether it has become ready.
    fn relocate(&mut self, number: u32) -> bool {
        if self.is_one {
            return false;
        }
        self.relocate_named(number)
    }

    /// Like [`relocate`](Self::relocate), in a queue with `group_by`.
    fn relocate_named(&mut self, number: u32) -> bool {
        let clock = &self.clock;
        let group = self.groups.get(number);
        let from = group.whereabouts;
        let to = group.belongs(&self.rules, || clock.nanos());
        if from == to {
            return false;
        }
        group.whereabouts = to;
        match from {
            Whereabouts::Ready => {
                group.end_turn();
                self.ready.remove(&mut self.groups, number);
            }
            Whereabouts::Busy => {}
            Whereabouts::Waits(until) => _ = self.waiting.remove(&(until, number)),
            Whereabouts::Idle => self.idle -= 1,
        }
        match to {
            Whereabouts::Ready => self.ready.push_back(&mut self.groups, number),
            Whereabouts::Busy => {}
            Whereabouts::Waits(until) => _ = self.waiting.insert((until, number)),
            Whereabouts::Idle => {
                self.groups.get(number).idle_since = self.epoch;
                self.idle += 1;
            }
        }
        to == Whereabouts::Ready
    }

    /// Puts a group where it belongs that may have keys for which no getter will be notified.
    fn relocate_and_catch_up(&mut self, number: u32) -> Ready {
        let is_ready = self.relocate(number);
        self.catches_up |= is_ready;
        Ready::several(is_ready)
    }

    /// Puts the entry of a key into its group, or keeps it until its interval is over. Returns the entry if its group
    /// is not known.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Queued<K>) -> Result<Ready, Queued<K>> {
        let Some(number) = self.number_of(entry.seat(&self.seated)) else {
            return Err(entry);
        };
        let entry = match &mut self.cooling {
            None => entry,
            Some(cooling) => match cooling.keep(entry) {
                Some(entry) => entry,
                None => {
                    self.groups.get(number).cooling += 1;
                    // Its other keys may have waited for a time that has come meanwhile.
                    return Ok(self.relocate_and_catch_up(number));
                }
            },
        };
        Ok(self.push_to(number, entry))
    }

    #[inline(always)]
    fn push_to(&mut self, number: u32, entry: Queued<K>) -> Ready {
        let group = self.groups.get(number);
        group.push(entry, &self.seated);
        self.queued += 1;
        // A resume notifies a getter for what comes in a pause.
        if group.whereabouts == Whereabouts::Ready {
            return self.one_if(!self.is_paused);
        }
        // The others have waited for a time that has come meanwhile: no getter was notified for them.
        let has_others = group.queued > 1;
        // A group that was not idle may deliver fewer keys than the others: it has some in flight, or fewer tokens.
        let is_restricted = group.whereabouts != Whereabouts::Idle && self.rules.restrict();
        let is_ready = self.relocate(number);
        self.catches_up |= is_ready && has_others;
        match is_ready && !self.is_paused {
            true if has_others || is_restricted => Ready::Several,
            is_ready => self.one_if(is_ready),
        }
    }

    #[inline]
    fn one_if(&self, is_ready: bool) -> Ready {
        match is_ready {
            true => self.one,
            false => Ready::Nothing,
        }
    }

    /// Ends the wait of a key for the end of its interval. Returns the number of its group.
    fn end_wait(&mut self, entry: &Queued<K>) -> u32 {
        let number = self.number_of(entry.seat(&self.seated));
        let number = number.expect("the group of a key that waits is not forgotten");
        self.groups.get(number).cooling -= 1;
        number
    }

    /// Takes the next key, if one may be delivered now. Returns also whether another getter is to be
    /// notified.
    pub(super) fn pop(&mut self) -> Option<(Queued<K>, bool)> {
        let number = self.first_ready()?;
        let clock = &self.clock;
        if let Some(pace) = &mut self.pace {
            let now = clock.nanos();
            let next = pace.rate.nanos_after(pace.rate.next(pace.full));
            if next > now {
                pace.missed = next;
                return None;
            }
            pace.full = pace.rate.take(pace.full, pace.rate.units(now));
        }
        let group = self.groups.get(number);
        let entry = group.take(&self.rules, || clock.nanos(), &self.seated);
        let entry = entry.expect("a group that is ready has a key");
        self.queued -= 1;
        if !self.is_one {
            let goes_on = group.goes_on();
            self.relocate(number);
            if !goes_on && self.ready.len > 1 && self.ready.first() == Some(number) {
                self.ready.remove(&mut self.groups, number);
                self.ready.push_back(&mut self.groups, number);
            }
        }
        self.catches_up &= self.is_ready();
        Some((entry, self.catches_up))
    }

    /// Returns how many keys have to come until waiting for more serves a batch of at most `max` no longer: it
    /// would be full, or keys would be left because of a limit or a rate. `None` if none may be delivered now; then a
    /// getter is notified when one may be.
    pub(super) fn missing(&mut self, max: usize) -> Option<usize> {
        let mut next = Some(self.first_ready()?);
        let clock = &self.clock;
        let mut most = max;
        if let Some(pace) = &mut self.pace {
            let now = clock.nanos();
            let at = pace.rate.nanos_after(pace.rate.next(pace.full));
            if at > now {
                pace.missed = at;
                return None;
            }
            most = most.min(pace.rate.tokens(pace.full, pace.rate.units(now)));
        }
        let mut missing = most;
        let mut keys = 0;
        while keys < most
            && let Some(number) = next
        {
            let group = self.groups.get(number);
            let queued = group.queued as usize;
            let allowed = group.allowed(&self.rules, || clock.nanos());
            missing = missing.min(allowed.saturating_add(1).saturating_sub(queued));
            keys += queued;
            next = Line::after(&mut self.groups, number);
        }
        Some(missing.min(most.saturating_sub(keys)))
    }

    /// Takes all keys out, whatever they wait for.
    pub(super) fn take_all(&mut self) -> Vec<Queued<K>> {
        let numbers = self.groups.numbers();
        self.take(numbers, |_| true)
    }

    /// Takes the keys of a group out, whatever they wait for.
    pub(super) fn take_group(&mut self, id: GroupId) -> Vec<Queued<K>> {
        let numbers = self.groups.number_of(id).into_iter().collect();
        self.take(numbers, |seat| seat.group() == Some(id))
    }

    /// Takes the keys of these groups out, and those for which `is_meant` returns true of the ones that wait for the ends of their
    /// intervals.
    fn take(&mut self, numbers: Vec<u32>, is_meant: impl Fn(&Seat) -> bool) -> Vec<Queued<K>> {
        let mut all = Vec::new();
        for number in numbers {
            let group = self.groups.get(number);
            all.extend(group.take_all(&self.rules, &self.seated));
            self.relocate(number);
        }
        self.queued -= all.len();
        let cooling = self.cooling.as_mut();
        for entry in cooling.map_or(Vec::new(), |cooling| cooling.take_if(is_meant)) {
            let number = self.end_wait(&entry);
            self.groups.get(number).in_flight += u32::from(self.rules.limit.is_some());
            self.relocate(number);
            all.push(entry);
        }
        all
    }

    /// Begins the interval of a key that is delivered.
    pub(super) fn delivered(&mut self, held: &Held<K>) {
        if let Some(cooling) = &mut self.cooling {
            cooling.begin(held, self.clock.nanos());
        }
    }

    /// Gives back what was taken for the delivery of a key that is not delivered: the caller takes another
    /// one.
    pub(super) fn refund(&mut self, held: &Held<K>) -> Ready {
        if let Some(pace) = &mut self.pace {
            pace.full = pace.rate.put_back(pace.full);
        }
        let seat = held.seat(&self.seated);
        // A group that was forgotten meanwhile has a full bucket.
        let Some(number) = self.number_of(seat) else {
            return Ready::Nothing;
        };
        let group = self.groups.get(number);
        group.refund(seat.delivered(), seat.counted(), &self.rules);
        let ready = self.relocate_and_catch_up(number);
        if self.groups.get(number).whereabouts == Whereabouts::Ready {
            self.ready.remove(&mut self.groups, number);
            self.ready.push_front(&mut self.groups, number);
        }
        ready
    }

    /// Uncounts a key in flight, of groups with a limit.
    pub(super) fn end_delivery(&mut self, held: &Held<K>) -> Ready {
        // A group with keys in flight that are counted is not forgotten.
        let Some(number) = self.number_of(held.seat(&self.seated)) else {
            return Ready::Nothing;
        };
        self.groups.get(number).in_flight -= 1;
        self.relocate_and_catch_up(number)
    }

    /// Moves a queued key whose level was raised.
    pub(super) fn raise(&mut self, pin: &Pin<K>) {
        // A key in a list has a group.
        if let Some(number) = self.number_of(pin.seat(&self.seated)) {
            let keys = &mut self.groups.get(number).keys;
            // SAFETY: it is the group of the key.
            unsafe { keys.raise(pin, &self.seated) };
        }
    }

    /// Changes until when a group is held. Returns `None` if it is not known.
    pub(super) fn hold(&mut self, id: GroupId, until: impl FnOnce(u64) -> u64) -> Option<Ready> {
        let number = self.groups.number_of(id)?;
        let group = self.groups.get(number);
        group.held_until = until(group.held_until);
        Some(self.relocate_and_catch_up(number))
    }

    /// Puts what has waited long enough where it belongs.
    pub(super) fn unpark(&mut self, now: u64) -> Ready {
        let mut is_ready = false;
        while let Some(&(_, number)) = self.waiting.first().filter(|(until, _)| *until <= now) {
            is_ready |= self.relocate(number);
            // The clock is read again, and may say less than `now` only if it is not monotonic.
            if self.waiting.first().is_some_and(|first| first.1 == number) {
                break;
            }
        }
        while let Some(entry) = self.cooling.as_mut().and_then(|cooling| cooling.take(now)) {
            let number = self.end_wait(&entry);
            is_ready |= self.push_to(number, entry) != Ready::Nothing;
        }
        if let Some(pace) = &mut self.pace
            && pace.missed <= now
        {
            pace.missed = NEVER;
            is_ready |= self.is_ready();
        }
        self.catches_up |= is_ready;
        Ready::several(is_ready)
    }

    /// Returns when [`unpark`](Self::unpark) is to be called.
    pub(super) fn next(&self) -> u64 {
        let group = self.waiting.first().map_or(NEVER, |(until, _)| *until);
        let key = self.cooling.as_ref().map_or(NEVER, Cooling::next);
        let token = self.pace.as_ref().map_or(NEVER, |pace| pace.missed);
        group.min(key).min(token)
    }

    /// Returns whether a group may deliver a key, if the pace has a token for it. Never while deliveries are paused.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        !self.is_paused
            && match self.is_one {
                true => self.queued > 0,
                false => self.ready.len > 0,
            }
    }

    #[inline]
    fn first_ready(&self) -> Option<u32> {
        self.is_ready().then(|| self.ready.first()).flatten()
    }

    /// Pauses all deliveries, or lets them go on. Returns whether they were paused.
    pub(super) fn pause(&mut self, pause: bool) -> (bool, Ready) {
        let was_paused = std::mem::replace(&mut self.is_paused, pause);
        // Keys have become ready meanwhile, and the getters that were notified for them have found none.
        let goes_on = was_paused && self.is_ready();
        self.catches_up |= goes_on;
        (was_paused, Ready::several(goes_on))
    }

    /// Returns the number of queued keys.
    pub(super) fn len(&self) -> usize {
        self.queued + self.cooling.as_ref().map_or(0, |cooling| cooling.waiting)
    }

    /// Returns the number of groups with queued keys that wait for a time.
    #[cfg(feature = "metrics")]
    pub(super) fn parked(&mut self) -> usize {
        let groups = &mut self.groups;
        let has_keys = |&&(_, number): &&(u64, u32)| groups.get(number).queued > 0;
        self.waiting.iter().filter(has_keys).count()
    }

    /// Takes all names out, at the end of the queue.
    pub(super) fn take_names(&mut self) -> Names<G> {
        let mut names = Names::new();
        for number in self.groups.numbers() {
            names.extend(self.groups.get(number).name.take());
        }
        names
    }
}
