//! A histogram of durations: for each bucket, the number of samples and their sum.
//!
//! Buckets are a quarter of an octave wide, from 64 ticks to 2^47 ticks, which is days. A sample is
//! exported as the mean of the samples in its bucket since the last report. So the sum and the
//! count are exact, a sample that is alone in its bucket is exact, and any other is off by less
//! than a quarter.
//!
//! # Orderings
//!
//! A sample adds to the bucket's sum, then to its count. A report reads the count, then the sum. So
//! the sum includes every sample that is counted, and perhaps some more, whose excess is carried
//! over to the next report.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The first bucket has all samples below 2 to this power.
const FIRST: u32 = 6;
/// The last octave.
const LAST: u32 = 46;
const BUCKETS: usize = 1 + 4 * (LAST - FIRST + 1) as usize;

/// A counter.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, by: u64) {
        // Ordering: Release; pairs with the Acquire in `get`.
        self.0.fetch_add(by, Ordering::Release);
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

/// Returns the smallest and the largest sample of a bucket.
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

impl Default for Histogram {
    fn default() -> Self {
        Histogram(std::array::from_fn(|_| Bucket::default()))
    }
}

impl Histogram {
    #[inline]
    pub(super) fn record(&self, ticks: u64) {
        let bucket = &self.0[bucket(ticks)];
        bucket.sum.add(ticks);
        bucket.count.add(1);
    }
}

/// The part of several histograms together that has been reported.
pub(super) struct LastReport {
    /// The reported (sum, count) of each bucket.
    reported: [(u64, u64); BUCKETS],
}

impl LastReport {
    pub(super) const fn new() -> Self {
        LastReport {
            reported: [(0, 0); BUCKETS],
        }
    }

    /// Passes the new samples to `report`: for each bucket, their mean and their number. Returns
    /// the number of all samples so far, including the new ones.
    pub(super) fn report<'h, H: Iterator<Item = &'h Histogram> + Clone>(
        &mut self,
        histograms: H,
        mut report: impl FnMut(u64, usize),
    ) -> u64 {
        let mut all = 0;
        for (index, reported) in self.reported.iter_mut().enumerate() {
            let (mut sum, mut count) = (0_u64, 0_u64);
            for histogram in histograms.clone() {
                let bucket = &histogram.0[index];
                count = count.wrapping_add(bucket.count.get());
                sum = sum.wrapping_add(bucket.sum.get());
            }
            all += count;
            let new = count - reported.1;
            if new == 0 {
                continue;
            }
            let (least, most) = range(index);
            let mean = (sum.wrapping_sub(reported.0) / new).clamp(least, most);
            report(mean, usize::try_from(new).unwrap_or(usize::MAX));
            reported.0 = reported.0.wrapping_add(mean.wrapping_mul(new));
            reported.1 = count;
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

    fn report(reported: &mut LastReport, histograms: &[Histogram]) -> (Vec<(u64, usize)>, u64) {
        let mut new = Vec::new();
        let all = reported.report(histograms.iter(), |ticks, count| new.push((ticks, count)));
        (new, all)
    }

    #[test]
    fn a_sample_is_told_once_and_the_sum_is_exact() {
        let histograms = [Histogram::default(), Histogram::default()];
        let mut reported = LastReport::new();
        assert_eq!(report(&mut reported, &histograms), (vec![], 0));
        histograms[0].record(50_000);
        assert_eq!(report(&mut reported, &histograms), (vec![(50_000, 1)], 1));
        histograms[0].record(50_000);
        histograms[1].record(50_003);
        histograms[1].record(7);
        assert_eq!(
            report(&mut reported, &histograms),
            (vec![(7, 1), (50_001, 2)], 4)
        );
        // The tick that the mean lost by rounding is in the next report.
        histograms[1].record(50_000);
        assert_eq!(report(&mut reported, &histograms), (vec![(50_001, 1)], 5));
        assert_eq!(report(&mut reported, &histograms), (vec![], 5));
    }

    #[test]
    fn a_sum_without_its_count_is_kept_for_the_next_report() {
        let histograms = [Histogram::default()];
        let mut reported = LastReport::new();
        histograms[0].record(1000);
        let late = &histograms[0].0[bucket(1000)];
        late.sum.add(1000);
        assert_eq!(
            report(&mut reported, &histograms).0,
            [(range(bucket(1000)).1, 1)]
        );
        late.count.add(1);
        assert_eq!(report(&mut reported, &histograms).0, [(2000 - 1023, 1)]);
    }
}
