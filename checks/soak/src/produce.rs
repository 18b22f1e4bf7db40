//! Producers of plain keys.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use keyqueue::{Added, Ended, KeyHandle, Receipt, State};
use keyqueue_model::ledger::{Key, Reply};

use crate::carried::{Carried, Wait, take_back};
use crate::life::Life;
use crate::pieces::Source;
use crate::plan::Adding;
use crate::settings::Queue;

/// Handles that one producer holds.
const HANDLES: u64 = 256;

/// Receipts that one producer holds.
const RECEIPTS: usize = 64;

/// Only with up to this many keys is the queue looked through while others work.
const SNAPSHOT: u64 = 1_000;

/// Keys in a bulk.
const BULK: usize = 24;

/// A receipt.
pub(crate) struct Tracked {
    number: u64,
    /// How often it was tried to add the key before.
    before: u64,
    receipt: Receipt,
}

impl Tracked {
    /// Checks that it has ended, and rightly.
    pub(crate) fn check<V: Carried>(&self, life: &Life<V>) {
        let Some(ended) = self.receipt.ended() else {
            panic!("the receipt of key {} never ends", self.number);
        };
        let (plan, seen) = (&life.plan, life.ledger.seen(self.number));
        match ended {
            Ended::Done => assert!(seen > self.before, "V2: a receipt ended before a delivery"),
            Ended::GivenUp => assert!(plan.retried, "V2: a key was given up"),
            _ => assert!(
                plan.may_lose_values() || plan.may_leave_values(),
                "V2: a put was dropped"
            ),
        }
    }

    /// Waits for its end, in some way, and checks it.
    fn wait<V: Carried>(mut self, life: &Life<V>) {
        match fastrand::u8(..3) {
            0 => {
                while self
                    .receipt
                    .wait_timeout(Duration::from_micros(300))
                    .is_none()
                {}
            }
            1 => _ = pollster::block_on(&mut self.receipt),
            _ => {
                let Tracked {
                    number,
                    before,
                    receipt,
                } = self;
                let done = receipt.wait() == Ended::Done;
                let seen = life.ledger.seen(number);
                assert!(
                    !done || seen > before,
                    "V2: a receipt ended before a delivery"
                );
                return;
            }
        }
        self.check(life);
    }
}

/// A thread that adds.
pub(crate) struct Producer<'l, V: Carried> {
    pub(crate) life: &'l Life<V>,
    pub(crate) source: Source,
    pub(crate) handles: Vec<KeyHandle<Key, V>>,
    receipts: VecDeque<Tracked>,
    /// How often it was tried to add the key of the present add before.
    before: u64,
    /// Whether there is always room.
    fits: bool,
}

impl<'l, V: Carried> Producer<'l, V> {
    /// One at this place among all threads that add.
    pub(crate) fn new(life: &'l Life<V>, place: usize) -> Self {
        Producer {
            life,
            source: life.source(place),
            handles: Vec::new(),
            receipts: VecDeque::new(),
            before: 0,
            fits: life.plan.always_fits(),
        }
    }

    /// Adds a key in this way.
    pub(crate) fn add(&mut self, number: u64, how: Adding) -> Reply {
        self.add_by(number, how, None)
    }

    fn add_by(&mut self, number: u64, how: Adding, handle: Option<usize>) -> Reply {
        let life = self.life;
        let key = life.ledger.key(number);
        self.before = life.ledger.version(number);
        let reply = life.ledger.add(number, || V::add(self, how, key, handle));
        let refused = how == Adding::Try && matches!(reply, Reply::Refused);
        assert!(
            !(refused && self.fits),
            "B2: no room for {number}, although all keys fit"
        );
        reply
    }

    /// Keeps the receipt of the present add, or waits for its end.
    pub(crate) fn track(&mut self, number: u64, receipt: Receipt) {
        let tracked = Tracked {
            number,
            before: self.before,
            receipt,
        };
        if fastrand::u8(..) == 0 {
            return tracked.wait(self.life);
        }
        if self.receipts.len() == RECEIPTS {
            self.receipts.pop_front();
        }
        self.receipts.push_back(tracked);
    }

    /// Adds a random key. Whether something was added.
    fn add_one(&mut self, how: Adding) -> bool {
        if how == Adding::Handle {
            let handle = fastrand::usize(..self.handles.len());
            let number = self.handles[handle].number;
            return self.add_by(number, how, Some(handle)).is_accepted();
        }
        self.add(fastrand::u64(..self.life.plan.keys), how)
            .is_accepted()
    }

