//! The bounded part of the FIFO: a lock-free ring of links with any number of pushers and poppers.
//!
//! A push is one exchange on a slot, and so is a pop. Head and tail are only *hints* of where to
//! look. A thread stores them after its exchange, so they may lag. (Tsigas and Zhang, "A simple,
//! fast and scalable non-blocking concurrent FIFO queue", 2001, let head and tail lag in this way.
//! Here each slot holds its lap, where they alternate between two kinds of null.)
//!
//! # Positions, laps and words
//!
//! Pushes have the positions 0, 1, 2, ... With `N` slots, position `p` is in lap `p / N`, and no two
//! positions of a lap have the same slot. A slot is one word with a lap and the address of a link,
//! or no address:
//!
//! ```text
//!     empty in lap l          its position in lap l is not pushed yet
//!       | push: exchange
//!     full in lap l           it is pushed and not popped
//!       | pop: exchange
//!     empty in lap l + 1
//! ```
//!
//! Every word begins as empty in lap 0, so an unused ring is all zeros.
//!
//! # Roles
//!
//! ```text
//!     pusher                                     popper
//!     1 read the hint `tail`                     1 read the hint `head`
//!     2 skip the positions that their slots      2 skip the positions that their slots
//!       show as pushed                             show as popped
//!     3 slot full in the lap before: full        3 slot empty in this lap: none
//!     4 exchange: empty -> full, in this lap     4 exchange: full -> empty, in the next lap
//!     5 tail = the position behind               5 head = the position behind
//! ```
//!
//! # Why it is first in, first out
//!
//! Let `T` be the first position that is not pushed, and `H` the first that is not popped. No hint
//! is ahead of them: a thread stores the position behind its own, and it skipped every position
//! between the hint that it read and its own because their slots showed them as pushed or popped.
//! Each load acquires what the slot's last exchange released, so by induction all positions before
//! a hint are pushed or popped. So the exchange of step 4 is on the slot of `T` (or `H`) itself,
//! and the push (or pop) takes effect at that moment. The two results without an exchange hold at
//! the load of the slot: if the slot of `H` is empty in this lap, `H` is not pushed, so `T == H`;
//! if the slot of `T` is full in the lap before, `T - N` is not popped, so `T - H == N`.
//!
//! # Why it is lock-free
//!
//! A thread tries again only if another thread has pushed or popped meanwhile, and no thread leaves
//! a slot half-done. A thread that stops before step 5 may set the hint back by any distance later.
//! The next thread skips the difference: one step takes it to the lap that a slot shows, and at
//! most `N` further steps to the position.
//!
//! # How long a thread may sleep
//!
//! A word has room for [`LAP_BITS`] bits of the lap: 19 on 64-bit targets. If a thread sleeps
//! between steps 1 and 5 while the other threads make a multiple of 2^19 laps, or up to a lap less,
//! it takes the ring's state for an earlier one. With 1024 slots these are 537 million entries, ten
//! seconds of pushes and pops without a pause. Entries may then come out of order, or wait for
//! later pushes. None is lost or doubled: the exchange compares the whole word.

use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::keys::link::{ADDRESS_BITS, Link, has_room_for};
use crate::sync::Backoff;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The ring. It does not access the links, which are only addresses here.
pub(crate) struct Ring {
    /// The hint for the position of the next push.
    tail: CachePadded<AtomicU64>,
    /// The hint for the position of the next pop.
    head: CachePadded<AtomicU64>,
    /// The slots' words. Their number is a power of two.
    slots: Box<[AtomicU64]>,
    /// That number less one.
    mask: usize,
    /// The logarithm of that number to base two.
    slot_bits: u32,
}

/// The distance between the slots of neighbouring positions. It is longer than a cache line of
/// 64 bytes, so that a pusher and a popper who are close do not exchange words of the same line, and
/// odd, so that no two positions of a lap have the same slot.
const STRIDE: usize = 9;

/// The number of bits for the lap: those that an address leaves above, and those below that are
/// zero because a link is aligned.
const LAP_BITS: u32 = u64::BITS - ADDRESS_BITS + align_of::<Link>().trailing_zeros();

/// Laps are numbers modulo this one.
const LAPS: u64 = 1 << LAP_BITS;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    #[inline]
    fn empty(lap: u64) -> Self {
        Word(lap % LAPS)
    }

    #[inline]
    fn full(lap: u64, link: NonNull<Link>) -> Self {
        let address = link.as_ptr().expose_provenance();
        debug_assert!(has_room_for(address));
        Word(((address as u64) << (u64::BITS - ADDRESS_BITS)) | (lap % LAPS))
    }

    #[inline]
    fn link(self) -> Option<NonNull<Link>> {
        let address = (self.0 - self.0 % LAPS) >> (u64::BITS - ADDRESS_BITS);
        NonNull::new(ptr::with_exposed_provenance_mut(address as usize))
    }

    /// Returns the lap of the slot's next push.
    #[inline]
    fn next_push(self) -> u64 {
        self.0 % LAPS + u64::from(self.0 >= LAPS)
    }

    /// Returns the lap of the slot's next pop.
    #[inline]
    fn next_pop(self) -> u64 {
        self.0 % LAPS
    }
}

