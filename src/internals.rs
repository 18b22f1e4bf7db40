//! The ring by itself, workers that are stopped, and receipts without a queue, for the models with
//! loom, which reach nothing else that has no public name.

use std::ptr::NonNull;

use loom::cell::UnsafeCell;

use crate::fifo::ring::Ring;
use crate::keys::link::Link;
use crate::sync::ThreadParker;
use crate::wait::receipt;
use crate::worker::stop::StopFlag;
use crate::{Ended, Item, Receipt, WorkQueue};

/// Stops getters of a queue that stays open, as a handle stops the threads of its workers.
#[allow(missing_debug_implementations, reason = "it has nothing to show")]
pub struct Stopper(StopFlag);

impl Stopper {
    /// A stopper that has stopped nothing yet.
    #[allow(clippy::new_without_default, reason = "for models")]
    pub fn new() -> Self {
        Stopper(StopFlag::default())
    }

    /// Stops every getter.
    pub fn stop(&self) {
        self.0.set();
    }

    /// Gets a key, or `None` if stopped meanwhile.
    pub fn get<'q, K, V, S>(&self, queue: &'q WorkQueue<K, V, S>) -> Option<Item<'q, K, V>> {
        let parker = ThreadParker::current();
        self.0.enlist(parker.waker());
        queue.open.get_unless(&parker, || self.0.is_set())
    }
}

/// What fires a receipt; its drop fires [`Ended::Dropped`].
#[allow(missing_debug_implementations, reason = "it has nothing to show")]
pub struct Obligation(receipt::Obligation);

/// An obligation, and the receipt that it fires.
pub fn receipt() -> (Obligation, Receipt) {
    let (obligation, receipt) = receipt::receipt();
    (Obligation(obligation), receipt)
}

impl Obligation {
    /// Fires the receipt.
    pub fn fire(self, ended: Ended) {
        self.0.fire(ended);
    }
}

/// A ring of numbers from 1 on.
///
/// The pusher writes a number into its place first, and the popper takes it out of there. Only the
/// ring orders the two; if it does not, loom reports a causality violation. No place is freed
/// before the model ends, so one that is popped twice is found to be empty. The ring does not
/// access its links, so the places have none.
#[allow(
    missing_debug_implementations,
    reason = "a ring cannot be iterated over"
)]
pub struct NumberRing {
    ring: Ring,
    /// 0 in an empty place.
    places: Box<[UnsafeCell<usize>]>,
}

impl NumberRing {
    /// A ring for `capacity` numbers, of which none is greater than `most`.
    pub fn new(capacity: usize, most: usize) -> Self {
        const { assert!(align_of::<UnsafeCell<usize>>() >= align_of::<Link>()) };
        NumberRing {
            ring: Ring::new(capacity),
            places: (0..most).map(|_| UnsafeCell::new(0)).collect(),
        }
    }

    /// Pushes `number`, which no other thread pushes. Returns whether there was room.
    pub fn push(&self, number: usize) -> bool {
        let place = &self.places[number - 1];
        // SAFETY: not in the ring, and only this thread pushes it; loom checks that.
        place.with_mut(|at| unsafe { *at = number });
        self.ring.push(NonNull::from(place).cast())
    }

    /// Pops the oldest number.
    ///
    /// # Panics
    ///
    /// If it was popped before.
    pub fn pop(&self) -> Option<usize> {
        let place = self.ring.pop()?.cast::<UnsafeCell<usize>>();
        // SAFETY: in `places`.
        let place = unsafe { place.as_ref() };
        // SAFETY: out of the ring, so only this thread has it; loom checks that.
        let number = place.with_mut(|at| unsafe { std::mem::take(&mut *at) });
        assert_ne!(number, 0, "popped twice");
        Some(number)
    }

    /// Returns whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns the number of numbers in the ring.
    pub fn len(&self) -> usize {
        self.ring.len()
    }
}
