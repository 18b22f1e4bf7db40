//! What is known of each key, and what must hold of it.
//!
//! * An adder raises the key's *version* before it adds; a delivery reads the version when it begins. At the
//!   end each key's version as last *seen* is at least the one last *accepted* (C5).
//! * A key is *held* by one worker (C3).
//! * The deliveries of a key are as many as adds were answered with `Queued` or `Deferred` (C2, C4, C6), and
//!   at most one more for each delay.
//!
//! The books are behind std's own mutex, which shuttle does not know: keeping them is no step of the schedule,
//! so they change the instant that what they are about is over.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keyqueue::Added;

/// A key, and one more in the count of those that are alive.
#[derive(Debug)]
pub struct Key {
    pub number: u8,
    /// Shared by all.
    _alive: Arc<()>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Borrow<u8> for Key {
    fn borrow(&self) -> &u8 {
        &self.number
    }
}

#[derive(Clone, Default, Debug)]
struct Account {
    version: u64,
    accepted: u64,
    seen: u64,
    held: bool,
    deliveries: u64,
    /// Adds that were answered with `Queued` or `Deferred`.
    owed: u64,
    /// Adds that may have caused a delivery.
    perhaps: u64,
    /// The earliest moment at which the key may be delivered.
    not_before: Duration,
    /// What was accepted may be dropped: a delay, by a shut-down.
    droppable: bool,
}

impl Account {
    fn is_served(&self) -> bool {
        self.seen >= self.accepted || self.droppable
    }
}

#[derive(Default, Debug)]
struct Books {
    accounts: Vec<Account>,
    in_flight: usize,
    /// Delays may end before their time.
    early: bool,
    /// A getter was told that nothing will come any more.
    over: bool,
    /// A drain has returned.
    at_rest: bool,
}

/// The books of one run.
#[derive(Debug)]
pub struct Ledger {
    books: Mutex<Books>,
    alive: Arc<()>,
}

impl Ledger {
    /// Books of the keys below `keys`.
    #[must_use]
    pub fn new(keys: u8) -> Arc<Self> {
        let accounts = vec![Account::default(); usize::from(keys)];
        Arc::new(Ledger {
            books: Mutex::new(Books {
                accounts,
                ..Books::default()
            }),
            alive: Arc::new(()),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key to be added.
    #[must_use]
    pub fn key(&self, number: u8) -> Key {
        let _alive = Arc::clone(&self.alive);
        Key { number, _alive }
    }

    // ---- adds -------------------------------------------------------------------------------

    /// Keeps the books of an add that `add` makes of the key with this number.
    pub fn add(&self, number: u8, add: impl FnOnce() -> Added) -> Added {
        let version = self.announce(number);
        let added = add();
        self.note(number, version, added);
        added
    }

    /// Notes that the key is about to be added, for [`note`](Self::note): a new version of it.
    pub fn announce(&self, number: u8) -> u64 {
        let account = &mut self.books().accounts[usize::from(number)];
        account.version += 1;
        account.version
    }

    /// Notes what the add of this version was answered.
    pub fn note(&self, number: u8, version: u64, added: Added) {
        let account = &mut self.books().accounts[usize::from(number)];
        match added {
            Added::Queued | Added::Deferred => account.owed += 1,
            Added::Merged => {}
            Added::Delayed => account.perhaps += 1,
            Added::ShutDown => return,
            other => panic!("an add was answered with {other:?}"),
        }
        account.accepted = account.accepted.max(version);
    }

    /// From now on a delivery of the key before this moment is too early.
    pub fn not_before(&self, number: u8, moment: Duration) {
        self.books().accounts[usize::from(number)].not_before = moment;
    }

    /// A shut-down may drop what is added of this key: it is only ever delayed.
    pub fn droppable(&self, number: u8) {
        self.books().accounts[usize::from(number)].droppable = true;
    }

    /// Delays may end before their time from now on: a drain is about to deliver them.
    pub fn allow_early(&self) {
        self.books().early = true;
    }

    // ---- deliveries -------------------------------------------------------------------------

    /// Notes that a delivery has begun.
    pub fn begin(&self, key: &Key) {
        let mut books = self.books();
        let number = key.number;
        assert!(!books.at_rest, "S3: key {number} after the end of a drain");
        books.in_flight += 1;
        let account = &mut books.accounts[usize::from(number)];
        assert!(!account.held, "C3: two holders of key {number}");
        account.held = true;
        account.seen = account.version;
        account.deliveries += 1;
    }

    /// Checks that a key that is delivered `now` was due.
    pub fn check_time(&self, key: &Key, now: Duration) {
        let number = key.number;
        let books = self.books();
        let due = books.accounts[usize::from(number)].not_before;
        let in_time = now >= due || books.early;
        assert!(in_time, "D1: key {number} at {now:?}, before {due:?}");
    }

    /// Notes that the worker is about to be done with it.
    pub fn end(&self, key: &Key) {
        let mut books = self.books();
        books.in_flight -= 1;
        books.accounts[usize::from(key.number)].held = false;
    }

    // ---- what must hold -----------------------------------------------------------------------

    /// Whether every add that was accepted has been delivered, and every delivery is over, or as good as: a
    /// worker is yet to call `done`, or another delivery of what was seen already is yet to come.
    #[must_use]
    pub fn is_served(&self) -> bool {
        let books = self.books();
        books.in_flight == 0 && books.accounts.iter().all(Account::is_served)
    }

    /// Notes that a drain has returned: nothing is queued and nothing is being worked on (S3).
    pub fn drained(&self) {
        let mut books = self.books();
        books.at_rest = true;
        assert_eq!(books.in_flight, 0, "S3: keys are being worked on");
        for (number, account) in books.accounts.iter().enumerate() {
            let served = account.is_served();
            assert!(served, "S3: key {number} was not delivered: {account:?}");
        }
    }

    /// Notes that the pending delay of a key, its only one, was cancelled: it owes no delivery (D6).
    pub fn cancelled(&self, number: u8) {
        let account = &mut self.books().accounts[usize::from(number)];
        account.perhaps -= 1;
        account.accepted = 0;
    }

    /// Notes that a getter was told that nothing will come any more.
    pub fn note_over(&self) {
        self.books().over = true;
    }

    /// Whether one has been told so already: a key that is asked for from here on is one too many (S1).
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.books().over
    }

    /// How many delays of these keys were accepted and not cancelled, and how many deliveries they had.
    #[must_use]
    pub fn delays(&self, keys: Range<u8>) -> (u64, u64) {
        let books = self.books();
        let accounts = &books.accounts[usize::from(keys.start)..usize::from(keys.end)];
        let delays = accounts.iter().map(|account| account.perhaps).sum();
        let deliveries = accounts.iter().map(|account| account.deliveries).sum();
        (delays, deliveries)
    }

    /// Checks the books at the end, when all threads have returned.
    pub fn check(&self) {
        let books = self.books();
        assert_eq!(books.in_flight, 0, "W4: keys are being worked on");
        for (number, account) in books.accounts.iter().enumerate() {
            assert!(account.is_served(), "C5: key {number}: {account:?}");
            let deliveries = account.owed..=account.owed + account.perhaps;
            assert!(
                deliveries.contains(&account.deliveries),
                "C2, C4, C6: key {number}: {account:?}"
            );
        }
    }

    /// The number of keys that exist (C10).
    #[must_use]
    pub fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }
}
