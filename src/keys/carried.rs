//! What a queue whose keys carry values keeps beside each node, in the same slot of the slab; other queues have no room
//! for it. [`crate::values`] has the protocol.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem;

use crate::keys::node::{Held, Interned};
use crate::keys::slab::{SideData, Slab};
use crate::sync::catch_panic::drop_caught;
use crate::sync::{SpinLock, assert_unlocked};
use crate::wait::receipt::{Ended, Receipts};

/// The value of one key.
pub(crate) struct Carried<V> {
    /// What was put and is not delivered yet.
    pub(crate) waiting: SpinLock<Waiting<V>>,
    /// What the delivery in progress has. Accessed only by the holder of the key: by a [`Held`].
    loaded: UnsafeCell<Load<V>>,
}

/// A value, and who waits for the end of its delivery.
pub(crate) struct Load<V> {
    pub(crate) value: Option<V>,
    pub(crate) receipts: Option<Box<Receipts>>,
}

/// What waits for the next delivery of a key.
pub(crate) struct Waiting<V> {
    pub(crate) load: Load<V>,
    /// The weight for which it counts in the bound of the queue: as an add, and as a retry. Of a retry, all of the
    /// value counts as one until it is delivered, whatever is put for it.
    pub(crate) weights: [usize; 2],
}

impl<V> Default for Carried<V> {
    fn default() -> Self {
        let (load, weights) = (Load::default(), [0, 0]);
        Carried {
            waiting: SpinLock::new(Waiting { load, weights }),
            loaded: UnsafeCell::new(Load::default()),
        }
    }
}

impl<V> Default for Load<V> {
    fn default() -> Self {
        Load {
            value: None,
            receipts: None,
        }
    }
}

impl<V> From<V> for Load<V> {
    #[inline]
    fn from(value: V) -> Self {
        Load {
            value: Some(value),
            receipts: None,
        }
    }
}

impl<V> Load<V> {
    fn is_empty(&self) -> bool {
        self.value.is_none() && self.receipts.is_none()
    }

    /// Changes the value, or a default one, which is `outdated` if `change` panics.
    #[inline]
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut V), outdated: &mut Option<V>)
    where
        V: Default,
    {
        match &mut self.value {
            Some(value) => change(value),
            empty => {
                change(outdated.insert(V::default()));
                *empty = outdated.take();
            }
        }
    }

    #[inline]
    pub(crate) fn end(self, end: Option<Ended>) {
        if let Some(receipts) = self.receipts {
            receipts.fire(end);
        }
        if mem::needs_drop::<V>() {
            // The drop of the value is user code.
            assert_unlocked();
            drop_caught(self.value);
        }
    }
}

// SAFETY: `loaded` is accessed by the holder of the key alone, so values are sent between threads, and
// a reference to one is shared only by `Held::value`, which asks for `V: Sync`.
unsafe impl<V: Send> Sync for Carried<V> {}

impl<V> Carried<V> {
    /// Returns whether its drop does nothing.
    pub(super) fn is_empty(&mut self) -> bool {
        self.waiting.lock().load.is_empty() && self.loaded.get_mut().is_empty()
    }

    /// Takes the value that waits for the next delivery, when there will be none.
    pub(crate) fn take_waiting(&self) -> Option<V> {
        self.waiting.lock().load.value.take()
    }
}

impl<K> Held<K> {
    /// Returns the key, and what its delivery has.
    #[inline]
    pub(crate) fn split<V>(&mut self, carries: &Carries<V>) -> (&Interned<K>, &mut Load<V>) {
        let interned: &Interned<K> = self;
        let loaded = interned.carried(carries).loaded.get();
        // SAFETY: this is the right to process the key, and borrowed exclusively; nobody else accesses
        // `loaded`.
        (interned, unsafe { &mut *loaded })
    }

    /// Returns what waits for the next delivery, and what this one has.
    #[inline]
    pub(crate) fn loads<V>(
        &mut self,
        carries: &Carries<V>,
    ) -> (&SpinLock<Waiting<V>>, &mut Load<V>) {
        let (key, loaded) = self.split(carries);
        (&key.carried(carries).waiting, loaded)
    }

    /// Returns the value that the delivery has.
    pub(crate) fn value<V: Sync>(&self, carries: &Carries<V>) -> Option<&V> {
        // SAFETY: as above, but shared.
        unsafe { &(*self.carried(carries).loaded.get()).value }.as_ref()
    }
}

/// A proof that the keys of a queue carry values, and where.
pub(crate) struct Carries<V> {
    distance: usize,
    values: PhantomData<fn() -> V>,
}

impl<V> Carries<V> {
    /// # Safety
    ///
    /// Only a queue whose keys are `K`, and whose slabs have room for `side_data`, values among it, may have it.
    pub(crate) unsafe fn new<K>(side_data: SideData) -> Self {
        Carries {
            distance: Slab::<K, V>::to_carried(side_data),
            values: PhantomData,
        }
    }

    /// Returns the distance from a node to what its key carries, in bytes.
    #[inline]
    pub(crate) fn distance(&self) -> usize {
        self.distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::hash::ShortHash;
    use crate::keys::node::{Node, Queued};
    use crate::keys::state::State;

    #[test] // V2, under Miri: the ring hides from it what comes out of a queue.
    fn two_threads_that_share_an_item_read_its_value() {
        let side_data = SideData {
            carries: true,
            ..SideData::default()
        };
        let mut slab = Slab::<u64, u64>::new(0, side_data);
        // SAFETY: for nodes of this slab.
        let carries = unsafe { Carries::new::<u64>(side_data) };
        let node = slab.insert(Node::new(ShortHash::of(0), State::Queued, false, 1));
        let (mut held, _) = Queued::of_new(node).begin();
        *held.loads(&carries).1 = Load::from(5);
        let value = || held.value(&carries);
        let first = value();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(value(), Some(&5)));
            assert_eq!(value(), Some(&5));
        });
        assert_eq!(first, Some(&5));
        let (key, load) = held.split(&carries);
        assert_eq!((key.key(), load.value), (&1, Some(5)));
        // SAFETY: no token is used any more.
        drop(unsafe { slab.remove(node) });
    }
}
