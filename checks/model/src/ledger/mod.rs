//! What is known of each key while many threads add and get, and what must hold of it.
//!
//! * An adder raises the key's *version* before it adds; a delivery reads the version when it begins. At the end
//!   each key's version as last *seen* is at least the one last *accepted* (C5). All of this with relaxed
//!   accesses: the queue itself promises the visibility.
//! * A key is *held* by one worker, and what one wrote is visible to the next, so plain loads and stores count
//!   a key's deliveries (C3).
//! * A key is delivered once for each add that returned `Queued` or `Deferred` (C2, C4, C6), and at most once more
//!   for each add whose result does not tell: delays, retries, and the keys of a bulk.
//! * What takes keys out of the queue without a delivery says how many ([`Ledger::discard`],
//!   [`Ledger::abandoned`]): that many deliveries may be missing.
//!
//! The atomics are std's under shuttle, too, which does not know them. An access is no step of the schedule, so the
//! ledger changes at the instant of what it records.

mod key;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use keyqueue::{Added, WorkQueue};

pub use key::Key;

// Ordering: Relaxed everywhere but of `deliveries`; see the header. What is read at the end is read after the
// threads were joined.
const R: Ordering = Ordering::Relaxed;

/// What the caller of an add knows of it.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// It has done this.
    Added(Added),
    /// It was accepted. Nothing says whether it caused a delivery or was merged.
    Accepted,
    /// It was not accepted.
    Refused,
}

impl Reply {
    /// Whether the add was accepted.
    pub fn is_accepted(self) -> bool {
        match self {
            Reply::Added(added) => added.is_accepted(),
            Reply::Accepted => true,
            Reply::Refused => false,
        }
    }
}

impl From<Added> for Reply {
    fn from(added: Added) -> Self {
        Reply::Added(added)
    }
}

#[derive(Default, Debug)]
struct Account {
    version: AtomicU64,
    accepted: AtomicU64,
    seen: AtomicU64,
    /// The version when the key was last taken out without a delivery.
    discarded: AtomicU64,
    held: AtomicBool,
    /// Counted with a plain load and store: by one holder at a time.
    deliveries: AtomicU64,
    /// Adds that returned `Queued` or `Deferred`.
    owed: AtomicU64,
    /// Delays and retries, each of which may have caused a delivery.
    perhaps: AtomicU64,
    /// Adds in bulk, likewise.
    bulk: AtomicU64,
    /// The earliest moment at which the key may be delivered, in nanoseconds.
    not_before: AtomicU64,
}

impl Account {
    /// Raises the version.
    fn announce(&self) -> u64 {
        self.version.fetch_add(1, R) + 1
    }

    fn accept(&self, version: u64) {
        self.accepted.fetch_max(version, R);
    }

    /// Whether every add that was accepted has been delivered, or discarded.
    fn is_served(&self) -> bool {
        self.seen.load(R).max(self.discarded.load(R)) >= self.accepted.load(R)
    }
}

/// The accounts of all keys of a queue.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: Vec<Account>,
    /// Keys of bulks that became queued. `add_all` does not return which keys these were.
    queued_in_bulks: AtomicU64,
    /// Keys that are being worked on.
    in_flight: AtomicUsize,
    /// Delays may end before their time: a drain delivers them.
    early: AtomicBool,
    /// A drain has returned.
    drained: AtomicBool,
    /// Calls that take keys out, and have not returned.
    discarding: AtomicUsize,
    /// Deliveries that need not come: keys were taken out of the queue.
    forgone: AtomicU64,
    /// Keys whose last adds need not be delivered: the queue was shut down at once.
    abandoned: AtomicU64,
    alive: Option<Arc<()>>,
}

impl Ledger {
    /// Accounts of the keys below `keys`.
    ///
    /// Not every ledger counts the keys that are alive, because counting is an atomic read-modify-write between
    /// the operations of the queue, which can hide that one of them has a fence too few.
    pub fn new(keys: u64, counted: bool) -> Self {
        Ledger {
            accounts: (0..keys).map(|_| Account::default()).collect(),
            alive: counted.then(Arc::default),
            ..Ledger::default()
        }
    }

    fn account(&self, number: u64) -> &Account {
        &self.accounts[number as usize]
    }

