//! Where nodes live: one slab a shard, guarded by that shard's lock.
//!
//! A slab is a list of chunks. A chunk is one allocation, aligned to its rounded-up size, so that
//! the chunk of a node is found by masking the node's address. Each chunk has a free list of its
//! own that runs through the free slots; chunks with a free slot form a doubly linked list, and
//! nodes are taken from its front. A chunk whose last node is freed is given back to the
//! allocator, but for one that is kept against flutter.
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
use std::ptr::NonNull;

use crate::node::{Node, NodeRef};
use crate::watch::Times;

/// A chunk takes a page, or room for this many nodes if they are large.
const CHUNK_BYTES: usize = 4096;
const FEWEST_NODES: usize = 16;
/// Left free at a chunk's end, so that the allocator's own header of the next aligned chunk fits
/// there and does not cost another page.
const ALLOCATOR_HEADER: usize = 32;

union Slot<K> {
    node: ManuallyDrop<Node<K>>,
    next_free: Option<NonNull<Slot<K>>>,
}

struct Chunk<K> {
    /// Nodes in use.
    live: u32,
    /// Slots handed out at least once; those beyond have never been written.
    fresh: u32,
    free: Option<NonNull<Slot<K>>>,
    previous: Option<NonNull<Chunk<K>>>,
    next: Option<NonNull<Chunk<K>>>,
}

pub(crate) struct Slab<K> {
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
    slots: u32,
    /// The alignment of a chunk, a power of two; a chunk lies within one such block.
    align: u32,
}

// SAFETY: the slab owns its chunks and hands out addresses only; its nodes are sent and shared
// between threads by those who hold tokens for them.
unsafe impl<K: Send + Sync> Send for Slab<K> {}

impl<K> Slab<K> {
    const FIRST_SLOT: usize = size_of::<Chunk<K>>().next_multiple_of(align_of::<Slot<K>>());

    fn shape(timed: bool) -> Shape {
        let times = if timed { size_of::<Times>() } else { 0 };
        let stride = (size_of::<Slot<K>>() + times).next_multiple_of(align_of::<Slot<K>>());
        let fewest = Self::FIRST_SLOT + FEWEST_NODES * stride + ALLOCATOR_HEADER;
        let align = CHUNK_BYTES.max(fewest.next_power_of_two());
        let slots = (align - ALLOCATOR_HEADER - Self::FIRST_SLOT) / stride;
        let count = |n: usize| u32::try_from(n).expect("no key is gigabytes in itself");
        Shape {
            timed,
            stride: count(stride),
            slots: count(slots),
            align: count(align),
        }
    }

    fn layout(&self) -> Layout {
        let Shape { stride, slots, .. } = self.shape;
        Layout::from_size_align(
            Self::FIRST_SLOT + slots as usize * stride as usize,
            self.shape.align as usize,
        )
        .expect("a chunk's size is far below isize::MAX for any key that can exist")
    }

    /// A slab with room for times behind the nodes, if it is for a queue that is timed.
    pub(crate) fn new(timed: bool) -> Self {
        Slab {
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
        let mask = !(self.shape.align as usize - 1);
        let base = place.as_ptr().map_addr(|address| address & mask);
        // SAFETY: the node lies in a chunk of ours, and a chunk lies within one aligned block,
        // whose start is therefore the chunk's header; not null, since a chunk is not at 0.
        unsafe {
            let chunk = NonNull::new_unchecked(base.cast::<Chunk<K>>());
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
                    self.unlink(chunk);
                    dealloc(chunk.as_ptr().cast(), self.layout());
                } else {
                    self.spare = true;
                }
            }
        }
        key
    }

    /// Gives the spare chunk back, if there is one.
    pub(crate) fn shrink(&mut self) {
        let mut at = self.open;
        while let Some(chunk) = at {
            // SAFETY: chunks on the open list are ours and alive; an empty one has no node that
            // anybody could reach, and it is off the list before it is freed.
            unsafe {
                at = chunk.as_ref().next;
                if chunk.as_ref().live == 0 {
                    self.unlink(chunk);
                    dealloc(chunk.as_ptr().cast(), self.layout());
                }
            }
        }
        self.spare = false;
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Chunk<K>> {
        let layout = self.layout();
        // SAFETY: the layout's size is not zero: a chunk has a header.
        let Some(chunk) = NonNull::new(unsafe { alloc(layout) }.cast::<Chunk<K>>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: freshly allocated with room and alignment for a header.
        unsafe {
            chunk.write(Chunk {
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

    /// # Safety
    ///
    /// `chunk` is alive and ours, and `index` below the number of its slots.
    unsafe fn slot(&self, chunk: NonNull<Chunk<K>>, index: u32) -> NonNull<Slot<K>> {
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
