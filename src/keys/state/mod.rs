//! The state of one key: two bits in one atomic word, and the transitions between them.
//!
//! # States
//!
//! | bits (processing, dirty) | state | holder of the right to the next step |
//! | --- | --- | --- |
//! | 0 0 | idle | none: the table keeps the node, a sweep may remove it |
//! | 0 1 | queued | the key's one entry in the FIFO |
//! | 1 0 | processing | the worker with the one `Held` token |
//! | 1 1 | processing-dirty | the same |
//!
//! # Transitions
//!
//! ```text
//! add     sets dirty          idle -> queued            processing -> processing-dirty
//!         sets retry if it is one, and clears it if not
//!         (no change if dirty is already set)
//! turn    sets retry          processing-dirty stays so: a failure has found it
//! begin   +1                  queued -> processing      only by the thread that popped the entry
//! finish  -2                  processing -> idle        processing-dirty -> queued
//! close   sets closed         from then on `add` is refused
//! abandon clears dirty        processing-dirty -> processing    only once closed
//!         sets abandoned      queued: its `begin` delivers nothing
//! readd   sets dirty          processing -> processing-dirty    only once closed, by the worker in a drain
//! end_dirty  clears dirty     processing-dirty -> processing    only before that, by the worker, whose retry adds wait for, or
//!                             by a thread that takes the value back for which the key is dirty
//! ```
//!
//! `retry` says that a failure has made the key queued or dirty, or has found it dirty. The thread that has begun the delivery
//! clears it ([`KeyState::clear_retry`]), so no other key has it, but one that is about to be processed.
//!
//! So `begin` and `finish` are single additions, which cannot fail and need no loop: 01 + 1 = 10,
//! and 10 - 10 = 00, 11 - 10 = 01. (Of a bounded queue, `finish` is an exchange, because what makes a
//! key queued is counted before: see `finish_counted`.)
//!
//! The other bits: `recurring` says that the key became idle and was added again since the last
//! sweep; a sweep spares such a key once. In a closed word, which no add changes, the same bit is
//! `abandoned`: the key counts as idle, and the thread that pops its entry discards it. 28 bits of
//! the key's hash never change. Three bits are the level of a key that is queued or dirty, in a queue
//! with levels: the most urgent at which it was added since its last delivery began. The next
//! bits count pins: handles and pending delays that keep the node interned. The upper two say what a
//! shut-down has left of the key ([`left`]).
//!
//! # Orderings
//!
//! Whatever a caller did before an accepted `add` is visible to the delivery that serves it, and
//! whatever a worker did before `finish` is visible to the next delivery of the key.
//!
//! *Adds that write the word* release, as does `finish`; `begin` acquires. All writes but two are
//! read-modify-writes, and continue the release sequences before them. The other two are plain
//! stores by a thread that has exclusive access to the node (see [`KeyState::add_locked`] and
//! [`KeyState::residence`]); they follow an acquiring load.
//!
//! *Adds that change nothing* (the key is queued or dirty already) only read. Adder and worker
//! could both miss the other's store, each still in its processor's store buffer: the delivery
//! would not see the data of an add that returned "merged". So both sides have a full fence in
//! between:
//!
//! ```text
//!     adder                                  worker
//!     stores data                            begin: queued -> processing
//!     fence(SeqCst)                          fence(SeqCst)
//!     reads "queued" or "dirty": merged      reads data
//! ```
//!
//! If the adder reads the value before `begin`, its fence comes first, and the worker sees the
//! data. The worker's fence, and the fence of an adder that holds a shard's lock, follow an atomic
//! read-modify-write of the same thread, and are free on x86 ([`crate::sync::fence_after_rmw`]).

mod admit;
mod begun;
pub(crate) mod left;
mod phase;
mod pins;

pub(crate) use admit::Admit;
pub(crate) use begun::Begun;
pub use phase::State;

use crate::keys::hash::ShortHash;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::fence_after_rmw;

const DIRTY: u64 = 1;
const PROCESSING: u64 = 1 << 1;
const RECURRING: u64 = 1 << 2;
const CLOSED: u64 = 1 << 3;
/// In a closed word only.
const ABANDONED: u64 = RECURRING;
/// Of a key that is queued or dirty: a failure made it so.
const RETRY: u64 = 1 << 4;
/// The lowest bit of the hash.
const HASH: u64 = 1 << 5;
/// The lowest bit of the level.
const LEVEL: u64 = 1 << 33;
const PIN: u64 = LEVEL << LEVEL_BITS;
/// All bits that count pins.
const PINS: u64 = left::DISCARDED - PIN;

