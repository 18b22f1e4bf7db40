//! The end of a run, and what must hold then.

use std::time::Duration;

use keyqueue::{Ended, GetError};
use shuttle::thread::yield_now;

use super::{AGE, Place, R, lock};
use crate::plan::{KEYS, SPARE};
use crate::{End, How, Kind, check_end};

impl<K: Kind> Place<K> {
    /// Ends the queue; returns the number of delays that were dropped.
    pub fn end(&self) -> usize {
        let Place {
            plan,
            queue,
            ledger,
            ..
        } = self;
        if plan.drains() && plan.drain_delays {
            ledger.allow_early();
        }
        match plan.end {
            End::Drain => self.drain(),
            End::Late => {
                let early = queue.drain_timeout(Duration::ZERO).delayed;
                let late = self.drain();
                assert_eq!(early, late, "S5: the drains report other delays");
                late
            }
            End::ShutDown => queue.shut_down().delayed,
            End::Now => {
                let left = queue.shut_down_now();
                // Those that are processing may have been dirty.
                ledger.abandoned(left.queued + left.processing);
                left.delayed
            }
        }
    }

    fn drain(&self) -> usize {
        let drained = self.queue.shut_down_with_drain();
        assert!(drained.is_finished(), "S7");
        let left = drained;
        assert_eq!((left.queued, left.processing), (0, 0), "S3");
        // What a clear has just taken is not noted yet.
        if !self.plan.clears {
            self.ledger.drained();
        }
        left.delayed
    }

    /// Checks what is left when all threads have ended.
    pub fn check_rest(&self, dropped: usize) {
        let Place { plan, queue, .. } = self;
        let panics = self.panics_in_wakers.load(R);
        assert_eq!(panics, 0, "S15: a waker was called under a lock");
        self.check_delays(dropped as u64);
        let counts = queue.counts();
        let left = (counts.queued, counts.processing, counts.delayed);
        assert_eq!(left, (0, 0, 0), "B4");
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown, "S1");
        if K::HAS_VALUES {
            for puts in K::take_left(queue) {
                self.puts.end(&puts);
            }
            // `shrink` drops what is left.
            self.puts.check(plan.clears || plan.cancels || plan.sweeps);
        }
        for (put, receipt) in lock(&self.receipts).iter() {
            let (ended, delivered) = (receipt.ended(), self.puts.is_delivered(*put));
            let right = match ended {
                Some(Ended::Done) => delivered,
                Some(Ended::Dropped) => !delivered,
                _ => false,
            };
            assert!(
                right,
                "the receipt of a put says {ended:?}; delivered: {delivered}"
            );
        }
        // Past every interval, and every hold that ends.
        self.time.advance(AGE);
        // The timer's thread ends with the queue: it may be about to push the entry of a delay that has ended.
        while !plan.manual && self.ledger.alive() > 0 {
            queue.shrink();
            yield_now();
        }
        check_end(queue, &self.ledger);
    }

    /// S5: each delay was delivered, or cancelled, or is counted as dropped.
    fn check_delays(&self, dropped: u64) {
        let Place { plan, ledger, .. } = self;
        let own = (0..plan.producers).map(|producer| plan.own(producer));
        let missing: u64 = own
            .map(|own| ledger.delays(own) - ledger.deliveries(own))
            .sum();
        let most = missing + self.delays.load(R);
        let counted = dropped <= most && (dropped >= missing || plan.discards());
        assert!(
            counted && (dropped == 0 || !plan.keeps_delays()),
            "S5: {dropped} dropped, {missing} to {most} missing"
        );
        let again = self.queue.shut_down().delayed as u64;
        assert_eq!(again, dropped, "S5: another call reports other delays");
    }

    /// Returns the least and the most of a delivery of this weight from a queue at rest that was a retry. There were this many
    /// keys that are retrying `before`.
    fn retry_of(&self, number: u64, weight: usize, before: usize) -> (usize, usize) {
        let noted = self.retried.get(number as usize);
        let retried = noted.is_some_and(|noted| noted.swap(false, R));
        let (is_certain, may_be) = match K::HAS_VALUES {
            // All of a value that is retried is a retry until it is delivered, or is taken back.
            true => (!self.plan.cancels && !self.plan.clears, retried),
            // A key that was retried may wait twice: queued, and delayed.
            false => {
                let after = self.queue.counts().retrying;
                (after < before, before > 0)
            }
        };
        let most = if may_be { weight } else { 0 };
        (if is_certain { most } else { 0 }, most)
    }

    /// Checks the room of a bounded queue at rest, which is not shut down, and delivers what there is: B1, B3, B5.
    pub fn check_room(&self) {
        let capacity = self.plan.capacity.expect("the queue is bounded");
        let probe = |nth: &u64| {
            let key = self.ledger.key(KEYS + nth);
            let put = self.puts.begin(0);
            let added = self.ledger.add(KEYS + nth, || {
                let (added, _) = K::add(&self.queue, How::Try, key, put);
                added.unwrap_or(keyqueue::Added::ShutDown)
            });
            self.puts.added(put, added.is_accepted());
            added.is_accepted()
        };
        // An add of a key that a getter holds needs no room.
        let held: usize = self.groups.iter().map(|group| group.all.load(R)).sum();
        let unbounded = self.unbounded.load(R) + held;
        let probes = (0..SPARE).take_while(probe).count();
        let mut waited = 0;
        // The least and the most of it that were retries.
        let (mut least, mut most) = (0, 0);
        for passed in 0.. {
            loop {
                let retrying = self.queue.counts().retrying;
                let Ok(mut item) = self.queue.try_get() else {
                    break;
                };
                let (number, _) = Self::name(&item);
                self.ledger.begin(number);
                let puts = K::value(&mut item);
                let weight = match self.plan.weighs {
                    true => K::weight(&puts),
                    false => 1,
                };
                waited += weight;
                let retries = self.retry_of(number, weight, retrying);
                (least, most) = (least + retries.0, most + retries.1);
                self.ledger.end(number);
                if K::HAS_VALUES {
                    self.puts.finish(number, puts);
                }
            }
            if self.queue.counts().delayed == 0 {
                break;
            }
            assert!(passed < 100_000, "C3: a retry never comes");
            self.pass_time();
        }
        let waited = waited - probes;
        assert!(
            waited <= capacity + unbounded,
            "B1: {waited} waited, {unbounded} of them without regard to the capacity of {capacity}"
        );
        // B5: half of the capacity, none up to the capacity once more, and all of what is beyond.
        let half = capacity / 2;
        let takes = |retries: usize| retries.min(half) + retries.saturating_sub(half + capacity);
        let room = |retries| capacity.saturating_sub(waited - retries + takes(retries));
        assert!(
            (room(least)..=room(most)).contains(&probes),
            "B1, B3, B5: room for {probes} beside {waited} that waited, {least} to {most} of them retries, of {capacity}"
        );
    }
}
