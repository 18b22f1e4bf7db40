//! Entries of any type for tests, each in its own allocation.

use std::mem::offset_of;
use std::ptr::NonNull;

use crate::fifo::overflow::{Link, Linked};

pub(crate) struct Boxed<T>(NonNull<Place<T>>);

struct Place<T> {
    link: Link,
    value: T,
}

// SAFETY: a `Boxed` owns its value.
unsafe impl<T: Send> Send for Boxed<T> {}

impl<T> Boxed<T> {
    pub(crate) fn new(value: T) -> Self {
        let place = Box::new(Place {
            link: Link::new(),
            value,
        });
        // SAFETY: a box is never null.
        Boxed(unsafe { NonNull::new_unchecked(Box::into_raw(place)) })
    }

    pub(crate) fn value(&self) -> &T {
        // SAFETY: allocated in `new`, and freed only when `self` is dropped.
        &unsafe { self.0.as_ref() }.value
    }
}

impl<T> Drop for Boxed<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and not shared.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: a place does not move until it is dropped, and forgetting the `Boxed` does not drop it.
unsafe impl<T> Linked for Boxed<T> {
    fn into_link(self) -> NonNull<Link> {
        let place = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: inside the place.
        unsafe { place.byte_add(offset_of!(Place<T>, link)).cast() }
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: it is the link of a place, by the caller's promise.
        Boxed(unsafe { link.byte_sub(offset_of!(Place<T>, link)).cast() })
    }
}
