//! The last five minutes of a queue.
//!
//! A sample is taken when somebody looks and the last one is a second old, or by [`Board::record`](crate::Board::record).
//! So a queue that nobody looks at is not read, and the pictures have gaps where nobody has looked.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::rows::Census;
use crate::source::Totals;

/// For how long a sample is kept.
pub(crate) const SPAN: Duration = Duration::from_secs(300);
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// There is no rate of two samples that are this far apart, in seconds: a live page of millions of keys looks twice a minute.
pub(crate) const GAP: f64 = 35.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) queued: usize,
    /// `None`, both: there was no time to look at all keys.
    pub(crate) processing: Option<usize>,
    pub(crate) delayed: Option<usize>,
    pub(crate) totals: Option<Totals>,
}

impl Sample {
    pub(crate) fn new(at: Instant, queued: usize, census: &Census, totals: Option<Totals>) -> Self {
        let all = (!census.is_partial).then_some(census);
        Sample {
            at,
            queued,
            processing: all.map(|census| census.processing),
            delayed: all.map(|census| census.delayed),
            totals,
        }
    }
}

/// What happened from one sample to the next.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Rate {
    /// Seconds before now.
    pub(crate) ago: f64,
    /// Deliveries that ended, per second.
    pub(crate) ended: f64,
    /// Failures per second.
    pub(crate) failed: f64,
    /// The mean time in the queue of the keys that were delivered, in seconds.
    pub(crate) queued_for: Option<f64>,
    /// The mean time of the deliveries that ended, in seconds.
    pub(crate) worked_for: Option<f64>,
}

#[derive(Default)]
pub(crate) struct History(VecDeque<Sample>);

impl History {
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let last = self.0.back();
        last.is_none_or(|last| now.saturating_duration_since(last.at) >= INTERVAL)
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        let age = |kept: &Sample| sample.at.saturating_duration_since(kept.at);
        self.0.retain(|kept| age(kept) < SPAN);
        self.0.push_back(sample);
    }

    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }

    /// Returns the rate of the last two samples, if that is one of now.
    pub(crate) fn rate(&self, now: Instant) -> Option<Rate> {
        self.rates(now).pop().filter(|rate| rate.ago < GAP)
    }

    pub(crate) fn rates(&self, now: Instant) -> Vec<Rate> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let rates = pairs.filter_map(|(before, after)| {
            let (old, new) = (before.totals?, after.totals?);
            let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
            let per_second =
                |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds.max(1e-3);
            let mean =
                |time: Duration, count: u64| (count > 0).then(|| time.as_secs_f64() / count as f64);
            (seconds < GAP).then(|| Rate {
                ago: now.saturating_duration_since(after.at).as_secs_f64(),
                ended: per_second(old.ended, new.ended),
                failed: per_second(old.failed, new.failed),
                queued_for: mean(
                    new.queue_time.saturating_sub(old.queue_time),
                    new.delivered.saturating_sub(old.delivered),
                ),
                worked_for: mean(
                    new.work_time.saturating_sub(old.work_time),
                    new.ended.saturating_sub(old.ended),
                ),
            })
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, ended: u64) -> Sample {
        let totals = Totals {
            delivered: ended,
            ended,
            failed: ended / 2,
            queue_time: Duration::from_secs(ended),
            work_time: Duration::from_secs(2 * ended),
        };
        Sample {
            at,
            queued: 1,
            processing: Some(2),
            delayed: Some(3),
            totals: Some(totals),
        }
    }

    #[test] // X4
    fn the_ring_has_a_fixed_size_and_a_rate_between_two_samples() {
        let start = Instant::now();
        let mut history = History::default();
        assert!(history.is_due(start));
        for n in 0..1000 {
            history.push(sample(start + n * INTERVAL, 10 * u64::from(n)));
        }
        let most = SPAN.as_secs() as usize;
        assert_eq!(history.samples().count(), most);
        let now = start + 999 * INTERVAL;
        assert!(!history.is_due(now) && history.is_due(now + INTERVAL));
        let rates = history.rates(now);
        assert_eq!(rates.len(), most - 1);
        let last = history.rate(now).unwrap();
        assert_eq!((last.ago, last.ended, last.failed), (0.0, 10.0, 5.0));
        assert_eq!((last.queued_for, last.worked_for), (Some(1.0), Some(2.0)));
        let census = Census {
            processing: 1,
            ..Census::default()
        };
        let of = |is_partial| Census {
            is_partial,
            ..census.clone()
        };
        let seen = |is_partial| Sample::new(now, 1, &of(is_partial), None).processing;
        assert_eq!([false, true].map(seen), [Some(1), None]);
        // Nobody has looked for a minute.
        history.push(sample(now + 60 * INTERVAL, 0));
        assert!(history.rate(now + 60 * INTERVAL).is_none());
    }
}
