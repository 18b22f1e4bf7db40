//! Adding keys.
//!
//! # The fast path
//!
//! Most adds find their key in the table, or have a handle to it, and either merge with an earlier
//! add or make the key queued. That is the fast path. Everything else is in functions that are not
//! inlined, and the fast path ends with a call of one of them: if the queue is shut down or timed,
//! if adds and delays meet ([`super::meeting`]), if another thread holds the shard's lock, if the key is new, and to
//! push the key's entry. Because it has nothing left to do after such a call, the fast path saves
//! few registers; that took a fifth of its instructions.

use super::Core;
use crate::added::Added;
use crate::fifo::groups::grouping::Ready;
use crate::fifo::ring::Missed;
use crate::keys::node::{self, Locked, Pin, Queued};
use crate::keys::state::{Admit, Level, State};
use crate::keys::{PackedShard, Shard};
use crate::wait::room::Share;

/// Decides about a change of a key in this state: `share` has or gets room for it, and `is_known` is as for
/// [`Share::admit`].
#[inline]
fn admit(state: State, share: &mut Share<'_>, is_known: impl Fn() -> bool) -> Admit {
    let is_idle = state == State::Idle;
    match share.admit(is_idle, is_known) {
        true => Admit::of(share.is_retry()),
        false if is_idle => Admit::No,
        false => Admit::Again,
    }
}

