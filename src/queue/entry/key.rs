//! How the key of an entry is given: owned, borrowed, or by a handle.

use std::borrow::Borrow;

use crate::engine::Core;
use crate::keys::node::Pinned;
use crate::keys::state::Level;
use crate::metrics::Event;
use crate::sync::Arc;
use crate::timer::Wait;
use crate::values::{Change, Merger};
use crate::wait::room::Share;
use crate::{Added, KeyHandle};

/// The key of an [`Entry`](super::Entry): [`Owned`], [`Borrowed`], [`Parts`](super::parts::Parts), or a reference to a
/// [`KeyHandle`].
#[expect(private_bounds, reason = "sealed")]
pub trait EntryKey<K, V>: Key<K, V> {
    /// What [`Full`](crate::Full) gives back: the key, the reference to it, or that to the handle.
    type Back;

    #[doc(hidden)]
    fn back(self) -> Self::Back;
}

/// Where and how urgently an entry adds its key.
pub(crate) struct Spot<'q, K, V> {
    pub(crate) core: &'q Arc<Core<K, V>>,
    pub(crate) level: Level,
}

impl<K, V> Clone for Spot<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Spot<'_, K, V> {}

/// A key's pin, and the key itself unless it is interned by this; or the key, without room for it.
pub(super) type Pinning<K, X> = Result<(Pinned<K>, Option<X>), X>;

/// What an entry does with its key.
pub(crate) trait Key<K, V>: Sized {
    /// Adds the key as [`WorkQueue::add`](crate::WorkQueue::add) does.
    fn add_plain(self, core: &Arc<Core<K, V>>) -> Added {
        let level = core.default_level();
        let added = self.add(Spot { core, level }, &mut Share::exceeding(core.room()));
        added.unwrap_or_else(|_| unreachable!("a share that exceeds the bound admits every key"))
    }

