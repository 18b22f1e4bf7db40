//! A shard's ghost list, as in the ARC and 2Q caches, to distinguish a working set that is too
//! large for the shard from a stream of keys that never return.
//!
//! Both look the same to a sweep: nodes that are idle and were not used twice. But the keys of the
//! set return, and have to be interned again each time. So a shard remembers the hashes of a sample
//! of the evicted keys, its *ghosts*, and counts how many of the newly inserted keys (of the same
//! sample, which is chosen by the hash) are among them. If at least half are, the shard grows
//! instead of sweeping. Without this, 100 000 keys that return take half as long again (66 instead of 44 ns
//! a key), and are no faster than behind one lock.

use std::collections::VecDeque;

use crate::keys::hash::ShortHash;

/// One key in this many is sampled.
const SAMPLE: u32 = 128;
/// The number of ghosts: the sampled keys among the last `SAMPLE * REMEMBERED` evicted ones.
const REMEMBERED: usize = 256;
/// The fewest sampled insertions for a new decision; with fewer, the previous one stays.
const FEWEST: u32 = 4;

#[derive(Default)]
pub(crate) struct Ghosts {
    /// The hashes of evicted keys, the oldest first.
    hashes: VecDeque<ShortHash>,
    /// The sampled keys inserted since the last decision, and how many of them were ghosts.
    inserted: u32,
    returned: u32,
    returning: bool,
}

/// Uses bits that select the place in the table only if the table is very large.
#[inline]
fn is_sampled(hash: ShortHash) -> bool {
    (hash.bits() >> (ShortHash::BITS - 8)).is_multiple_of(SAMPLE)
}

impl Ghosts {
    #[inline]
    pub(crate) fn on_evict(&mut self, hash: ShortHash) {
        if !is_sampled(hash) {
            return;
        }
        if self.hashes.len() == REMEMBERED {
            self.hashes.pop_front();
        }
        self.hashes.push_back(hash);
    }

    #[inline]
    pub(crate) fn on_insert(&mut self, hash: ShortHash) {
        if is_sampled(hash) {
            self.look_up(hash);
        }
    }

    #[cold]
    fn look_up(&mut self, hash: ShortHash) {
        self.inserted += 1;
        if self.hashes.contains(&hash) {
            self.returned += 1;
        }
    }

    /// Returns whether at least half of the recently inserted keys had been evicted before.
    pub(crate) fn should_grow(&mut self) -> bool {
        if self.inserted >= FEWEST {
            self.returning = 2 * self.returned >= self.inserted;
            self.inserted = 0;
            self.returned = 0;
        }
        self.returning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `keys` through a shard that holds up to `limit` keys and evicts all of them when it is
    /// full, unless it should grow. Returns the number of sweeps and the final limit.
    fn run(keys: impl Iterator<Item = u32>, mut limit: usize) -> (usize, usize) {
        let mut ghosts = Ghosts::default();
        let mut held = std::collections::HashSet::new();
        let mut sweeps = 0;
        for key in keys {
            let hash = ShortHash::from_bits(key.wrapping_mul(0x9E37_79B1));
            if held.contains(&hash.bits()) {
                continue;
            }
            if held.len() == limit {
                if ghosts.should_grow() {
                    limit *= 2;
                } else {
                    held.drain()
                        .for_each(|bits| ghosts.on_evict(ShortHash::from_bits(bits)));
                    sweeps += 1;
                }
            }
            ghosts.on_insert(hash);
            held.insert(hash.bits());
        }
        (sweeps, limit)
    }

    // C10: a working set larger than the shard becomes resident after a few rounds.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic over 200 000 keys")]
    fn a_working_set_that_returns_makes_the_shard_grow() {
        for set in [1_500, 5_000, 20_000] {
            let (sweeps, limit) = run((0..20).flat_map(|_| 1..=set), 1024);
            assert!(limit >= set as usize, "set {set}: limit {limit}");
            assert!(sweeps <= 2 * set as usize / 1024 + 2, "set {set}: {sweeps}");
        }
    }

    // C10: keys that do not return are evicted, also if a few others do.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic over 200 000 keys")]
    fn a_stream_of_unique_keys_does_not_make_the_shard_grow() {
        assert_eq!(run(1..=200_000, 1024), (199_999 / 1024, 1024));
        let mixed = (1..=200_000).map(|n| if n % 8 == 0 { n % 4096 } else { 1 << 31 | n });
        let (_, limit) = run(mixed, 1024);
        assert_eq!(limit, 1024);
    }
}
