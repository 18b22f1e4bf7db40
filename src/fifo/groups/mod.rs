//! The order of a queue with levels, groups or a pace: groups take turns. A queue without `group_by` has one
//! group.
//!
//! Everything is behind one lock, the [`Schedule`]: the groups, which of them may deliver a key, and which
//! wait for what. So each change is one step for all other threads, and each group is in one place:
//!
//! ```text
//!                       a key comes, a delivery ends, a time has come
//!               +-----------------------------------------------------> ready: a line
//!               |                                                        |
//!       idle, or at its limit <--------- a getter takes a key -----------+
//!               |                                                        |
//!               +---------------> waits for a time <---------------------+
//!                                 held, or without a token
//! ```
//!
//! * **Turns** (G1). A getter takes a key of the first group in the line, which then goes to its end. A
//!   group with a weight stays the first until its turn is over.
//! * **The limit** (G2). If there is one, keys in flight are counted: `pop` counts one, and
//!   `end_delivery` uncounts it, before the key becomes idle or queued.
//! * **Rate and hold** (G5, G6). A group that has to wait is in an ordered set of times. A getter whose
//!   clock has passed the first time, and the timer's thread, call `unpark`.
//! * **Pace** (T1). One bucket for all. A getter takes a token with the key. Without one it takes nothing,
//!   and notes when there will be one, which is a time as above.
//! * **A pause** (G7) makes nothing ready, for getters: the line stays as it is, and what comes meanwhile joins it.
//! * **Intervals** (T2) are in [`cooling`].
//! * **Levels** (G4) are lists of one group. A key whose level rises is moved to another list. If it
//!   is in none, because it is not yet pushed or already taken, nothing is done: the list that a key is
//!   pushed to is that of the level in its word.
//!
//! # User code
//!
//! `group_by`, the weights, and `Hash`, `Eq`, `Clone` and `Drop` of the groups run while this thread has no
//! lock (S15). So a name is found in steps: a group of the same hash is looked up under the lock, its name
//! is compared without it, and a new group is created only if no other of this hash has come meanwhile.
//!
//! # Memory
//!
//! A key keeps the number of its group in its seat. A group that has no keys, neither queued nor waiting for the
//! ends of their intervals, and nothing to remember, is *idle*. Idle groups are forgotten after a while, or when new
//! ones are created, and created again when a key of them is queued.
//!
//! # Notifications
//!
//! A push whose key may be delivered now notifies a getter, as in a plain queue. Keys that become ready
//! otherwise (a hold ends, a token comes, a delivery ends) notify one getter, and that one, when it takes a
//! key and leaves others, notifies the next, until none is ready. Getters that linger look again at each of the
//! latter, which [`Ready`] tells apart.
//!
//! `is_ready` and `next` are copies of what is behind the lock, for getters that would find nothing. A getter
//! that reads that nothing is ready, after the fence of its registration ([`crate::wait`]), has read that
//! before the exchange to true and the fence in `with`. So it is on the list for the thread that notifies after this
//! exchange, and for all that lock the schedule later: they need no fence of their own.

mod cooling;
mod group;
pub(crate) mod grouping;
mod list;
mod schedule;
pub(crate) mod settings;
mod table;

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::keys::node::{Held, Pin, Pinned, Queued};
use crate::keys::seat::{GroupId, Seated};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::catch_panic::{catch_panic, drop_caught};
use crate::sync::{SpinLock, assert_unlocked, fence_after_rmw};
use crate::{Clock, DefaultHasher};
use cooling::is_cooling;
use grouping::{GroupCounts, Grouping, Ready};
use schedule::{Names, Schedule};
use settings::{By, Weigh};

/// No time, or the end of all time.
pub(crate) const NEVER: u64 = u64::MAX;

