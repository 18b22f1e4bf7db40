//! A histogram of durations: for each bucket, the number of samples and their sum.
//!
//! Buckets are a quarter of an octave wide, from 80 ticks to 2^47 ticks, which is days. A sample is
//! exported as the mean of the samples in its bucket since the last report. So the sum and the
//! count are exact, a sample that is alone in its bucket is exact, and any other is off by less
//! than a quarter.
//!
//! The sum of a bucket wraps around once a hundred thousand keys have waited for a day. Reports only need what has come since the
//! last one; the total counts how often.
//!
//! # Orderings
//!
//! A sample adds to the bucket's sum, then to its count. A report reads the count, then the sum. So
//! the sum includes every sample that is counted, and perhaps some more, whose excess is
//! carried over to the next report.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The octaves that have buckets. Shorter samples are in the first bucket, longer ones in the last.
const FIRST: u32 = 6;
const LAST: u32 = 46;
const BUCKETS: usize = 4 * (LAST - FIRST + 1) as usize;

/// A counter. `alone` says that the caller is the only writer, which saves a read-modify-write.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Returns whether it has wrapped around.
    #[inline]
    pub(super) fn add(&self, by: u64, alone: bool) -> bool {
        if !alone {
            // Ordering: Release; pairs with the Acquire in `get`.
            return self
                .0
                .fetch_add(by, Ordering::Release)
                .checked_add(by)
                .is_none();
        }
        // Ordering: Relaxed; the last store is this thread's, or that of an earlier writer, after
        // which this thread has taken the mutex that made it the writer (see `stripes`).
        let old = self.0.load(Ordering::Relaxed);
        // Ordering: Release; pairs with the Acquire in `get`.
        self.0.store(old.wrapping_add(by), Ordering::Release);
        old.checked_add(by).is_none()
    }

    pub(super) fn get(&self) -> u64 {
        // Ordering: Acquire; pairs with the Release in `add`.
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Bucket {
    sum: Count,
    count: Count,
}

pub(super) struct Histogram {
    buckets: [Bucket; BUCKETS],
    /// How often a sum has wrapped around.
    wraps: Count,
}

fn bucket(ticks: u64) -> usize {
    let ticks = ticks.clamp(1 << FIRST, (2 << LAST) - 1);
    let octave = ticks.ilog2();
    // The two bits below the highest one are the quarter.
    let quarter = (ticks >> (octave - 2)) as usize % 4;
    4 * (octave - FIRST) as usize + quarter
}

/// Returns the smallest and the largest sample of a bucket.
fn range(bucket: usize) -> (u64, u64) {
    let low = |bucket: usize| (4 + bucket as u64 % 4) << (FIRST - 2 + bucket as u32 / 4);
    match bucket {
        0 => (0, low(1) - 1),
        _ if bucket == BUCKETS - 1 => (low(bucket), u64::MAX),
        _ => (low(bucket), low(bucket + 1) - 1),
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: std::array::from_fn(|_| Bucket::default()),
            wraps: Count::default(),
        }
    }
}

impl Histogram {
    #[inline]
    pub(super) fn record(&self, ticks: u64, alone: bool) {
        let bucket = &self.buckets[bucket(ticks)];
        if bucket.sum.add(ticks, alone) {
            self.wraps.add(1, alone);
        }
        bucket.count.add(1, alone);
    }
}

/// The (sum, count) of each bucket, over several histograms.
pub(super) type Sums = [(u64, u64); BUCKETS];
pub(super) const NO_SUMS: Sums = [(0, 0); BUCKETS];

fn sums<'h, H: Iterator<Item = &'h Histogram>>(histograms: H) -> Sums {
    let mut sums = NO_SUMS;
    for histogram in histograms {
        for ((sum, count), bucket) in sums.iter_mut().zip(&histogram.buckets) {
            // In this order: see the header.
            *count += bucket.count.get();
            *sum = sum.wrapping_add(bucket.sum.get());
        }
    }
    sums
}

