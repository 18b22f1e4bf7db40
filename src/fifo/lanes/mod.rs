//! The order of a queue with levels: a lane for each level, instead of one FIFO.
//!
//! The lanes are plain lists behind one lock, the *scheduler*, which chooses the next key
//! ([`levels`]). The lock is held for some tens of nanoseconds, and no user code runs under it.
//! An adder never waits for it: if it is taken, the adder leaves its entry in the *intake*, a
//! lock-free [`Fifo`].
//!
//! ```text
//!     pusher                                  popper
//!     try to lock the scheduler               lock the scheduler
//!       locked: move the intake to the lanes  move the intake to the lanes
//!               put the entry into its lane   choose a lane, take its first key
//!       taken:  push the entry to the intake  unlock
//!     notify a getter (the engine)
//! ```
//!
//! # Who has a key's entry
//!
//! A queued key has one entry: it is in the intake, or in a lane, or a pusher or popper has it. The key
//! is in a lane exactly if its [`Place`](crate::keys::place::Place) says so, which only the holder of
//! the lock reads and writes. `delivered` is the exception: the popper writes it under the lock and
//! passes it on with the entry.
//!
//! # Order
//!
//! First in, first out within a level (P1), for pushes of which one returns before the other begins:
//!
//! 1. Both go to the intake: it is a FIFO.
//! 2. The first goes to the intake, the second to a lane: the second moves the intake to the lanes
//!    first, and a pop from the intake finds every entry whose push has returned.
//! 3. The first goes to a lane: the second is behind it there, or comes later from the intake.
//!
//! For the same reason a popper that finds no key may return `None`: every entry whose push had
//! returned is in a lane, and it has looked at the lanes under the lock. So the protocol of
//! [`crate::wait`] holds as it is: a getter registers, and pops once more.
//!
//! # A key that becomes more urgent (P3)
//!
//! The level of a queued key is in its state's word, and an add at a more urgent level writes it there
//! by an exchange. An entry goes to the lane of the level that the word says at that moment. An add that
//! has raised the level of a queued key then locks the scheduler and moves the key, if it is in the
//! lane of another level than the word says. There are these cases:
//!
//! * The key is in a lane: it is moved, by this add or by one that raised the level later.
//! * The entry is on its way to a lane, with a pusher or in the intake. Whoever puts it into a lane reads
//!   the word under the lock. If that was before the exchange, the adder finds the key in the lane when it
//!   has locked the scheduler. The lock orders the two: the adder's exchange comes before it locks.
//! * A popper has taken the key, and will begin its delivery: nothing is left to do, the add is merged
//!   into that delivery.
//! * The key is delivered, and queued again: then it is in the lane that the word said, which no move
//!   changes.
//!
//! The adder keeps the node pinned from the exchange until it has moved the key.

mod levels;
mod list;
mod order;

use crossbeam_utils::CachePadded;
use levels::Levels;
pub(crate) use order::Order;

use crate::fifo::Fifo;
use crate::keys::node::{Pin, Queued};
use crate::keys::place::Laned;
use crate::keys::state::Level;
use crate::sync::SpinLock;

pub(crate) struct Lanes<K> {
    /// The level of adds that name none.
    pub(crate) default_level: Level,
    pub(crate) last_level: Level,
    laned: Laned,
    intake: Fifo<K>,
    scheduler: CachePadded<SpinLock<Levels<K>>>,
}

impl<K> Lanes<K> {
    /// Lanes whose intake has a ring for `ring` entries.
    pub(crate) fn new(order: Order, ring: usize, laned: Laned) -> Self {
        Lanes {
            default_level: order.usual_level(),
            last_level: order.last_level(),
            laned,
            intake: Fifo::new(ring),
            scheduler: CachePadded::new(SpinLock::new(Levels::new(order.starvation_limit))),
        }
    }

    pub(crate) fn laned(&self) -> &Laned {
        &self.laned
    }

    #[inline]
    pub(crate) fn push(&self, entry: Queued<K>) {
        match self.scheduler.try_lock() {
            Some(mut levels) => {
                self.admit(&mut levels);
                self.put(&mut levels, entry);
            }
            None => self.intake.push(entry),
        }
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Queued<K>> {
        let mut levels = self.scheduler.lock();
        self.admit(&mut levels);
        let node = levels.pop(self.laned)?;
        // SAFETY: it was in a lane, which has the key's one entry.
        Some(unsafe { Queued::of_popped(node) })
    }

    /// Moves a key, whose level was raised, to its lane.
    #[cold]
    pub(crate) fn raise(&self, pin: &Pin<K>) {
        let mut levels = self.scheduler.lock();
        let level = pin.level();
        // SAFETY: pinned.
        unsafe { levels.move_to(pin.node(), level, self.laned) };
    }

    /// Moves the intake to the lanes.
    #[inline]
    fn admit(&self, levels: &mut Levels<K>) {
        if !self.intake.is_empty() {
            self.admit_all(levels);
        }
    }

    #[cold]
    fn admit_all(&self, levels: &mut Levels<K>) {
        while let Some(entry) = self.intake.pop() {
            self.put(levels, entry);
        }
    }

    #[inline]
    fn put(&self, levels: &mut Levels<K>, entry: Queued<K>) {
        let level = entry.state().level();
        // SAFETY: the entry was in no lane; a queued key stays interned until it is popped.
        unsafe { levels.push(entry.node(), level, self.laned) };
    }

    pub(crate) fn len(&self) -> usize {
        let mut levels = self.scheduler.lock();
        self.admit(&mut levels);
        levels.len()
    }

    /// Returns the number of queued keys of each level.
    pub(crate) fn depths(&self) -> Vec<usize> {
        let mut levels = self.scheduler.lock();
        self.admit(&mut levels);
        let depths = levels.depths();
        drop(levels);
        depths[..=usize::from(self.last_level)].to_vec()
    }
}
