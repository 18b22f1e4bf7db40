//! What a worker's function gets: the key alone, or its value as well.
//!
//! A value is taken out of the item for the time of the call, and put back before the worker handles the
//! outcome or lets the key go. So what the call leaves in it goes with a retry.

use std::hash::BuildHasher;
use std::sync::Arc;

use super::{Key, Loop};
use crate::sync::Mutex;
use crate::{Ended, Item, KeyHandle, RetryOnDrop, Valued};

/// The function of these [`Workers`](super::Workers) gets the key alone.
#[derive(Debug)]
pub enum KeyOnly {}

/// The function of these [`Workers`](super::Workers) gets the key and its value: see
/// [`values`](super::Workers::values).
#[derive(Debug)]
pub enum WithValue {}

pub(super) trait Lend<K> {
    /// What a call borrows in addition to the key.
    type Loan: Send;

    fn lend<S>(item: &mut Item<'_, K, S>) -> Self::Loan;

    /// Ends the call.
    fn take_back<'q, S>(lent: Lending<'q, K, S, Self>) -> Item<'q, K, S>;
}

/// An item during a call.
type Lending<'q, K, S, M> = (Item<'q, K, S>, <M as Lend<K>>::Loan);

impl<K> Lend<K> for KeyOnly {
    type Loan = ();

    fn lend<S>(_: &mut Item<'_, K, S>) {}

    fn take_back<'q, S>((item, ()): Lending<'q, K, S, Self>) -> Item<'q, K, S> {
        item
    }
}

impl<K, V: Send> Lend<Valued<K, V>> for WithValue {
    type Loan = Loan<V>;

    fn lend<S>(item: &mut Item<'_, Valued<K, V>, S>) -> Loan<V> {
        let (value, place) = (item.take(), None);
        Loan { value, place }
    }

    fn take_back<'q, S>(
        (mut item, loan): Lending<'q, Valued<K, V>, S, Self>,
    ) -> Item<'q, Valued<K, V>, S> {
        let owned = || loan.place?.lock().take();
        *item.loaded() = loan.value.or_else(owned);
        item
    }
}

/// The value of a delivery during a call.
pub(super) struct Loan<V> {
    /// `None` if the function owns it.
    pub(super) value: Option<V>,
    /// Where it comes back to then.
    pub(super) place: Option<Arc<Mutex<Option<V>>>>,
}

impl<V> Loan<V> {
    pub(super) fn get(&mut self) -> &mut V {
        let value = self.value.as_mut();
        value.expect("a key is delivered with a value")
    }
}

impl<K: Key, S: BuildHasher, E> Loop<'_, K, S, E> {
    /// Begins a call that may be cancelled. If what this returns is dropped, the key is added again, or
    /// given up.
    pub(super) fn lend<'q, M: Lend<K>>(
        &self,
        mut item: Item<'q, K, S>,
    ) -> RetryOnDrop<Lending<'q, K, S, M>> {
        let loan = M::lend(&mut item);
        // The key is processing, so the drop of its item queues it.
        let cancelled: fn(_) = match self.requeue_cancelled {
            true => |lent| _ = M::take_back(lent).add(),
            false => |lent| M::take_back(lent).end_as(Ended::GivenUp),
        };
        RetryOnDrop::new((item, loan), cancelled)
    }

    /// Begins the report of a retry that a shut-down has dropped, which may be cancelled. If what this returns is
    /// dropped, the key is left, or given up.
    pub(super) fn hold_dropped(&self, key: KeyHandle<K>) -> RetryOnDrop<KeyHandle<K>> {
        RetryOnDrop::new(
            key,
            match self.requeue_cancelled {
                true => |key| key.pin().state().refuse(),
                false => drop,
            },
        )
    }
}
