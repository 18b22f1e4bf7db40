//! A node is one interned key and its state. All other modules refer to keys by their nodes.
//!
//! # Access to a node
//!
//! Nodes live in slabs ([`crate::keys::slab`]) and never move. A sweep removes only nodes that are
//! idle and unpinned, so the holder of one of these tokens may access the node without a lock:
//!
//! | token | means | created by | ends with |
//! | --- | --- | --- | --- |
//! | [`Queued`] | the one entry in the FIFO of a queued key | `add` or `finish` making it queued | `begin` |
//! | [`Held`] | one worker's right to process the key | `Queued::begin` | `finish` |
//! | [`Pin`] | the node stays interned | `Pin::new` under the shard's lock, `Held::pin`, or a clone | `unpin` |
//!
//! Tokens are plain addresses: dropping one does nothing, and none outlives the table. Without a token, a thread
//! may access a node under its shard's lock: [`Locked`] borrows the locked shard. A bare [`NodeRef`] gives no access.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::keys::carried::{Carried, Carries};
use crate::keys::delay::{Delay, Stamp};
use crate::keys::hash::ShortHash;
use crate::keys::link::Link;
use crate::keys::seat::{Seat, Seated};
use crate::keys::slab;
use crate::keys::state::{Admit, Begun, KeyState, Level, Marked, State};
use crate::keys::times::{Timed, Times};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::prefetch;

/// One key with its state.
pub(crate) struct Node<K> {
    pub(crate) state: KeyState,
    pub(crate) delay: Delay,
    /// For the key's entry in the FIFO.
    pub(crate) link: Link,
    pub(crate) key: K,
}

impl<K> Node<K> {
    pub(crate) fn new(hash: ShortHash, phase: State, closed: bool, key: K) -> Self {
        Node {
            state: KeyState::new(hash, phase, closed),
            delay: Delay::new(closed),
            link: Link::default(),
            key,
        }
    }

    /// Returns whether the key is queued, processing or delayed.
    pub(crate) fn is_known(&self) -> bool {
        self.known().is_some()
    }

    /// Returns the state of a key that is queued, processing or delayed.
    pub(crate) fn known(&self) -> Option<State> {
        // In this order: a retry sets a delay before its key becomes idle.
        let phase = self.state.phase();
        (phase != State::Idle || self.delay.due().is_some()).then_some(phase)
    }

    /// Returns whether the key waits for a retry.
    pub(crate) fn is_retrying(&self) -> bool {
        self.delay.pending().is_some_and(Stamp::is_retry) || self.state.is_queued_retry()
    }
}

pub(crate) struct NodeRef<K>(pub(crate) NonNull<Node<K>>);

impl<K> Clone for NodeRef<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for NodeRef<K> {}

// SAFETY: a `NodeRef` acts as a `&Node<K>`, and any thread that sweeps may drop the key; `K: Send +
// Sync` covers both.
unsafe impl<K: Send + Sync> Send for NodeRef<K> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync> Sync for NodeRef<K> {}

impl<K> NodeRef<K> {
    /// Returns the node.
    ///
    /// # Safety
    ///
    /// The caller holds its shard's lock, or one of the tokens, while the reference is used.
    #[inline]
    pub(crate) unsafe fn get<'a>(self) -> &'a Node<K> {
        // SAFETY: interned, by the caller's promise; a node is only shared from then on.
        unsafe { self.0.as_ref() }
    }

    /// Returns where the address of the next node is, in a list of queued keys.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    pub(crate) unsafe fn next<'a>(self) -> &'a AtomicPtr<Link>
    where
        K: 'a,
    {
        // SAFETY: by the caller's promise.
        &unsafe { self.get() }.link.next
    }

    /// Returns the node's seat. `Seated` belongs to the node's queue.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    #[inline]
    pub(crate) unsafe fn seat<'a>(self, seated: &Seated) -> &'a Seat {
        // SAFETY: in a slab that has seats, by `Seated`; interned, by the caller's promise.
        unsafe { slab::seat_of(self, seated.is_timed()).as_ref() }
    }

    /// Returns what the key carries. `Carries` belongs to the node's queue.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    #[inline]
    pub(crate) unsafe fn carried<'a, V>(self, carries: &Carries<V>) -> &'a Carried<V> {
        // SAFETY: in a slab whose slots have it there, by `Carries`; interned, by the caller's promise.
        unsafe { self.0.byte_add(carries.distance()).cast().as_ref() }
    }
}

