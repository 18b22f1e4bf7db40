//! The bound of a queue: how much may wait, and who waits for room.
//!
//! # Protocol
//!
//! `used` is what waits for delivery, and what is *granted* to adds which have not happened yet.
//!
//! * In a queue without values, each queued key and each pending delay weighs 1. The thread that makes
//!   the key queued, or sets the delay, raises `used` *before* the change of the key's word ([`Share`]):
//!   so what a thread sees queued or delayed is counted (B1). A delay that ends, or that an add supersedes,
//!   passes its room on to the entry of its key, and exceeds the bound if that is gone meanwhile (B3). If the key
//!   turns out to be queued or processing, it needs no room: the thread lowers `used` again *before* it merges into
//!   the key, so that nobody is refused for that room afterwards (B2). The thread that begins a delivery lowers
//!   `used` after; so does one that cancels a delay, but under the lock of the shard: who finds that the key is not
//!   delayed finds its room free (B1).
//!
//!   An add of a key that is *known* (queued, processing or delayed) exceeds the bound (B1). The key may be delivered
//!   meanwhile, which makes room, and another key may take that. So the add raises `used` first, and then asks
//!   again whether the key is known: if the other key was first, that finds that it is not, for the
//!   delivery's change of `used` is between the two. If not, the other key is refused. An add whose key is not known any
//!   more tries to take room once more.
//!
//!   An add through a handle that is never refused takes no lock (F1). Between its two changes, another add of its key,
//!   which may be refused, finds no room and an idle key: it is refused, although no other key has the room.
//!   What retries takes room of its own kind ([`super::crowd`]).
//! * In a queue of values, each waiting value has its weight. Each change of it, made under the key's
//!   lock, adds the difference to `used`, under that lock, too: who finds that no value waits finds its room free (B1).
//!
//! ```text
//!     waiting add                            delivery, or whatever else makes room
//!     1 put itself at the end of the line    1 lower `used`
//!     2 publish the length of the line       2 fence(SeqCst)
//!     3 fence(SeqCst)                        3 read the length of the line; 0: done
//!     4 grant                                4 grant
//!     5 sleep until granted
//! ```
//!
//! *Grant* means: under the line's lock, as long as the first in the line fits, raise `used` by its
//! weight, take it off the line and wake it. So room goes to the first in the line, whatever the
//! others need (B2). An add that finds another in the line waits behind it, or is refused.
//!
//! The two fences guarantee that at least one side sees the other's store: no room is left unused while an add waits.
//!
//! A granted add that is cancelled gives the weight back, which grants to the next. One that happens
//! turns it into the weight of its key or value. If its key needs none, it gives the weight back, too; if
//! the key is idle again after that, and there is no room, the add waits once more.
//!
//! An add that finds no room *presses*: it ends the wait of getters that linger ([`crate::wait::linger`]), once nothing
//! is locked.
//!
//! An add in a task that waits at most until a time is also on the list `timed`, from when it is in the line. The timer's
//! thread takes it off that list when the time is over, and wakes it ([`crate::wait::linger`]). It looks at the line
//! first: granted room it uses. Otherwise it leaves the line as a cancelled one does, and then exceeds the bound. A
//! shut-down grants every request in the line, and the queue then refuses the adds.

use std::collections::btree_map::{BTreeMap, OccupiedEntry};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Arc, Mutex, assert_unlocked, fence_after_rmw};
use crate::wait::crowd::Crowd;
use crate::wait::{Slot, WaitList};

/// The greatest weight of a value, 2^40 (a tebibyte, if weights are bytes): more than can be in memory, and
/// the sum over 2^24 values fits in 64 bits.
const HEAVIEST: u64 = 1 << 40;

/// Returns a weight as it counts.
pub(crate) fn countable(weight: usize) -> usize {
    (weight as u64).min(HEAVIEST) as usize
}

pub(crate) struct Room {
    capacity: usize,
    /// Not `usize`: the weights of all keys together must fit.
    used: AtomicU64,
    /// The length of the line.
    waiting: AtomicUsize,
    /// By tickets, so that whoever leaves it visits no others.
    line: Mutex<BTreeMap<u64, Request>>,
    /// Whether the queue is shut down. Then no add waits.
    closed: AtomicBool,
    /// Getters that wait until an add finds no room.
    pub(crate) pressed: WaitList,
    /// Tasks in the line that wait at most until a time.
    pub(crate) timed: WaitList,
    pub(crate) crowd: Crowd,
}

