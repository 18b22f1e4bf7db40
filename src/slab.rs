//! Where nodes live: one slab a shard, guarded by that shard's lock.
//!
//! A slab is a list of chunks. A chunk is one allocation, aligned to its rounded-up size, so that
//! the chunk of a node is found by masking the node's address. Each chunk has a free list of its
//! own that runs through the free slots; chunks with a free slot form a doubly linked list, and
//! nodes are taken from its front. A chunk whose last node is freed is given back to the
//! allocator, but for one that is kept against flutter.
//!
//! Chunks are numbered, and a node is found by its [`NodeIndex`], too, which takes half the room of its
//! address: the number of its chunk, and how far behind the chunk's start it is.
//!
//! In the slab of a queue that is timed each slot has room for the node's [`Times`] behind the node:
//! on the same cache line or the next, and in a queue that is not timed not there at all.
//!
//! Nothing here is atomic: every call is made under the shard's lock or by the queue's last
//! owner. Nodes that are still in the slab when it is dropped are leaked with their keys; the
//! owner frees them first (it finds them through the table).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ptr::{NonNull, null_mut};

use crate::node::{Node, NodeRef};
use crate::watch::Times;

/// A chunk takes a page, or room for this many nodes if they are large.
const CHUNK_BYTES: usize = 4096;
const FEWEST_NODES: usize = 16;
/// What a node's distance from the start of its chunk is counted in: every slot is aligned to that.
const UNIT: usize = 8;
/// Left free at a chunk's end, so that the allocator's own header of the next aligned chunk fits
/// there and does not cost another page.
const ALLOCATOR_HEADER: usize = 32;

union Slot<K> {
    node: ManuallyDrop<Node<K>>,
    next_free: Option<NonNull<Slot<K>>>,
}

/// Where a node is in its slab. No node has the index 0.
#[derive(Clone, Copy, Default)]
pub(crate) struct NodeIndex(u32);

/// What a chunk begins with: 32 bytes, so that small nodes behind it do not lie across two cache lines.
struct Chunk<K> {
    /// Its place in the slab's list.
    number: u32,
    /// Nodes in use.
    live: u16,
    /// Slots handed out at least once; those beyond have never been written.
    fresh: u16,
    free: Option<NonNull<Slot<K>>>,
    previous: Option<NonNull<Chunk<K>>>,
    next: Option<NonNull<Chunk<K>>>,
}

/// What a lookup reads comes first.
#[repr(C)]
pub(crate) struct Slab<K> {
    /// All chunks by their numbers, and null where there is none.
    chunks: Vec<*mut Chunk<K>>,
    /// The numbers below that of which there is no chunk.
    vacant: Vec<u32>,
    /// The first chunk with a free slot.
    open: Option<NonNull<Chunk<K>>>,
    /// Whether one of the chunks is empty.
    spare: bool,
    shape: Shape,
    _nodes: PhantomData<Node<K>>,
}

/// The measures of a slab's chunks.
#[derive(Clone, Copy)]
struct Shape {
    /// Whether there are times behind the nodes.
    timed: bool,
    /// From one slot to the next, in bytes.
    stride: u32,
    /// Slots of a chunk.
    slots: u16,
}

// SAFETY: the slab owns its chunks and hands out addresses only; its nodes are sent and shared
// between threads by those who hold tokens for them.
unsafe impl<K: Send + Sync> Send for Slab<K> {}

impl<K> Slab<K> {
    const FIRST_SLOT: usize = size_of::<Chunk<K>>().next_multiple_of(align_of::<Slot<K>>());

    /// The alignment of a chunk; a chunk lies within one such block. At least [`FEWEST_NODES`] have room
    /// in it, with their times.
    const ALIGN: usize = {
        let fewest = Self::FIRST_SLOT + FEWEST_NODES * Self::stride(true) + ALLOCATOR_HEADER;
        let align = fewest.next_power_of_two();
        if align > CHUNK_BYTES {
            align
        } else {
            CHUNK_BYTES
        }
    };

    /// The lower bits of an index are the distance from the chunk's start, in units.
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
            stride: u32::try_from(stride).expect("no key is gigabytes in itself"),
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

    /// A slab with room for times behind the nodes, if it is for a queue that is timed.
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

    /// Where the times of a node are, in a slab that has them.
    #[inline]
    pub(crate) fn times_of(node: NodeRef<K>) -> NonNull<Times> {
        let behind = node.as_ptr().cast::<Slot<K>>().as_ptr().wrapping_add(1);
        // SAFETY: not null, being behind a pointer into an allocation.
        unsafe { NonNull::new_unchecked(behind.cast::<Times>()) }
    }

    /// The chunk that a node is in.
    #[inline]
    fn chunk_of(node: NodeRef<K>) -> NonNull<Chunk<K>> {
        let base = node
            .as_ptr()
            .as_ptr()
            .map_addr(|at| at & !(Self::ALIGN - 1));
        // SAFETY: not null, since a chunk is not at 0.
        unsafe { NonNull::new_unchecked(base.cast::<Chunk<K>>()) }
    }

