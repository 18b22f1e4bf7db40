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
//! Tokens are plain addresses: dropping one does nothing, and none outlives the table. A bare
//! [`NodeRef`] gives access only under its shard's lock.

use std::mem::offset_of;
use std::ptr::NonNull;

use crate::fifo::overflow::Link;
use crate::keys::delay::Delay;
use crate::keys::hash::ShortHash;
use crate::keys::seat::{Seat, Seated};
use crate::keys::slab::Slab;
use crate::keys::state::{Begun, KeyState, Level, Marked, State};
use crate::keys::times::{Timed, Times};
use crate::sync::atomic::AtomicPtr;

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

    /// Returns the node's times. `Timed` belongs to the node's queue.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    #[inline]
    pub(crate) unsafe fn times<'a>(self, _: &Timed) -> &'a Times {
        // SAFETY: in a slab that has times, by `Timed`; interned, by the caller's promise.
        unsafe { Slab::times_of(self).as_ref() }
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
        unsafe { self.get() }.link.next()
    }

    /// Returns the node's seat. `Seated` belongs to the node's queue.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    #[inline]
    pub(crate) unsafe fn seat<'a>(self, seated: &Seated) -> &'a Seat {
        // SAFETY: in a slab that has seats, by `Seated`; interned, by the caller's promise.
        unsafe { Slab::seat_of(self, seated.is_timed()).as_ref() }
    }
}

/// The result of an add to a node; see [`Marked`].
pub(crate) enum Added<K> {
    Queued(Queued<K>),
    Deferred(NodeRef<K>),
    Merged,
    /// Merged; the level of the queued key was raised, and the caller must move its entry
    /// ([`crate::fifo::groups`]).
    Raised(Pin<K>),
    Closed,
}

impl<K> Added<K> {
    /// # Safety
    ///
    /// As for [`NodeRef::get`], during the call.
    unsafe fn new(marked: Marked, node: NodeRef<K>) -> Self {
        match marked {
            Marked::Queued => Added::Queued(Queued(node)),
            Marked::Deferred => Added::Deferred(node),
            Marked::Merged => Added::Merged,
            // SAFETY: by the caller's promise.
            Marked::Raised => Added::Raised(unsafe { Pin::new(node) }),
            Marked::Closed => Added::Closed,
        }
    }
}

/// # Safety
///
/// The caller holds the node's shard's lock.
#[inline]
pub(crate) unsafe fn add_locked<K>(node: NodeRef<K>) -> Added<K> {
    // SAFETY: by the caller's promise.
    unsafe { Added::new(node.get().state.add_locked(), node) }
}

/// Adds at a level, 0 in a queue without levels, if `admit` lets the key become queued; see
/// [`KeyState::add_at`].
///
/// # Safety
///
/// As for [`add_locked`].
pub(crate) unsafe fn add_locked_at<K>(
    node: NodeRef<K>,
    level: Level,
    admit: impl FnMut(bool) -> bool,
) -> Option<Added<K>> {
    // SAFETY: by the caller's promise.
    let marked = unsafe { node.get() }.state.add_locked_at(level, admit)?;
    // SAFETY: by the caller's promise.
    Some(unsafe { Added::new(marked, node) })
}

/// The one FIFO entry of a queued key.
pub(crate) struct Queued<K>(NodeRef<K>);

impl<K> Queued<K> {
    /// Creates the entry of a key that was interned as queued.
    pub(crate) fn of_new(node: NodeRef<K>) -> Self {
        Queued(node)
    }

    pub(crate) fn node(&self) -> NodeRef<K> {
        self.0
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        // SAFETY: the token; a queued node stays interned.
        &unsafe { self.0.get() }.key
    }

    /// Sets the level of a key that was just interned, and that no other thread can reach yet.
    pub(crate) fn set_level(&self, level: Level) {
        if level > 0 {
            // SAFETY: the token; a queued node stays interned.
            unsafe { self.0.get() }.state.set_level(level);
        }
    }