/// A request for room, in the line: its weight, and where the add is notified that room was granted.
type Request = (usize, Arc<Slot>);

impl Room {
    pub(crate) fn new(capacity: usize) -> Self {
        Room {
            capacity,
            used: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            line: Mutex::new(BTreeMap::new()),
            closed: AtomicBool::new(false),
            pressed: WaitList::default(),
            timed: WaitList::default(),
            crowd: Crowd::new(capacity),
        }
    }

    /// A weight as it counts while an add waits for room: what is heavier than the capacity is let in
    /// when nothing else waits.
    fn clamp(&self, weight: usize) -> usize {
        weight.min(self.capacity)
    }

    fn take(&self, weight: usize) -> bool {
        let fits = |used: u64| {
            let used = used.saturating_add(weight as u64);
            (used <= self.capacity as u64).then_some(used)
        };
        // Ordering: Release, if it succeeds; pairs with the Acquire in `add`.
        self.used
            .fetch_update(Ordering::Release, Ordering::Relaxed, fits)
            .is_ok()
    }

    /// Takes room for a weight, if there is any and no add waits for it.
    fn try_take(&self, weight: usize) -> bool {
        // Ordering: Relaxed; an add that comes at the same time may be before or behind this one.
        self.waiting.load(Ordering::Relaxed) == 0 && self.take(weight)
    }

    /// Takes room, whether there is any or not.
    pub(crate) fn add(&self, weight: usize) {
        // Ordering: Acquire; pairs with the Release in `take` and in `lower`: what is asked about a key after this
        // is not older than what they followed.
        self.used.fetch_add(weight as u64, Ordering::Acquire);
    }

    /// Gives room back. Runs wakers, which are user code.
    pub(crate) fn release(&self, retry: bool, weight: usize) {
        if weight > 0 {
            self.lower_as(retry, weight);
            self.offer();
        }
    }

    /// Gives room back, which is to be [offered](Self::offer) once nothing is locked.
    #[inline]
    pub(crate) fn lower(&self, weight: usize) {
        if weight > 0 {
            // Ordering: Release; pairs with the Acquire in `add`. The load in `offer` is ordered by the fence there.
            self.used.fetch_sub(weight as u64, Ordering::Release);
        }
    }

    /// Grants room that was given back. Runs wakers, which are user code.
    pub(crate) fn offer(&self) {
        // Ordering: SeqCst; pairs with the fence in `Turn::poll`: see the protocol in the header. What is published is
        // `used` alone, by the read-modify-write of `lower`, perhaps some steps before.
        fence_after_rmw();
        // Ordering: Relaxed; ordered by the fence.
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.grant();
        }
    }

    #[cold]
    fn grant(&self) {
        loop {
            let mut line = self.line.lock();
            // Ordering: Relaxed; written under the line's lock, or before it was locked.
            let closed = self.closed.load(Ordering::Relaxed);
            let fits = |(weight, _): &Request| {
                if closed {
                    self.add(*weight);
                }
                closed || self.take(*weight)
            };
            let first = line.first_entry().filter(|first| fits(first.get()));
            let granted = first.map(OccupiedEntry::remove);
            // Ordering: Relaxed; a decrease only spares others the lock.
            self.waiting.store(line.len(), Ordering::Relaxed);
            drop(line);
            let Some((_, slot)) = granted else {
                return;
            };
            slot.notify();
            assert_unlocked();
            let _ = catch_panic(|| slot.waker.wake());
        }
    }

    /// Wakes the getters that linger, because an add has found no room. Runs wakers, which are user code.
    #[cold]
    fn press(&self) {
        self.pressed.notify_all();
    }

    /// Returns how much more fits; 0 if adds wait for room.
    pub(crate) fn free(&self) -> usize {
        // Ordering: Relaxed, both; a snapshot.
        match self.waiting.load(Ordering::Relaxed) {
            0 => (self.capacity as u64).saturating_sub(self.used.load(Ordering::Relaxed)) as usize,
            _ => 0,
        }
    }

    /// Returns how many wait for room.
    pub(crate) fn waiting(&self) -> usize {
        // Ordering: Relaxed; a snapshot.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Grants every request: the queue refuses the adds.
    pub(crate) fn close(&self) {
        let line = self.line.lock();
        // Ordering: Relaxed; written and read under the line's lock.
        self.closed.store(true, Ordering::Relaxed);
        drop(line);
        self.grant();
    }
}

