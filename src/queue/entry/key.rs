//! How the key of an entry is given: owned, borrowed, or by a handle.

use std::borrow::Borrow;
use std::hash::Hash;

use crate::engine::Core;
use crate::keys::node::Pinned;
use crate::keys::state::Level;
use crate::metrics::Event;
use crate::sync::Arc;
use crate::timer::Wait;
use crate::wait::room::Share;
use crate::{Added, KeyHandle};

/// What [`entry`](crate::WorkQueue::entry) takes in a queue whose keys are `N`: an `N`, or in a
/// [`ValueQueue<K, V>`](crate::ValueQueue) also a `K`.
#[expect(private_bounds, reason = "sealed")]
pub trait IntoKey<N>: Hash + Eq + Stored<N> {}

impl<N, P: Hash + Eq + Stored<N>> IntoKey<N> for P {}

/// The conversions of [`IntoKey`].
pub(crate) trait Stored<N>: Sized {
    fn into_key(self) -> N;
    fn from_key(key: N) -> Self;
    fn of(key: &N) -> &Self;
}

impl<K> Stored<K> for K {
    fn into_key(self) -> K {
        self
    }

    fn from_key(key: K) -> K {
        key
    }

    fn of(key: &K) -> &K {
        key
    }
}

/// The key of an [`Entry`](super::Entry), in a queue whose keys are `N`: [`Owned`], [`Borrowed`], or a
/// reference to a [`KeyHandle`].
#[expect(private_bounds, reason = "sealed")]
pub trait EntryKey<N>: Key<N> {
    /// What [`Full`](crate::Full) gives back: the key, the reference to it, or that to the handle.
    type Back;

    #[doc(hidden)]
    fn back(self) -> Self::Back;
}

/// Where and how urgently an entry adds its key.
pub(crate) struct Spot<'q, N> {
    pub(crate) core: &'q Arc<Core<N>>,
    pub(crate) level: Level,
}

impl<N> Clone for Spot<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Spot<'_, N> {}

/// A key's pin, and the key itself unless it is interned by this; or the key, without room for it.
type Pinning<N, X> = Result<(Pinned<N>, Option<X>), X>;

