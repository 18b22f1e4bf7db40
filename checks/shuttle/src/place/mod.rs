//! One run of a scenario that has a [`Plan`]: a queue, and what is known of all that was done with it.
//!
//! * The [`Ledger`] knows of each key, and [`Puts`] of each value, whether it was delivered as often as promised.
//! * What may wait for delivery is counted, so that no add is refused while there is room (B2).
//! * A getter reads what holds now before it asks for a key, and checks the delivery by that (`deliver`).
//! * What is left at the end is compared with what the queue reports (`end`).
//!
//! The accounts are behind std's atomics and mutexes, whose use is no step of the schedule.

mod beside;
mod deliver;
mod end;

use std::array;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keyqueue::{Added, Clock, MockClock, Receipt};

use crate::plan::{GROUPS, KEYS, PRODUCERS, SPARE};
use crate::{How, Kind, Ledger, Plan, Puts, QueueOf, below, delay, once_in};
use deliver::{Hold, InFlight};

/// How old the clock is before the first add, and longer than any run.
pub const AGE: Duration = Duration::from_secs(3600);

// Ordering: Relaxed; shuttle runs one thread at a time.
const R: Ordering = Ordering::Relaxed;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One run.
#[derive(Debug)]
pub struct Place<K> {
    plan: Plan,
    /// What the run is about.
    pub queue: QueueOf<K>,
    clock: Clock,
    time: MockClock,
    ledger: Ledger,
    puts: Puts,
    receipts: Mutex<Vec<(u64, Receipt)>>,
    waiting: Mutex<Waiting>,
    holds: Mutex<[Hold; GROUPS as usize]>,
    groups: [InFlight; GROUPS as usize],
    /// When the getter of the key's last delivery had asked for it, in nanoseconds; 0 before the first.
    asked: [AtomicU64; KEYS as usize],
    /// Adds that kept no bound.
    unbounded: AtomicUsize,
    /// Keys that were retried when they were last delivered.
    retried: [AtomicBool; KEYS as usize],
    /// Delays and retries of keys that all add.
    delays: AtomicU64,
    /// Calls of the queue by wakers that have panicked.
    panics_in_wakers: AtomicUsize,
    /// Whether the clock may stand still.
    over: AtomicBool,
}

/// How much may wait for delivery, an upper bound: what was added, and is not known to be delivered or taken back.
#[derive(Default, Debug)]
struct Waiting {
    now: usize,
    /// The most since each producer has begun its add.
    most: [usize; PRODUCERS as usize],
}

impl Waiting {
    fn add(&mut self, amount: usize) {
        self.now += amount;
        for most in &mut self.most {
            *most = self.now.max(*most);
        }
    }
}

