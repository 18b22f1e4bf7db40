//! Holders: threads that hold and release groups (G6), those of plain keys and some of their own.
//!
//! Of its own groups a holder knows what has to become of their keys, because no other thread adds them: while a
//! group is held, a key that was idle before is not delivered; after that each is delivered once. It holds a group
//! before it has keys. Nothing but the hold keeps the group then, and the holder sees to it that idle groups are
//! forgotten.

use std::thread;
use std::time::{Duration, Instant};

use crate::carried::Carried;
use crate::life::Life;
use crate::plan::{Adding, End, HELD};
use crate::produce::Producer;
use crate::settings::{GROUP, Groups};

/// No key may be later, however busy the machine is.
const LATEST: Duration = Duration::from_secs(30);

/// The most groups of plain keys that one holder holds.
const MOST: usize = 3;

struct Holder<'l, V: Carried> {
    life: &'l Life<V>,
    groups: &'l Groups,
    producer: Producer<'l, V>,
    /// Its first key.
    first: u64,
    /// How often each of its keys has to have been delivered.
    due: [u64; HELD as usize],
    /// The groups of plain keys that it holds.
    held: Vec<u64>,
}

/// Holds and releases groups until stopped or refused.
pub(crate) fn hold<V: Carried>(life: &Life<V>, nth: u64) {
    let groups = life.plan.settings.groups.as_ref();
    let place = life.plan.producers.len() as u64 + life.plan.owners + nth;
    let mut holder = Holder {
        life,
        groups: groups.expect("holders have groups"),
        producer: Producer::new(life, place as usize),
        first: life.plan.first_held() + nth * HELD,
        due: [0; HELD as usize],
        held: Vec::new(),
    };
    while !life.is_stopped() {
        match fastrand::bool() {
            true => holder.disturb(),
            false => holder.hold_own(),
        }
        if fastrand::u8(..4) == 0 {
            thread::sleep(Duration::from_micros(fastrand::u64(1..300)));
        }
    }
    for group in std::mem::take(&mut holder.held) {
        holder.release(group);
    }
}

impl<V: Carried> Holder<'_, V> {
    /// Holds or releases a group of plain keys.
    fn disturb(&mut self) {
        let queue = &self.life.queue;
        if self.held.len() == MOST || (!self.held.is_empty() && fastrand::bool()) {
            let group = self.held.swap_remove(0);
            return self.release(group);
        }
        let group = fastrand::u64(..self.groups.count);
        let hold = match fastrand::bool() {
            true => Duration::MAX,
            false => Duration::from_micros(fastrand::u64(..3000)),
        };
        assert!(queue.hold_group(&group, hold));
        // It is released in any case: the hold of another holder may have replaced this one.
        self.held.push(group);
    }

    /// Holds a group of its own, adds some of its keys, and waits until they are delivered.
    fn hold_own(&mut self) {
        let Life { queue, ledger, .. } = self.life;
        let keys = GROUP * fastrand::u64(..HELD / GROUP)..;
        let keys: Vec<_> = keys.take(fastrand::usize(1..=GROUP as usize)).collect();
        let group = self.groups.of(self.first + keys[0]);
        let forever = fastrand::bool();
        let (hold, until) = match forever {
            true => (Duration::MAX, Duration::MAX),
            false => {
                let hold = Duration::from_micros(fastrand::u64(..3000));
                (hold, self.life.clock.now() + hold)
            }
        };
        assert!(queue.hold_group(&group, hold), "G6: groups are numbers");
        if fastrand::bool() {
            queue.shrink();
        }
        for key in &keys {
            let number = self.first + key;
            ledger.not_before(number, until);
            let how = [Adding::Add, Adding::At, Adding::NewHandle][fastrand::usize(..3)];
            if !self.producer.add(number, how).is_accepted() {
                break; // the queue is shut down
            }
            self.due[*key as usize] += 1;
        }
        if forever || fastrand::u8(..4) == 0 {
            thread::sleep(Duration::from_micros(fastrand::u64(..1000)));
            for key in &keys {
                ledger.not_before(self.first + key, Duration::ZERO);
            }
            self.release(group);
        }
        self.wait(&keys);
    }

    /// Releases a group; not one whose keys are discarded, so that they have to go although they are held (C10).
    fn release(&self, group: u64) {
        let queue = &self.life.queue;
        if !(matches!(self.life.plan.end, End::Now(_)) && queue.is_shutting_down()) {
            assert!(
                queue.hold_group(&group, Duration::ZERO),
                "G6: groups are numbers"
            );
        }
    }

    /// Waits until its keys are delivered, or the queue is shut down.
    fn wait(&self, keys: &[u64]) {
        let begun = Instant::now();
        for key in keys {
            let (number, due) = (self.first + key, self.due[*key as usize]);
            loop {
                let deliveries = self.life.ledger.deliveries(number);
                assert!(
                    deliveries <= due,
                    "G6: key {number} was delivered {deliveries} times"
                );
                if deliveries == due || self.life.queue.is_shutting_down() {
                    break;
                }
                let late = begun.elapsed();
                assert!(late < LATEST, "G6: key {number} is {late:?} late");
                thread::yield_now();
            }
        }
    }
}
