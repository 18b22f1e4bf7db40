//! The room in a node for its place in the queue. [`crate::fifo`] has the protocols.

use crate::sync::atomic::AtomicPtr;

/// The room in an entry for the address of the next one.
#[derive(Default)]
pub(crate) struct Link {
    /// Only the list that this entry is in accesses it.
    pub(crate) next: AtomicPtr<Link>,
}

/// The number of bits of a link's address: as many as 64-bit targets use, unless they tag pointers.
pub(crate) const ADDRESS_BITS: u32 = if usize::BITS == 64 { 48 } else { usize::BITS };

/// Returns whether an address has no more than [`ADDRESS_BITS`], so that the ring has room for it.
pub(crate) fn has_room_for(address: usize) -> bool {
    address as u64 >> ADDRESS_BITS == 0
}
