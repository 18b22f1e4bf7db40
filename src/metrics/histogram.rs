//! A histogram of durations: how many fell into each bucket, and how long they were together.
//!
//! Buckets are a quarter of an octave wide, from 64 ticks to 2^47, which is days. A sample is exported
//! as the mean of those that fell into its bucket since the last report. So the sum and the count are
//! exact, a sample that is alone is exact, and any other is less than a quarter off.
//!
//! # Orderings
//!
//! A sample adds to the bucket's sum, then to its count. A report reads the count, then the sum: it has
//! the whole length of every sample that it counts, and perhaps that of one more, which it keeps
//! for the next report.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The first bucket has everything below 2 to this.
const FIRST: u32 = 6;
/// The last octave.
const LAST: u32 = 46;
const BUCKETS: usize = 1 + 4 * (LAST - FIRST + 1) as usize;

/// A number that goes up. `owned` is whether the calling thread is the only one to raise it, which
/// spares the read-modify-write.
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) const fn new() -> Self {
        Count(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn add(&self, by: u64, owned: bool) {
        if owned {
            // Ordering: Relaxed; nobody else writes.
            let now = self.0.load(Ordering::Relaxed);
            // Ordering: Release; pairs with the Acquire in `get`.
            self.0.store(now.wrapping_add(by), Ordering::Release);
        } else {
            // Ordering: Release; as above.
            self.0.fetch_add(by, Ordering::Release);
        }
    }

    pub(super) fn get(&self) -> u64 {
        // Ordering: Acquire; pairs with the Release in `add`.
        self.0.load(Ordering::Acquire)
    }
}

struct Bucket {
    sum: Count,
    count: Count,
}

pub(super) struct Histogram([Bucket; BUCKETS]);

fn bucket(ticks: u64) -> usize {
    let Some(octave) = ticks.checked_ilog2().filter(|octave| *octave >= FIRST) else {
        return 0;
    };
    if octave > LAST {
        return BUCKETS - 1;
    }
    let quarter = (ticks >> (octave - 2)) & 3;
    1 + 4 * (octave - FIRST) as usize + quarter as usize
}

/// The least that falls into a bucket, and the most.
fn range(bucket: usize) -> (u64, u64) {
    let low = |bucket: usize| match bucket.checked_sub(1) {
        None => 0,
        Some(above) => (4 + above as u64 % 4) << (FIRST - 2 + above as u32 / 4),
    };
    if bucket == BUCKETS - 1 {
        (low(bucket), u64::MAX)
    } else {
        (low(bucket), low(bucket + 1) - 1)
    }
}

impl Histogram {
    pub(super) fn new() -> Self {
        let bucket = |_| Bucket {
            sum: Count::new(),
            count: Count::new(),
        };
        Histogram(std::array::from_fn(bucket))
    }

    #[inline]
    pub(super) fn record(&self, ticks: u64, owned: bool) {
        let bucket = &self.0[bucket(ticks)];
        bucket.sum.add(ticks, owned);
        bucket.count.add(1, owned);
    }
}

/// What several histograms have together, and what of it has been told.
pub(super) struct Told {
    /// (sum, count) of each bucket.
    told: [(u64, u64); BUCKETS],
}

impl Told {
    pub(super) fn new() -> Self {
        Told {
            told: [(0, 0); BUCKETS],
        }
    }

    /// Passes on the samples that are new: their length and how many of it. Answers how many there
    /// have been, the new ones included.
    pub(super) fn tell<'h, H: Iterator<Item = &'h Histogram> + Clone>(
        &mut self,
        histograms: H,
        mut tell: impl FnMut(u64, usize),
    ) -> u64 {
        let mut all = 0;
        for (index, told) in self.told.iter_mut().enumerate() {
            let (mut sum, mut count) = (0_u64, 0_u64);
            for histogram in histograms.clone() {
                let bucket = &histogram.0[index];
                count = count.wrapping_add(bucket.count.get());
                sum = sum.wrapping_add(bucket.sum.get());
            }
            all += count;
            let new = count - told.1;
            if new == 0 {
                continue;
            }
            let (least, most) = range(index);
            let mean = (sum.wrapping_sub(told.0) / new).clamp(least, most);
            tell(mean, usize::try_from(new).unwrap_or(usize::MAX));
            told.0 = told.0.wrapping_add(mean.wrapping_mul(new));
            told.1 = count;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_falls_into_the_bucket_of_its_range() {
        let mut next = 0;
        for index in 0..BUCKETS {
            let (least, most) = range(index);
            assert_eq!(least, next, "bucket {index}");
            assert_eq!((bucket(least), bucket(most)), (index, index));
            if index > 0 && index < BUCKETS - 1 {
                assert!(most - least < least / 4, "bucket {index} is too wide");
            }
            next = most.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket has all the rest");
    }

    fn tell(told: &mut Told, histograms: &[Histogram]) -> (Vec<(u64, usize)>, u64) {
        let mut new = Vec::new();
        let all = told.tell(histograms.iter(), |ticks, count| new.push((ticks, count)));
        (new, all)
    }

    #[test]
    fn a_sample_is_told_once_and_the_sum_is_exact() {
        let histograms = [Histogram::new(), Histogram::new()];
        let mut told = Told::new();
        assert_eq!(tell(&mut told, &histograms), (vec![], 0));
        histograms[0].record(50_000, true);
        assert_eq!(tell(&mut told, &histograms), (vec![(50_000, 1)], 1));
        histograms[0].record(50_000, false);
        histograms[1].record(50_003, true);
        histograms[1].record(7, true);
        assert_eq!(tell(&mut told, &histograms), (vec![(7, 1), (50_001, 2)], 4));
        // The tick that the mean has lost is in the next one.
        histograms[1].record(50_000, true);
        assert_eq!(tell(&mut told, &histograms), (vec![(50_001, 1)], 5));
        assert_eq!(tell(&mut told, &histograms), (vec![], 5));
    }

    #[test]
    fn a_sum_without_its_count_is_kept_for_the_next_report() {
        let histograms = [Histogram::new()];
        let mut told = Told::new();
        histograms[0].record(1000, true);
        let late = &histograms[0].0[bucket(1000)];
        late.sum.add(1000, true);
        assert_eq!(tell(&mut told, &histograms).0, [(range(bucket(1000)).1, 1)]);
        late.count.add(1, true);
        assert_eq!(tell(&mut told, &histograms).0, [(2000 - 1023, 1)]);
    }
}
