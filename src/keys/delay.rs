//! The pending delay of one key: a due tick in one atomic word, and its transitions.
//!
//! # The word
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63 | closed: the queue is shut down, and refuses delays |
//! | 53..63 | a generation, which changes with each delay that is set, or moved |
//! | 52 | a burst: the delay is debounced ([`crate::timer`] has its limit) |
//! | 51 | the delay is a retry: a failure has set it, or has found it pending |
//! | 48..51 | the level at which the key is added, in a queue with levels |
//! | 0..48 | the due tick plus one; 0 means that no delay is pending |
//!
//! In a closed word no delay is pending. Its other bits are those of the delay that the shut-down
//! dropped, until a worker claims it in order to report it; 0 if there is none. A delivery of the key that begins then changes the
//! generation, so that the worker whose retry it was does not claim it.
//!
//! A delay that is set also goes into the wheel, as an entry with the word's value at that time.
//! Moving or cancelling the delay later does not access the wheel. When an entry fires while the
//! word still has that delay, an exchange clears the word, and the driver adds the key; otherwise
//! the entry is *stale* and nothing happens. Each delay ends in exactly one way, by the exchange
//! that succeeds: it is fired, moved, cancelled, or dropped by a shut-down.
//!
//! A delay that is kept becomes as urgent as the one that was not, and a retry if that was one. Its tick and its generation
//! stay, by which its entry, and whoever else has an earlier stamp of it, find it ([`Stamp::is_of`]). Its level only falls and it
//! stays a retry, so no stamp recurs.
//!
//! The generation wraps around after 1024 delays; then a stale entry with the same due tick may
//! fire instead of the valid one, at the same tick, and the valid one is stale.
//!
//! # Orderings
//!
//! What a caller did before it delayed a key is visible to the delivery that the delay leads to.
//! Setting a delay releases, ending it acquires. A call that *keeps* the pending delay writes
//! nothing, so both sides have a full fence in between, as in [`crate::keys::state`]:
//!
//! ```text
//!     caller that delays                   thread that ends the delay
//!     stores data                          ends the delay
//!     fence(SeqCst)                        fence(SeqCst)
//!     reads the pending delay: kept        adds; the delivery reads data
//! ```

use crate::keys::rule::Rule;
use crate::keys::state::{LEVEL_BITS, Level};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::fence_after_rmw;

const CLOSED: u64 = 1 << 63;
const TICK_BITS: u32 = 48;
const TICK: u64 = (1 << TICK_BITS) - 1;
const LEVEL: u64 = 1 << TICK_BITS;
const RETRY: u64 = LEVEL << LEVEL_BITS;
const BURST: u64 = RETRY << 1;
const GENERATION: u64 = BURST << 1;

/// The latest tick that a delay can have.
pub(crate) const LAST_TICK: u64 = TICK - 1;

/// A value of the word with a pending delay, which identifies one delay of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Returns the tick at which the delay ends.
    pub(crate) fn due(self) -> u64 {
        (self.0 & TICK).saturating_sub(1)
    }

    /// Returns the level at which the key is added then.
    pub(crate) fn level(self) -> Level {
        (self.0 % RETRY / LEVEL) as Level
    }

    /// Returns whether it is a retry.
    pub(crate) fn is_retry(self) -> bool {
        self.0 & RETRY != 0
    }

    /// Returns whether the delay is debounced.
    pub(crate) fn is_burst(self) -> bool {
        self.0 & BURST != 0
    }

    /// Returns whether the word has the delay that was set with this stamp. That may be more urgent by now, or a retry.
    fn is_of(self, word: u64) -> bool {
        (word ^ self.0) & !(BURST - LEVEL) == 0
    }
}

/// A delay that is to be set, by its due tick, at most [`LAST_TICK`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    Plain(u64),
    /// A debounced one.
    Burst(u64),
}

/// The result of setting a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// The delay is pending; the caller owes the wheel an entry with this stamp. `moved` says
    /// whether it replaced another delay, whose entry is stale now, and `turned` whether that was no retry, and this
    /// one is.
    Pending {
        stamp: Stamp,
        moved: bool,
        turned: bool,
    },
    /// The pending delay was kept, and perhaps made more urgent; or it has `turned`: it was no retry, and is one.
    Kept { turned: bool },
    /// The key was not admitted.
    Refused,
    /// The queue is shut down.
    Closed,
}

pub(crate) struct Delay(AtomicU64);

/// Returns the due tick of the pending delay.
fn due_of(word: u64) -> Option<u64> {
    if word & CLOSED != 0 {
        return None;
    }
    (word & TICK).checked_sub(1)
}

