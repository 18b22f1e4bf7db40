//! The part of a key's hash that is stored.

/// A key's hash within its shard: 28 bits. The uppermost eight are the tag, which distinguishes the
/// keys of a group; the lower ones select the group. From 2^20 groups on, with ten million keys in
/// one shard, the two overlap, and lookups slow down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortHash(u32);

impl ShortHash {
    /// The number of its bits.
    pub(crate) const BITS: u32 = 28;

    /// The number of lowest bits of a hash that are left out, because they are spread the least
    /// ([`crate::keys::hash`]).
    pub(crate) const LEFT_OUT: u32 = 20;

    /// Takes bits from the middle of a hash: the uppermost bits select the shard.
    #[inline]
    pub(crate) fn of(hash: u64) -> Self {
        Self::from_bits((hash >> Self::LEFT_OUT) as u32)
    }

    /// Takes the lowest bits of `bits`.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        ShortHash(bits % (1 << Self::BITS))
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Returns the tag, which is never 0, the tag of a free place.
    #[inline]
    pub(super) fn tag(self) -> u8 {
        ((self.0 >> (Self::BITS - 8)) as u8).max(1)
    }

    /// Returns the home of a key among `groups` groups, a power of two. If there are none, it
    /// returns an index that is out of bounds.
    #[inline]
    pub(super) fn home(self, groups: usize) -> usize {
        self.0 as usize & groups.wrapping_sub(1)
    }

    /// Returns the path of a key among `groups` groups, a power of two or 0: the home first, then
    /// every other group once.
    #[inline]
    pub(super) fn path(self, groups: usize) -> impl Iterator<Item = usize> {
        // An odd step reaches all groups.
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