/// The result of an add to a node; see [`Marked`].
pub(crate) enum Added<K> {
    Queued(Queued<K>),
    Deferred,
    Merged,
    /// Merged; the level of the queued key was raised, and the caller must move its entry
    /// ([`crate::fifo::groups`]).
    Raised(Pin<K>),
    Closed,
    /// The add waits for the key's retry; nothing changed.
    Delayed,
}

impl<K> Added<K> {
    fn new(marked: Marked, node: &Interned<K>) -> Self {
        match marked {
            Marked::Queued => Added::Queued(Queued::of_new(node.0)),
            Marked::Deferred => Added::Deferred,
            Marked::Merged => Added::Merged,
            Marked::Raised => Added::Raised(node.pin()),
            Marked::Closed => Added::Closed,
        }
    }
}

/// A node that stays interned as long as this is borrowed. It is in a token or in a [`Locked`], which keep the node:
/// see the header.
pub(crate) struct Interned<K>(NodeRef<K>);

/// A node of a shard that stays locked for `'s`.
pub(crate) struct Locked<'s, K>(Interned<K>, PhantomData<&'s ()>);

impl<K> Locked<'_, K> {
    /// # Safety
    ///
    /// The node is in the table of its shard, whose lock is held while this exists.
    #[inline]
    pub(crate) unsafe fn new(node: NodeRef<K>) -> Self {
        Locked(Interned(node), PhantomData)
    }

    #[inline]
    pub(crate) fn get(&self) -> &Node<K> {
        self.0.get()
    }

    #[inline]
    pub(crate) fn add(&self) -> Added<K> {
        Added::new(self.get().state.add_locked(), self)
    }

    /// Adds at a level, 0 in a queue without levels, if `admit` lets the key become queued; see
    /// [`KeyState::add_at`].
    // Always, and what it calls: the call took a tenth of the instructions of a merged put.
    #[inline(always)]
    pub(crate) fn add_at(
        &self,
        level: Level,
        admit: impl FnMut(State) -> Admit,
    ) -> Option<Added<K>> {
        let marked = self.get().state.add_locked_at(level, admit)?;
        Some(Added::new(marked, self))
    }
}

impl<K> Deref for Locked<'_, K> {
    type Target = Interned<K>;

    #[inline]
    fn deref(&self) -> &Interned<K> {
        &self.0
    }
}

impl<K> Interned<K> {
    #[inline]
    fn get(&self) -> &Node<K> {
        // SAFETY: by the token.
        unsafe { self.0.get() }
    }

    #[inline]
    pub(crate) fn node(&self) -> NodeRef<K> {
        self.0
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.get().key
    }

    pub(crate) fn delay(&self) -> &Delay {
        &self.get().delay
    }

    /// Returns the node's times. `Timed` belongs to the node's queue.
    #[inline]
    pub(crate) fn times(&self, _: &Timed) -> &Times {
        // SAFETY: in a slab that has times, by `Timed`; interned, by the token.
        unsafe { slab::times_of(self.0).as_ref() }
    }

    #[inline]
    pub(crate) fn seat(&self, seated: &Seated) -> &Seat {
        // SAFETY: by the token.
        unsafe { self.0.seat(seated) }
    }

    /// Returns what the key carries.
    #[inline]
    pub(crate) fn carried<V>(&self, carries: &Carries<V>) -> &Carried<V> {
        // SAFETY: by the token.
        unsafe { self.0.carried(carries) }
    }

    /// Notes that a retry has merged into the key.
    pub(crate) fn turn(&self) {
        self.get().state.turn();
    }

    pub(crate) fn phase(&self) -> State {
        self.get().state.phase()
    }

    pub(crate) fn is_known(&self) -> bool {
        self.get().is_known()
    }

    /// Returns the level of a key that is queued or dirty.
    pub(crate) fn level(&self) -> Option<Level> {
        self.get().state.level()
    }

    /// Pins the node for the queue itself, or for a caller whose pin is [granted](Self::grant) next.
    pub(crate) fn pin(&self) -> Pin<K> {
        self.get().state.pin();
        Pin(Interned(self.0))
    }

    /// Checks that a caller may keep the pin that it has; see [`KeyState::grant`].
    pub(crate) fn grant(&self) {
        self.get().state.grant();
    }
}

macro_rules! tokens {
    ($($token:ident),*) => {$(
        impl<K> Deref for $token<K> {
            type Target = Interned<K>;

            #[inline]
            fn deref(&self) -> &Interned<K> {
                &self.0
            }
        }
    )*};
}

tokens!(Queued, Held, Pin);

/// The one FIFO entry of a queued key.
pub(crate) struct Queued<K>(Interned<K>);

