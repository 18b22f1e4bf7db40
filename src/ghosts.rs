//! A shard's memory of keys it has swept: tells a working set that is too large for the shard from
//! a stream of keys that never come back.
//!
//! Both look the same to a sweep: nodes that are idle and were not used twice. Taking them out is
//! right for the stream and wrong for the set, whose keys return and have to be interned again,
//! each time around. So a shard remembers the hashes of a sample of the keys it swept, and looks
//! how many of the new keys (of the same sample) are old acquaintances. If half of them are, the
//! shard grows instead of sweeping.
//!
//! The sample is chosen by the hash, one key in [`SAMPLE`], so that a key that was sampled when
//! it went is sampled when it returns.

use crate::table::ShortHash;

/// One key in so many is sampled.
const SAMPLE: u32 = 128;
/// So many sampled keys are remembered: those of the last `SAMPLE * REMEMBERED` swept.
const REMEMBERED: usize = 256;
/// A verdict is reached on so many sampled keys that came, or it is the one before.
const FEWEST: u32 = 4;

#[derive(Default)]
pub(crate) struct Ghosts {
    /// Hashes of swept keys, the oldest at `oldest` once the list is full.
    hashes: Vec<ShortHash>,
    oldest: usize,
    /// Sampled keys that came since the last verdict, and how many of them were known.
    came: u32,
    returned: u32,
    returning: bool,
}

/// Whether keys of this hash are sampled. By bits that the place in the table depends on only if it is
/// very large.
#[inline]
fn is_sampled(hash: ShortHash) -> bool {
    (hash.bits() >> (ShortHash::BITS - 8)).is_multiple_of(SAMPLE)
}

impl Ghosts {
    /// Notes that a key was swept.
    pub(crate) fn went(&mut self, hash: ShortHash) {
        if !is_sampled(hash) {
            return;
        }
        if self.hashes.len() < REMEMBERED {
            self.hashes.push(hash);
        } else {
            self.hashes[self.oldest] = hash;
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Notes that a key was interned.
    #[inline]
    pub(crate) fn came(&mut self, hash: ShortHash) {
        if is_sampled(hash) {
            self.look_up(hash);
        }
    }

    #[cold]
    fn look_up(&mut self, hash: ShortHash) {
        self.came += 1;
        if self.hashes.contains(&hash) {
            self.returned += 1;
        }
    }

    /// Whether at least half of the keys that came lately had been here before.
    pub(crate) fn verdict(&mut self) -> bool {
        if self.came >= FEWEST {
            self.returning = 2 * self.returned >= self.came;
            self.came = 0;
            self.returned = 0;
        }
        self.returning
    }

    /// Forgets everything and gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Ghosts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `keys` through a shard that holds up to `limit` and sweeps all of it when it is full,
    /// unless told to grow. Answers how often it swept and how large it was in the end.
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
                if ghosts.verdict() {
                    limit *= 2;
                } else {
                    held.drain()
                        .for_each(|bits| ghosts.went(ShortHash::from_bits(bits)));
                    sweeps += 1;
                }
            }
            ghosts.came(hash);
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

    // C10: keys that never return leave.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic over 200 000 keys")]
    fn a_stream_of_unique_keys_does_not_make_the_shard_grow() {
        let (sweeps, limit) = run(1..=200_000, 1024);
        assert_eq!(limit, 1024);
        assert_eq!(sweeps, 199_999 / 1024);
    }

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic over 200 000 keys")]
    fn a_few_keys_that_return_among_many_that_do_not_are_not_worth_growing_for() {
        let mixed = (1..=200_000).map(|n| if n % 8 == 0 { n % 4096 } else { 1 << 31 | n });
        let (_, limit) = run(mixed, 1024);
        assert_eq!(limit, 1024);
    }
}
