//! The order of a queue with groups, or with a pace: groups take turns.
//!
//! A group is a key of a table of its own ([`Keys`]), and the groups that may deliver a key are the
//! entries of a FIFO of their own, the *ring*. So what keeps keys keeps groups, too: they are interned when they
//! are needed, pinned while they have keys, and swept later.
//!
//! ```text
//!     pusher of a key                        popper
//!     find the key's group                   pop a group from the ring
//!     lock the group                         lock the group
//!       put the key in its list                take a key from its list
//!       is it out, and ready? take it in hand  is it still ready? keep it in hand
//!     unlock                                 unlock
//!     push the group to the ring             push the group to the ring
//!     notify a getter (the engine)           notify a getter (the engine)
//! ```
//!
//! # A group
//!
//! ```text
//!                       a key comes, a key is done, its time has come
//!               +-----------------------------------------------------> ring
//!               |                                                        |
//!      out, free or at its limit <---- a popper finds nothing to take ---+
//!               |                                                        |
//!               +----------------> parked until a time <-----------------+
//!                     held, or without a token
//! ```
//!
//! `Body::whereabouts` says where it is, and is written under the group's lock. The thread that writes
//! `Ring` has the group in hand, and pushes it; so a group is in one place, once.
//!
//! * **Turns** (G1). A popper takes one key, and puts the group back at the tail. A group with a weight goes
//!   to `first` instead, a ring that is popped before the other, until its turn is over.
//! * **The limit** (G2). If there is one, keys in flight are counted under the lock: `take` counts one, and
//!   `land`, when its delivery ends, uncounts it. A popper that finds a group at its limit leaves it out. The
//!   thread that lands a key of it then finds it out and ready, and pushes it. It lands the key *before* it makes
//!   it idle or queued: an idle key may be swept, and its group with it.
//! * **Rate and hold** (G5, G6). A group that has to wait for a time is parked, in a heap. A popper whose
//!   clock has passed the first time, and the timer's thread, take it out.
//! * **Pace** (T1). One bucket for all. A popper takes a token once it has a group that is ready; without one
//!   it puts the group back at the head, and returns nothing.
//! * **Intervals** (T2). A key that is queued while its interval is not over is in no list: it comes into
//!   one when its interval ends, as if it was pushed then.
//! * **Levels** (G4) are lists of one group. A key whose level rises changes its list, under the lock. If it
//!   is in none, because it is not yet pushed or already taken, nothing is done: a pusher reads the level
//!   from the key's word under the lock.
//!
//! # Memory
//!
//! A key pins its group when it is queued for the first time, and until it is swept. So the address in its seat is
//! valid, and most pushes do not look the group up. Entries of the heap have pins of their own, and so has the
//! entry of a ring whose keys a `clear` has taken out.
//!
//! # Emptiness
//!
//! A group that a popper has in hand is in no ring, so another popper may find nothing although there are
//! keys. It registers as a getter and goes to sleep; the popper with the group pushes it, and notifies a getter
//! after that.

mod find;
mod group;
pub(crate) mod grouping;
mod list;
pub(crate) mod parked;
mod rate;
pub(crate) mod settings;

use std::any::Any;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::Clock;
use crate::fifo::Fifo;
use crate::keys::Keys;
use crate::keys::node::{Held, NodeRef, Pin, Queued};
use crate::keys::seat::Seated;
use crate::keys::state::Level;
use crate::sync::GroupHasher;
use crate::sync::atomic::{AtomicU64, Ordering};
use group::{Body, Group, Move, Rules};
use grouping::{GroupCounts, Grouping};
use parked::{Cooling, Due, NEVER, Parked};
use rate::Rate;
use settings::{By, Weigh};

pub(crate) struct Groups<K, G> {
    by: By<K, G>,
    weigh: Option<Weigh<G>>,
    rules: Rules,
    seated: Seated,
    hasher: GroupHasher,
    groups: Keys<Group<K, G>>,
    /// Groups in their turn.
    first: Fifo<Group<K, G>>,
    /// Whether a group ever gets there: groups have weights, or the queue a pace.
    has_turns: bool,
    ring: Fifo<Group<K, G>>,
    parked: Parked<Group<K, G>>,
    cooling: Option<Cooling<K>>,
    /// For the whole queue, with the time at which its bucket is full.
    pace: Option<(Rate, CachePadded<AtomicU64>)>,
    /// When the pace has a token again, if a popper has missed one.
    next_token: AtomicU64,
    /// Whether each pop reads the clock.
    timed: bool,
    clock: Clock,
    wake: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

type GroupRef<K, G> = NodeRef<Group<K, G>>;

impl<K, G> Groups<K, G>
where
    K: Send + Sync + 'static,
    G: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn now(&self) -> u64 {
        self.clock.nanos()
    }