pub(crate) struct Groups<K, G> {
    /// `None` if there is only the group without a name.
    by: Option<By<K, G>>,
    weigh: Option<Weigh<G>>,
    hasher: DefaultHasher,
    clock: Clock,
    seated: Seated,
    schedule: CachePadded<SpinLock<Schedule<K, G>>>,
    copies: CachePadded<Copies>,
    wake: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

/// What getters read without the lock. See the header.
struct Copies {
    is_ready: AtomicBool,
    next: AtomicU64,
}

/// Drops names, which is user code, without a lock.
fn drop_names<G>(names: Names<G>) {
    assert_unlocked();
    names.into_iter().for_each(drop_caught);
}

impl<K, G> Groups<K, G> {
    /// Changes the schedule, and wakes the timer's thread for an earlier time.
    #[inline]
    fn with<R>(&self, change: impl FnOnce(&mut Schedule<K, G>) -> R) -> R {
        let mut schedule = self.schedule.lock();
        let result = change(&mut schedule);
        let copies = &*self.copies;
        let is_ready = schedule.is_ready();
        // Ordering: Relaxed, here and below; written under the lock. See the header for who reads it.
        if is_ready != copies.is_ready.load(Ordering::Relaxed) {
            match is_ready {
                // Ordering: Relaxed; a getter that reads the old value finds nothing under the lock.
                false => copies.is_ready.store(false, Ordering::Relaxed),
                true => {
                    // Ordering: Relaxed; as above.
                    copies.is_ready.swap(true, Ordering::Relaxed);
                    // Ordering: SeqCst, after the read-modify-write; pairs with the fence of a getter's
                    // registration: a getter that has read the old value is on the list for whoever notifies
                    // after this.
                    fence_after_rmw();
                }
            }
        }
        if !schedule.waits {
            return result;
        }
        // Ordering: Relaxed; as above.
        let (before, next) = (copies.next.load(Ordering::Relaxed), schedule.next());
        if next != before {
            // Ordering: Relaxed; `wake` has a fence.
            copies.next.store(next, Ordering::Relaxed);
        }
        drop(schedule);
        if next < before {
            self.wake_at(next);
        }
        result
    }

    #[cold]
    fn wake_at(&self, at: u64) {
        if let Some(wake) = self.wake.get() {
            wake(at);
        }
    }
}

impl<K, G> Groups<K, G>
where
    K: Send + Sync + 'static,
    G: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// Returns the group with this name, and creates it if it is not known. Runs user code.
    fn find(&self, mut name: G) -> GroupId {
        let hash = self.hasher.hash_one(&name) as u32;
        let mut weight = None;
        loop {
            let (first, found) = self.search(hash, &name);
            if let Some(id) = found {
                return id;
            }
            let weigh = |weigh: &Weigh<G>| catch_panic(|| weigh(&name)).unwrap_or(1).max(1);
            let weight = *weight.get_or_insert_with(|| self.weigh.as_ref().map_or(1, weigh));
            let created = self.with(|schedule| {
                let now = schedule.groups.first(hash).map(|(id, _)| id);
                // A group that has come meanwhile is before the others.
                match now == first {
                    true => Ok(schedule.create(hash, name, weight)),
                    false => Err(name),
                }
            });
            match created {
                Ok((id, forgotten)) => {
                    drop_names(forgotten);
                    return id;
                }
                Err(back) => name = back,
            }
        }
    }

