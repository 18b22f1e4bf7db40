//! What is kept of a key's hash.

/// What a key's hash is within its shard: 28 bits. The uppermost eight tell the keys of a group apart, the
/// lower ones say which group they belong to. From 2^20 groups on, which is ten million keys in one shard,
/// these overlap, and lookups slow down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortHash(u32);

impl ShortHash {
    /// The number of its bits.
    pub(crate) const BITS: u32 = 28;

    /// So many of the lowest bits of a hash are left out, which are spread least ([`crate::hash`]).
    pub(crate) const LEFT_OUT: u32 = 20;

    /// Of bits from the middle: the uppermost choose the shard.
    #[inline]
    pub(crate) fn of(hash: u64) -> Self {
        Self::from_bits((hash >> Self::LEFT_OUT) as u32)
    }

    /// The lowest bits of `bits`.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        ShortHash(bits % (1 << Self::BITS))
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Never 0, which is the tag of a free place.
    #[inline]
    pub(super) fn tag(self) -> u8 {
        ((self.0 >> (Self::BITS - 8)) as u8).max(1)
    }

    /// The group that a key belongs in, of so many, a power of two. If there are none, one that is not there.
    #[inline]
    pub(super) fn home(self, groups: usize) -> usize {
        self.0 as usize & groups.wrapping_sub(1)
    }

    /// The groups of a key among so many, a power of two or none: its home first, each of them once.
    #[inline]
    pub(super) fn path(self, groups: usize) -> impl Iterator<Item = usize> {
        // An odd step meets all of them.
        let step = 2 * usize::from(self.tag()) + 1;
        let mask = groups.wrapping_sub(1);
        let mut at = self.0 as usize;
        (0..groups).map(move |_| {
            let group = at & mask;
            at = at.wrapping_add(step);
            group
        })
    }
}
