//! What keeps a node interned: the pins that its word counts, and whether a sweep may remove it.

use super::{KeyState, PIN, PINS, RECURRING, Residence, State, Word};
use crate::sync::atomic::Ordering;

/// The most pins with which a caller gets another one to keep: half of what fits.
pub(super) const MOST_HANDLES: u64 = PINS / PIN / 2 + 1;
/// The most pins. Those beyond the handles are for the queue itself: for intervals, delays, records and calls. A quarter
/// of what fits is left, so that racing threads cannot overflow the count before one of them notices.
pub(super) const MOST_PINS: u64 = MOST_HANDLES + MOST_HANDLES / 2;

impl KeyState {
    /// Counts one more handle or pending delay. A handle that a caller gets is [granted](Self::grant) then.
    ///
    /// # Panics
    ///
    /// Panics when [`MOST_PINS`] are alive, of which callers keep [`MOST_HANDLES`].
    pub(crate) fn pin(&self) {
        // Ordering: Relaxed; the caller holds the shard's lock or another pin, and either keeps a
        // sweep from removing the node.
        let was = self.0.fetch_add(PIN, Ordering::Relaxed);
        if (was & PINS) / PIN >= MOST_PINS {
            // Ordering: Relaxed; undoes the addition above.
            self.0.fetch_sub(PIN, Ordering::Relaxed);
            panic!("more than {MOST_PINS} handles and delays of one key are alive");
        }
    }

    /// Lets a caller keep its pin. Panics when more than [`MOST_HANDLES`] are alive, which takes leaking them.
    pub(crate) fn grant(&self) {
        // Ordering: Relaxed; a count.
        let pins = (self.0.load(Ordering::Relaxed) & PINS) / PIN;
        assert!(pins <= MOST_HANDLES, "{MOST_HANDLES} handles are alive");
    }

    /// Removes a pin. The node must not be accessed through it again.
    pub(crate) fn unpin(&self) {
        // Ordering: Release; pairs with the Acquire in `residence`.
        self.0.fetch_sub(PIN, Ordering::Release);
    }

    /// Returns what a sweep does with the node. Called under the shard's lock. With `forget` even
    /// recurring keys leave. After [`Residence::Leave`] no other thread can reach the node: it has
    /// no entry in the FIFO, no worker and no pin.
    #[inline]
    pub(crate) fn residence(&self, forget: bool) -> Residence {
        // Ordering: Acquire; pairs with the Release in `finish` and in `unpin`: the thread that
        // made the node idle or dropped its last pin does not access it any more.
        let seen = Word(self.0.load(Ordering::Acquire));
        if seen.phase() != State::Idle || seen.is(PINS) {
            Residence::Stay
        } else if seen.is(RECURRING) && !forget {
            // Ordering: Relaxed; idle and unpinned under the shard's lock, so no other thread
            // writes the word.
            self.0.store(seen.0 & !RECURRING, Ordering::Relaxed);
            Residence::Spared
        } else {
            Residence::Leave
        }
    }
}