/// Returns the (sum, count) of all samples of several histograms.
pub(super) fn total<'h, H: Iterator<Item = &'h Histogram>>(histograms: H) -> (u128, u64) {
    let (mut sum, mut count) = (0, 0);
    for histogram in histograms {
        for bucket in &histogram.buckets {
            count += bucket.count.get();
            sum += u128::from(bucket.sum.get());
        }
        sum += u128::from(histogram.wraps.get()) << 64;
    }
    (sum, count)
}

/// Passes the samples that are not `reported` yet to `report`: for each bucket, their mean and
/// their number. Returns the number of all samples so far, including the new ones.
pub(super) fn report<'h, H: Iterator<Item = &'h Histogram>>(
    reported: &mut Sums,
    histograms: H,
    mut report: impl FnMut(u64, usize),
) -> u64 {
    let sums = sums(histograms);
    for (index, (reported, (sum, count))) in reported.iter_mut().zip(sums).enumerate() {
        let new = count - reported.1;
        if new == 0 {
            continue;
        }
        let (least, most) = range(index);
        // Below zero, if an earlier report has told more: of samples whose count it has not seen.
        let owed = (sum.wrapping_sub(reported.0) as i64).max(0) as u64;
        let mean = (owed / new).clamp(least, most);
        report(mean, usize::try_from(new).unwrap_or(usize::MAX));
        *reported = (reported.0.wrapping_add(mean.wrapping_mul(new)), count);
    }
    sums.iter().map(|(_, count)| count).sum()
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

    fn report(reported: &mut Sums, histograms: &[Histogram]) -> (Vec<(u64, usize)>, u64) {
        let mut new = Vec::new();
        let all = super::report(reported, histograms.iter(), |ticks, count| {
            new.push((ticks, count));
        });
        (new, all)
    }

    #[test]
    fn a_sample_is_told_once_and_the_sum_is_exact() {
        let histograms = [Histogram::default(), Histogram::default()];
        let mut reported = NO_SUMS;
        let mut expect = |new: &[(u64, usize)], all| {
            assert_eq!(report(&mut reported, &histograms), (new.to_vec(), all));
        };
        expect(&[], 0);
        histograms[0].record(50_000, true);
        expect(&[(50_000, 1)], 1);
        histograms[0].record(50_000, true);
        histograms[1].record(50_003, true);
        histograms[1].record(7, true);
        expect(&[(7, 1), (50_001, 2)], 4);
        // The tick that the mean lost by rounding is in the next report.
        histograms[1].record(50_000, true);
        expect(&[(50_001, 1)], 5);
        expect(&[], 5);
    }

    // M2
    #[test]
    fn the_total_of_a_large_backlog_does_not_wrap_around() {
        for alone in [false, true] {
            let histograms = [Histogram::default(), Histogram::default()];
            for _ in 0..2 {
                histograms[0].record(1 << 63, alone);
                histograms[1].record(3 << 62, alone);
            }
            assert_eq!(total(histograms.iter()), (5 << 63, 4));
        }
    }

    #[test]
    fn a_sum_without_its_count_is_kept_for_the_next_report() {
        let histograms = [Histogram::default()];
        let mut reported = NO_SUMS;
        histograms[0].record(1000, true);
        let late = &histograms[0].buckets[bucket(1000)];
        late.sum.add(1000, true);
        let most = range(bucket(1000)).1;
        assert_eq!(report(&mut reported, &histograms).0, [(most, 1)]);
        late.count.add(1, true);
        assert_eq!(report(&mut reported, &histograms).0, [(2000 - most, 1)]);
    }

    // M2
    #[test]
    fn a_sum_that_was_told_too_early_makes_no_later_sample_longer() {
        for length in [1000, 1 << 47] {
            let histograms = [Histogram::default()];
            let mut reported = NO_SUMS;
            for _ in 0..500 {
                histograms[0].record(length, true);
            }
            let late = &histograms[0].buckets[bucket(length)];
            for _ in 0..10 {
                late.sum.add(length, true);
            }
            report(&mut reported, &histograms);
            late.count.add(10, true);
            report(&mut reported, &histograms);
            histograms[0].record(length, true);
            let [(told, 1)] = report(&mut reported, &histograms).0[..] else {
                panic!("one sample")
            };
            assert!(told <= length, "{told}");
        }
    }
}