impl<K> Queued<K> {
    /// Creates the entry of a key that was interned as queued.
    pub(crate) fn of_new(node: NodeRef<K>) -> Self {
        Queued(Interned(node))
    }

    /// Sets the level of a key that was just interned, and that no other thread can reach yet.
    pub(crate) fn set_level(&self, level: Level) {
        if level > 0 {
            self.get().state.set_level(level);
        }
    }

    /// Creates the entry of a queued key again.
    ///
    /// # Safety
    ///
    /// It is the one entry: the other is used no more.
    pub(crate) unsafe fn again(node: NodeRef<K>) -> Self {
        Queued(Interned(node))
    }

    /// Begins the delivery. Returns also whether a shut-down had closed or abandoned the key.
    #[inline]
    pub(crate) fn begin(self) -> (Held<K>, Begun) {
        let begun = self.get().state.begin();
        (Held(self.0), begun)
    }

    /// Returns the address of the node's link.
    #[inline]
    pub(crate) fn link(&self) -> NonNull<Link> {
        // SAFETY: inside the node.
        unsafe { self.node().0.byte_add(offset_of!(Node<K>, link)).cast() }
    }

    /// Links the next entry behind this one, before both are pushed.
    #[inline]
    pub(crate) fn set_next(&self, next: &Self) {
        // Ordering: Relaxed; the push publishes it.
        let place = &self.get().link.next;
        place.store(next.link().as_ptr(), Ordering::Relaxed);
    }

    /// Prefetches the node, and what the key carries at this distance from it.
    #[inline]
    pub(crate) fn prefetch(&self, carried: usize) {
        let node = self.node().0.as_ptr();
        prefetch(node);
        prefetch(node.wrapping_byte_add(carried));
        prefetch(node.wrapping_byte_add(carried + 64));
    }

    /// Returns the entry with this link.
    ///
    /// # Safety
    ///
    /// `link` was returned by [`link`](Self::link), and that entry is not used any more.
    #[inline]
    pub(crate) unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: it is the link of a node, by the caller's promise.
        let node = unsafe { link.byte_sub(offset_of!(Node<K>, link)).cast() };
        Queued(Interned(NodeRef(node)))
    }
}

/// The right to process one key.
pub(crate) struct Held<K>(Interned<K>);

impl<K> Held<K> {
    /// Ends the retry whose delivery has begun.
    pub(crate) fn clear_retry(&self) {
        self.get().state.clear_retry();
    }

    /// Disowns the delay that a shut-down has dropped; see [`Delay::disown_dropped`].
    pub(crate) fn disown_dropped(&self) {
        self.get().delay.disown_dropped();
    }

    /// Ends the processing. Returns the entry to push if the key was dirty, and whether a shut-down
    /// had closed the key.
    #[inline]
    pub(crate) fn finish(self) -> (Option<Queued<K>>, bool) {
        let finished = self.get().state.finish();
        self.finished(finished)
    }

    /// Like [`finish`](Self::finish), and counts the key before it becomes queued; see [`KeyState::finish_counted`].
    pub(crate) fn finish_counted(
        self,
        count: impl FnMut(bool, Option<bool>),
    ) -> (Option<Queued<K>>, bool) {
        let finished = self.get().state.finish_counted(count);
        self.finished(finished)
    }

    #[inline]
    fn finished(self, (phase, closed): (State, bool)) -> (Option<Queued<K>>, bool) {
        ((phase == State::Queued).then_some(Queued(self.0)), closed)
    }
}

/// Keeps a node interned. The holder must end it with [`Pin::unpin`].
pub(crate) struct Pin<K>(Interned<K>);

impl<K> Pin<K> {
    #[inline]
    pub(crate) fn add(&self) -> Added<K> {
        Added::new(self.get().state.add_pinned(), self)
    }

    /// Adds at a level, 0 in a queue without levels, if `admit` lets the key become queued; see
    /// [`KeyState::add_at`].
    pub(crate) fn add_at(
        &self,
        level: Level,
        admit: impl FnMut(State) -> Admit,
    ) -> Option<Added<K>> {
        let marked = self.get().state.add_at(level, admit)?;
        Some(Added::new(marked, self))
    }

    pub(crate) fn state(&self) -> &KeyState {
        &self.get().state
    }

    pub(crate) fn unpin(&self) {
        self.get().state.unpin();
    }
}

impl<K> Clone for Pin<K> {
    fn clone(&self) -> Self {
        self.pin()
    }
}

/// A pin that ends when it is dropped, also by a panic.
pub(crate) struct Pinned<K>(pub(crate) Pin<K>);

impl<K> Drop for Pinned<K> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}
