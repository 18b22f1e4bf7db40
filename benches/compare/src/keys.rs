//! The keys of the workloads, and how deliveries of them are counted.

use std::borrow::Borrow;
use std::hash::Hash;

/// A kind of key: `u64` or `str`. What a contender stores may be another type (`String`,
/// `Arc<str>`).
pub(crate) trait Key:
    ToOwned<Owned: Send + Sync + Hash + Eq> + Hash + Eq + Sync + 'static
{
    /// The `n`th key of an endless sequence of distinct ones.
    fn nth(n: usize) -> Self::Owned;

    /// A number that tells a key from the others of its workload, cheaply enough for a timed loop.
    fn fingerprint(&self) -> u64;

    /// The first `n` keys.
    fn first(n: usize) -> Vec<Self::Owned> {
        (0..n).map(Self::nth).collect()
    }
}

impl Key for u64 {
    fn nth(n: usize) -> u64 {
        // An odd factor maps distinct numbers to distinct numbers, all over the range.
        (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn fingerprint(&self) -> u64 {
        *self
    }
}

impl Key for str {
    fn nth(n: usize) -> String {
        format!("namespace-{}/object-{n:03}", n % 10)
    }

    /// The last eight bytes, which hold the number of every key below a hundred million; zero for the
    /// shorter keys of a log, of which only the number of deliveries is checked.
    fn fingerprint(&self) -> u64 {
        let tail = self.as_bytes().last_chunk();
        tail.map_or(0, |tail| u64::from_le_bytes(*tail))
    }
}

/// How often keys were added or delivered, and which.
///
/// Two tallies of the same keys are equal whatever their order, and those of different keys are
/// not, short of a 64-bit collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    sum: u64,
}

impl Tally {
    /// The tally of the first `n` keys, each once.
    pub(crate) fn of_first<Q: Key + ?Sized>(n: usize) -> Self {
        let mut tally = Self::default();
        (0..n).for_each(|n| tally.count(Q::nth(n).borrow()));
        tally
    }

    pub(crate) fn count<Q: Key + ?Sized>(&mut self, key: &Q) {
        self.count += 1;
        // Squared and folded, so that two wrong keys do not make up for each other.
        let wide = u128::from(key.fingerprint()) * u128::from(key.fingerprint() | 1);
        self.sum = self.sum.wrapping_add((wide >> 64) as u64 ^ wide as u64);
    }

    /// The tally of the same keys, `n` times each.
    pub(crate) fn times(self, n: u64) -> Self {
        Self {
            count: self.count * n,
            sum: self.sum.wrapping_mul(n),
        }
    }

    pub(crate) fn merge(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}
