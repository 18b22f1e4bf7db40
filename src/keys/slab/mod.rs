//! The memory of nodes: one slab per shard, guarded by that shard's lock.
//!
//! A slab is a list of chunks. A chunk is one allocation, aligned to its rounded-up size, so that
//! the chunk of a node is found by masking the node's address. Each chunk has its own free list
//! through the free slots. Chunks with a free slot form a linked list, the open list, and
//! insertions use its first chunk.
//!
//! Nodes are removed in bulk. After that the owner calls [`Slab::free_empty`]. Until then the removed
//! nodes' slots may stay unused.
//!
//! Chunks are numbered, so a node can also be found by its [`NodeIndex`], which has half the size
//! of its address: the number of its chunk, and its distance from the chunk's start.
//!
//! In a timed queue, each slot has room for the node's [`Times`] behind the node; in a queue with levels, groups or a
//! pace for its [`Seat`], behind both; and in a queue whose keys carry values for what the key [carries](Carried), at
//! the end.
//!
//! Nothing here is atomic: every caller holds the shard's lock or is the queue's last owner. What a node's chunk says
//! about its shard is read without: it never changes.
//! Dropping the slab leaks the nodes that are still in it, so the owner removes them first.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ptr::{NonNull, null_mut};

use crate::keys::carried::Carried;
use crate::keys::link::has_room_for;
use crate::keys::node::{Node, NodeRef};
use crate::keys::seat::Seat;
use crate::keys::times::Times;
use crate::sync::prefetch;

/// A chunk takes a page, or room for this many nodes if they are large.
const CHUNK_BYTES: usize = 4096;
const FEWEST_NODES: usize = 16;
/// The unit of a node's distance from the start of its chunk; every slot is aligned to it.
const UNIT: usize = 8;
/// Bytes left free at a chunk's end, so that the allocator's header of the next aligned chunk fits
/// there and does not cost another page.
const ALLOCATOR_HEADER: usize = 32;

union Slot<K> {
    node: ManuallyDrop<Node<K>>,
    next_free: Option<NonNull<Slot<K>>>,
}

/// The position of a node in its slab. No node has the index 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeIndex(pub(super) u32);

/// What each slot has room for behind its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideData {
    pub(crate) timed: bool,
    pub(crate) seated: bool,
    pub(crate) carries: bool,
}

impl SideData {
    /// The largest.
    const ALL: SideData = SideData {
        timed: true,
        seated: true,
        carries: true,
    };

    pub(crate) fn is_empty(self) -> bool {
        self == SideData::default()
    }
}

/// Returns the distance from a node to its seat.
const fn to_seat<K>(timed: bool) -> usize {
    size_of::<Slot<K>>() + if timed { size_of::<Times>() } else { 0 }
}

/// Returns the address of a node's times, in a slab that has them.
#[inline]
pub(crate) fn times_of<K>(node: NodeRef<K>) -> NonNull<Times> {
    // SAFETY: inside the node's slot, or at its end.
    unsafe { node.0.cast::<Slot<K>>().add(1).cast() }
}

/// Returns the address of a node's seat, in a slab that has seats, and has times if `timed`.
#[inline]
pub(crate) fn seat_of<K>(node: NodeRef<K>, timed: bool) -> NonNull<Seat> {
    // SAFETY: inside the node's slot, or at its end.
    unsafe { node.0.byte_add(to_seat::<K>(timed)).cast() }
}

/// The header of a chunk: 32 bytes, so that small nodes behind it lie in one cache line each.
#[repr(align(32))]
struct Chunk<K> {
    /// The index of the slab's shard.
    shard: u32,
    head: Head<K>,
}

/// What the holder of the shard's lock changes.
struct Head<K> {
    /// Its index in the slab's list of chunks.
    number: u32,
    /// The number of nodes in use.
    live: u16,
    /// The number of slots used at least once; the others have never been written.
    fresh: u16,
    free: Option<NonNull<Slot<K>>>,
    /// The next chunk on the open list.
    next: Option<NonNull<Chunk<K>>>,
}