    /// Returns the time, for decisions that may depend on it.
    fn now_if_timed(&self, body: &Body<K>) -> u64 {
        match self.timed || body.held_until > 0 {
            true => self.now(),
            false => 0,
        }
    }

    /// Changes a group, which a key or the caller has pinned, and does what has to be done then. Returns whether
    /// the group was put into a ring.
    #[inline]
    fn change(&self, node: GroupRef<K, G>, change: impl FnOnce(&mut Body<K>)) -> bool {
        // SAFETY: pinned.
        let mut body = unsafe { node.get() }.key.body.lock();
        change(&mut body);
        let now = self.now_if_timed(&body);
        let next = body.changed(&self.rules, now);
        let due = Self::due(node, next);
        drop(body);
        self.carry(node, next, due)
    }

    /// Pins a group that is to be parked. Called under its lock: once it is unlocked, another thread may
    /// release it.
    fn due(node: GroupRef<K, G>, next: Move) -> Option<Due<Group<K, G>>> {
        match next {
            Move::Park(at) => {
                // SAFETY: pinned, as for `change`.
                let pin = unsafe { Pin::new(node) };
                Some(Due { at, pin })
            }
            _ => None,
        }
    }

    /// Does what has to be done with a group after it is unlocked. Returns whether it is in a ring now.
    #[inline]
    fn carry(&self, node: GroupRef<K, G>, next: Move, due: Option<Due<Group<K, G>>>) -> bool {
        match next {
            Move::Stay => return false,
            Move::Push => self.ring.push(Queued::of_new(node)),
            Move::PushFirst => self.first.push(Queued::of_new(node)),
            Move::Park(_) => {
                self.park(due);
                return false;
            }
        }
        true
    }

    #[cold]
    fn park(&self, due: Option<Due<Group<K, G>>>) {
        let Some(due) = due else { return };
        let at = due.at;
        if self.parked.put(due) {
            self.wake_at(at);
        }
    }

    fn wake_at(&self, at: u64) {
        if let Some(wake) = self.wake.get() {
            wake(at);
        }
    }