    /// Adds the key at a level, if `share` has or gets room for it.
    fn add(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Result<Added, Self>;

    /// Pins the key's node, and interns the key first, if necessary and if `share` has or gets room for it. Also
    /// returns the key, if it was interned already or is only a reference to it.
    fn pin(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Pinning<K, Self>;

    /// Pins the key's node, if the key is interned.
    fn find(&self, at: Spot<'_, K, V>) -> Option<Pinned<K>>;

    /// Adds the key at a level, and changes what waits for its next delivery.
    fn change(self, at: Spot<'_, K, V>, merger: &Merger<V>, change: impl Change<V>) -> Added;

    /// Adds the key at a level after a delay, if `share` has or gets room for it.
    fn delay(self, at: Spot<'_, K, V>, wait: Wait, share: &mut Share<'_>) -> Result<Added, Self>
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
    {
        if at.core.closing.has_begun() {
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
pub struct Owned<K> {
    pub(super) key: K,
    pub(super) hash: u64,
}

impl<K: Eq + Send + Sync + 'static, V: Send + 'static> EntryKey<K, V> for Owned<K> {
    type Back = K;

    fn back(self) -> K {
        self.key
    }
}

impl<K: Eq + Send + Sync + 'static, V: Send + 'static> Key<K, V> for Owned<K> {
    fn add(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Result<Added, Self> {
        let Owned { key, hash } = self;
        let added = at.core.add_at(hash, at.level, key, share);
        added.map_err(|key| Owned { key, hash })
    }

    fn pin(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Pinning<K, Self> {
        let Owned { key, hash } = self;
        let back = |key| Owned { key, hash };
        let pinned = at.core.pin_in(hash, key, share);
        pinned
            .map(|(pin, known)| (Pinned(pin), known.map(back)))
            .map_err(back)
    }

    fn find(&self, at: Spot<'_, K, V>) -> Option<Pinned<K>> {
        let eq = |known: &K| *known == self.key;
        at.core.keys.lock(self.hash).pin(self.hash, eq).map(Pinned)
    }

    #[inline]
    fn change(self, at: Spot<'_, K, V>, merger: &Merger<V>, change: impl Change<V>) -> Added {
        at.core
            .update(merger, (self.hash, at.level), self.key, change)
    }
}

/// The key of [`WorkQueue::entry_ref`](crate::WorkQueue::entry_ref), which is copied only if it is unknown.
#[derive(Debug)]
pub struct Borrowed<'k, Q: ?Sized> {
    pub(super) key: &'k Q,
    pub(super) hash: u64,
}

impl<Q: ?Sized> Clone for Borrowed<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Borrowed<'_, Q> {}

impl<Q: ToOwned + Eq + ?Sized> Borrowed<'_, Q> {
    /// Returns whether a key that is interned is this one.
    fn is(self, known: &Q::Owned) -> bool {
        known.borrow() == self.key
    }
}

impl<'k, K, V, Q> EntryKey<K, V> for Borrowed<'k, Q>
where
    K: Eq + Send + Sync + 'static,
    V: Send + 'static,
    Q: ToOwned<Owned = K> + Eq + ?Sized,
{
    type Back = &'k Q;

    fn back(self) -> &'k Q {
        self.key
    }
}

impl<K, V, Q> Key<K, V> for Borrowed<'_, Q>
where
    K: Eq + Send + Sync + 'static,
    V: Send + 'static,
    Q: ToOwned<Owned = K> + Eq + ?Sized,
{
    #[inline(always)]
    fn add_plain(self, core: &Arc<Core<K, V>>) -> Added {
        // `move`: closures that borrow from the stack make the fast path store what they borrow.
        let eq = move |known: &K| self.is(known);
        core.add_interned(self.hash, eq, move |core, hash| {
            add_copy(core, hash, self.key)
        })
    }

    fn add(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Result<Added, Self> {
        let (Spot { core, level }, hash) = (at, self.hash);
        if let Some(added) = core.add_known(hash, level, |known| self.is(known), share) {
            return added.ok_or(self);
        }
        // Not under the lock: the copy is user code.
        let added = core.add_at(hash, level, self.key.to_owned(), share);
        added.map_err(|_copy| self)
    }

    fn pin(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Pinning<K, Self> {
        let shard = at.core.keys.lock(self.hash);
        if let Some(pin) = shard.pin(self.hash, |known| self.is(known)) {
            return Ok((Pinned(pin), Some(self)));
        }
        // Under the lock, as in `add_known`.
        if !share.admit(true, || false) {
            return Err(self);
        }
        drop(shard);
        let pinned = at.core.pin_in(self.hash, self.key.to_owned(), share);
        let (pin, _known) = pinned.map_err(|_copy| self)?;
        Ok((Pinned(pin), Some(self)))
    }

    fn find(&self, at: Spot<'_, K, V>) -> Option<Pinned<K>> {
        let eq = |known: &K| self.is(known);
        at.core.keys.lock(self.hash).pin(self.hash, eq).map(Pinned)
    }

    #[inline]
    fn change(self, at: Spot<'_, K, V>, merger: &Merger<V>, change: impl Change<V>) -> Added {
        let (core, at) = (at.core, (self.hash, at.level));
        let known = core.update_known(merger, at, |known| self.is(known), change);
        known.unwrap_or_else(|change| core.update(merger, at, self.key.to_owned(), change))
    }
}

/// Adds a copy of a key that was not interned. The copy is user code, so the shard's lock is not
/// held. If another thread interns the key meanwhile, `add` finds it.
#[inline(never)]
fn add_copy<K: Eq, V, Q>(core: &Core<K, V>, hash: u64, key: &Q) -> Added
where
    Q: ToOwned<Owned = K> + ?Sized,
{
    core.add(hash, key.to_owned())
}

impl<K: Send + Sync + 'static, V: Send + 'static> EntryKey<K, V> for &KeyHandle<K, V> {
    type Back = Self;

    fn back(self) -> Self {
        self
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Key<K, V> for &KeyHandle<K, V> {
    fn add(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Result<Added, Self> {
        let added = at.core.add_pinned_in(KeyHandle::pin(self), at.level, share);
        added.ok_or(self)
    }

    fn pin(self, at: Spot<'_, K, V>, _: &mut Share<'_>) -> Pinning<K, Self> {
        let pinned = self.find(at);
        pinned.map(|pinned| (pinned, Some(self))).ok_or(self)
    }

    fn find(&self, _: Spot<'_, K, V>) -> Option<Pinned<K>> {
        Some(Pinned(KeyHandle::pin(self).clone()))
    }

    #[inline]
    fn change(self, at: Spot<'_, K, V>, merger: &Merger<V>, change: impl Change<V>) -> Added {
        let pin = KeyHandle::pin(self);
        at.core
            .put_pinned(merger, pin, at.level, change, &mut &**at.core)
    }
}