    /// A key to be given to the queue.
    pub fn key(&self, number: u64) -> Key {
        Key::new(number, self.alive.clone())
    }

    /// The number of counted keys that exist (C10).
    pub fn alive(&self) -> usize {
        let alive = self.alive.as_ref();
        alive.map_or(0, |alive| Arc::strong_count(alive) - 1)
    }

    /// Accounts for an add that `add` makes of this key: if it is accepted, it has to be delivered.
    pub fn add<A: Into<Reply> + Copy>(&self, number: u64, add: impl FnOnce() -> A) -> A {
        let account = self.account(number);
        let version = account.announce();
        let added = add();
        let reply = added.into();
        match reply {
            Reply::Added(added) => self.count(number, added),
            Reply::Accepted => _ = account.perhaps.fetch_add(1, R),
            Reply::Refused => {}
        }
        if reply.is_accepted() {
            account.accept(version);
        }
        added
    }

    /// Counts an add of this key that returned `added`. If that is `Delayed`, it does not have to be delivered: for
    /// delays and retries that may be cancelled, or dropped by a shut-down.
    pub fn count(&self, number: u64, added: Added) {
        let account = self.account(number);
        match added {
            Added::Queued | Added::Deferred => _ = account.owed.fetch_add(1, R),
            Added::Delayed => _ = account.perhaps.fetch_add(1, R),
            Added::Merged | Added::ShutDown => {}
            other => panic!("an add returned {other:?}"),
        }
    }

    /// Adds these keys in bulk; false if the queue is shut down.
    pub fn add_all<V, S>(&self, queue: &WorkQueue<Key, V, S>, numbers: &[u64]) -> bool
    where
        V: Send + 'static,
        S: BuildHasher,
    {
        let announce = |&number: &u64| (self.account(number), self.account(number).announce());
        let announced: Vec<_> = numbers.iter().map(announce).collect();
        let queued = queue.add_all(numbers.iter().map(|&number| self.key(number)));
        assert!(queued <= numbers.len(), "C6: {queued} became queued");
        self.queued_in_bulks.fetch_add(queued as u64, R);
        // If the queue was shut down under the bulk, it does not say which keys were refused.
        let open = !queue.is_shutting_down();
        for (account, version) in announced {
            account.bulk.fetch_add(1, R);
            if open {
                account.accept(version);
            }
        }
        open
    }

    /// Accounts for a call that takes keys out of the queue, among these, and returns how many.
    pub fn discard(
        &self,
        numbers: impl IntoIterator<Item = u64>,
        call: impl FnOnce() -> usize,
    ) -> usize {
        self.discarding.fetch_add(1, R);
        let taken = call();
        self.forgone.fetch_add(taken as u64, R);
        if taken > 0 {
            for account in numbers.into_iter().map(|number| self.account(number)) {
                account.discarded.fetch_max(account.version.load(R), R);
            }
        }
        // Ordering: Release; pairs with the Acquire in `drained`.
        self.discarding.fetch_sub(1, Ordering::Release);
        taken
    }

    /// Notes that the queue was shut down at once, and has discarded this many keys, or that this many were taken
    /// back.
    pub fn abandoned(&self, keys: usize) {
        self.forgone.fetch_add(keys as u64, R);
        self.abandoned.fetch_add(keys as u64, R);
    }

    /// Notes that the pending delay of a key was cancelled, which [`count`](Self::count) has counted: it causes no
    /// delivery (D6).
    pub fn cancelled(&self, number: u64) {
        let before = self.account(number).perhaps.fetch_sub(1, R);
        assert!(before > 0, "D6: key {number} had no delay to cancel");
    }

