//! The memory of nodes: one slab per shard, guarded by that shard's lock.
//!
//! A slab is a list of chunks. A chunk is one allocation, aligned to its rounded-up size, so that
//! the chunk of a node is found by masking the node's address. Each chunk has its own free list
//! through the free slots. Chunks with a free slot form a doubly linked list, the open list, and
//! insertions use its first chunk. A chunk whose last node is freed goes back to the allocator,
//! except for one spare chunk, which prevents repeated allocation.
//!
//! Chunks are numbered, so a node can also be found by its [`NodeIndex`], which has half the size
//! of its address: the number of its chunk, and its distance from the chunk's start.
//!
//! In a timed queue, each slot has room for the node's [`Times`] behind the node, on the same cache
//! line or the next; otherwise it has none.
//!
//! Nothing here is atomic: every caller holds the shard's lock or is the queue's last owner.
//! Dropping the slab leaks the nodes that are still in it, with their keys, so the owner removes
//! them first (it finds them through the table).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ptr::{NonNull, null_mut};

use crate::fifo::ring::has_room_for;
use crate::keys::node::{Node, NodeRef};
use crate::keys::times::Times;

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

/// The header of a chunk: 32 bytes, so that small nodes behind it do not cross a cache line
/// boundary.
struct Chunk<K> {
    /// Its index in the slab's list of chunks.
    number: u32,
    /// The number of nodes in use.
    live: u16,
    /// The number of slots used at least once; the others have never been written.
    fresh: u16,
    free: Option<NonNull<Slot<K>>>,
    previous: Option<NonNull<Chunk<K>>>,
    next: Option<NonNull<Chunk<K>>>,
}

/// A slab. The fields that a lookup reads come first.
#[repr(C)]
pub(crate) struct Slab<K> {
    /// All chunks by their numbers, and null where there is no chunk.
    chunks: Vec<*mut Chunk<K>>,
    /// The numbers below `chunks.len()` without a chunk.
    vacant: Vec<u32>,
    /// The first chunk with a free slot.
    open: Option<NonNull<Chunk<K>>>,
    /// Whether one of the chunks is empty.
    spare: bool,
    shape: Shape,
    _nodes: PhantomData<Node<K>>,
}

/// The layout of a slab's chunks.
#[derive(Clone, Copy)]
struct Shape {
    /// Whether the slots have times behind the nodes.
    timed: bool,
    /// The distance from one slot to the next, in bytes.
    stride: u32,
    /// The number of slots in a chunk.
    slots: u16,
}

// SAFETY: the slab owns its chunks and gives out only addresses; the holders of tokens send and
// share its nodes between threads.
unsafe impl<K: Send + Sync> Send for Slab<K> {}

impl<K> Slab<K> {
    const FIRST_SLOT: usize = size_of::<Chunk<K>>().next_multiple_of(align_of::<Slot<K>>());