/// The room of one add, or of several delays that end, in a queue that may be bounded: what it has for the
/// keys that it makes queued. Gives the rest back when it is dropped, which may run wakers.
pub(crate) struct Share<'r> {
    room: Option<&'r Room>,
    /// Room that an add has waited for, or that a delay has left, or that was taken for a key which was idle then.
    has: usize,
    /// Whether it takes room that the queue does not have.
    exceeds: bool,
    /// Whether what it has room for are retries.
    retry: bool,
    /// Whether it has given room back that no waiting add was offered yet.
    owes: bool,
    /// Whether it has found no room.
    refused: bool,
}

impl<'r> Share<'r> {
    /// The share of an add that is never refused for lack of room.
    #[inline]
    pub(crate) fn exceeding(room: Option<&'r Room>) -> Self {
        Self::new(room, 0, true)
    }

    /// The share of a retry, or of an add that is never refused.
    #[inline]
    pub(crate) fn exceeding_as(retry: bool, room: Option<&'r Room>) -> Self {
        Share {
            retry,
            ..Self::exceeding(room)
        }
    }

    /// The share of an add that is refused if there is no room, or if others wait for it.
    pub(crate) fn within(room: Option<&'r Room>) -> Self {
        Self::new(room, 0, false)
    }

    #[inline]
    fn new(room: Option<&'r Room>, has: usize, exceeds: bool) -> Self {
        Share {
            room,
            has,
            exceeds,
            retry: false,
            owes: false,
            refused: false,
        }
    }

    /// Returns whether what becomes queued or delayed is a retry.
    #[inline]
    pub(crate) fn is_retry(&self) -> bool {
        self.retry
    }

    /// Returns whether a key may be refused.
    pub(crate) fn may_refuse(&self) -> bool {
        self.room.is_some() && !self.exceeds
    }

    /// Decides about a key that is to become queued or delayed. If it is idle, returns whether it may, and
    /// takes room for it; while `is_known` says that it is there already, it is not refused. If it is not idle, it
    /// needs no room: gives back what the share has, and returns `false` if that was any, as the key may be idle
    /// by now.
    #[inline]
    pub(crate) fn admit(&mut self, is_idle: bool, is_known: impl Fn() -> bool) -> bool {
        match self.room {
            None => true,
            Some(room) => self.admit_to(room, is_idle, is_known),
        }
    }

    // Never: the puts of queues of values, whose shares have no room, would pay for its registers.
    #[inline(never)]
    fn admit_to(&mut self, room: &Room, is_idle: bool, is_known: impl Fn() -> bool) -> bool {
        if !is_idle {
            return !self.give_back();
        }
        if self.has == 0 {
            if self.exceeds {
                self.owes |= room.add_as(self.retry, 1);
            } else if !room.try_take(1) && !self.exceed(room, is_known) {
                self.refused = true;
                return false;
            }
            self.has = 1;
        }
        true
    }

    /// Takes room that there is not, if the key is known.
    fn exceed(&mut self, room: &Room, is_known: impl Fn() -> bool) -> bool {
        if is_known() {
            room.add(1);
            // Again: see the header.
            if is_known() {
                return true;
            }
            self.lower(1);
        }
        // The key may have been all that took room, until it was delivered.
        room.try_take(1)
    }

    /// Notes that a key has become queued or delayed, with room of this share.
    #[inline]
    pub(crate) fn spend(&mut self) {
        self.has = self.has.saturating_sub(1);
    }

    /// Gives room back. Those who wait for it are offered it when the share is dropped.
    #[inline]
    fn lower(&mut self, amount: usize) {
        if let (Some(room), true) = (self.room, amount > 0) {
            room.lower_as(self.retry, amount);
            self.owes = true;
        }
    }

