//! How a key is hashed: by the queue's hasher, followed by a mixing step. And the part of the hash
//! that is stored.
//!
//! The hashes of some hashers differ in few bits only. An identity hasher, which is common for
//! integer keys, returns small numbers or multiples of a number, and foldhash, the default, has seeds with which those of successive
//! integers fall into few places: in one process of seventy. The shards, and the places and
//! tags of a shard's table, each use different bits of the hash, so hashes have to differ in all of
//! these bits.

use std::hash::{BuildHasher, Hash};

use crate::sync::assert_unlocked;

/// 2^64 divided by the golden ratio, and odd: its multiples are far apart (Knuth, The Art of
/// Computer Programming, volume 3, section 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the hash of a key, [mixed](mix).
#[inline]
pub(crate) fn hash_of<Q>(hasher: &impl BuildHasher, key: &Q) -> u64
where
    Q: Hash + ?Sized,
{
    assert_unlocked();
    mix(hasher.hash_one(key))
}

/// Spreads the differences between hashes over the upper 44 bits.
///
/// The upper half is folded into the lower first, because a multiplication carries bits only
/// upwards. Both steps are invertible, so different hashes stay different.
#[inline]
pub(crate) fn mix(hash: u64) -> u64 {
    (hash ^ hash >> 32).wrapping_mul(SPREAD)
}

/// A key's hash within its shard: 28 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortHash(u32);

impl ShortHash {
    pub(crate) const BITS: u32 = 28;

    /// The number of lowest bits of a hash that are left out, because they are spread the least.
    pub(super) const LEFT_OUT: u32 = 20;

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

    /// Returns the hash as the table wants it: it selects a place by the lowest bits, and tells the
    /// keys of a place apart by the uppermost seven. From two million keys in one shard on, the two
    /// overlap, and lookups slow down.
    #[inline]
    pub(crate) fn spread(self) -> u64 {
        u64::from(self.0) | u64::from(self.0) << (u64::BITS - Self::BITS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;

    #[derive(Default)]
    struct Identity(u64);

    impl Hasher for Identity {
        fn write(&mut self, _: &[u8]) {
            unreachable!("keys are u64");
        }

        fn write_u64(&mut self, key: u64) {
            self.0 = key;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn no_two_answers_become_one() {
        // The inverse of `SPREAD`: each step doubles the number of correct bits.
        let inverse = (0..5).fold(SPREAD, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(SPREAD.wrapping_mul(inverse)))
        });
        let hasher = BuildHasherDefault::<Identity>::default();
        for answer in [0, 1, u64::MAX, 1 << 32, 1 << 32 | 1, SPREAD, !SPREAD] {
            let folded = hash_of(&hasher, &answer).wrapping_mul(inverse);
            assert_eq!(folded ^ folded >> 32, answer);
        }
    }

    const KEYS: u64 = 1 << 14;

    /// Returns how many hashes of multiples of `stride` have the most frequent value of `part`.
    fn most<T: Hash + Eq>(stride: u64, part: impl Fn(u64) -> T) -> u64 {
        let hasher = BuildHasherDefault::<Identity>::default();
        let mut counts = HashMap::new();
        for key in 0..KEYS {
            let hash = hash_of(&hasher, &(key * stride));
            *counts.entry(part(hash)).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code in one thread, and many keys")]
    fn a_hasher_that_hashes_nothing_fills_all_shards_and_all_places_of_a_table() {
        for stride in [1, 2, 64, 1000, 4096, 1 << 20, 1 << 32, 1 << 44, 1 << 50] {
            for bits in 1..10 {
                let fullest = most(stride, |hash| hash >> (64 - bits));
                assert!(fullest <= 2 * (KEYS >> bits), "{stride}: {fullest}");
            }
            let place = |hash| ShortHash::of(hash).spread() % 1024;
            let fullest = most(stride, place);
            assert!(fullest <= 4 * KEYS / 1024, "{stride}: {fullest} in a place");
            let tag = |hash| ShortHash::of(hash).spread() >> 57;
            let alike = most(stride, |hash| (place(hash), tag(hash)));
            assert!(alike <= 8, "{stride}: {alike} with a tag in a place");
        }
    }

    #[test]
    fn a_short_hash_is_made_of_28_bits_below_those_of_the_shard() {
        let kept = ShortHash::LEFT_OUT..ShortHash::LEFT_OUT + ShortHash::BITS;
        // There are 2^16 shards at most.
        assert_eq!(kept.end, 64 - 16);
        for hash in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            for bit in 0..64 {
                let flipped = ShortHash::of(hash ^ 1 << bit).bits() ^ ShortHash::of(hash).bits();
                let expected = match kept.contains(&bit) {
                    true => 1 << (bit - kept.start),
                    false => 0,
                };
                assert_eq!(flipped, expected, "bit {bit} of {hash:#x}");
            }
        }
    }
}
