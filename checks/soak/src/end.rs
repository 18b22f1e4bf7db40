//! How a life ends, and what the ends of its queue report.

use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::{GetError, Remaining};

use crate::carried::Carried;
use crate::life::{Last, Life};
use crate::plan::End;

impl<V: Carried> Life<V> {
    /// Ends the life as planned, with all threads at work but for an end at rest. Returns what the end reported.
    pub(crate) fn end(&self) -> Remaining {
        let queue = &self.queue;
        let keeps = matches!(self.plan.end, End::AtRest | End::ShutDown);
        if self.plan.settings.drain_delays && !keeps {
            self.ledger.allow_early();
        }
        match self.plan.end {
            End::AtRest | End::ShutDown => queue.shut_down(),
            End::Now(callers) => self.abandon(callers),
            End::Drain(drainers) => {
                self.by_all(drainers, || self.drained(queue.shut_down_with_drain()))
            }
            End::DrainAsync => {
                // Perhaps after another that is dropped before it is ready.
                if fastrand::bool() {
                    let mut context = Context::from_waker(Waker::noop());
                    _ = pin!(queue.drain_async()).poll(&mut context);
                }
                self.drained(pollster::block_on(queue.drain_async()))
            }
            End::DrainTimeout => {
                let mut dropped = None;
                loop {
                    let drained = queue.drain_timeout(Duration::from_micros(fastrand::u64(0..300)));
                    let delayed = drained.delayed;
                    let before = *dropped.get_or_insert(delayed);
                    assert_eq!(delayed, before, "S5: each call reports the same");
                    if drained.is_finished() {
                        return self.drained(drained);
                    }
                }
            }
            End::Released => thread::scope(|scope| {
                let drain = scope.spawn(|| queue.shut_down_with_drain());
                while !queue.is_shutting_down() {
                    thread::yield_now();
                }
                let found = queue.shut_down();
                let drained = drain.join().expect("alive");
                assert_eq!(drained.delayed, found.delayed, "S5: the drain");
                found
            }),
        }
    }

    /// Calls `end` by so many threads. Their reports are one (S5).
    fn by_all(&self, threads: usize, end: impl Fn() -> Remaining + Sync) -> Remaining {
        thread::scope(|scope| {
            let calls: Vec<_> = (0..threads).map(|_| scope.spawn(&end)).collect();
            let reports = calls.into_iter().map(|call| call.join().expect("alive"));
            let sum = |one: Remaining, other: Remaining| {
                assert_eq!(one.delayed, other.delayed, "S5: each call reports the same");
                let mut sum = one;
                sum.queued += other.queued;
                sum.processing = sum.processing.max(other.processing);
                sum
            };
            reports.reduce(sum).expect("one at least")
        })
    }

    /// Discards what is queued (S8), perhaps under a drain.
    fn abandon(&self, callers: usize) -> Remaining {
        let queue = &self.queue;
        thread::scope(|scope| {
            let drain = fastrand::bool().then(|| scope.spawn(|| queue.shut_down_with_drain()));
            let found = self.by_all(callers, || {
                let found = queue.shut_down_now();
                let found_none = GetError::ShutDown;
                assert_eq!(queue.try_get().err(), Some(found_none), "S8: a delivery");
                found
            });
            assert!(queue.get().is_none(), "S8: a delivery");
            let none = queue.get_timeout(Duration::from_secs(1)).err();
            assert_eq!(none, Some(GetError::ShutDown), "S8: a delivery");
            // What is dirty counts as processing, and is not delivered again.
            self.ledger.abandoned(found.queued + found.processing);
            if let Some(drain) = drain {
                let drained = drain.join().expect("alive");
                assert!(drained.is_finished(), "S8: {drained:?}");
                assert_eq!(drained.delayed, found.delayed, "S5: the drain");
            }
            found
        })
    }

    /// S3
    fn drained(&self, drained: Remaining) -> Remaining {
        self.ledger.drained();
        assert!(drained.is_finished(), "S7: {drained:?}");
        assert_eq!(self.queue.len(), 0, "S3: a drain returned with keys queued");
        drained
    }

    /// Ends the queue once more, in every way. Returns how many delays its end has dropped.
    fn end_again(&self) -> usize {
        let queue = &self.queue;
        let now = Duration::ZERO;
        let reports = [
            queue.shut_down(),
            queue.shut_down_with_drain(),
            queue.drain_timeout(now),
            pollster::block_on(queue.drain_async()),
            queue.shut_down_now(),
        ];
        for left in reports {
            let unfinished = left.queued + left.processing;
            assert_eq!(unfinished, 0, "S1: {left:?} after the end");
            assert_eq!(left, reports[0], "S5: each call reports the same");
        }
        assert!(queue.is_empty(), "S1: keys are left after the end");
        reports[0].delayed
    }

    /// Checks what is known once all threads and tasks have ended.
    pub(crate) fn check_end(&self, last: &Last<V>) {
        let dropped = self.end_again();
        let (owned, found) = (&last.owned, last.found);
        assert_eq!(found.delayed, dropped, "S5: each call reports the same");
        let (all, at_rest) = (self.delivers_delays(), last.resting.is_some());
        let delivered = owned.iter().filter(|key| key.is_delivered(self)).count();
        let missing = owned.len() - delivered;
        assert!(
            missing == 0 || !(all || at_rest),
            "S5: {missing} keys were delayed, and not delivered"
        );
        let pending = match (all, at_rest) {
            (true, _) => 0,
            (false, true) => owned.iter().filter(|key| key.may_be_pending()).count(),
            (false, false) => owned.len(),
        };
        let discarded = match self.plan.end {
            // One that is dirty counts as processing.
            End::Now(_) => found.queued + found.processing,
            _ => 0,
        };
        let others = (self.plan.mixed || self.plan.retried) && !all && !at_rest;
        assert!(
            dropped + discarded >= missing && (dropped <= pending || others),
            "S5: {missing} of {pending} delays were dropped, {found:?} reported"
        );
        if let Some(delayed) = last.resting {
            assert!(
                found.queued + found.processing + found.delayed <= delayed,
                "C8: {found:?} in a queue at rest but for {delayed} delays"
            );
        }
        for receipt in &last.receipts {
            receipt.check(self);
        }
    }
}