    /// Returns the level of the key.
    pub(crate) fn level(&self) -> Level {
        // SAFETY: the token; a queued node stays interned.
        unsafe { self.0.get() }.state.level().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn times(&self, timed: &Timed) -> &Times {
        // SAFETY: the token; a queued node stays interned.
        unsafe { self.0.times(timed) }
    }

    /// Creates the entry of a queued key again.
    ///
    /// # Safety
    ///
    /// It is the one entry: the other is used no more.
    pub(crate) unsafe fn again(node: NodeRef<K>) -> Self {
        Queued(node)
    }

    pub(crate) fn seat(&self, seated: &Seated) -> &Seat {
        // SAFETY: the token; a queued node stays interned.
        unsafe { self.0.seat(seated) }
    }

    /// Begins the delivery. Returns also whether a shut-down had closed or abandoned the key.
    #[inline]
    pub(crate) fn begin(self) -> (Held<K>, Begun) {
        // SAFETY: the token; a queued node stays interned.
        let begun = unsafe { self.0.get() }.state.begin();
        (Held(self.0), begun)
    }

    /// Returns the address of the node's link.
    #[inline]
    pub(crate) fn link(&self) -> NonNull<Link> {
        // SAFETY: inside the node.
        unsafe { self.0.0.byte_add(offset_of!(Node<K>, link)).cast() }
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
        Queued(NodeRef(node))
    }
}

/// The right to process one key.
pub(crate) struct Held<K>(NodeRef<K>);

impl<K> Held<K> {
    #[inline]
    pub(crate) fn key(&self) -> &K {
        // SAFETY: the token; a node being processed stays interned.
        &unsafe { self.0.get() }.key
    }

    #[inline]
    pub(crate) fn times(&self, timed: &Timed) -> &Times {
        // SAFETY: the token; a node being processed stays interned.
        unsafe { self.0.times(timed) }
    }

    pub(crate) fn seat(&self, seated: &Seated) -> &Seat {
        // SAFETY: the token; a node being processed stays interned.
        unsafe { self.0.seat(seated) }
    }

    pub(crate) fn pin(&self) -> Pin<K> {
        // SAFETY: the token; a node being processed stays interned.
        unsafe { Pin::new(self.0) }
    }

    /// Ends the processing. Returns the entry to push if the key was dirty, and whether a shut-down
    /// had closed the key.
    #[inline]
    pub(crate) fn finish(self) -> (Option<Queued<K>>, bool) {
        // SAFETY: the token, which ends here.
        let (phase, closed) = unsafe { self.0.get() }.state.finish();
        ((phase == State::Queued).then_some(Queued(self.0)), closed)
    }
}

/// Keeps a node interned. The holder must end it with [`Pin::unpin`].
pub(crate) struct Pin<K>(NodeRef<K>);

impl<K> Pin<K> {
    /// # Safety
    ///
    /// As for [`NodeRef::get`], during the call.
    pub(crate) unsafe fn new(node: NodeRef<K>) -> Self {
        // SAFETY: by the caller's promise.
        unsafe { node.get() }.state.pin();
        Pin(node)
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        // SAFETY: pinned.
        &unsafe { self.0.get() }.key
    }

    #[inline]
    pub(crate) fn add(&self) -> Added<K> {
        // SAFETY: pinned.
        unsafe { Added::new(self.0.get().state.add_pinned(), self.0) }
    }

    /// Adds at a level, 0 in a queue without levels, if `admit` lets the key become queued; see
    /// [`KeyState::add_at`].
    pub(crate) fn add_at(&self, level: Level, admit: impl FnMut(bool) -> bool) -> Option<Added<K>> {
        // SAFETY: pinned.
        let marked = unsafe { self.0.get() }.state.add_at(level, admit)?;
        // SAFETY: pinned.
        Some(unsafe { Added::new(marked, self.0) })
    }

    /// Returns the level of a key that is queued or dirty.
    pub(crate) fn level(&self) -> Option<Level> {
        // SAFETY: pinned.
        unsafe { self.0.get() }.state.level()
    }

    pub(crate) fn node(&self) -> NodeRef<K> {
        self.0
    }

    pub(crate) fn seat(&self, seated: &Seated) -> &Seat {
        // SAFETY: pinned.
        unsafe { self.0.seat(seated) }
    }

    pub(crate) fn delay(&self) -> &Delay {
        // SAFETY: pinned.
        &unsafe { self.0.get() }.delay
    }

    pub(crate) fn phase(&self) -> State {
        // SAFETY: pinned.
        unsafe { self.0.get() }.state.phase()
    }

    pub(crate) fn state(&self) -> &KeyState {
        // SAFETY: pinned.
        &unsafe { self.0.get() }.state
    }

    pub(crate) fn unpin(&self) {
        // SAFETY: pinned until here.
        unsafe { self.0.get() }.state.unpin();
    }
}

impl<K> Clone for Pin<K> {
    fn clone(&self) -> Self {
        // SAFETY: pinned by `self`.
        unsafe { Pin::new(self.0) }
    }
}

/// A pin that ends when it is dropped, also by a panic.
pub(crate) struct Pinned<K>(pub(crate) Pin<K>);

impl<K> Drop for Pinned<K> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}
