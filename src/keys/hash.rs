//! How a key is hashed: by the queue's hasher, followed by a mixing step.
//!
//! The hashes of some hashers differ in few bits only. An identity hasher, which is common for
//! integer keys, returns small numbers or multiples of a number. Shards, groups and tags each use
//! different bits of the hash ([`crate::keys::table`]), so hashes have to differ in all of these
//! bits.

use std::hash::{BuildHasher, Hash};

/// 2^64 divided by the golden ratio, and odd: its multiples are far apart (Knuth, The Art of
/// Computer Programming, volume 3, section 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the hash of a key, with the differences between hashes spread over the upper 44 bits.
///
/// The upper half is folded into the lower first, because a multiplication carries bits only
/// upwards. Both steps are invertible, so different hashes stay different.
#[inline]
pub(crate) fn hash_of<Q>(hasher: &impl BuildHasher, key: &Q) -> u64
where
    Q: Hash + ?Sized,
{
    let hash = hasher.hash_one(key);
    (hash ^ hash >> 32).wrapping_mul(SPREAD)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;
    use crate::keys::table::ShortHash;

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

    fn hashes(stride: u64) -> impl Iterator<Item = u64> {
        let hasher = BuildHasherDefault::<Identity>::default();
        (0..KEYS).map(move |key| hash_of(&hasher, &(key * stride)))
    }

    /// Returns how many hashes have the most frequent value of `part`.
    fn most<T: std::hash::Hash + Eq>(stride: u64, part: impl Fn(u64) -> T) -> u64 {
        let mut counts = HashMap::new();
        for hash in hashes(stride) {
            *counts.entry(part(hash)).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    const STRIDES: [u64; 9] = [1, 2, 64, 1000, 4096, 1 << 20, 1 << 32, 1 << 44, 1 << 50];

    #[test]
    #[cfg_attr(miri, ignore = "safe code in one thread, and many keys")]
    fn a_hasher_that_hashes_nothing_fills_all_shards() {
        for stride in STRIDES {
            for bits in 1..10 {
                let fullest = most(stride, |hash| hash >> (64 - bits));
                let even = KEYS >> bits;
                assert!(
                    fullest <= 2 * even,
                    "stride {stride}, {bits} bits: {fullest} of {even}"
                );
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code in one thread, and many keys")]
    fn nor_are_its_keys_alike_in_a_group() {
        for stride in STRIDES {
            let home = |hash: u64| ShortHash::of(hash).bits() % 1024;
            let fullest = most(stride, home);
            assert!(
                fullest <= 4 * KEYS / 1024,
                "stride {stride}: {fullest} keys in a group"
            );
            let alike = most(stride, |hash| {
                (home(hash), ShortHash::of(hash).bits() >> 20)
            });
            assert!(
                alike <= 6,
                "stride {stride}: {alike} keys with the same tag in a group"
            );
        }
    }
}