    /// Gives back what the share has. Returns whether that is any.
    #[inline]
    pub(crate) fn give_back(&mut self) -> bool {
        let has = mem::take(&mut self.has);
        self.lower(has);
        has > 0
    }

    /// Gives back what is left, and offers it.
    #[inline(never)]
    fn end(&mut self) {
        self.give_back();
        if let Some(room) = self.room {
            if self.owes {
                room.offer();
            }
            if self.refused {
                room.press();
            }
        }
    }

    /// Keeps the room that is left, for good, and offers none: the queue is being shut down, and whoever waits
    /// is let in once nothing is locked.
    pub(crate) fn forget(mut self) {
        (self.has, self.owes) = (0, false);
    }

    /// Takes the room of a delay that has ended, or that the add supersedes, of a retry or not. From now on the share
    /// exceeds the bound: what was delayed is added (B3).
    #[inline]
    pub(crate) fn receive(&mut self, retry: bool) {
        if self.retry != retry {
            self.give_back();
            self.retry = retry;
        }
        self.has += usize::from(self.room.is_some());
        self.exceeds = true;
    }
}

impl Drop for Share<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.room.is_some() {
            self.end();
        }
    }
}

/// An add that waits for room: a future that is ready when it has room for its weight, which it gives
/// back when it is dropped.
pub(crate) struct Turn<'r> {
    room: &'r Room,
    weight: usize,
    state: State,
}

enum State {
    New,
    Waiting(u64, Arc<Slot>),
    /// The turn has room for its weight.
    Granted,
}

impl<'r> Turn<'r> {
    pub(crate) fn new(room: &'r Room, weight: usize) -> Self {
        Turn {
            room,
            weight: room.clamp(weight),
            state: State::New,
        }
    }

    pub(crate) fn room(&self) -> &'r Room {
        self.room
    }

    /// Takes the room that the turn has, for what is added.
    pub(crate) fn take(&mut self) -> usize {
        mem::take(&mut self.weight)
    }

    /// Turns the room of a turn that has it into that of an add.
    pub(crate) fn share(mut self) -> Share<'r> {
        Share::new(Some(self.room), self.take(), false)
    }

    /// Returns a turn that has room, unless there is none or others wait for it.
    pub(crate) fn try_new(room: &'r Room, weight: usize) -> Option<Self> {
        let weight = room.clamp(weight);
        if !room.try_take(weight) {
            room.press();
            return None;
        }
        Some(Turn {
            room,
            weight,
            state: State::Granted,
        })
    }
}

impl Future for Turn<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let room = self.room;
        if matches!(self.state, State::New) {
            if room.try_take(self.weight) {
                self.state = State::Granted;
                return Poll::Ready(());
            }
            let slot = Slot::new(context.waker());
            let mut line = room.line.lock();
            // Perhaps that of one that was granted, which is no longer in the line.
            let ticket = line.last_key_value().map_or(0, |(last, _)| last + 1);
            line.insert(ticket, (self.weight, Arc::clone(&slot)));
            // Ordering: Relaxed; ordered by the fence.
            room.waiting.store(line.len(), Ordering::Relaxed);
            drop(line);
            self.state = State::Waiting(ticket, slot);
            // Ordering: SeqCst; pairs with the fence in `offer`: see the protocol in the header.
            fence(Ordering::SeqCst);
            room.grant();
            room.press();
        }
        if let State::Waiting(_, slot) = &self.state {
            if !slot.is_notified(context.waker()) {
                return Poll::Pending;
            }
            self.state = State::Granted;
        }
        Poll::Ready(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let room = self.room;
        if let State::Waiting(ticket, slot) = &self.state {
            let mut line = room.line.lock();
            let mine = line.get(ticket).filter(|mine| Arc::ptr_eq(&mine.1, slot));
            let left = mine.is_some().then(|| line.remove(ticket));
            // Ordering: Relaxed; a decrease only spares others the lock.
            room.waiting.store(line.len(), Ordering::Relaxed);
            drop(line);
            if left.is_some() {
                // This one may have been too heavy, and the next one is not.
                return room.grant();
            }
        }
        if !matches!(self.state, State::New) {
            room.release(false, self.weight);
        }
    }
}
