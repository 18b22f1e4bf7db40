//! One record of each key that failed, found by the key: the failure that is reported if its retry is dropped
//! ([`super::pending`]), or the one that is shown ([`super::failures`]).
//!
//! # Protocol
//!
//! All records are behind one mutex, under which no user code runs: a key is kept as a handle to it, and what is taken
//! out is dropped after the unlock. A worker puts a record in while it holds the key, and takes it out once it has
//! processed the key, before it finishes it.
//!
//! A record is *stale* if no worker will take it out: its delay was cancelled, or its key was delivered to a getter that
//! is no worker. It shows once the key is idle without a delay, and without one that a shut-down has dropped and nobody
//! has claimed. Each call that changes something looks at one record, in turn, and takes it out if it is stale.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::OnceLock;

use crate::KeyHandle;
use crate::sync::Mutex;

/// At most `capacity` records.
pub(super) struct ByKey<K, V, T> {
    pub(super) capacity: usize,
    /// Created with the first record.
    records: OnceLock<Mutex<Records<K, V, T>>>,
}

struct Records<K, V, T> {
    /// By the address of the interned key, which the handle keeps in its place.
    by_key: BTreeMap<usize, Record<K, V, T>>,
    /// Where to look for the next stale record.
    next: usize,
    missed: u64,
}

type Record<K, V, T> = (KeyHandle<K, V>, T);

pub(super) fn address<K>(key: &K) -> usize {
    ptr::from_ref(key).addr()
}

impl<K, V, T> Records<K, V, T> {
    fn take_stale(&mut self) -> Option<Record<K, V, T>> {
        let seen = self.by_key.range(self.next..).next();
        self.next = seen.map_or(0, |(at, _)| at + 1);
        let (&at, (key, _)) = seen?;
        let (core, pin) = key.parts();
        let is_over = || !pin.is_known() && pin.delay().stamp().is_none();
        let is_stale = is_over() && {
            // Under this lock the delay of a retry ends and the key is added in one step.
            let _shard = core.keys.lock_of(pin);
            is_over()
        };
        is_stale.then(|| self.by_key.remove(&at))?
    }
}

impl<K, V, T> ByKey<K, V, T> {
    pub(super) fn new(capacity: usize) -> Self {
        let records = OnceLock::new();
        ByKey { capacity, records }
    }

    /// Puts in the record of a key that the caller holds, unless there is no room.
    pub(super) fn put(&self, key: KeyHandle<K, V>, value: T) {
        let records = self.records.get_or_init(|| {
            Mutex::new(Records {
                by_key: BTreeMap::new(),
                next: 0,
                missed: 0,
            })
        });
        let mut records = records.lock();
        let (at, stale) = (address(key.key()), records.take_stale());
        let fits = records.by_key.len() < self.capacity || records.by_key.contains_key(&at);
        let gone = match fits {
            true => records.by_key.insert(at, (key, value)),
            false => {
                records.missed += 1;
                Some((key, value))
            }
        };
        drop(records);
        drop((gone, stale));
    }

    /// Takes out the record of a key that the caller holds.
    pub(super) fn forget(&self, key: &K) {
        let gone =
            self.with(|records| [records.by_key.remove(&address(key)), records.take_stale()]);
        drop(gone);
    }

    /// Takes out the next record that `claim` takes, from address `from` on, and moves `from` behind it.
    pub(super) fn claim(
        &self,
        from: &mut usize,
        claim: impl Fn(&Record<K, V, T>) -> bool,
    ) -> Option<Record<K, V, T>> {
        self.with(|records| {
            let mut next = records.by_key.range(*from..);
            let (&at, _) = next.find(|(_, record)| claim(record))?;
            *from = at + 1;
            records.by_key.remove(&at)
        })?
    }

    pub(super) fn get(&self, key: &K) -> Option<T>
    where
        T: Clone,
    {
        self.with(|records| records.by_key.get(&address(key))?.1.clone().into())?
    }

    pub(super) fn len(&self) -> usize {
        self.with(|records| records.by_key.len()).unwrap_or(0)
    }

    /// Returns how many records found no room.
    pub(super) fn missed(&self) -> u64 {
        self.with(|records| records.missed).unwrap_or(0)
    }

    fn with<R>(&self, f: impl FnOnce(&mut Records<K, V, T>) -> R) -> Option<R> {
        Some(f(&mut self.records.get()?.lock()))
    }
}