impl<K, V> Core<K, V> {
    /// Locks the shard of this hash for the fast path. Returns `None` if the add has more to do than
    /// to add ([`Closing::is_plain`](super::shutdown::Closing::is_plain)), or has to wait for the
    /// lock.
    #[inline(always)]
    fn lock_plain(&self, hash: u64) -> Option<Shard<'_, K, V>> {
        match self.closing.is_plain() {
            true => self.keys.try_lock(hash),
            false => None,
        }
    }

    #[inline]
    pub(crate) fn add(&self, hash: u64, key: K) -> Added
    where
        K: Eq,
    {
        let Some(shard) = self.lock_plain(hash) else {
            return self.add_slow(hash, key);
        };
        match shard.add(hash, |interned| *interned == key) {
            Some(added) => {
                drop(shard);
                // `key`, whose drop is user code, is dropped on return, after the push and the
                // notification.
                self.after_add(added)
            }
            None => self.add_new(shard.pack(), hash, key),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slow(&self, hash: u64, key: K) -> Added
    where
        K: Eq,
    {
        let mut share = Share::exceeding(self.room());
        self.add_at(hash, self.default_level(), key, &mut share)
            .unwrap_or_else(|_| unreachable!("a share that exceeds the bound admits every key"))
    }

    /// Returns the level of an add that names none.
    pub(crate) fn default_level(&self) -> Level {
        self.ordered().map_or(0, |ordered| ordered.default_level)
    }

    pub(crate) fn has_levels(&self) -> bool {
        self.last_level() > 0
    }

    pub(crate) fn last_level(&self) -> Level {
        self.ordered().map_or(0, |ordered| ordered.last_level)
    }

    /// Returns this level, or the least urgent one if the queue has fewer.
    pub(crate) fn clamp_level(&self, level: usize) -> Level {
        let last = self.last_level();
        Level::try_from(level).map_or(last, |level| level.min(last))
    }

    /// Adds a key at a level, if `share` has or gets room for it, and otherwise returns the key.
    pub(crate) fn add_at(
        &self,
        hash: u64,
        level: Level,
        key: K,
        share: &mut Share<'_>,
    ) -> Result<Added, K>
    where
        K: Eq,
    {
        if self.closing.has_begun() {
            return Ok(Added::ShutDown);
        }
        let mut shard = self.keys.lock(hash);
        if let Some(found) = shard.find(hash, |interned| *interned == key) {
            let added = self.add_found(&found, level, share);
            drop(shard);
            // As in `add`, `key` is dropped after that.
            return added.map(|added| self.after_add_slow(added)).ok_or(key);
        }
        // As in `add_new`.
        if self.closing.has_begun() {
            return Ok(Added::ShutDown);
        }
        if !share.admit(true, || false) {
            return Err(key);
        }
        let (entry, swept) = shard.insert_queued(hash, key);
        entry.set_level(level);
        drop(shard);
        share.spend();
        self.enqueue(entry);
        drop(swept);
        Ok(Added::Queued)
    }

    /// Adds a key that is not interned to its shard.
    #[inline(never)]
    fn add_new(&self, shard: PackedShard<'_, K, V>, hash: u64, key: K) -> Added {
        let mut shard = self.keys.unpack(shard);
        // Read under the shard's lock, which the shut-down takes after it has begun: either the
        // walk finds the new node, or this load finds that the shut-down has begun.
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let (entry, swept) = shard.insert_queued(hash, key);
        drop(shard);
        self.enqueue(entry);
        drop(swept);
        Added::Queued
    }

    /// Adds the key for which `eq` holds; if it is not interned, returns what `unknown` does.
    #[inline(always)]
    pub(crate) fn add_interned(
        &self,
        hash: u64,
        eq: impl FnMut(&K) -> bool,
        unknown: impl FnOnce(&Self, u64) -> Added,
    ) -> Added {
        let Some(shard) = self.lock_plain(hash) else {
            return self.add_interned_slow(hash, eq, unknown);
        };
        let added = shard.add(hash, eq);
        drop(shard);
        match added {
            Some(added) => self.after_add(added),
            None => unknown(self, hash),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_interned_slow(
        &self,
        hash: u64,
        eq: impl FnMut(&K) -> bool,
        unknown: impl FnOnce(&Self, u64) -> Added,
    ) -> Added {
        let mut share = Share::exceeding(self.room());
        let added = self.add_known(hash, self.default_level(), eq, &mut share);
        added.flatten().unwrap_or_else(|| unknown(self, hash))
    }

    /// Adds the key for which `eq` holds at a level, if `share` has or gets room for it, and otherwise returns
    /// `Some(None)`. Returns `None` if it is not interned; then a share that may refuse has room for it.
    pub(crate) fn add_known(
        &self,
        hash: u64,
        level: Level,
        eq: impl FnMut(&K) -> bool,
        share: &mut Share<'_>,
    ) -> Option<Option<Added>> {
        if self.closing.has_begun() {
            return Some(Some(Added::ShutDown));
        }
        let shard = self.keys.lock(hash);
        let Some(found) = shard.find(hash, eq) else {
            // Under the lock: once it is unlocked, another thread may queue the key, which then needs no room (B1).
            let is_refused = share.may_refuse() && !share.admit(true, || false);
            return is_refused.then_some(None);
        };
        let added = self.add_found(&found, level, share);
        drop(shard);
        Some(added.map(|added| self.after_add_slow(added)))
    }

    /// Adds a key of this shard, if `share` has or gets room for it, unless the add waits for its retry
    /// ([`super::meeting`]). Records the add, if the queue is timed.
    #[inline(always)]
    pub(crate) fn add_found(
        &self,
        found: &Locked<'_, K>,
        level: Level,
        share: &mut Share<'_>,
    ) -> Option<node::Added<K>> {
        let Some(level) = self.meet_delay(found.delay(), level, share) else {
            return Some(node::Added::Delayed);
        };
        let added = found.add_at(level, |state| admit(state, share, || found.is_known()))?;
        if let node::Added::Queued(_) = added {
            share.spend();
        }
        self.note_added(&added, found);
        Some(added)
    }

    #[inline]
    pub(crate) fn add_pinned(&self, pin: &Pin<K>) -> Added {
        if self.closing.is_plain() {
            self.after_add(pin.add())
        } else {
            self.add_pinned_slow(pin)
        }
    }

    #[cold]
    fn add_pinned_slow(&self, pin: &Pin<K>) -> Added {
        self.add_pinned_at(pin, self.default_level())
    }

    pub(crate) fn add_pinned_at(&self, pin: &Pin<K>, level: Level) -> Added {
        let mut share = Share::exceeding(self.room());
        let added = self.add_pinned_in(pin, level, &mut share);
        added.unwrap_or(Added::ShutDown)
    }

    /// Adds the pinned key at a level, if `share` has or gets room for it, and otherwise returns `None`.
    pub(crate) fn add_pinned_in(
        &self,
        pin: &Pin<K>,
        level: Level,
        share: &mut Share<'_>,
    ) -> Option<Added> {
        if self.closing.has_begun() {
            return Some(Added::ShutDown);
        }
        let added = self.mark_pinned(pin, level, share)?;
        Some(self.after_add_slow(added))
    }

    /// Like [`add_found`](Self::add_found), for a pinned key.
    pub(crate) fn mark_pinned(
        &self,
        pin: &Pin<K>,
        level: Level,
        share: &mut Share<'_>,
    ) -> Option<node::Added<K>> {
        let shard = self.lock_for_delay(pin, share);
        let added = match self.meet_delay(pin.delay(), level, share) {
            Some(level) => self.add_in_share(pin, level, share),
            None => Some(node::Added::Delayed),
        };
        drop(shard);
        added
    }

    /// Adds the pinned key, and records the add, if the queue is timed.
    pub(super) fn add_in_share(
        &self,
        pin: &Pin<K>,
        level: Level,
        share: &mut Share<'_>,
    ) -> Option<node::Added<K>> {
        let is_known = || pin.is_known();
        let added = pin.add_at(level, |state| admit(state, share, is_known))?;
        match added {
            node::Added::Queued(_) => share.spend(),
            node::Added::Merged if share.is_retry() => pin.turn(),
            _ => {}
        }
        self.note_added(&added, pin);
        Some(added)
    }

    /// Pins the node of `key`, and interns it first if necessary, whether there is room or not; see
    /// [`pin_in`](Self::pin_in).
    #[inline]
    pub(crate) fn pin(&self, hash: u64, key: K) -> (Pin<K>, Option<K>)
    where
        K: Eq,
    {
        self.pin_in(hash, key, &mut Share::exceeding(None))
            .unwrap_or_else(|_| unreachable!("without a room there is room"))
    }

    /// Pins the node of `key`, and interns it first if necessary, if `share` has or gets room for it.
    /// Otherwise returns the key.
    ///
    /// Also returns `key` if it was interned already: dropping it is user code, so the caller first puts the
    /// pin where a panic releases it.
    #[inline]
    pub(crate) fn pin_in(
        &self,
        hash: u64,
        key: K,
        share: &mut Share<'_>,
    ) -> Result<(Pin<K>, Option<K>), K>
    where
        K: Eq,
    {
        let mut shard = self.keys.lock(hash);
        if let Some(pin) = shard.pin(hash, |interned| *interned == key) {
            return Ok((pin, Some(key)));
        }
        // Before the key is interned, for it cannot be given back after that.
        if !share.admit(true, || false) {
            drop(shard);
            return Err(key);
        }
        // Read under the lock, as in `add`: if the walk has passed this shard already, the node is
        // created closed.
        let closed = self.closing.has_begun();
        let (pin, swept) = shard.insert_pinned(hash, key, closed);
        drop(shard);
        drop(swept);
        Ok((pin, None))
    }

    // Always: a call that is not needed for a merged add costs handles a seventh.
    #[inline(always)]
    pub(crate) fn after_add(&self, added: node::Added<K>) -> Added {
        match added {
            node::Added::Queued(entry) => self.push_apart(entry),
            node::Added::Deferred => Added::Deferred,
            node::Added::Merged => Added::Merged,
            node::Added::Raised(pin) => self.raise(&pin),
            node::Added::Closed => Added::ShutDown,
            node::Added::Delayed => Added::Delayed,
        }
    }

    /// Moves a queued key to the tail of its level, which has become more urgent. The getter that was
    /// notified for it finds it there.
    #[cold]
    fn raise(&self, pin: &Pin<K>) -> Added {
        if let Some(groups) = self.groups() {
            groups.raise(pin);
        }
        pin.unpin();
        Added::Merged
    }

    /// Like [`after_add`](Self::after_add), for a queue that may have extras.
    #[inline(always)]
    pub(super) fn after_add_slow(&self, added: node::Added<K>) -> Added {
        match added {
            node::Added::Queued(entry) => {
                self.enqueue(entry);
                Added::Queued
            }
            added => self.after_add(added),
        }
    }

    #[inline]
    pub(crate) fn enqueue(&self, entry: Queued<K>) {
        if self.extras.is_some() {
            return self.enqueue_extras(entry);
        }
        self.push(entry);
    }

    /// Like [`enqueue`](Self::enqueue), for a queue that may have extras.
    #[cold]
    pub(crate) fn enqueue_extras(&self, entry: Queued<K>) {
        self.notify_ready(self.enqueue_unannounced(entry));
    }

    #[inline]
    fn push(&self, entry: Queued<K>) {
        match self.fifo.try_push(&entry) {
            Ok(()) => self.getters.notify(1),
            Err(missed) => self.push_missed(entry, missed),
        }
    }

    #[cold]
    fn push_missed(&self, entry: Queued<K>, missed: Missed) {
        self.fifo.push_missed(entry, missed);
        self.getters.notify(1);
    }

    // Never: see the header.
    #[inline(never)]
    pub(super) fn push_apart(&self, entry: Queued<K>) -> Added {
        self.push(entry);
        Added::Queued
    }

    /// Queues a key without a notification. Returns which one is to follow: the caller sees to it for each such key,
    /// and runs no user code before that.
    #[inline]
    fn enqueue_unannounced(&self, entry: Queued<K>) -> Ready {
        if let Some(watch) = self.watch() {
            watch.queued(&entry);
        }
        self.push_extras(entry)
    }

    /// Pushes an entry to the FIFO, or to what is instead of it, without a notification.
    #[inline]
    pub(super) fn push_extras(&self, entry: Queued<K>) -> Ready {
        match self.ordered() {
            None => {
                self.fifo.push(entry);
                Ready::One
            }
            Some(ordered) => ordered.groups.push(entry),
        }
    }

    /// Does what an add has left to do, without a notification. Returns which one is to follow.
    pub(super) fn after_add_unannounced(&self, added: node::Added<K>) -> Ready {
        match added {
            node::Added::Queued(entry) => self.enqueue_unannounced(entry),
            added => {
                self.after_add(added);
                Ready::Nothing
            }
        }
    }
}