/// Returns the stamp of the pending delay.
fn stamp_of(word: u64) -> Option<Stamp> {
    due_of(word).map(|_| Stamp(word))
}

impl Delay {
    pub(crate) fn new(closed: bool) -> Self {
        Delay(AtomicU64::new(if closed { CLOSED } else { 0 }))
    }

    /// Sets a delay due at tick `due`, at most [`LAST_TICK`], by `rule`. The key will be added at
    /// `level`, or that of the pending delay if it is more urgent. It is a `retry` if the pending delay is one, too. Calls `admit`
    /// before a delay is pending where none was, or a retry where none was, and refuses the delay if it returns
    /// false; more than once, or in vain, if other threads set one at the same time.
    pub(crate) fn set(
        &self,
        due: u64,
        level: Level,
        rule: Rule,
        retry: bool,
        admit: impl FnMut() -> bool,
    ) -> Set {
        debug_assert!(due <= LAST_TICK, "due {due}");
        let plan = |pending: Option<Stamp>| {
            let kept = pending.is_some_and(|pending| rule.keeps(pending, due, retry));
            (!kept).then_some(Plan::Plain(due))
        };
        self.set_as(level, retry, plan, admit)
    }

    /// Makes a retry that is pending as urgent as this, for an add that waits for it (V7). Returns false if none is.
    #[cold]
    pub(crate) fn join_retry(&self, level: Level) -> bool {
        let join = || self.set_as(level, false, |_| None, || false);
        self.pending().is_some_and(Stamp::is_retry) && matches!(join(), Set::Kept { .. })
    }

