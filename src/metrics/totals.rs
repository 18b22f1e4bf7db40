//! What a named queue has counted so far, for a program that draws rates of its own.

use std::time::Duration;

use super::event::Event;
use super::histogram::{self, Histogram};
use super::series::Source;
use super::stripes::Stripe;
use super::tally::Tally;

/// The counters of a named queue, since it was built; see [`WorkQueue::totals`](crate::WorkQueue::totals).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Deliveries. In a queue with values also keys that came up without one, and were not delivered; see
    /// [`docs::metrics`](crate::docs::metrics#differences-from-client-go).
    pub delivered: u64,
    /// Those of `delivered` that have ended.
    pub ended: u64,
    /// Adds of keys that were queued or dirty already, and adds that wait for a retry.
    pub merged: u64,
    /// Accepted adds with a delay or a rate limit.
    pub retried: u64,
    /// Runs of the workers' function that ended with an error or a panic.
    pub failed: u64,
    /// Keys that workers gave up.
    pub given_up: u64,
    /// How long the delivered keys were queued, in total.
    pub queue_time: Duration,
    /// How long the keys whose delivery has ended were processing, in total.
    pub work_time: Duration,
}

impl Tally {
    /// Returns what was counted, or `None` if the queue has no name.
    pub(crate) fn totals(&self, of: &dyn Source) -> Option<Totals> {
        let stripes = &self.0.as_ref()?.stripes;
        let durations = |samples: fn(&Stripe) -> &Histogram| {
            let (ticks, count) = histogram::total(stripes.each().map(samples));
            // A sum may have more ticks than can be converted: it is that many times as long as 2⁴⁰ of them.
            let nanos = (ticks * u128::from(of.nanos(1 << 40))) >> 40;
            let second = 1_000_000_000;
            (
                count,
                Duration::new((nanos / second) as u64, (nanos % second) as u32),
            )
        };
        let (ended, work_time) = durations(|stripe| &stripe.work);
        let (delivered, queue_time) = durations(|stripe| &stripe.queue);
        Some(Totals {
            delivered,
            ended,
            merged: stripes.sum(Event::Merged),
            retried: stripes.sum(Event::Retried),
            failed: stripes.sum(Event::Error) + stripes.sum(Event::Panic),
            given_up: stripes.sum(Event::GivenUp),
            queue_time,
            work_time,
        })
    }
}