    /// The alignment of a chunk; a chunk is within one such block, which has room for at least
    /// [`FEWEST_NODES`] with their times.
    const ALIGN: usize = {
        let fewest = Self::FIRST_SLOT + FEWEST_NODES * Self::stride(true) + ALLOCATOR_HEADER;
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

    const fn stride(timed: bool) -> usize {
        let times = if timed { size_of::<Times>() } else { 0 };
        (size_of::<Slot<K>>() + times).next_multiple_of(align_of::<Slot<K>>())
    }

    fn shape(timed: bool) -> Shape {
        let stride = Self::stride(timed);
        let slots = (Self::ALIGN - ALLOCATOR_HEADER - Self::FIRST_SLOT) / stride;
        Shape {
            timed,
            stride: u32::try_from(stride).expect("a key is smaller than 4 GiB"),
            slots: u16::try_from(slots).expect("small nodes have chunks of a page"),
        }
    }

    fn layout(&self) -> Layout {
        let Shape { stride, slots, .. } = self.shape;
        Layout::from_size_align(
            Self::FIRST_SLOT + slots as usize * stride as usize,
            Self::ALIGN,
        )
        .expect("a chunk's size is far below isize::MAX for any key that can exist")
    }

    /// Creates an empty slab, with room for times behind the nodes if `timed`.
    pub(crate) fn new(timed: bool) -> Self {
        Slab {
            chunks: Vec::new(),
            vacant: Vec::new(),
            open: None,
            spare: false,
            shape: Self::shape(timed),
            _nodes: PhantomData,
        }
    }

    /// Returns the address of a node's times, in a slab that has them.
    #[inline]
    pub(crate) fn times_of(node: NodeRef<K>) -> NonNull<Times> {
        let behind = node.as_ptr().cast::<Slot<K>>().as_ptr().wrapping_add(1);
        // SAFETY: not null, because it is behind a pointer into an allocation.
        unsafe { NonNull::new_unchecked(behind.cast::<Times>()) }
    }

    /// Returns the chunk of a node.
    #[inline]
    fn chunk_of(node: NodeRef<K>) -> NonNull<Chunk<K>> {
        let base = node
            .as_ptr()
            .as_ptr()
            .map_addr(|at| at & !(Self::ALIGN - 1));
        // SAFETY: not null, because no chunk is at address 0.
        unsafe { NonNull::new_unchecked(base.cast::<Chunk<K>>()) }
    }

    /// Returns the index of a node.
    ///
    /// # Safety
    ///
    /// The node is in this slab.
    #[inline]
    pub(crate) unsafe fn index_of(&self, node: NodeRef<K>) -> NodeIndex {
        // SAFETY: the chunk is alive, because its node is.
        let number = unsafe { Self::chunk_of(node).as_ref() }.number;
        let distance = node.as_ptr().addr().get() % Self::ALIGN / UNIT;
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
        // SAFETY: by the caller's promise there is a chunk with this number, and a node at this
        // distance.
        unsafe {
            let chunk = *self.chunks.get_unchecked(number);
            NodeRef::new(NonNull::new_unchecked(chunk.byte_add(distance).cast()))
        }
    }

    /// Moves `node` into the slab.
    #[inline]
    pub(crate) fn insert(&mut self, node: Node<K>) -> NodeRef<K> {
        let chunk = match self.open {
            Some(chunk) => chunk,
            None => self.grow(),
        };
        // SAFETY: the chunk belongs to this slab, is alive, and has a free slot because it is on
        // the open list: either on its free list, whose slots are inside the chunk and hold a valid
        // link, or among those never used, which are inside the chunk as well.
        unsafe {
            let head = &mut *chunk.as_ptr();
            let slot = match head.free {
                Some(slot) => {
                    head.free = slot.as_ref().next_free;
                    slot
                }
                None => {
                    let slot = self.slot(chunk, head.fresh);
                    head.fresh += 1;
                    slot
                }
            };
            if head.live == 0 {
                self.spare = false;
            }
            head.live += 1;
            if head.live == self.shape.slots {
                self.unlink(chunk);
            }
            slot.write(Slot {
                node: ManuallyDrop::new(node),
            });
            let node = NodeRef::new(slot.cast());
            if self.shape.timed {
                Self::times_of(node).write(Times::new());
            }
            node
        }
    }

    /// Removes a node and moves its key out.
    ///
    /// # Safety
    ///
    /// The node came from `insert` on this slab, was not removed since, and no other thread can
    /// reach it any more.
    pub(crate) unsafe fn remove(&mut self, node: NodeRef<K>) -> K {
        let place = node.as_ptr().cast::<Slot<K>>();
        // SAFETY: by the caller's promise the slot holds a node that no other thread can reach; the
        // moved key is not read again.
        let key = ManuallyDrop::into_inner(unsafe { place.read().node }).key;
        let chunk = Self::chunk_of(node);
        // SAFETY: the node is in a chunk of this slab, and a chunk is within one aligned block, so
        // the start of the block is the chunk's header.
        unsafe {
            let head = &mut *chunk.as_ptr();
            place.write(Slot {
                next_free: head.free,
            });
            head.free = Some(place);
            let was_full = head.live == self.shape.slots;
            head.live -= 1;
            let is_empty = head.live == 0;
            // `head` is not used any more: the calls below create their own references to the
            // header.
            if was_full {
                self.link(chunk);
            }
            if is_empty {
                if self.spare {
                    self.give_back(chunk);
                } else {
                    self.spare = true;
                }
            }
        }
        key
    }

    #[cfg(test)]
    pub(crate) fn address_of_chunks(&self) -> usize {
        std::ptr::from_ref(&self.chunks).addr()
    }

    /// Frees the spare chunk, if there is one, and unused capacity of the lists.
    pub(crate) fn shrink(&mut self) {
        let mut at = self.open;
        while let Some(chunk) = at {
            // SAFETY: chunks on the open list belong to this slab and are alive; an empty one has
            // no node that a thread could reach, and `give_back` unlinks it before it frees it.
            unsafe {
                at = chunk.as_ref().next;
                if chunk.as_ref().live == 0 {
                    self.give_back(chunk);
                }
            }
        }
        self.spare = false;
        let used = self.chunks.iter().rposition(|chunk| !chunk.is_null());
        self.chunks.truncate(used.map_or(0, |last| last + 1));
        self.vacant
            .retain(|number| (*number as usize) < self.chunks.len());
        self.chunks.shrink_to_fit();
        self.vacant.shrink_to_fit();
    }

    /// Frees an empty chunk.
    ///
    /// # Safety
    ///
    /// `chunk` is alive, in this slab, on the open list, and has no node that a thread could reach.
    unsafe fn give_back(&mut self, chunk: NonNull<Chunk<K>>) {
        // SAFETY: by the caller's promise; it is removed from both lists before it is freed.
        unsafe {
            self.unlink(chunk);
            let number = chunk.as_ref().number;
            self.chunks[number as usize] = null_mut();
            self.vacant.push(number);
            dealloc(chunk.as_ptr().cast(), self.layout());
        }
    }

    /// Allocates a new chunk. If all numbers are in use, with 32 GiB in one shard, or the chunk is
    /// at an address that the ring has no room for, this is an allocation failure.
    #[cold]
    fn grow(&mut self) -> NonNull<Chunk<K>> {
        let layout = self.layout();
        let number = self.vacant.last().copied().or_else(|| self.next_number());
        // SAFETY: the layout's size is not zero, because a chunk has a header.
        let chunk = number.and_then(|_| NonNull::new(unsafe { alloc(layout) }.cast::<Chunk<K>>()));
        // A node's address has to fit in a slot of the ring.
        let chunk = chunk.filter(|chunk| has_room_for(chunk.addr().get()));
        let (Some(number), Some(chunk)) = (number, chunk) else {
            handle_alloc_error(layout)
        };
        if self.vacant.pop().is_some() {
            self.chunks[number as usize] = chunk.as_ptr();
        } else {
            self.chunks.push(chunk.as_ptr());
        }
        // SAFETY: freshly allocated with room and alignment for a header.
        unsafe {
            chunk.write(Chunk {
                number,
                live: 0,
                fresh: 0,
                free: None,
                previous: None,
                next: None,
            });
            self.link(chunk);
        }
        chunk
    }

    /// Returns the number of the next chunk at the end of the list, if it fits in an index.
    fn next_number(&self) -> Option<u32> {
        let number = u32::try_from(self.chunks.len()).ok()?;
        (number <= u32::MAX >> Self::DISTANCE_BITS).then_some(number)
    }

    /// # Safety
    ///
    /// `chunk` is alive and in this slab, and `index` is below the number of its slots.
    unsafe fn slot(&self, chunk: NonNull<Chunk<K>>, index: u16) -> NonNull<Slot<K>> {
        let at = Self::FIRST_SLOT + index as usize * self.shape.stride as usize;
        // SAFETY: inside the chunk's allocation.
        unsafe { chunk.byte_add(at).cast::<Slot<K>>() }
    }

    /// Puts `chunk` at the front of the open list.
    ///
    /// # Safety
    ///
    /// `chunk` is alive, in this slab, and not on the list.
    unsafe fn link(&mut self, mut chunk: NonNull<Chunk<K>>) {
        // SAFETY: by the caller's promise; chunks on the list are alive.
        unsafe {
            chunk.as_mut().previous = None;
            chunk.as_mut().next = self.open;
            if let Some(mut next) = self.open {
                next.as_mut().previous = Some(chunk);
            }
        }
        self.open = Some(chunk);
    }

    /// Takes `chunk` off the open list.
    ///
    /// # Safety
    ///
    /// `chunk` is alive, in this slab, and on the list.
    unsafe fn unlink(&mut self, chunk: NonNull<Chunk<K>>) {
        // SAFETY: by the caller's promise; its neighbours are alive.
        unsafe {
            let Chunk { previous, next, .. } = *chunk.as_ref();
            match previous {
                Some(mut previous) => previous.as_mut().next = next,
                None => self.open = next,
            }
            if let Some(mut next) = next {
                next.as_mut().previous = previous;
            }
        }
    }
}

impl<K> Drop for Slab<K> {
    fn drop(&mut self) {
        self.shrink();
    }
}

#[cfg(test)]
mod tests;