    /// From now on a delivery of the key before this moment is too early.
    pub fn not_before(&self, number: u64, moment: Duration) {
        let nanos = u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX);
        self.account(number).not_before.store(nanos, R);
    }

    /// Delays may end before their time from now on: a drain is about to deliver them.
    pub fn allow_early(&self) {
        // The drain orders this before the deliveries that it makes.
        self.early.store(true, R);
    }

    /// Checks that a key that is delivered `now` is due (D1), if delays have to end in time.
    pub fn check_time(&self, number: u64, now: Duration) {
        let due = self.due(number);
        let due_now = now >= due || self.early.load(R);
        assert!(due_now, "D1: key {number} at {now:?}, before {due:?}");
    }

    /// The moment before which a delivery of the key is too early.
    pub fn due(&self, number: u64) -> Duration {
        Duration::from_nanos(self.account(number).not_before.load(R))
    }

    /// Notes that a delivery has begun.
    pub fn begin(&self, number: u64) {
        let account = self.account(number);
        let drained = self.drained.load(R);
        assert!(!drained, "S3: key {number} after the end of a drain");
        assert!(
            !account.held.swap(true, R),
            "C3: two holders of key {number}"
        );
        self.in_flight.fetch_add(1, R);
        account.seen.store(account.version.load(R), R);
        let deliveries = account.deliveries.load(R) + 1;
        // Ordering: Release; pairs with the Acquire in `deliveries`.
        account.deliveries.store(deliveries, Ordering::Release);
    }

    /// Notes that the worker is about to be done with the key.
    pub fn end(&self, number: u64) {
        self.in_flight.fetch_sub(1, R);
        self.account(number).held.store(false, R);
    }

    /// How often the key was delivered.
    pub fn deliveries(&self, number: u64) -> u64 {
        // Ordering: Acquire; pairs with the Release in `begin`: `check_time` has read `not_before`.
        self.account(number).deliveries.load(Ordering::Acquire)
    }

    /// How often it was tried to add the key.
    pub fn version(&self, number: u64) -> u64 {
        self.account(number).version.load(R)
    }

    /// The version of the key when its last delivery began.
    pub fn seen(&self, number: u64) -> u64 {
        self.account(number).seen.load(R)
    }

    /// How many delays of the key were accepted and not cancelled.
    pub fn delays(&self, number: u64) -> u64 {
        self.account(number).perhaps.load(R)
    }

    /// Whether every add of this key that was accepted has been delivered.
    pub fn is_key_served(&self, number: u64) -> bool {
        self.account(number).is_served()
    }

    /// Whether every add that was accepted has been delivered, and every delivery is over, or nearly: a
    /// worker is yet to call `done`, or another delivery of what was seen already is yet to come.
    pub fn is_served(&self) -> bool {
        self.in_flight.load(R) == 0 && self.accounts.iter().all(Account::is_served)
    }

    /// Notes that a drain has returned: what was accepted is delivered, nothing is being worked on, and nothing will
    /// be delivered (S3).
    pub fn drained(&self) {
        self.drained.store(true, R);
        // A call that has taken the last key out is about to say so.
        // Ordering: Acquire; pairs with the Release in `discard`.
        while self.discarding.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        self.check_served("S3");
    }

    fn check_served(&self, promise: &str) {
        let in_flight = self.in_flight.load(R);
        assert_eq!(in_flight, 0, "{promise}: keys are being worked on");
        let accounts = self.accounts.iter().enumerate();
        let mut left = accounts.filter(|(_, account)| !account.is_served());
        let abandoned = self.abandoned.load(R);
        // One more than may be left, if there is one.
        if let Some((number, account)) = left.nth(abandoned as usize) {
            panic!("{promise}: {abandoned} keys may be left, and {number} is: {account:?}");
        }
    }

    /// Checks the accounts at the end, when all threads and tasks have returned. Returns how often keys were added
    /// and delivered.
    pub fn check(&self) -> (u64, u64) {
        self.check_served("C5, W4");
        let (mut adds, mut deliveries, mut by_bulks, mut missing) = (0, 0, 0, 0);
        let forgone = self.forgone.load(R);
        for (number, account) in self.accounts.iter().enumerate() {
            let delivered = account.deliveries.load(R);
            let (least, perhaps) = (account.owed.load(R), account.perhaps.load(R));
            let bulk = account.bulk.load(R);
            missing += least.saturating_sub(delivered);
            assert!(
                delivered <= least + perhaps + bulk && missing <= forgone,
                "C2, C4, C6: key {number}: {account:?}, {missing} of {forgone} deliveries missing"
            );
            adds += account.version.load(R);
            deliveries += delivered;
            by_bulks += bulk.min(delivered.saturating_sub(least));
        }
        let queued = self.queued_in_bulks.load(R);
        assert!(
            by_bulks + forgone >= queued,
            "C6: bulks made keys queued {queued} times, and {by_bulks} deliveries at most are theirs"
        );
        (adds, deliveries)
    }
}