    /// Takes a token of the pace. If there is none, returns when there will be one.
    #[inline]
    fn take_token(&self, now: u64) -> Result<(), u64> {
        let Some((rate, full)) = &self.pace else {
            return Ok(());
        };
        let take = |full| (rate.next(full) <= now).then(|| rate.take(full, now));
        // Ordering: Relaxed; the word publishes nothing else.
        let taken = full.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|full| rate.next(full))
    }

    /// Has a getter woken when there is a token. The caller has put the group back into a ring before, so
    /// a thread that sees that the time has come finds the group.
    #[cold]
    fn await_token(&self, at: u64) {
        // Ordering: Release; pairs with the Acquire in `unpark`, for the group. Acquire, so that this
        // thread passes on what it replaces. All times come from one word, whose value rises but for
        // refunds, so a later one does not hide an earlier one that matters.
        if self.next_token.swap(at, Ordering::AcqRel) != at {
            self.wake_at(at);
        }
    }

    /// Pops a group in its turn, or the next one.
    fn next_group(&self) -> Option<GroupRef<K, G>> {
        let first = match self.has_turns && !self.first.is_empty() {
            true => self.first.pop(),
            false => None,
        };
        Some(first.or_else(|| self.ring.pop())?.node())
    }

    #[cold]
    fn end_keeping(&self, node: GroupRef<K, G>) {
        // SAFETY: pinned until here.
        unsafe { node.get() }.state.unpin();
    }

    /// Pins all groups.
    fn pinned(&self) -> Vec<Pin<Group<K, G>>> {
        let mut pins = Vec::new();
        for shard in self.groups.shards() {
            shard.visit(0, usize::MAX, |node| {
                // SAFETY: in the table of a shard whose lock is held.
                pins.push(unsafe { Pin::new(node) });
            });
        }
        pins
    }

    /// Returns the group of a key in flight.
    fn group_in_flight(&self, held: &Held<K>) -> GroupRef<K, G> {
        let group = held.seat(&self.seated).group();
        group.expect("a key that was delivered has a group")
    }

    /// Puts a key into its group, or keeps it until its interval is over.
    #[inline]
    fn enter(&self, entry: Queued<K>) -> bool {
        if let Some(cooling) = &self.cooling
            && let Some(first) = cooling.keep(&entry, &self.seated)
        {
            if first {
                self.wake_at(cooling.next());
            }
            return false;
        }
        let put = |body: &mut Body<K>| {
            let level = entry.state().level().unwrap_or(0);
            // SAFETY: the entry of a queued key, of this group.
            unsafe { body.push(entry.node(), level, &self.seated) };
        };
        // SAFETY: a queued node stays interned.
        let key = unsafe { &entry.node().get().key };
        self.change(self.group_of(key, entry.seat(&self.seated)), put)
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

    fn push(&self, entry: Queued<K>) {
        self.enter(entry);
    }

    fn pop(&self) -> Option<(Queued<K>, bool)> {
        let unparked = self.next() != NEVER && self.unpark() > 0;
        while let Some(node) = self.next_group() {
            // SAFETY: a group in a ring has keys, or a pin, and stays interned.
            let group = &unsafe { node.get() }.key;
            let mut body = group.body.lock();
            let now = self.now_if_timed(&body);
            let is_ready = body.ready_at(&self.rules).is_some_and(|at| at <= now);
            if is_ready && let Err(at) = self.take_token(now) {
                drop(body);
                self.carry(node, Move::PushFirst, None);
                self.await_token(at);
                return None;
            }
            let taken = match is_ready {
                true => body.take(&self.rules, group.weight, now, &self.seated),
                false => None,
            };
            let next = match taken {
                Some(_) => body.go_on(&self.rules, now),
                None => body.settle(&self.rules, now),
            };
            let due = Self::due(node, next);
            let was_kept = mem::take(&mut body.is_kept);
            drop(body);
            let more = self.carry(node, next, due);
            if was_kept {
                self.end_keeping(node);
            }
            if let Some((key, level)) = taken {
                // SAFETY: it was in the list, which had its one entry.
                let entry = unsafe { Queued::again(key, 0) };
                entry.seat(&self.seated).deliver(level);
                // Getters sleep that nobody else wakes: this call has unparked groups for them, or they have
                // not yet missed the next token.
                let others = (unparked || self.pace.is_some()) && !self.is_idle();
                return Some((entry, more || others));
            }
        }
        None
    }

    fn take_all(&self) -> Vec<Queued<K>> {
        let mut all = Vec::new();
        for pin in self.pinned() {
            let mut body = pin.key().body.lock();
            let (keys, keeps) = body.take_all(&self.rules, &self.seated);
            drop(body);
            all.extend(keys);
            // Otherwise the pin goes to its entry in a ring.
            if !keeps {
                pin.unpin();
            }
        }
        let waiting = self.cooling.iter();
        for key in waiting.flat_map(|cooling| cooling.take_all(&self.seated)) {
            if self.rules.limit.is_some() {
                // SAFETY: a queued node stays interned, and so does its group.
                unsafe {
                    let group = self.group_of(&key.get().key, key.behind(&self.seated));
                    group.get().key.body.lock().in_flight += 1;
                }
            }
            all.push(key);
        }
        let entry = |node: NodeRef<K>| {
            // SAFETY: it was in a list, or kept, which had its one entry.
            let entry = unsafe { Queued::again(node, 0) };
            entry
                .seat(&self.seated)
                .deliver(entry.state().level().unwrap_or(0));
            entry
        };
        all.into_iter().map(entry).collect()
    }

    fn delivered(&self, held: &Held<K>) {
        if let Some(cooling) = &self.cooling {
            cooling.begin(held, self.now(), &self.seated);
        }
    }

    fn refund(&self, held: &Held<K>) {
        if let Some((rate, full)) = &self.pace {
            // Ordering: Relaxed; as in `take_token`.
            full.fetch_sub(rate.interval(), Ordering::Relaxed);
        }
        if let Some(rate) = self.rules.rate {
            // It may have been parked for want of this token. The caller pops next.
            self.change(self.group_in_flight(held), |body| body.refund(rate));
        }
    }

    fn land(&self, held: &Held<K>) -> bool {
        self.change(self.group_in_flight(held), |body| body.in_flight -= 1)
    }

    fn raise(&self, pin: &Pin<K>, to: Level) {
        let group = self.group_of(pin.key(), pin.seat(&self.seated));
        // SAFETY: pinned, and of this group.
        self.change(group, |body| unsafe {
            body.raise(pin.node(), to, &self.seated);
        });
        pin.unpin();
    }

    fn unpark(&self) -> usize {
        let now = self.now();
        let mut ready = 0;
        while let Some(Due { at, pin }) = self.parked.take(now) {
            let node = pin.node();
            let mut body = pin.key().body.lock();
            let next = body.came_up(at, &self.rules, now);
            let due = Self::due(node, next);
            drop(body);
            ready += usize::from(self.carry(node, next, due));
            pin.unpin();
        }
        if let Some(cooling) = &self.cooling {
            while let Some(node) = cooling.take(now, &self.seated) {
                // SAFETY: its one entry was kept here.
                let entry = unsafe { Queued::again(node, 0) };
                ready += usize::from(self.enter(entry));
            }
        }
        // Ordering: Relaxed; the exchange decides.
        let at = self.next_token.load(Ordering::Relaxed);
        if at <= now {
            // Not a plain store: a popper may have stored another time meanwhile.
            let _ =
                // Ordering: Acquire; pairs with the Release in `await_token`.
                self.next_token
                    .compare_exchange(at, NEVER, Ordering::Acquire, Ordering::Relaxed);
            ready += usize::from(!self.is_idle());
        }
        ready
    }

    fn next(&self) -> u64 {
        let cooling = self.cooling.as_ref().map_or(NEVER, Cooling::next);
        // Ordering: Relaxed; a thread that stores a time wakes the driver after it.
        let token = self.next_token.load(Ordering::Relaxed);
        self.parked.next().min(cooling).min(token)
    }

    fn len(&self) -> usize {
        let mut len = self.cooling.as_ref().map_or(0, Cooling::waiting);
        for shard in self.groups.shards() {
            shard.for_each(|node| len += node.key.body.lock().queued as usize);
        }
        len
    }

    fn is_idle(&self) -> bool {
        self.first.is_empty() && self.ring.is_empty()
    }

    #[cfg(feature = "metrics")]
    fn parked(&self) -> usize {
        let mut parked = 0;
        for shard in self.groups.shards() {
            shard.for_each(|node| {
                let body = node.key.body.lock();
                parked += usize::from(body.queued > 0 && body.is_parked());
            });
        }
        parked
    }

    fn hold(&self, group: &dyn Any, until: u64) -> Option<bool> {
        let name = group.downcast_ref::<G>()?;
        let pin = self.intern(Some(name.clone()));
        let pushed = self.change(pin.node(), |body| body.held_until = until);
        pin.unpin();
        Some(pushed)
    }

    fn hold_of(&self, held: &Held<K>, until: u64) {
        self.change(self.group_in_flight(held), |body| {
            body.held_until = body.held_until.max(until);
        });
    }

    fn visit(&self, in_flight: &HashMap<NonNull<()>, usize>, f: &mut dyn FnMut(&dyn Any)) {
        let now = self.now();
        for pin in self.pinned() {
            let group = pin.key();
            let body = group.body.lock();
            let (queued, held) = (body.queued as usize, body.held_until.saturating_sub(now));
            drop(body);
            let in_flight = in_flight.get(&pin.node().0.cast()).copied().unwrap_or(0);
            let name = group.name.clone();
            pin.unpin();
            if let (true, Some(group)) = (queued + in_flight > 0 || held > 0, name) {
                f(&GroupCounts {
                    group,
                    queued,
                    in_flight,
                    held_for: (held > 0).then(|| Duration::from_nanos(held)),
                });
            }
        }
    }

    fn forget(&self) {
        if let Some(cooling) = &self.cooling {
            cooling.forget(self.now(), &self.seated);
        }
    }

    fn look(&self) -> bool {
        self.forget();
        self.groups.look(|| self.clock.rough_nanos())
    }

    fn shrink(&self) {
        self.groups.shrink();
    }
}
