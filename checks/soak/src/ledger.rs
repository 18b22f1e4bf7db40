//! What is known of each key, and what must hold of it.
//!
//! * An adder raises the key's *version* before it adds; a delivery reads the version when it begins. At the end
//!   each key's version as last *seen* is at least the one last *accepted* (C5). All of this with relaxed
//!   accesses: the queue itself promises the visibility.
//! * A key is *held* by one worker, and what one wrote is visible to the next, so plain loads and stores count
//!   a key's deliveries (C3).
//! * The deliveries are as many as adds were answered with `Queued` or `Deferred` (C2, C4, C6), and at most one
//!   more for each add whose answer does not tell: delays, retries, and most of a bulk.
//! * Keys above `plain` belong to owners that delay them and nothing else: see [`crate::owner`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use keyqueue::{Added, Clock};

// Ordering: Relaxed everywhere but in `delivered` and `deliveries`; see the header. What is read at the end is
// read after the threads were joined.
const R: Ordering = Ordering::Relaxed;

#[derive(Default)]
pub(crate) struct Key {
    pub(crate) version: AtomicU64,
    pub(crate) accepted: AtomicU64,
    seen: AtomicU64,
    held: AtomicBool,
    /// Counted with a plain load and store: by one holder at a time.
    deliveries: AtomicU64,
    /// The earliest moment at which a delay may end, by the queue's clock in nanoseconds.
    pub(crate) not_before: AtomicU64,
}

impl Key {
    pub(crate) fn deliveries(&self) -> u64 {
        // Ordering: Acquire; pairs with the Release in `begin`: the look at `not_before` is over.
        self.deliveries.load(Ordering::Acquire)
    }

    /// Whether every add that was accepted has been delivered.
    fn is_served(&self) -> bool {
        self.seen.load(R) >= self.accepted.load(R)
    }
}

/// What a producer or an owner has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) adds: u64,
    /// Adds that were answered with `Queued` or `Deferred`.
    pub(crate) owed: u64,
    /// Adds that may have caused a delivery.
    pub(crate) perhaps: u64,
    pub(crate) delays: u64,
    pub(crate) cancels: u64,
    pub(crate) deliveries: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.adds += other.adds;
        self.owed += other.owed;
        self.perhaps += other.perhaps;
        self.delays += other.delays;
        self.cancels += other.cancels;
        self.deliveries += other.deliveries;
    }

    /// Notes what an add of a plain key was answered; false if it was refused.
    pub(crate) fn note(&mut self, added: Added) -> bool {
        self.adds += 1;
        match added {
            Added::Queued | Added::Deferred => self.owed += 1,
            Added::Merged => {}
            Added::Delayed => {
                self.delays += 1;
                self.perhaps += 1;
            }
            Added::ShutDown => return false,
            other => panic!("an add was answered with {other:?}"),
        }
        true
    }
}

pub(crate) struct Ledger {
    pub(crate) clock: Clock,
    pub(crate) keys: Vec<Key>,
    /// The number of plain keys, which come first.
    pub(crate) plain: usize,
    /// Keys that are being worked on.
    in_flight: AtomicUsize,
    /// Delays may end before their time: a drain delivers them.
    pub(crate) early: AtomicBool,
    counts: Mutex<Counts>,
    /// By how many microseconds delays came late.
    pub(crate) lateness: Mutex<Histogram<u64>>,
}

impl Ledger {
    pub(crate) fn new(clock: Clock, plain: usize, delayed: usize) -> Self {
        Ledger {
            clock,
            keys: (0..plain + delayed).map(|_| Key::default()).collect(),
            plain,
            in_flight: AtomicUsize::new(0),
            early: AtomicBool::new(false),
            counts: Mutex::default(),
            lateness: Mutex::new(Histogram::new(2).expect("two digits are in range")),
        }
    }

    pub(crate) fn key(&self, key: u64) -> &Key {
        &self.keys[key as usize]
    }

    pub(crate) fn is_plain(&self, key: u64) -> bool {
        (key as usize) < self.plain
    }

    pub(crate) fn nanos(&self, from_now: Duration) -> u64 {
        (self.clock.now() + from_now).as_nanos() as u64
    }

    pub(crate) fn count(&self, counts: &Counts) {
        self.counts
            .lock()
            .expect("no panic is survived")
            .add(counts);
    }

    // ---- deliveries -------------------------------------------------------------------------

    /// Work on a key.
    pub(crate) fn work(&self, number: u64) {
        let key = self.key(number);
        assert!(!key.held.swap(true, R), "C3: two holders of key {number}");
        self.in_flight.fetch_add(1, R);
        key.seen.store(key.version.load(R), R);
        if !self.is_plain(number) {
            self.check_time(number, key);
        }
        // Ordering: Release; pairs with the Acquire in `deliveries`.
        key.deliveries
            .store(key.deliveries.load(R) + 1, Ordering::Release);
        match fastrand::u16(..) {
            0..256 => std::thread::yield_now(),
            256..260 => std::thread::sleep(Duration::from_micros(50)),
            _ => {}
        }
        self.in_flight.fetch_sub(1, R);
        key.held.store(false, R);
    }

    fn check_time(&self, number: u64, key: &Key) {
        let due = key.not_before.load(R);
        let now = self.nanos(Duration::ZERO);
        if self.early.load(R) {
            return;
        }
        assert!(
            now >= due,
            "D1: key {number} came {} ns early",
            due.abs_diff(now)
        );
        let mut lateness = self.lateness.lock().expect("no panic is survived");
        lateness
            .record((now - due) / 1000)
            .expect("it resizes itself");
    }

    /// Keys that are being worked on now.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(R)
    }

    /// Whether every add of a plain key that was accepted has been delivered.
    pub(crate) fn is_served(&self) -> bool {
        self.keys[..self.plain].iter().all(Key::is_served)
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Checks the plain keys, once all threads and tasks have ended. Answers all that was counted.
    pub(crate) fn check(&self) -> Counts {
        assert_eq!(self.in_flight(), 0, "W4: keys are still being worked on");
        let mut deliveries = 0;
        for (number, key) in self.keys[..self.plain].iter().enumerate() {
            assert!(
                key.is_served(),
                "C5: key {number}: add {:?} was accepted, the last delivery saw {:?}",
                key.accepted,
                key.seen
            );
            deliveries += key.deliveries();
        }
        let mut counts = *self.counts.lock().expect("no panic is survived");
        let (owed, most) = (counts.owed, counts.owed + counts.perhaps);
        assert!(
            (owed..=most).contains(&deliveries),
            "C2, C4, C6: {deliveries} deliveries for adds that promised {owed} to {most}"
        );
        let delayed = self.keys[self.plain..].iter().map(Key::deliveries);
        counts.deliveries = deliveries + delayed.sum::<u64>();
        counts
    }
}
