//! Where nodes live: one slab a shard, guarded by that shard's lock.
//!
//! A slab is a list of chunks. A chunk is one allocation, aligned to its rounded-up size, so that
//! the chunk of a node is found by masking the node's address. Each chunk has a free list of its
//! own that runs through the free slots; chunks with a free slot form a doubly linked list, and
//! nodes are taken from its front. A chunk whose last node is freed is given back to the
//! allocator, but for one that is kept against flutter.
//!
//! Nothing here is atomic: every call is made under the shard's lock or by the queue's last
//! owner. Nodes that are still in the slab when it is dropped are leaked with their keys; the
//! owner frees them first (it finds them through the table).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ptr::NonNull;

use crate::node::{Node, NodeRef};

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
    _nodes: PhantomData<Node<K>>,
}

// SAFETY: the slab owns its chunks and hands out addresses only; its nodes are sent and shared
// between threads by those who hold tokens for them.
unsafe impl<K: Send + Sync> Send for Slab<K> {}

impl<K> Slab<K> {
    const fn max(a: usize, b: usize) -> usize {
        if a > b { a } else { b }
    }

    const FIRST_SLOT: usize = size_of::<Chunk<K>>().next_multiple_of(align_of::<Slot<K>>());

    /// The alignment of a chunk, a power of two; a chunk lies within one such block.
    const ALIGN: usize = Self::max(
        CHUNK_BYTES,
        (Self::FIRST_SLOT + FEWEST_NODES * size_of::<Slot<K>>() + ALLOCATOR_HEADER)
            .next_power_of_two(),
    );

    const SLOTS: usize = (Self::ALIGN - ALLOCATOR_HEADER - Self::FIRST_SLOT) / size_of::<Slot<K>>();

    fn layout() -> Layout {
        Layout::from_size_align(
            Self::FIRST_SLOT + Self::SLOTS * size_of::<Slot<K>>(),
            Self::ALIGN,
        )
        .expect("a chunk's size is far below isize::MAX for any key that can exist")
    }

    pub(crate) const fn new() -> Self {
        Slab {
            open: None,
            spare: false,
            _nodes: PhantomData,
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
                    let slot = Self::slot(chunk, head.fresh as usize);
                    head.fresh += 1;
                    slot
                }
            };
            if head.live == 0 {
                self.spare = false;
            }
            head.live += 1;
            if head.live as usize == Self::SLOTS {
                self.unlink(chunk);
            }
            slot.write(Slot {
                node: ManuallyDrop::new(node),
            });
            NodeRef::new(slot.cast())
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
        let mask = !(Self::ALIGN - 1);
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
            if head.live as usize == Self::SLOTS {
                self.link(chunk);
            }
            head.live -= 1;
            if head.live == 0 {
                if self.spare {
                    self.unlink(chunk);
                    dealloc(chunk.as_ptr().cast(), Self::layout());
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
                    dealloc(chunk.as_ptr().cast(), Self::layout());
                }
            }
        }
        self.spare = false;
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Chunk<K>> {
        let layout = Self::layout();
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
    /// `chunk` is alive and `index` below `SLOTS`.
    unsafe fn slot(chunk: NonNull<Chunk<K>>, index: usize) -> NonNull<Slot<K>> {
        // SAFETY: inside the chunk's allocation.
        unsafe {
            chunk
                .byte_add(Self::FIRST_SLOT)
                .cast::<Slot<K>>()
                .add(index)
        }
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