/// Where the first attempt of a push or a pop did not succeed: the hint, and the word of its slot. It has two words, which
/// a call passes in registers.
pub(crate) struct Missed {
    position: u64,
    word: Word,
}

impl Missed {
    /// There was no attempt: no position is this one.
    pub(crate) const SKIPPED: Self = Missed {
        position: u64::MAX,
        word: Word(0),
    };

    #[inline]
    pub(crate) fn is_skipped(&self) -> bool {
        self.position == Self::SKIPPED.position
    }
}

/// The number of back-off steps, each twice as long as the one before, for which a thread leaves a
/// contended slot alone. The winner keeps the cache lines meanwhile and can push or pop several
/// more entries; without the back-off, the lines would move for every entry.
const STEPS: u32 = 3;

impl Ring {
    /// Creates a ring for `capacity` entries, rounded up to a power of two.
    pub(crate) fn new(capacity: usize) -> Self {
        let slots = capacity.next_power_of_two();
        Ring {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            mask: slots - 1,
            slot_bits: slots.trailing_zeros(),
        }
    }

    #[inline]
    fn slot(&self, position: u64) -> &AtomicU64 {
        let index = (position as usize).wrapping_mul(STRIDE) & self.mask;
        // SAFETY: the mask is the greatest index.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// Returns by how many laps a slot's next use, in lap `next`, is ahead of `position`.
    #[inline]
    fn laps_ahead(&self, position: u64, next: u64) -> u64 {
        next.wrapping_sub(position >> self.slot_bits) % LAPS
    }

    /// Step 2: from a hint, skips the positions that are used. `next` returns the lap in which a
    /// slot is used next. Returns the first position that is not used, and its slot's word.
    #[inline]
    fn find(&self, hint: &AtomicU64, next: impl Fn(Word) -> u64) -> (u64, Word) {
        // Ordering: Acquire; pairs with the Release in `put` or `take`: all positions before are
        // used.
        let mut position = hint.load(Ordering::Acquire);
        loop {
            // Ordering: Acquire; pairs with the Release exchanges: a thread that skips a position
            // knows what the thread that used it knew of the positions before.
            let word = Word(self.slot(position).load(Ordering::Acquire));
            let laps = self.laps_ahead(position, next(word));
            if laps == 0 {
                return (position, word);
            }
            // The slot was last used in the lap before `next`: go to the position behind that use.
            position = position.wrapping_add(((laps - 1) << self.slot_bits) + 1);
        }
    }

    /// Steps 3 to 5 of a push at `tail`, whose slot has this `word`. Returns the slot's word if the
    /// push did not succeed.
    #[inline]
    fn put(
        &self,
        tail: u64,
        slot: &AtomicU64,
        word: Word,
        link: NonNull<Link>,
    ) -> Result<(), Word> {
        let lap = tail >> self.slot_bits;
        if word != Word::empty(lap) {
            return Err(word);
        }
        let full = Word::full(lap, link);
        // Ordering: Release; pairs with the Acquire loads of slots: a popper of the entry sees what
        // was written before the push. Relaxed on failure; the word only shows that it was lost.
        slot.compare_exchange(word.0, full.0, Ordering::Release, Ordering::Relaxed)
            .map_err(Word)?;
        // Ordering: Release; pairs with the Acquire loads of the hint.
        self.tail.store(tail + 1, Ordering::Release);
        Ok(())
    }

    /// Steps 3 to 5 of a pop at `head`, whose slot has this `word`. Returns the slot's word if the
    /// pop did not succeed.
    #[inline]
    fn take(&self, head: u64, slot: &AtomicU64, word: Word) -> Result<NonNull<Link>, Word> {
        let lap = head >> self.slot_bits;
        if word.next_pop() != lap % LAPS {
            return Err(word);
        }
        let Some(link) = word.link() else {
            return Err(word);
        };
        let empty = Word::empty(lap + 1);
        // Ordering: Release; pairs with the Acquire loads of slots. The load of `word` has acquired
        // what the push released. Relaxed on failure; as in `put`.
        slot.compare_exchange(word.0, empty.0, Ordering::Release, Ordering::Relaxed)
            .map_err(Word)?;
        // Ordering: Release; pairs with the Acquire loads of the hint.
        self.head.store(head + 1, Ordering::Release);
        Ok(link)
    }

    /// Pushes a link. Returns whether the ring had room.
    #[inline]
    pub(crate) fn push(&self, link: NonNull<Link>) -> bool {
        match self.try_push(link) {
            Ok(()) => true,
            Err(missed) => self.push_missed(link, missed),
        }
    }

    /// Pushes a link, if that succeeds at the first attempt. If not, the caller continues with
    /// [`push_missed`](Self::push_missed).
    #[inline]
    pub(crate) fn try_push(&self, link: NonNull<Link>) -> Result<(), Missed> {
        // Ordering: Acquire; as in `find`.
        let tail = self.tail.load(Ordering::Acquire);
        let slot = self.slot(tail);
        // Ordering: Relaxed; the word says whether an exchange is worth trying, or the ring is
        // full.
        let word = Word(slot.load(Ordering::Relaxed));
        self.put(tail, slot, word, link).map_err(|word| Missed {
            position: tail,
            word,
        })
    }

    /// Continues a push whose first attempt did not succeed.
    #[cold]
    pub(crate) fn push_missed(&self, link: NonNull<Link>, missed: Missed) -> bool {
        let put = |tail, slot: &AtomicU64, word| self.put(tail, slot, word, link);
        let pushed = self.retry(&self.tail, Word::next_push, missed, put);
        pushed.is_some()
    }

    /// Pops the oldest link. Returns `None` only if the ring was empty at some moment of the call.
    #[inline]
    pub(crate) fn pop(&self) -> Option<NonNull<Link>> {
        match self.try_pop() {
            Ok(link) => Some(link),
            Err(missed) => self.pop_missed(missed),
        }
    }

    /// Pops the oldest link, if that succeeds at the first attempt. If not, the caller continues
    /// with [`pop_missed`](Self::pop_missed).
    #[inline]
    pub(crate) fn try_pop(&self) -> Result<NonNull<Link>, Missed> {
        // Ordering: Acquire; as in `find`, here and below.
        let head = self.head.load(Ordering::Acquire);
        let slot = self.slot(head);
        let word = Word(slot.load(Ordering::Acquire));
        self.take(head, slot, word).map_err(|word| Missed {
            position: head,
            word,
        })
    }

    /// Continues a pop whose first attempt did not succeed.
    #[cold]
    pub(crate) fn pop_missed(&self, missed: Missed) -> Option<NonNull<Link>> {
        let take = |head, slot: &AtomicU64, word| self.take(head, slot, word);
        self.retry(&self.head, Word::next_pop, missed, take)
    }

    /// Continues a push or a pop that did not succeed at a position of `hint`. `next` returns the lap in which a slot is
    /// used next, and `attempt` makes steps 3 to 5. Returns `None` if the ring is full, or empty.
    #[inline]
    fn retry<R>(
        &self,
        hint: &AtomicU64,
        next: impl Fn(Word) -> u64 + Copy,
        Missed {
            mut position,
            mut word,
        }: Missed,
        attempt: impl Fn(u64, &AtomicU64, Word) -> Result<R, Word>,
    ) -> Option<R> {
        let backoff = Backoff::new();
        let lagging = position;
        loop {
            // The slot is the next one, but cannot be used: the ring is full, or empty.
            if self.laps_ahead(position, next(word)) == 0 {
                // Without this, every later thread would skip as much.
                if position != lagging {
                    // Ordering: Release; pairs with the Acquire loads of the hint.
                    hint.store(position, Ordering::Release);
                }
                return None;
            }
            // Other threads are active: leave the cache lines to them for a moment.
            (0..STEPS).for_each(|_| backoff.snooze());
            (position, word) = self.find(hint, next);
            match attempt(position, self.slot(position), word) {
                Ok(done) => return Some(done),
                Err(now) => word = now,
            }
        }
    }

    /// Returns whether the ring is empty. It does not miss an entry that is in the ring during the
    /// whole call.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.find(&self.head, Word::next_pop).1.link().is_none()
    }

    /// Returns the number of entries at some moment of the call.
    pub(crate) fn len(&self) -> usize {
        let mut tail = self.find(&self.tail, Word::next_push).0;
        loop {
            let head = self.find(&self.head, Word::next_pop).0;
            let now = self.find(&self.tail, Word::next_push).0;
            // The tail was the same before and after the head was found, so both held together.
            if now == tail {
                return (tail.wrapping_sub(head) % (LAPS << self.slot_bits)) as usize;
            }
            tail = now;
        }
    }
}

#[cfg(test)]
mod tests;