    /// Returns the first group with this hash, and the one with this name.
    fn search(&self, hash: u32, name: &G) -> (Option<GroupId>, Option<GroupId>) {
        'again: loop {
            let mut candidate = self.with(|schedule| schedule.groups.first(hash));
            let first = candidate.as_ref().map(|(id, _)| *id);
            while let Some((id, other)) = candidate {
                if *other == *name {
                    return (first, Some(id));
                }
                match self.with(|schedule| schedule.groups.after(id)) {
                    Ok(next) => candidate = next,
                    Err(()) => continue 'again,
                }
            }
            return (first, None);
        }
    }

    /// Returns the group of a key. Runs user code.
    #[cold]
    fn find_of(&self, key: &K) -> GroupId {
        let Some(by) = &self.by else {
            return Schedule::<K, G>::unnamed();
        };
        assert_unlocked();
        // The panic hook reports a panic of user code. The key must not get lost for it.
        let found = catch_panic(|| self.find(by(key)));
        found.unwrap_or(Schedule::<K, G>::unnamed())
    }

    /// Pushes the entry of a key whose group is not known.
    #[cold]
    fn push_unknown(&self, mut entry: Queued<K>) -> Ready {
        loop {
            let id = self.find_of(entry.key());
            let pushed = self.with(|schedule| {
                entry.seat(&self.seated).set_group(id);
                schedule.push(entry)
            });
            match pushed {
                Ok(ready) => return ready,
                // The group was forgotten meanwhile.
                Err(back) => entry = back,
            }
        }
    }

    fn unpark(&self, now: u64) -> Ready {
        self.with(|schedule| schedule.unpark(now))
    }
}