    /// Adds a key of the producer's own, if one that it tries is idle. Such an add needs room, and so does each other
    /// one of this life.
    fn add_own(&mut self, place: usize, how: Adding) -> bool {
        let life = self.life;
        let (place, step) = (place as u64, life.plan.producers.len() as u64);
        // Its keys are those whose numbers have this rest.
        let own = (life.plan.keys - place).div_ceil(step);
        let key = life.ledger.key(place + step * fastrand::u64(..own));
        if life
            .queue
            .state(&key)
            .is_some_and(|state| state != State::Idle)
        {
            thread::yield_now();
            return true;
        }
        let added = self.add(key.number, how);
        if let Some(room) = life.plan.settings.room() {
            let len = life.queue.len();
            assert!(len <= room, "B1: {len} keys, beside room for {room}");
        }
        added.is_accepted()
    }
}

/// Adds random keys until stopped or refused. Returns the receipts that have not been waited for.
pub(crate) fn produce<V: Carried>(life: &Life<V>, place: usize) -> VecDeque<Tracked> {
    let plan = &life.plan;
    let how = plan.producers[place];
    let mut producer = Producer::new(life, place);
    if how == Adding::Handle {
        let keys = (0..plan.keys.min(HANDLES)).map(|number| life.ledger.key(number));
        producer.handles = keys.map(|key| life.queue.handle(key)).collect();
    }
    let mut left = plan.bout;
    for _ in 0..plan.adds.unwrap_or(u64::MAX) {
        let added = match fastrand::u8(..) {
            0 if plan.cleared && fastrand::u8(..16) == 0 => clear(life),
            _ if plan.apart => producer.add_own(place, how),
            1..16 if plan.mixed => producer.meddle(),
            _ if how == Adding::Bulk => add_bulk(life),
            _ => producer.add_one(how),
        };
        if life.is_stopped() {
            break;
        }
        if !added {
            thread::yield_now(); // there is no room
        }
        left -= 1;
        if left == 0 {
            left = plan.bout;
            thread::sleep(Duration::from_micros(fastrand::u64(1..500)));
        }
    }
    producer.receipts
}

fn add_bulk<V: Carried>(life: &Life<V>) -> bool {
    let numbers = [(); BULK].map(|()| fastrand::u64(..life.plan.keys));
    life.ledger.add_all(&life.queue, &numbers)
}

/// Discards all queued keys.
fn clear<V: Carried>(life: &Life<V>) -> bool {
    // Each may have been queued.
    life.ledger
        .discard(0..life.plan.keys, || life.queue.clear());
    true
}

/// C3, C5: at a moment a key is in one state.
fn check_snapshot<V: Carried>(life: &Life<V>) {
    let keys = life.queue.snapshot();
    let mut numbers: Vec<u64> = keys.iter().map(|key| key.key().number).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "a snapshot has a key twice");
}

/// Pauses the queue for a moment, if it can be paused. The last of those that do so at the same time resumes it.
fn pause<V: Carried>(queue: &Queue<V>) {
    if queue.pause().is_ok() {
        thread::yield_now();
        queue.resume();
    }
}

impl<V: Carried> Producer<'_, V> {
    /// Delays or debounces a key, in some way.
    fn delay(&mut self, key: Key, by_handle: bool) -> Added {
        let (life, number) = (self.life, key.number);
        let delay = Duration::from_micros(fastrand::u64(1..20_000));
        let handle = by_handle.then(|| life.queue.handle(key.clone()));
        let limit = (fastrand::u8(..4) == 0).then(|| delay * fastrand::u32(1..5));
        let wait = Wait { delay, limit };
        let added = V::delay(&life.queue, &mut self.source, key, handle.as_ref(), wait);
        life.ledger.count(number, added);
        added
    }

    /// Something else than an add: none of it may disturb an add. Whether it was not refused.
    fn meddle(&mut self) -> bool {
        let Life { ledger, queue, .. } = self.life;
        let number = fastrand::u64(..self.life.plan.keys);
        let key = ledger.key(number);
        let small = self.life.plan.keys <= SNAPSHOT;
        match fastrand::u8(..64) {
            0..16 => return self.delay(key, false).is_accepted(),
            16..22 => return self.delay(key, true).is_accepted(),
            // Without a value, if keys have one: perhaps nothing is delivered.
            22..26 => ledger.count(number, perhaps(queue.add_rate_limited(key))),
            26..28 => ledger.count(number, perhaps(queue.handle(key).add())),
            28..36 => _ = queue.cancel(&key),
            36..40 => _ = queue.run_now(&key),
            40 => pause(queue),
            41..48 => _ = ledger.discard([number], || take_back(queue, &key).into()),
            48..56 => queue.forget(&key),
            56 => _ = queue.num_requeues(&key),
            57 => _ = queue.fire_due(),
            58 => _ = (queue.len(), queue.is_empty(), queue.counts()),
            59 => _ = queue.state(&key),
            60 if small => check_snapshot(self.life),
            61 | 62 if small => _ = (queue.groups::<u64>(), queue.counts()),
            _ => queue.shrink(),
        }
        true
    }
}

/// An add that may cause a delivery, but none has to follow.
fn perhaps(added: Added) -> Added {
    match added.is_accepted() {
        true => Added::Delayed,
        false => added,
    }
}
