//! The unbounded queue behind the ring, of one of two kinds.

use std::ptr::NonNull;

use crate::fifo::overflow::{Link, Overflow};
use crate::sync::SegQueue;

pub(super) enum Spill {
    /// Of entries that are in the FIFO once. Allocates nothing.
    List(Overflow),
    /// Of a lane, in which an entry can be more than once.
    Queue(Box<SegQueue<Address>>),
}

pub(super) struct Address(NonNull<Link>);

// SAFETY: it is not dereferenced here; who pops it has the token that was pushed.
unsafe impl Send for Address {}

impl Spill {
    /// # Safety
    ///
    /// As for [`Overflow::push`], if this is a list.
    pub(super) unsafe fn push(&self, link: NonNull<Link>) {
        match self {
            // SAFETY: by the caller's promise.
            Spill::List(list) => unsafe { list.push(link) },
            Spill::Queue(queue) => queue.push(Address(link)),
        }
    }

    /// Pops the oldest entry. Returns `None` only if every push that has returned was popped.
    ///
    /// # Safety
    ///
    /// No other thread pops at the same time.
    pub(super) unsafe fn pop(&self) -> Option<NonNull<Link>> {
        match self {
            // SAFETY: by the caller's promise.
            Spill::List(list) => unsafe { list.pop() },
            Spill::Queue(queue) => queue.pop().map(|Address(link)| link),
        }
    }
}