impl<K: Kind> Place<K> {
    /// A queue as planned, with a clock that is not new.
    pub fn new(plan: Plan) -> Self {
        let (clock, time) = Clock::mock();
        time.advance(AGE);
        Place {
            queue: plan.build(clock.clone()),
            plan,
            clock,
            time,
            ledger: Ledger::new(KEYS + SPARE, true),
            puts: Puts::default(),
            receipts: Mutex::default(),
            waiting: Mutex::default(),
            holds: Mutex::default(),
            groups: array::from_fn(|_| InFlight::default()),
            asked: array::from_fn(|_| AtomicU64::new(0)),
            unbounded: AtomicUsize::new(0),
            retried: array::from_fn(|_| AtomicBool::new(false)),
            delays: AtomicU64::new(0),
            panics_in_wakers: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// What one producer does.
    pub fn produce(&self, producer: u64) {
        let Plan { menu, keys, .. } = self.plan;
        if self.plan.delays {
            let (own, delay) = (self.plan.own(producer), delay());
            self.ledger.not_before(own, self.clock.now() + delay);
            self.add(producer, How::After(delay), own);
        }
        for nth in 0..self.plan.adds {
            let (how, number) = match nth {
                0 => menu[producer as usize],
                _ => (menu[below(PRODUCERS) as usize].0, below(keys)),
            };
            self.add(producer, how, number);
            if self.plan.cancels && once_in(3) {
                self.cancel(below(keys));
            }
        }
    }

    /// Delays some keys, no more than there is room for, before others add.
    pub fn delay_first(&self) {
        let most = self.plan.capacity.unwrap_or(usize::MAX);
        for number in (0..self.plan.keys).take(most) {
            if once_in(2) {
                self.add(0, How::After(delay()), number);
            }
        }
        if self.plan.supersede {
            // There was room for them.
            self.unbounded.store(0, R);
        }
    }

    /// Adds a key in a producer's thread, and checks that it is not refused without a reason.
    pub fn add(&self, producer: u64, how: How, number: u64) {
        let mine = producer as usize;
        {
            let mut waiting = lock(&self.waiting);
            waiting.most[mine] = waiting.now;
        }
        let added = self.add_as(producer, how, number);
        let is_full = added.is_none() && matches!(how, How::Try | How::WaitFor);
        if let (true, Some(capacity)) = (is_full, self.plan.capacity) {
            let most = lock(&self.waiting).most[mine] - self.while_added(how);
            assert!(
                most >= capacity,
                "B2: full, and no more than {most} of {capacity} may have waited"
            );
        }
    }

    /// Returns how much an add counts while it is not over. One that may wait for room counts as all of it: nobody
    /// is let past. A put has room of its own until it has given back what its value does not need, and the value may
    /// be delivered before.
    fn while_added(&self, how: How) -> usize {
        match how {
            How::WaitFor | How::Exceed | How::Wait | How::Async | How::Dropped(_) => {
                1 + self.plan.capacity.unwrap_or(0)
            }
            _ => 1 + usize::from(K::HAS_VALUES),
        }
    }

    /// Adds a key, and accounts for it.
    fn add_as(&self, thread: u64, how: How, number: u64) -> Option<Added> {
        let Place { queue, ledger, .. } = self;
        lock(&self.waiting).add(self.while_added(how));
        let (key, put) = (ledger.key(number), self.puts.begin(thread));
        let mut did = None;
        let add = || {
            let (added, receipt) = K::add(queue, how, key, put);
            did = added;
            if let Some(receipt) = receipt {
                // It does not say what the add did: perhaps there will be a delivery.
                ledger.count(number, Added::Delayed);
                lock(&self.receipts).push((put, receipt));
                did = Some(Added::Delayed);
                return Added::ShutDown;
            }
            // For the ledger, an add without room is one that was refused.
            added.unwrap_or(Added::ShutDown)
        };
        if how.is_delayed() && !self.plan.keeps_delays() {
            ledger.count(number, add());
        } else {
            ledger.add(number, add);
        }
        let is_accepted = did.is_some_and(Added::is_accepted);
        if how != How::Tracked {
            self.puts.added(put, is_accepted);
        }
        if did == Some(Added::Delayed) && number < self.plan.keys {
            self.delays.fetch_add(1, R);
        }
        // A value that is merged takes room, if values are weighed.
        let is_merged = did == Some(Added::Merged) && !K::HAS_VALUES;
        let takes = usize::from(is_accepted && !is_merged);
        lock(&self.waiting).now -= self.while_added(how) - takes;
        if !how.is_bounded() {
            let is_delayed = did == Some(Added::Delayed);
            self.exceed(if is_delayed {
                self.of_delay(takes)
            } else {
                takes
            });
        }
        did
    }

    /// Counts what took room without regard to the bound.
    fn exceed(&self, amount: usize) {
        self.unbounded.fetch_add(amount, R);
    }

    /// Returns how much may wait because of a delay. While it is pending, an add of its key needs no room; but the key is
    /// queued then, and counts twice, unless the add supersedes the delay.
    fn of_delay(&self, amount: usize) -> usize {
        match self.plan.supersede {
            true => amount,
            false => 2 * amount,
        }
    }

    fn cancel(&self, number: u64) {
        let cancelled = self.queue.cancel(&self.ledger.key(number));
        // It does not say how much was in the value.
        if cancelled && !K::HAS_VALUES {
            lock(&self.waiting).now -= 1;
        }
    }
}