    /// The index of a node.
    ///
    /// # Safety
    ///
    /// The node is of this slab.
    #[inline]
    pub(crate) unsafe fn index_of(&self, node: NodeRef<K>) -> NodeIndex {
        // SAFETY: the chunk is alive, since a node of it is.
        let number = unsafe { Self::chunk_of(node).as_ref() }.number;
        let distance = node.as_ptr().addr().get() % Self::ALIGN / UNIT;
        // The distance is below 2^DISTANCE_BITS; see `grow` for the number.
        NodeIndex(number << Self::DISTANCE_BITS | distance as u32)
    }

    /// The node with an index.
    ///
    /// # Safety
    ///
    /// The index is that of a node of this slab.
    #[inline]
    pub(crate) unsafe fn node(&self, index: NodeIndex) -> NodeRef<K> {
        let number = (index.0 >> Self::DISTANCE_BITS) as usize;
        let distance = index.0 as usize % (1 << Self::DISTANCE_BITS) * UNIT;
        // SAFETY: by the caller's promise there is a chunk of that number, and a node that far behind
        // its start.
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
        // SAFETY: the chunk is one of ours, alive, and has a free slot since it is on the open
        // list: either on its free list, whose slots are inside the chunk and hold a valid link,
        // or among those never handed out, which lie inside the chunk as well.
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

    /// Takes a node back and moves its key out.
    ///
    /// # Safety
    ///
    /// The node came from `insert` on this slab, was not removed since, and nobody else can
    /// reach it any more.
    pub(crate) unsafe fn remove(&mut self, node: NodeRef<K>) -> K {
        let place = node.as_ptr().cast::<Slot<K>>();
        // SAFETY: by the caller's promise the slot holds a node, and it is ours alone; what is
        // read out is not read again.
        let key = ManuallyDrop::into_inner(unsafe { place.read().node }).key;
        let chunk = Self::chunk_of(node);
        // SAFETY: the node lies in a chunk of ours, and a chunk lies within one aligned block,
        // whose start is therefore the chunk's header.
        unsafe {
            let head = &mut *chunk.as_ptr();
            place.write(Slot {
                next_free: head.free,
            });
            head.free = Some(place);
            let was_full = head.live == self.shape.slots;
            head.live -= 1;
            let is_empty = head.live == 0;
            // `head` is not used any more: what follows has references to the header of its own.
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

    /// Gives the spare chunk back, if there is one, and what is left over of the list.
    pub(crate) fn shrink(&mut self) {
        let mut at = self.open;
        while let Some(chunk) = at {
            // SAFETY: chunks on the open list are ours and alive; an empty one has no node that
            // anybody could reach, and it is off the list before it is freed.
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

    /// Gives an empty chunk back to the allocator.
    ///
    /// # Safety
    ///
    /// `chunk` is alive, ours, on the open list, and has no node that anybody could reach.
    unsafe fn give_back(&mut self, chunk: NonNull<Chunk<K>>) {
        // SAFETY: by the caller's promise; it is off both lists before it is freed.
        unsafe {
            self.unlink(chunk);
            let number = chunk.as_ref().number;
            self.chunks[number as usize] = null_mut();
            self.vacant.push(number);
            dealloc(chunk.as_ptr().cast(), self.layout());
        }
    }

    /// A new chunk. One more than there are numbers for, which is beyond 32 GiB in one shard, is an
    /// allocation that fails.
    #[cold]
    fn grow(&mut self) -> NonNull<Chunk<K>> {
        let layout = self.layout();
        let number = self.vacant.last().copied().or_else(|| self.next_number());
        // SAFETY: the layout's size is not zero: a chunk has a header.
        let chunk = number.and_then(|_| NonNull::new(unsafe { alloc(layout) }.cast::<Chunk<K>>()));
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

    /// The number after all in the list, if an index has room for it.
    fn next_number(&self) -> Option<u32> {
        let number = u32::try_from(self.chunks.len()).ok()?;
        (number <= u32::MAX >> Self::DISTANCE_BITS).then_some(number)
    }

    /// # Safety
    ///
    /// `chunk` is alive and ours, and `index` below the number of its slots.
    unsafe fn slot(&self, chunk: NonNull<Chunk<K>>, index: u16) -> NonNull<Slot<K>> {
        let at = Self::FIRST_SLOT + index as usize * self.shape.stride as usize;
        // SAFETY: inside the chunk's allocation.
        unsafe { chunk.byte_add(at).cast::<Slot<K>>() }
    }

    /// Puts `chunk` at the front of the open list.
    ///
    /// # Safety
    ///
    /// `chunk` is alive, ours, and not on the list.
    unsafe fn link(&mut self, mut chunk: NonNull<Chunk<K>>) {
        // SAFETY: by the caller's promise; what is on the list is alive.
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
    /// `chunk` is alive, ours, and on the list.
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