impl<K, G> Grouping<K> for Groups<K, G>
where
    K: Send + Sync + 'static,
    G: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn wake_by(&self, wake: Box<dyn Fn(u64) + Send + Sync>) {
        // It is set once, before the queue is used.
        let _ = self.wake.set(wake);
    }

    fn runs_user_code(&self) -> bool {
        self.by.is_some()
    }

    fn push(&self, entry: Queued<K>) -> Ready {
        // The order is that of the pushes (C1): if the interval of this key is over, it does not wait for the next look,
        // and those that have waited for theirs come before it.
        let over = match is_cooling(entry.seat(&self.seated)) {
            true => self.unpark(self.clock.nanos()),
            false => Ready::Nothing,
        };
        let ready = match self.with(|schedule| schedule.push(entry)) {
            Ok(ready) => ready,
            Err(entry) => self.push_unknown(entry),
        };
        ready.max(over)
    }

    fn pop(&self) -> Option<(Queued<K>, Ready)> {
        let mut ready = Ready::One;
        let next = self.next();
        if next != NEVER {
            let now = self.clock.nanos();
            if next <= now {
                ready = ready.max(self.unpark(now));
            }
        }
        let (entry, more) = match self.is_idle() {
            true => None,
            false => self.with(Schedule::pop),
        }?;
        // If no more is ready, nothing was left of what this call has let go on.
        Some((entry, if more { ready } else { Ready::Nothing }))
    }

    fn missing(&self, max: usize) -> Option<usize> {
        match self.is_idle() {
            true => None,
            false => self.with(|schedule| schedule.missing(max)),
        }
    }

    fn take_all(&self) -> Vec<Queued<K>> {
        self.with(Schedule::take_all)
    }

    fn take_group(&self, group: &dyn Any) -> Vec<Queued<K>> {
        let Some(name) = group.downcast_ref::<G>().filter(|_| self.by.is_some()) else {
            return Vec::new();
        };
        assert_unlocked();
        // A group whose `Hash` or `Eq` panics has no keys here: see `find_of`.
        let search = || self.search(self.hasher.hash_one(name) as u32, name).1;
        let found = catch_panic(search).ok().flatten();
        found.map_or(Vec::new(), |id| {
            self.with(|schedule| schedule.take_group(id))
        })
    }

    fn are(&self, group: &dyn Any) -> bool {
        self.by.is_some() && group.is::<G>()
    }

    fn has(&self, group: &dyn Any, key: &K) -> bool {
        let (Some(by), Some(name)) = (&self.by, group.downcast_ref::<G>()) else {
            return false;
        };
        assert_unlocked();
        // As in `find_of`: it is in the group without a name.
        catch_panic(|| by(key) == *name).unwrap_or(false)
    }

    fn delivered(&self, held: &Held<K>) {
        self.with(|schedule| schedule.delivered(held));
    }

    fn refund(&self, held: &Held<K>) -> Ready {
        self.with(|schedule| schedule.refund(held))
    }

    fn end_delivery(&self, held: &Held<K>) -> Ready {
        self.with(|schedule| schedule.end_delivery(held))
    }

    fn raise(&self, pin: &Pin<K>) {
        self.with(|schedule| schedule.raise(pin));
    }

    fn unpark(&self) -> Ready {
        self.unpark(self.clock.nanos())
    }

    fn next(&self) -> u64 {
        // Ordering: Relaxed; see the header.
        self.copies.next.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.schedule.lock().len()
    }

    fn is_idle(&self) -> bool {
        // Ordering: Relaxed; see the header.
        !self.copies.is_ready.load(Ordering::Relaxed)
    }

    #[cfg(feature = "metrics")]
    fn parked(&self) -> usize {
        self.schedule.lock().parked()
    }

    fn hold(&self, group: &dyn Any, until: u64) -> Option<Ready> {
        let name = group.downcast_ref::<G>()?;
        self.by.as_ref()?;
        assert_unlocked();
        loop {
            let id = self.find(name.clone());
            // It may have been forgotten meanwhile.
            let ready = self.with(|schedule| schedule.hold(id, |_| until));
            if ready.is_some() {
                return ready;
            }
        }
    }

    fn hold_of(&self, held: &Held<K>, until: u64) -> Option<Ready> {
        self.by.as_ref()?;
        let longer = |before: u64| before.max(until);
        let mut id = held.seat(&self.seated).group();
        loop {
            let ready = id.and_then(|id| self.with(|schedule| schedule.hold(id, longer)));
            if ready.is_some() {
                return ready;
            }
            id = Some(self.find_of(held.key()));
        }
    }

    fn pause(&self, pause: bool) -> (bool, Ready) {
        self.with(|schedule| schedule.pause(pause))
    }

    fn is_paused(&self) -> bool {
        self.schedule.lock().is_paused
    }

    fn visit(&self, in_flight: &[Pinned<K>], f: &mut dyn FnMut(&dyn Any)) {
        for Pinned(pin) in in_flight {
            let seat = pin.seat(&self.seated);
            let is_known = |schedule: &mut Schedule<K, G>| schedule.number_of(seat).is_some();
            if !self.with(is_known) {
                let id = self.find_of(pin.key());
                self.with(|schedule| {
                    // If it is known now, the key may be in the list of that group, or counted in flight.
                    if !is_known(schedule) {
                        seat.set_group(id);
                    }
                });
            }
        }
        let groups = self.with(|schedule| {
            let mut counts = HashMap::new();
            for Pinned(pin) in in_flight {
                let number = schedule.number_of(pin.seat(&self.seated));
                *counts.entry(number).or_insert(0) += 1;
            }
            let mut groups = Vec::new();
            for number in schedule.groups.numbers() {
                let in_flight = counts.get(&Some(number)).copied().unwrap_or(0);
                let group = schedule.groups.get(number);
                let queued = (group.queued + group.cooling) as usize;
                let held_until = group.held_until;
                if let Some(name) = &group.name
                    && (queued + in_flight > 0 || held_until > 0)
                {
                    groups.push((name.clone(), queued, in_flight, held_until));
                }
            }
            groups
        });
        assert_unlocked();
        let now = self.clock.nanos();
        for (name, queued, in_flight, held_until) in groups {
            let held = held_until.saturating_sub(now);
            if queued + in_flight > 0 || held > 0 {
                f(&GroupCounts {
                    group: G::clone(&name),
                    queued,
                    in_flight,
                    held_for: (held > 0).then(|| Duration::from_nanos(held)),
                });
            }
        }
    }

    fn look(&self) -> bool {
        let (more, forgotten) = self.with(Schedule::look);
        drop_names(forgotten);
        more
    }

    fn next_look(&self) -> Option<u64> {
        self.schedule.lock().next_look()
    }

    fn shrink(&self, ended: bool) {
        drop_names(self.with(|schedule| schedule.shrink(ended)));
    }
}

impl<K, G> Drop for Groups<K, G> {
    fn drop(&mut self) {
        let names = self.with(Schedule::take_names);
        drop_names(names);
    }
}

#[cfg(test)]
mod tests;