/// What an entry does with its key.
pub(crate) trait Key<N>: Sized {
    /// Adds the key at a level, if `share` has or gets room for it.
    fn add(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Result<Added, Self>;

    /// Pins the key's node, and interns the key first, if necessary and if `share` has or gets room for it. Also
    /// returns the key, if it was interned already or is only a reference to it.
    fn pin(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Pinning<N, Self>;

    /// Pins the key's node, if the key is interned.
    fn find(&self, at: Spot<'_, N>) -> Option<Pinned<N>>;

    /// Adds the key at a level after a delay, if `share` has or gets room for it.
    fn delay(self, at: Spot<'_, N>, wait: Wait, share: &mut Share<'_>) -> Result<Added, Self>
    where
        N: Send + Sync + 'static,
    {
        if at.core.is_shutting_down() {
            return Ok(Added::ShutDown);
        }
        let core = at.core;
        if wait.is_zero() {
            let added = self.add(at, share)?;
            if added.is_accepted() {
                core.note(Event::Retried);
            }
            return Ok(added);
        }
        let (pinned, key) = self.pin(at, share)?;
        let added = core.delay_in(pinned.0.clone(), at.level, wait, share);
        drop(pinned);
        added
            .map(|(added, _)| added)
            .ok_or_else(|| key.expect("a key that this call has interned has room"))
    }
}

/// The key of [`WorkQueue::entry`](crate::WorkQueue::entry).
#[derive(Debug)]
pub struct Owned<P> {
    pub(crate) key: P,
    pub(crate) hash: u64,
}

impl<N: Eq, P: IntoKey<N>> EntryKey<N> for Owned<P> {
    type Back = P;

    fn back(self) -> P {
        self.key
    }
}

impl<N: Eq, P: IntoKey<N>> Key<N> for Owned<P> {
    fn add(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Result<Added, Self> {
        let Owned { key, hash } = self;
        let added = at.core.add_at(hash, at.level, key.into_key(), share);
        let back = |key| Owned {
            key: P::from_key(key),
            hash,
        };
        added.map_err(back)
    }

    fn pin(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Pinning<N, Self> {
        let Owned { key, hash } = self;
        let back = |key| Owned {
            key: P::from_key(key),
            hash,
        };
        let pinned = at.core.pin_in(hash, key.into_key(), share);
        pinned
            .map(|(pin, known)| (Pinned(pin), known.map(back)))
            .map_err(back)
    }

    fn find(&self, at: Spot<'_, N>) -> Option<Pinned<N>> {
        let eq = |known: &N| *P::of(known) == self.key;
        at.core.keys.lock(self.hash).pin(self.hash, eq).map(Pinned)
    }
}

/// The key of [`WorkQueue::entry_ref`](crate::WorkQueue::entry_ref), which is copied only if it is unknown.
#[derive(Debug)]
pub struct Borrowed<'k, Q: ?Sized> {
    pub(super) key: &'k Q,
    pub(crate) hash: u64,
}

impl<Q: ?Sized> Clone for Borrowed<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Borrowed<'_, Q> {}

impl<Q: ToOwned + Eq + ?Sized> Borrowed<'_, Q> {
    /// Returns whether a key that is interned is this one.
    pub(crate) fn is<N>(self, known: &N) -> bool
    where
        Q::Owned: IntoKey<N>,
    {
        *<Q::Owned as Stored<N>>::of(known).borrow() == *self.key
    }

    /// Returns a copy of the key.
    pub(crate) fn to_owned(self) -> Q::Owned {
        self.key.to_owned()
    }
}

impl<'k, N: Eq, Q: ToOwned<Owned: IntoKey<N>> + Eq + ?Sized> EntryKey<N> for Borrowed<'k, Q> {
    type Back = &'k Q;

    fn back(self) -> &'k Q {
        self.key
    }
}

impl<N: Eq, Q: ToOwned<Owned: IntoKey<N>> + Eq + ?Sized> Key<N> for Borrowed<'_, Q> {
    fn add(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Result<Added, Self> {
        let (Spot { core, level }, hash) = (at, self.hash);
        if let Some(added) = core.add_known(hash, level, |known| self.is(known), share) {
            return added.ok_or(self);
        }
        // Not under the lock: the copy is user code.
        let added = core.add_at(hash, level, self.to_owned().into_key(), share);
        added.map_err(|_copy| self)
    }

    fn pin(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Pinning<N, Self> {
        let shard = at.core.keys.lock(self.hash);
        if let Some(pin) = shard.pin(self.hash, |known| self.is(known)) {
            return Ok((Pinned(pin), Some(self)));
        }
        // Under the lock, as in `add_known`.
        if !share.admit(true, || false) {
            return Err(self);
        }
        drop(shard);
        let pinned = at.core.pin_in(self.hash, self.to_owned().into_key(), share);
        let (pin, _known) = pinned.map_err(|_copy| self)?;
        Ok((Pinned(pin), Some(self)))
    }

    fn find(&self, at: Spot<'_, N>) -> Option<Pinned<N>> {
        let eq = |known: &N| self.is(known);
        at.core.keys.lock(self.hash).pin(self.hash, eq).map(Pinned)
    }
}

impl<N> EntryKey<N> for &KeyHandle<N> {
    type Back = Self;

    fn back(self) -> Self {
        self
    }
}

impl<N> Key<N> for &KeyHandle<N> {
    fn add(self, at: Spot<'_, N>, share: &mut Share<'_>) -> Result<Added, Self> {
        let added = at.core.add_pinned_in(self.pin(), at.level, share);
        added.ok_or(self)
    }

    fn pin(self, at: Spot<'_, N>, _: &mut Share<'_>) -> Pinning<N, Self> {
        let pinned = self.find(at);
        pinned.map(|pinned| (pinned, Some(self))).ok_or(self)
    }

    fn find(&self, _: Spot<'_, N>) -> Option<Pinned<N>> {
        Some(Pinned(KeyHandle::pin(self).clone()))
    }
}
