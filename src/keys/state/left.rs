//! What a shut-down leaves of a key that was accepted and is not delivered: two bits of the word, which only a
//! report takes away again.

use super::{DIRTY, KeyState, Level, Marked, Word};
use crate::LeftReason;
use crate::sync::atomic::Ordering;

/// A shut-down has discarded an add of the key.
pub(super) const DISCARDED: u64 = 1 << 62;
/// A shut-down has refused to add the key again for the worker that held it.
const REFUSED: u64 = 1 << 63;

impl KeyState {
    /// Adds the key again for its worker, in a queue that is shut down: it is delivered once more when it is
    /// done. Unless it `redelivers`, only a key that is dirty already is.
    pub(crate) fn readd(&self, level: Level, redelivers: bool) -> Marked {
        // Ordering: Relaxed; a guess, which the exchange below confirms or corrects.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            let (next, marked) = match seen.is(DIRTY) {
                true => (seen.raised_to(level.min(seen.level())), Marked::Merged),
                false if redelivers => (seen.dirty_at(level, false), Marked::Deferred),
                false => return Marked::Closed,
            };
            // Ordering: Release; pairs with the Acquire in `begin` of the delivery that serves this add.
            match self
                .0
                .compare_exchange_weak(seen.0, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return marked,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Notes that the key was to be added again for its worker, and was not.
    pub(crate) fn refuse(&self) {
        // Ordering: Release; pairs with the Acquire in `take_left`, whose caller sees what the worker did.
        self.0.fetch_or(REFUSED, Ordering::Release);
    }

    /// Returns whether there is something to [take](Self::take_left).
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        // Ordering: Acquire; pairs with the Release in `take_left`: a thread that finds the mark taken away fails
        // to claim the delay that was claimed before.
        Word(self.0.load(Ordering::Acquire)).is(DISCARDED | REFUSED)
    }

    /// Takes away what is noted of the key, and returns why it is left.
    pub(crate) fn take_left(&self) -> Option<LeftReason> {
        // Ordering: AcqRel; the Acquire pairs with the Release in `refuse`, the Release with the Acquire in
        // `has_left`.
        let was = Word(self.0.fetch_and(!(DISCARDED | REFUSED), Ordering::AcqRel));
        match (was.is(REFUSED), was.is(DISCARDED)) {
            (true, _) => Some(LeftReason::Refused),
            (false, true) => Some(LeftReason::Queued),
            (false, false) => None,
        }
    }
}
