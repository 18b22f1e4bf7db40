//! Owners: threads that delay keys that no other thread touches, and so know what has to become of each.
//!
//! An owner begins with one delay of a key that is at rest, and notes the moment before which it must not
//! end. Then one of three things happens:
//!
//! | | what follows |
//! | --- | --- |
//! | it is delivered | once, and not before its time (D1); the key is at rest |
//! | the owner cancels it | true: never delivered (D6), the key is at rest; false: delivered as above |
//! | the owner delays the key again, by whatever policy (D3) | one delivery at least, and at most one a call; how many, only the queue knows, so such a key is not used for anything else in this life |
//!
//! A delay that does not come for long is a failure, too, not only one that is early: a thread that sleeps past it
//! would wake up at the shut-down at the latest, and nothing would show it.
//!
//! In a queue with a minimum interval (T2) a delivery that follows another may not begin earlier than that after the
//! moment that the owner has noted for the other.

use std::thread;
use std::time::Duration;

use keyqueue::{Added, KeyHandle};
use keyqueue_model::ledger::Key;

use crate::carried::Carried;
use crate::life::Life;
use crate::pieces::Source;

/// No delay may be later, however busy the machine is.
const LATEST: Duration = Duration::from_secs(30);

/// The most delays of one key before it is left alone.
const MOST_CALLS: u64 = 5;

/// A key, as its owner sees it.
pub(crate) struct Owned<V: Carried> {
    number: u64,
    handle: Option<KeyHandle<Key, V>>,
    /// Whether it is delayed again while it waits.
    again: bool,
    /// Delays set since the key was at rest.
    calls: u64,
    /// Deliveries before that.
    before: u64,
    /// When the first of the delays ends, at the earliest.
    first_due: Duration,
    /// When the last one ends.
    last_due: Duration,
    /// The interval of the last delivery is not over before.
    interval_over: Duration,
}

impl<V: Carried> Owned<V> {
    fn new(life: &Life<V>, number: u64) -> Self {
        let key = life.ledger.key(number);
        Owned {
            number,
            handle: fastrand::bool().then(|| life.queue.handle(key)),
            again: fastrand::u8(..4) == 0,
            calls: 0,
            before: 0,
            first_due: Duration::MAX,
            last_due: Duration::ZERO,
            interval_over: Duration::ZERO,
        }
    }

    /// The deliveries since the key was at rest.
    fn deliveries(&self, life: &Life<V>) -> u64 {
        let deliveries = life.ledger.deliveries(self.number) - self.before;
        assert!(
            deliveries <= self.calls,
            "D3: key {} was delivered {deliveries} times for {} delays",
            self.number,
            self.calls
        );
        deliveries
    }

    /// Whether it has been delivered.
    pub(crate) fn is_delivered(&self, life: &Life<V>) -> bool {
        self.deliveries(life) > 0
    }

    /// Whether another of its delays may be pending although it has been delivered.
    pub(crate) fn may_be_pending(&self) -> bool {
        self.calls > 1
    }

    /// A random step; false if the queue is shut down.
    fn step(&mut self, life: &Life<V>, source: &mut Source) -> bool {
        if self.calls == 0 {
            self.before = life.ledger.deliveries(self.number);
            (self.first_due, self.last_due) = (Duration::MAX, Duration::ZERO);
            return self.delay(life, source);
        }
        let deliveries = self.deliveries(life);
        let late = life.clock.now().saturating_sub(self.last_due);
        assert!(
            deliveries > 0 || late < LATEST,
            "D1: key {} is {late:?} late",
            self.number
        );
        if self.again {
            if self.calls < MOST_CALLS && fastrand::u8(..8) == 0 {
                return self.delay(life, source);
            }
        } else if deliveries == 1 {
            self.calls = 0;
            if let Some(interval) = life.plan.settings.interval {
                self.interval_over = self.first_due + interval;
            }
        } else if fastrand::u8(..8) == 0 && life.queue.cancel(&life.ledger.key(self.number)) {
            let deliveries = self.deliveries(life);
            assert_eq!(deliveries, 0, "D6: key {} was cancelled", self.number);
            life.ledger.cancelled(self.number);
            self.calls = 0;
        }
        true
    }

    /// Delays the key, once more or for the first time; false if the queue is shut down.
    fn delay(&mut self, life: &Life<V>, source: &mut Source) -> bool {
        let long = fastrand::u8(..16) == 0;
        let delay = Duration::from_micros(fastrand::u64(1..if long { 200_000 } else { 10_000 }));
        let due = self.interval_over.max(life.clock.now() + delay);
        self.first_due = self.first_due.min(due);
        self.last_due = self.last_due.max(due);
        life.ledger.not_before(self.number, self.first_due);
        let key = life.ledger.key(self.number);
        let added = V::delay(&life.queue, source, key, self.handle.as_ref(), delay);
        life.ledger.count(self.number, added);
        let merges = life.plan.settings.supersede && self.calls > 0;
        assert!(
            matches!(added, Added::Delayed | Added::ShutDown) || merges && added == Added::Merged,
            "a delay returned {added:?}"
        );
        self.calls += u64::from(added.is_accepted());
        added.is_accepted()
    }
}

/// Delays and cancels its own keys until stopped or refused. Returns those that were not at rest.
pub(crate) fn own<V: Carried>(life: &Life<V>, nth: u64) -> Vec<Owned<V>> {
    let mut source = life.source(life.plan.producers.len() + nth as usize);
    let first = life.plan.keys + nth * life.plan.delayed;
    let numbers = first..first + life.plan.delayed;
    let mut keys: Vec<_> = numbers.map(|number| Owned::new(life, number)).collect();
    while !life.is_stopped() {
        let key = fastrand::usize(..keys.len());
        if !keys[key].step(life, &mut source) {
            break;
        }
        if fastrand::u8(..8) == 0 {
            thread::sleep(Duration::from_micros(fastrand::u64(1..300)));
        }
    }
    keys.retain(|key| key.calls > 0);
    // Pins would keep the memory.
    keys.iter_mut().for_each(|key| key.handle = None);
    keys
}