/// A slab. The fields that a lookup reads come first.
#[repr(C)]
pub(crate) struct Slab<K, V> {
    /// All chunks by their numbers, and null where there is no chunk.
    chunks: Vec<*mut Chunk<K>>,
    /// The numbers below this one have chunks.
    dense: u32,
    /// The index of the slab's shard.
    shard: u32,
    /// The first chunk of the open list.
    open: Option<NonNull<Chunk<K>>>,
    /// The distance from one slot to the next, in bytes.
    stride: u32,
    /// The number of slots in a chunk.
    slots: u16,
    /// What the slots have room for behind the nodes.
    side_data: SideData,
    _nodes: PhantomData<(Node<K>, Carried<V>)>,
}

// SAFETY: the slab owns its chunks and gives out only addresses; the holders of tokens send and
// share its nodes between threads.
unsafe impl<K: Send + Sync, V: Send> Send for Slab<K, V> {}

impl<K, V> Slab<K, V> {
    const FIRST_SLOT: usize = size_of::<Chunk<K>>().next_multiple_of(Self::SLOT_ALIGN);

    /// The alignment of a chunk; a chunk is within one such block, which has room for at least
    /// [`FEWEST_NODES`] with all that can be behind them.
    const ALIGN: usize = {
        let fewest =
            Self::FIRST_SLOT + FEWEST_NODES * Self::stride_with(SideData::ALL) + ALLOCATOR_HEADER;
        let align = fewest.next_power_of_two();
        if align > CHUNK_BYTES {
            align
        } else {
            CHUNK_BYTES
        }
    };

    /// The number of lower bits of an index, which hold the distance from the chunk's start in
    /// units.
    const DISTANCE_BITS: u32 = {
        assert!(align_of::<Slot<K>>().is_multiple_of(UNIT));
        (Self::ALIGN / UNIT).trailing_zeros()
    };

    /// The alignment of what is in a slot.
    const SLOT_ALIGN: usize = {
        let (slot, carried) = (align_of::<Slot<K>>(), align_of::<Carried<V>>());
        if slot > carried { slot } else { carried }
    };

    /// Returns the distance from a node to what its key carries, which is behind all else.
    pub(crate) const fn to_carried(data: SideData) -> usize {
        let seat = if data.seated { size_of::<Seat>() } else { 0 };
        (to_seat::<K>(data.timed) + seat).next_multiple_of(align_of::<Carried<V>>())
    }

    const fn stride_with(data: SideData) -> usize {
        let carried = if data.carries {
            size_of::<Carried<V>>()
        } else {
            0
        };
        (Self::to_carried(data) + carried).next_multiple_of(Self::SLOT_ALIGN)
    }

    /// Returns the address of what a node's key carries, if the slab has room for that.
    #[inline]
    fn carried_of(&self, node: NodeRef<K>) -> Option<NonNull<Carried<V>>> {
        // SAFETY: inside the node's slot.
        let address = || unsafe { node.0.byte_add(Self::to_carried(self.side_data)).cast() };
        self.side_data.carries.then(address)
    }

    /// Creates the empty slab of a shard, with room for `side_data` behind the nodes.
    pub(crate) fn new(shard: u32, side_data: SideData) -> Self {
        let stride = Self::stride_with(side_data);
        let slots = (Self::ALIGN - ALLOCATOR_HEADER - Self::FIRST_SLOT) / stride;
        Slab {
            chunks: Vec::new(),
            dense: 0,
            shard,
            open: None,
            stride: u32::try_from(stride).expect("a key is smaller than 4 GiB"),
            slots: u16::try_from(slots).expect("small nodes have chunks of a page"),
            side_data,
            _nodes: PhantomData,
        }
    }