/// How urgent a key is; 0 is the most urgent.
pub(crate) type Level = u8;

pub(crate) const LEVEL_BITS: u32 = 3;
/// The most levels that a queue can have.
pub(crate) const MOST_LEVELS: usize = 1 << LEVEL_BITS;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn level(self) -> Level {
        (self.0 % PIN / LEVEL) as Level
    }

    /// Returns the word with this level, and dirty, as a retry or not.
    fn dirty_at(self, level: Level, retry: bool) -> u64 {
        let flags = DIRTY | (u64::from(retry) * RETRY);
        (self.0 & !((PIN - LEVEL) | RETRY)) | (u64::from(level) * LEVEL) | flags
    }

    /// Returns the word with this more urgent level.
    fn raised_to(self, level: Level) -> u64 {
        self.dirty_at(level, self.is(RETRY))
    }

    fn phase(self) -> State {
        match (self.is(PROCESSING), self.is(DIRTY)) {
            (false, false) => State::Idle,
            (false, true) => State::Queued,
            (true, false) => State::Processing,
            (true, true) => State::Dirty,
        }
    }

    /// The state that reports show: an abandoned key is idle.
    fn visible(self) -> State {
        if self.is(CLOSED) && self.is(ABANDONED) {
            State::Idle
        } else {
            self.phase()
        }
    }
}

/// The effect of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// Idle became queued: the caller must push the key's entry to the FIFO.
    Queued,
    /// Processing became processing-dirty.
    Deferred,
    /// The key was queued or dirty already.
    Merged,
    /// As merged; the level of the queued key was raised: the caller must move the key's entry.
    Raised,
    /// The queue is shut down; nothing changed.
    Closed,
}

/// What a sweep does with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residence {
    /// The sweep removes it.
    Leave,
    /// The sweep keeps it: it is busy or pinned.
    Stay,
    /// The sweep keeps it once more: it was added again since the last sweep.
    Spared,
}

pub(crate) struct KeyState(AtomicU64);

impl KeyState {
    pub(crate) fn new(hash: ShortHash, phase: State, closed: bool) -> Self {
        const { assert!(HASH << ShortHash::BITS == LEVEL) };
        let closed = u64::from(closed) * CLOSED;
        let hash = u64::from(hash.bits()) * HASH;
        KeyState(AtomicU64::new(phase as u64 | closed | hash))
    }

    /// Returns the hash that the state was created with.
    #[inline]
    pub(crate) fn hash(&self) -> ShortHash {
        // Ordering: Relaxed; these bits never change, and a thread that can reach the node sees it
        // initialised.
        ShortHash::from_bits((self.0.load(Ordering::Relaxed) / HASH) as u32)
    }

    /// Adds under the shard's lock.
    #[inline]
    pub(crate) fn add_locked(&self) -> Marked {
        // Ordering: SeqCst, after the read-modify-write that took the lock; pairs with the fence
        // in `begin`, see the header.
        fence_after_rmw();
        // Ordering: Acquire; pairs with the Release in `finish`, so that the store below hands
        // on what the last worker did.
        let seen = Word(self.0.load(Ordering::Acquire));
        // First, because this test of both flags at once is the shortest.
        if seen.is(DIRTY) && !seen.is(CLOSED) {
            return Marked::Merged;
        }
        match seen.phase() {
            // Idle and unpinned under the lock: no other thread can reach the node, so no
            // read-modify-write is needed.
            State::Idle if seen.0 < PIN && !seen.is(CLOSED) => {
                // Ordering: Release; pairs with the Acquire in `begin`.
                self.0.store(seen.0 | DIRTY | RECURRING, Ordering::Release);
                Marked::Queued
            }
            _ => self.add_racing(seen),
        }
    }

    /// Adds to a pinned node, without a lock.
    #[inline]
    pub(crate) fn add_pinned(&self) -> Marked {
        // Ordering: Relaxed; a guess, which `add_racing` confirms or corrects.
        self.add_racing(Word(self.0.load(Ordering::Relaxed)))
    }