    /// Like [`set`](Self::set), with a function that gets the pending delay and returns the new one, or `None`
    /// to keep it; it may be called more than once.
    #[inline]
    pub(crate) fn set_as(
        &self,
        level: Level,
        retry: bool,
        mut plan: impl FnMut(Option<Stamp>) -> Option<Plan>,
        mut admit: impl FnMut() -> bool,
    ) -> Set {
        // Ordering: Relaxed; a guess, which the exchange below confirms or corrects.
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen & CLOSED != 0 {
                return Set::Closed;
            }
            let pending = stamp_of(seen);
            let new = match plan(pending) {
                Some(Plan::Plain(due)) => Some(due + 1),
                Some(Plan::Burst(due)) => Some((due + 1) | BURST),
                None => None,
            };
            let turned = pending.is_some_and(|pending| retry && !pending.is_retry());
            let kept = pending.filter(|_| new.is_none());
            if kept.is_some_and(|kept| level >= kept.level() && !turned) {
                // Ordering: SeqCst; pairs with the fence in `clear`: see the header.
                fence(Ordering::SeqCst);
                // Ordering: Relaxed; ordered by the fence.
                let now = self.0.load(Ordering::Relaxed);
                if now == seen {
                    return Set::Kept { turned: false };
                }
                seen = now;
                continue;
            }
            if (pending.is_none() || turned) && !admit() {
                return Set::Refused;
            }
            let level = pending.map_or(level, |pending| level.min(pending.level()));
            let is_retry = retry || pending.is_some_and(Stamp::is_retry);
            let generation = match kept {
                Some(_) => seen & !(GENERATION - 1),
                None => (seen & !(GENERATION - 1)).wrapping_add(GENERATION) & !CLOSED,
            };
            let flags = (u64::from(is_retry) * RETRY) | (u64::from(level) * LEVEL);
            let when = new.or(kept.map(|kept| kept.0 & (BURST | TICK)));
            let stamp = generation | flags | when.unwrap_or_default();
            let word = &self.0;
            // Ordering: AcqRel; the Release pairs with the Acquire in `clear`: the delay's add
            // passes on what happened before the delay was set. The Acquire lets a moved delay also
            // pass on what happened before the one it replaces.
            match word.compare_exchange_weak(seen, stamp, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let (stamp, moved) = (Stamp(stamp), pending.is_some());
                    return match kept {
                        Some(_) => Set::Kept { turned },
                        None => Set::Pending {
                            stamp,
                            moved,
                            turned,
                        },
                    };
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Returns whether the pending delay is debounced.
    pub(crate) fn is_burst(&self) -> bool {
        // The lock of the limits orders this after the flag was set.
        self.pending().is_some_and(Stamp::is_burst)
    }

    /// Returns whether the delay that was set with this stamp is pending.
    pub(crate) fn is(&self, stamp: Stamp) -> bool {
        // Ordering: Relaxed; an ended stamp does not recur (but see the header).
        stamp.is_of(self.0.load(Ordering::Relaxed))
    }

    /// Ends the delay that was set with this stamp. Returns the stamp that it has had at last, if this call ended it.
    pub(crate) fn end(&self, stamp: Stamp) -> Option<Stamp> {
        let mut seen = stamp.0;
        loop {
            match self.clear(seen) {
                Ok(was) => return Some(Stamp(was)),
                Err(now) if stamp.is_of(now) => seen = now,
                Err(_) => return None,
            }
        }
    }

    /// Ends the pending delay. Returns its stamp if there was one and this call ended it.
    pub(crate) fn cancel(&self) -> Option<Stamp> {
        // Ordering: Relaxed; saves the write if there is nothing to cancel, and is a guess
        // otherwise.
        let mut seen = self.0.load(Ordering::Relaxed);
        while due_of(seen).is_some() {
            match self.clear(seen) {
                Ok(was) => return Some(Stamp(was)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Ends the delay if the word is `seen`, and otherwise returns the word.
    fn clear(&self, seen: u64) -> Result<u64, u64> {
        let none = seen & !(GENERATION - 1);
        let word = &self.0;
        // Ordering: Acquire; pairs with the Release in `set`: the caller sees what it published.
        let ended = word.compare_exchange(seen, none, Ordering::Acquire, Ordering::Relaxed);
        // Ordering: SeqCst; pairs with the fences of delays that are kept: see the header.
        fence_after_rmw();
        ended
    }

    /// Refuses delays from now on, and ends the pending one, for a drain that delivers it. Returns
    /// the stamp of that one.
    pub(crate) fn close(&self) -> Option<Stamp> {
        // Ordering: Acquire; pairs with the Release in `set`.
        let was = self.0.swap(CLOSED, Ordering::Acquire);
        // Ordering: SeqCst; as in `clear`.
        fence_after_rmw();
        stamp_of(was)
    }

    /// Refuses delays from now on, and drops the pending one. Returns whether there was one.
    pub(crate) fn close_and_drop(&self) -> bool {
        // Ordering: AcqRel; the Release pairs with the Acquire in `dropped_as` and `claim_dropped`: a
        // thread that finds the delay dropped sees that the key was closed before. The Acquire is that of `clear`.
        let was = self.0.fetch_or(CLOSED, Ordering::AcqRel);
        // Ordering: SeqCst; as in `clear`.
        fence_after_rmw();
        due_of(was).is_some()
    }

    /// Returns the stamp of the delay that is pending.
    pub(crate) fn pending(&self) -> Option<Stamp> {
        // Ordering: Relaxed; a snapshot.
        stamp_of(self.0.load(Ordering::Relaxed))
    }

    /// Returns the stamp of the delay that is pending, or that a shut-down has dropped.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        // Ordering: Relaxed; a snapshot.
        stamp_of(self.0.load(Ordering::Relaxed) & !CLOSED)
    }

    /// Returns the last stamp of the delay that was set with this one, if a shut-down has dropped it, and nobody has claimed
    /// it.
    pub(crate) fn dropped_as(&self, stamp: Stamp) -> Option<Stamp> {
        // Ordering: Acquire; pairs with the Release in `close_and_drop`.
        let word = self.0.load(Ordering::Acquire);
        let dropped = word & !CLOSED;
        (dropped != word && stamp.is_of(dropped)).then_some(Stamp(dropped))
    }

    /// Gives the delay that a shut-down has dropped, if nobody has claimed it, another stamp: the worker whose retry it was does not
    /// find it.
    pub(crate) fn disown_dropped(&self) {
        if let Some(Stamp(dropped)) = self.dropped() {
            let (was, other) = (dropped | CLOSED, dropped.wrapping_add(GENERATION) | CLOSED);
            // Ordering: Relaxed; the caller holds the key, whose end releases this.
            let _ = self
                .0
                .compare_exchange(was, other, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns true to one caller if a shut-down has dropped the delay with this stamp.
    pub(crate) fn claim_dropped(&self, stamp: Stamp) -> bool {
        let dropped = stamp.0 | CLOSED;
        // Ordering: Acquire; pairs with the Release in `close_and_drop`.
        let claimed =
            self.0
                .compare_exchange(dropped, CLOSED, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Returns true to one caller if a shut-down has dropped the delay.
    pub(crate) fn claim(&self) -> bool {
        // A delivery that begins now gives it another stamp, once: see `disown_dropped`.
        while let Some(dropped) = self.dropped() {
            if self.claim_dropped(dropped) {
                return true;
            }
        }
        false
    }

    /// Returns the stamp of a delay that a shut-down has dropped, and that nobody has claimed.
    #[inline]
    pub(crate) fn dropped(&self) -> Option<Stamp> {
        // Ordering: Relaxed; no delay is set once one was dropped, and `claim_dropped` acquires. `disown_dropped` changes the stamp
        // of the same delay.
        let word = self.0.load(Ordering::Relaxed);
        (word & CLOSED != 0 && word & TICK != 0).then_some(Stamp(word & !CLOSED))
    }

    pub(crate) fn due(&self) -> Option<u64> {
        // Ordering: Relaxed; a snapshot.
        due_of(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::rule::DelayPolicy;

    fn rule(policy: DelayPolicy) -> Rule {
        Rule {
            policy,
            holds_retries: false,
        }
    }

    fn set(delay: &Delay, due: u64, policy: DelayPolicy) -> Set {
        delay.set(due, 0, rule(policy), false, || true)
    }

    fn pending(set: Set) -> Stamp {
        match set {
            Set::Pending { stamp, .. } => stamp,
            other => panic!("{other:?}"),
        }
    }

    // D3: of two entries of one key only the valid one fires.
    #[test]
    fn a_delay_that_was_moved_leaves_a_stale_stamp() {
        let delay = Delay::new(false);
        let first = pending(set(&delay, 10, DelayPolicy::Replace));
        let second = pending(set(&delay, 5, DelayPolicy::Replace));
        assert!(!delay.is(first) && delay.is(second));
        assert_eq!(delay.end(first), None);
        assert_eq!(delay.end(second), Some(second));
        assert_eq!(delay.end(second), None, "a delay ends once");
        assert_eq!(delay.due(), None);
    }

    // D6: the same tick again is another delay.
    #[test]
    fn a_cancelled_delay_does_not_fire_in_place_of_its_successor() {
        let delay = Delay::new(false);
        let first = pending(set(&delay, 10, DelayPolicy::Earliest));
        assert!(delay.cancel().is_some());
        assert!(delay.cancel().is_none());
        let second = pending(set(&delay, 10, DelayPolicy::Earliest));
        assert_eq!(delay.end(first), None);
        assert_eq!(delay.end(second), Some(second));
    }

    // V7 B5: the entry that is in the wheel ends it.
    #[test]
    fn a_delay_that_becomes_more_urgent_or_a_retry_keeps_its_entry() {
        let delay = Delay::new(false);
        let set =
            |due, level, retry| delay.set(due, level, rule(DelayPolicy::Earliest), retry, || true);
        let first = pending(set(10, 3, false));
        assert!(!delay.join_retry(0), "none is pending");
        assert_eq!(set(20, 3, true), Set::Kept { turned: true });
        assert_eq!(set(20, 2, true), Set::Kept { turned: false });
        assert!(delay.join_retry(1) && delay.is(first));
        let last = delay.end(first).unwrap();
        assert_eq!((last.due(), last.level(), last.is_retry()), (10, 1, true));
        assert_eq!(delay.due(), None);
    }

    // S5
    #[test]
    fn a_closed_delay_takes_none_and_tells_once_what_it_dropped() {
        let delay = Delay::new(false);
        let stamp = pending(set(&delay, 0, DelayPolicy::Earliest));
        assert_eq!(delay.close(), Some(stamp));
        assert!(delay.close().is_none() && !delay.close_and_drop());
        assert!(delay.end(stamp).is_none() && delay.cancel().is_none());
        assert_eq!(set(&delay, 1, DelayPolicy::Replace), Set::Closed);
        assert!(!delay.claim_dropped(stamp), "it was delivered");
    }

    // S5
    #[test]
    fn the_delay_that_was_dropped_is_claimed_once_and_is_not_pending() {
        let delay = Delay::new(false);
        let first = pending(set(&delay, 10, DelayPolicy::Replace));
        let second = pending(set(&delay, 5, DelayPolicy::Replace));
        assert!(!delay.claim_dropped(second), "it is pending");
        assert!(delay.close_and_drop());
        assert!(!delay.close_and_drop());
        assert_eq!((delay.due(), delay.stamp()), (None, Some(second)));
        assert!(delay.end(second).is_none() && delay.cancel().is_none());
        assert!(!delay.claim_dropped(first), "it was moved");
        assert!(delay.claim_dropped(second));
        assert!(!delay.claim_dropped(second), "claimed twice");
        assert_eq!(delay.stamp(), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes 2048 rounds to come round, and one thread")]
    fn generations_come_round_without_touching_the_flag() {
        let delay = Delay::new(false);
        for round in 0..40_000_u64 {
            let stamp = pending(set(&delay, LAST_TICK, DelayPolicy::Replace));
            assert!(delay.is(stamp), "round {round}");
            assert!(delay.cancel().is_some());
        }
    }
}