    /// Returns the bytes of a slot.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    /// Returns the distance of a slot from the start of its chunk.
    #[inline]
    fn slot(&self, index: u16) -> usize {
        Self::FIRST_SLOT + index as usize * self.stride as usize
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.slot(self.slots), Self::ALIGN)
            .expect("a chunk's size is far below isize::MAX for any key that can exist")
    }

    #[inline]
    fn chunk_of(node: NodeRef<K>) -> NonNull<Chunk<K>> {
        let base = node.0.as_ptr().map_addr(|at| at & !(Self::ALIGN - 1));
        // SAFETY: not null, because no chunk is at address 0.
        unsafe { NonNull::new_unchecked(base.cast()) }
    }

    /// Returns the index of a node's shard.
    ///
    /// # Safety
    ///
    /// The node is in a slab, and interned.
    pub(crate) unsafe fn shard_of(node: NodeRef<K>) -> usize {
        // SAFETY: the chunk is alive, because its node is. No reference to the chunk: another thread may have one to
        // its head.
        unsafe { (*Self::chunk_of(node).as_ptr()).shard as usize }
    }

    /// Returns the index of a node.
    ///
    /// # Safety
    ///
    /// The node is in this slab.
    #[inline]
    pub(crate) unsafe fn index_of(&self, node: NodeRef<K>) -> NodeIndex {
        // SAFETY: the chunk is alive, because its node is.
        let number = unsafe { (*Self::chunk_of(node).as_ptr()).head.number };
        let distance = node.0.addr().get() % Self::ALIGN / UNIT;
        // The distance is below 2^DISTANCE_BITS; see `grow` for the number.
        NodeIndex(number << Self::DISTANCE_BITS | distance as u32)
    }

    /// Returns the node with this index.
    ///
    /// # Safety
    ///
    /// The index is that of a node in this slab.
    #[inline]
    pub(crate) unsafe fn node(&self, index: NodeIndex) -> NodeRef<K> {
        let number = (index.0 >> Self::DISTANCE_BITS) as usize;
        let distance = index.0 as usize % (1 << Self::DISTANCE_BITS) * UNIT;
        // SAFETY: by the caller's promise.
        unsafe {
            let chunk = *self.chunks.get_unchecked(number);
            NodeRef(NonNull::new_unchecked(chunk.byte_add(distance).cast()))
        }
    }

    /// Prefetches the first line of a node, whose index may be any.
    #[inline]
    pub(crate) fn prefetch(&self, index: NodeIndex) {
        let number = (index.0 >> Self::DISTANCE_BITS) as usize;
        let distance = index.0 as usize % (1 << Self::DISTANCE_BITS) * UNIT;
        if let Some(chunk) = self.chunks.get(number) {
            prefetch(chunk.wrapping_byte_add(distance));
        }
    }

    /// Moves `node` into the slab.
    #[inline]
    pub(crate) fn insert(&mut self, node: Node<K>) -> NodeRef<K> {
        let chunk = self.open.unwrap_or_else(|| self.grow());
        // SAFETY: the chunk is alive, and has a free slot because it is on the open list: either on
        // its free list, or among those never used.
        unsafe {
            let head = &mut (*chunk.as_ptr()).head;
            let slot = match head.free {
                Some(slot) => {
                    head.free = slot.as_ref().next_free;
                    slot
                }
                None => {
                    let at = self.slot(head.fresh);
                    head.fresh += 1;
                    chunk.byte_add(at).cast()
                }
            };
            head.live += 1;
            if head.live == self.slots {
                self.open = head.next;
            }
            slot.write(Slot {
                node: ManuallyDrop::new(node),
            });
            let node = NodeRef(slot.cast());
            if !self.side_data.is_empty() {
                self.init_side_data(node);
            }
            node
        }
    }

    /// Initialises what is behind a node.
    ///
    /// # Safety
    ///
    /// The node is in this slab, and no other thread can reach it.
    #[inline]
    unsafe fn init_side_data(&self, node: NodeRef<K>) {
        // SAFETY: the slots have room for it, and by the caller's promise.
        unsafe {
            if self.side_data.timed {
                times_of(node).write(Times::default());
            }
            if self.side_data.seated {
                seat_of(node, self.side_data.timed).write(Seat::default());
            }
            if let Some(carried) = self.carried_of(node) {
                carried.write(Carried::default());
            }
        }
    }

    /// Removes a node and moves its key out, and what that carries. The caller calls [`free_empty`](Self::free_empty) afterwards.
    ///
    /// # Safety
    ///
    /// The node came from `insert` on this slab, was not removed since, and no other thread can
    /// reach it any more.
    pub(crate) unsafe fn remove(&mut self, node: NodeRef<K>) -> (K, Option<Carried<V>>) {
        let place = node.0.cast::<Slot<K>>();
        // SAFETY: by the caller's promise; the moved key is not read again.
        let key = ManuallyDrop::into_inner(unsafe { place.read().node }).key;
        // SAFETY: as above.
        let carried = self.carried_of(node).map(|at| unsafe { at.read() });
        let chunk = Self::chunk_of(node);
        // SAFETY: the chunk and its slot are alive, and only the caller accesses them.
        unsafe {
            let head = &mut (*chunk.as_ptr()).head;
            place.write(Slot {
                next_free: head.free,
            });
            head.free = Some(place);
            head.live -= 1;
        }
        (key, carried)
    }

    #[cfg(test)]
    pub(crate) fn address_of_chunks(&self) -> usize {
        std::ptr::from_ref(&self.chunks).addr()
    }

    /// Frees the empty chunks, except for `spare` of them, which prevents repeated allocation, and
    /// puts the chunks with a free slot on the open list. Called after nodes were removed.
    pub(crate) fn free_empty(&mut self, mut spare: usize) {
        let layout = self.layout();
        let mut last = &mut self.open;
        for place in &mut self.chunks {
            let Some(chunk) = NonNull::new(*place) else {
                continue;
            };
            // SAFETY: the chunk is alive and in this slab, and the reference is the only one.
            let head = unsafe { &mut (*chunk.as_ptr()).head };
            if head.live == self.slots {
                continue;
            }
            if head.live == 0 && spare == 0 {
                *place = null_mut();
                // SAFETY: allocated with this layout, on no list any more, and without a node that
                // a thread could reach.
                unsafe { dealloc(chunk.as_ptr().cast(), layout) };
                continue;
            }
            spare -= usize::from(head.live == 0);
            *last = Some(chunk);
            last = &mut head.next;
        }
        *last = None;
        // Forget the numbers at the end, so that the list follows the chunks.
        let used = self.chunks.iter().rposition(|chunk| !chunk.is_null());
        self.chunks.truncate(used.map_or(0, |last| last + 1));
        self.dense = 0;
    }

    /// Frees all empty chunks, and unused capacity of the list.
    pub(crate) fn shrink(&mut self) {
        self.free_empty(0);
        self.chunks.shrink_to_fit();
    }

    /// Allocates a new chunk. If all numbers are in use, with 32 GiB in one shard, or the chunk is
    /// at an address that the ring has no room for, this is an allocation failure.
    #[cold]
    fn grow(&mut self) -> NonNull<Chunk<K>> {
        let layout = self.layout();
        let mut vacant = self.dense as usize..self.chunks.len();
        let number = vacant.find(|&number| self.chunks[number].is_null());
        let number = number.unwrap_or(self.chunks.len());
        // SAFETY: the layout's size is not zero, because a chunk has a header.
        let chunk = NonNull::new(unsafe { alloc(layout) }.cast::<Chunk<K>>())
            .filter(|chunk| has_room_for(chunk.addr().get()))
            .filter(|_| number <= (u32::MAX >> Self::DISTANCE_BITS) as usize);
        let Some(chunk) = chunk else {
            handle_alloc_error(layout)
        };
        if number == self.chunks.len() {
            self.chunks.push(null_mut());
        }
        self.chunks[number] = chunk.as_ptr();
        self.dense = number as u32 + 1;
        // SAFETY: freshly allocated with room and alignment for a header.
        unsafe {
            chunk.write(Chunk {
                shard: self.shard,
                head: Head {
                    number: number as u32,
                    live: 0,
                    fresh: 0,
                    free: None,
                    next: None,
                },
            });
        }
        self.open = Some(chunk);
        chunk
    }
}

impl<K, V> Drop for Slab<K, V> {
    fn drop(&mut self) {
        self.shrink();
    }
}

#[cfg(test)]
mod tests;