    #[inline]
    fn add_racing(&self, mut seen: Word) -> Marked {
        loop {
            if seen.is(CLOSED) {
                return Marked::Closed;
            }
            let (next, marked) = match seen.phase() {
                State::Idle => (seen.0 | DIRTY | RECURRING, Marked::Queued),
                State::Processing => (seen.0 | DIRTY, Marked::Deferred),
                State::Queued | State::Dirty => match self.confirm(seen) {
                    Ok(()) => return Marked::Merged,
                    Err(now) => {
                        seen = now;
                        continue;
                    }
                },
            };
            // Ordering: Release; pairs with the Acquire in `begin` of the delivery that serves
            // this add.
            match self
                .0
                .compare_exchange_weak(seen.0, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return marked,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Confirms that the word is `seen`, of a key that is queued or dirty, after what this thread did
    /// before; returns the word if it is not.
    #[inline]
    fn confirm(&self, seen: Word) -> Result<(), Word> {
        // Ordering: SeqCst; pairs with the fence in `begin`, see the header.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed; ordered by the fence.
        let now = Word(self.0.load(Ordering::Relaxed));
        if now == seen { Ok(()) } else { Err(now) }
    }

    /// Adds under the shard's lock, at a level. Otherwise like [`add_at`](Self::add_at).
    #[inline(always)]
    pub(crate) fn add_locked_at(
        &self,
        level: Level,
        mut admit: impl FnMut(State) -> Admit,
    ) -> Option<Marked> {
        // Ordering: SeqCst; as in `add_locked`.
        fence_after_rmw();
        // Ordering: Acquire; as in `add_locked`.
        let seen = Word(self.0.load(Ordering::Acquire));
        let merges = seen.is(DIRTY) && !seen.is(CLOSED) && level >= seen.level();
        if merges && matches!(admit(seen.phase()), Admit::Yes | Admit::Retry) {
            return Some(Marked::Merged);
        }
        if seen.phase() == State::Idle && seen.0 < PIN && !seen.is(CLOSED) {
            let admitted = admit(State::Idle);
            if admitted == Admit::No {
                return None;
            }
            let dirty = seen.dirty_at(level, admitted == Admit::Retry);
            // Ordering: Release; as in `add_locked`.
            self.0.store(dirty | RECURRING, Ordering::Release);
            return Some(Marked::Queued);
        }
        self.add_at(level, admit)
    }

    /// Adds to a node at a level, 0 in a queue without levels. The caller holds a pin or the shard's lock.
    ///
    /// Before each change, `admit` is told the state of the key, and decides. Returns `None` if it says no.
    pub(crate) fn add_at(
        &self,
        level: Level,
        mut admit: impl FnMut(State) -> Admit,
    ) -> Option<Marked> {
        // Ordering: Relaxed; a guess, which the exchange below confirms or corrects.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            if seen.is(CLOSED) {
                return Some(Marked::Closed);
            }
            let raises = level < seen.level();
            let retry = match admit(seen.phase()) {
                Admit::Yes => false,
                Admit::Retry => true,
                Admit::No => return None,
                Admit::Again => {
                    // Ordering: Relaxed; as above.
                    seen = Word(self.0.load(Ordering::Relaxed));
                    continue;
                }
            };
            let (next, marked) = match seen.phase() {
                State::Idle => (seen.dirty_at(level, retry) | RECURRING, Marked::Queued),
                State::Processing => (seen.dirty_at(level, retry), Marked::Deferred),
                State::Queued if raises => (seen.raised_to(level), Marked::Raised),
                State::Dirty if raises => (seen.raised_to(level), Marked::Merged),
                State::Queued | State::Dirty => match self.confirm(seen) {
                    Ok(()) => return Some(Marked::Merged),
                    Err(now) => {
                        seen = now;
                        continue;
                    }
                },
            };
            // Ordering: Release; as in `add_racing`.
            match self
                .0
                .compare_exchange_weak(seen.0, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Some(marked),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Sets the level of a new node, which no other thread accesses.
    pub(crate) fn set_level(&self, level: Level) {
        // Ordering: Relaxed; the push of the node's entry publishes it.
        self.0.fetch_or(u64::from(level) * LEVEL, Ordering::Relaxed);
    }

    /// Returns the level of a key that is queued or dirty; `None` if it is neither. Cheaper than
    /// [`phase_and_level`](Self::phase_and_level), for each push to a group (row `levels`).
    #[inline]
    pub(crate) fn level(&self) -> Option<Level> {
        // Ordering: Relaxed; a snapshot.
        let word = Word(self.0.load(Ordering::Relaxed));
        word.is(DIRTY).then(|| word.level())
    }

    /// Queued becomes processing.
    #[inline]
    pub(crate) fn begin(&self) -> Begun {
        // Ordering: Acquire; pairs with the Release in `add` and in `finish`.
        let was = Word(self.0.fetch_add(PROCESSING - DIRTY, Ordering::Acquire));
        debug_assert_eq!(was.phase(), State::Queued, "begin found {:#x}", was.0);
        // Ordering: SeqCst; pairs with the fences of adds that change nothing, see the header.
        fence_after_rmw();
        Begun::of(was)
    }

    /// Processing becomes idle, or queued if it was dirty; then the caller must push the key's
    /// entry to the FIFO. Returns the new state, and whether the key had been closed. A sweep may free a
    /// node that is idle, so the caller must not access it again.
    #[inline]
    pub(crate) fn finish(&self) -> (State, bool) {
        // Ordering: Release; pairs with the Acquire in `begin` of the next delivery, and with the
        // Acquire in `residence` before a sweep removes the node.
        let was = Word(self.0.fetch_sub(PROCESSING, Ordering::Release));
        debug_assert!(was.is(PROCESSING), "finish found {:#x}", was.0);
        let state = match was.is(DIRTY) {
            true => State::Queued,
            false => State::Idle,
        };
        (state, was.is(CLOSED))
    }

    /// Like [`finish`](Self::finish), and calls `count` with whether it is a retry before the key becomes queued; once more,
    /// with what it has counted, if the key has become a retry meanwhile. In vain, if a shut-down abandons the key at the
    /// same time.
    pub(crate) fn finish_counted(
        &self,
        mut count: impl FnMut(bool, Option<bool>),
    ) -> (State, bool) {
        // Ordering: Relaxed; a guess, which the exchange below confirms or corrects.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        while !seen.is(DIRTY) {
            let idle = seen.0 - PROCESSING;
            // Ordering: Release; as in `finish`.
            match self
                .0
                .compare_exchange_weak(seen.0, idle, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return (State::Idle, seen.is(CLOSED)),
                Err(now) => seen = Word(now),
            }
        }
        let mut counted = None;
        while seen.is(DIRTY) {
            let retry = seen.is(RETRY);
            if counted != Some(retry) {
                count(retry, counted.replace(retry));
            }
            let queued = seen.0 - PROCESSING;
            // Ordering: Release; as in `finish`.
            match self
                .0
                .compare_exchange_weak(seen.0, queued, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return (State::Queued, seen.is(CLOSED)),
                Err(now) => seen = Word(now),
            }
        }
        // A shut-down has abandoned it.
        self.finish()
    }

    /// Refuses adds from now on. Returns the state at that moment; a second call returns `None`.
    pub(crate) fn close(&self) -> Option<State> {
        let close = |word| {
            let open = !Word(word).is(CLOSED);
            open.then_some((word | CLOSED) & !ABANDONED)
        };
        // Ordering: Relaxed; the flag publishes nothing else. Adds and the closing are writes to
        // one word, so their order is total.
        let closed = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, close);
        closed.ok().map(|was| Word(was).phase())
    }

    /// Ends the deliveries of a closed key: from now on it is idle, or will be when it is done.
    /// Returns the state until then.
    pub(crate) fn abandon(&self) -> State {
        // Adds are refused, and `begin` and `finish` write the same word, so the order of the writes
        // decides which deliveries follow.
        let abandon = |word| match Word(word).visible() {
            State::Queued => Some(word | ABANDONED | left::DISCARDED),
            State::Dirty => Some((word & !DIRTY) | left::DISCARDED),
            State::Idle | State::Processing => None,
        };
        // Ordering: Acquire; pairs with the Release in `finish`. The caller counts the key as
        // finished, and so passes on to the drainers what its last worker did.
        let (Ok(was) | Err(was)) =
            self.0
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, abandon);
        Word(was).visible()
    }

    /// Returns the state; that of an abandoned key is idle. The times that belong to it may be read
    /// afterwards.
    pub(crate) fn phase(&self) -> State {
        self.phase_and_level().0
    }

    /// Returns the state, as [`phase`](Self::phase) does, and the level of a key that is queued or dirty.
    pub(crate) fn phase_and_level(&self) -> (State, Option<Level>) {
        // Ordering: Acquire; pairs with the Release in `add` and in `finish`, and with the fence in
        // `Times::begin`.
        let word = Word(self.0.load(Ordering::Acquire));
        let phase = word.visible();
        let has_level = matches!(phase, State::Queued | State::Dirty);
        (phase, has_level.then(|| word.level()))
    }
}

#[cfg(test)]
mod tests;
