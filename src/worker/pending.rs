//! The retries that are pending, so that those that a shut-down drops are reported (S5).
//!
//! # Protocol
//!
//! * A worker that has added a retry with a delay keeps the failure here, with the *stamp* of the
//!   key's pending delay ([`crate::keys::delay`]) and a handle of the key. It holds the key
//!   meanwhile, so no other worker gets the key before that.
//! * A worker that has processed a key takes the key's entry out, before it finishes the key.
//! * Each worker that ends *claims* the entries whose delays a shut-down has dropped, and reports
//!   them. One claim of each dropped delay succeeds, also if several [`Workers`](super::Workers)
//!   have an entry with its stamp.
//!
//! # Why no other key is reported
//!
//! A delay that has been cancelled, that has ended, or that another call has moved has another
//! stamp, so neither a retry that was cancelled nor one that was delivered elsewhere is claimed.
//! The key of a claimed delay may be queued or processing, by another add: then it is not reported
//! here, because the worker that gets it handles how it ends, or `shut_down_now` counts it. This check is final: the shut-down
//! closes a key before its delay, and a closed key that is idle stays idle.
//!
//! # Memory
//!
//! An entry whose delay was cancelled or has ended elsewhere is *stale*. Each `take` also removes
//! one entry, in turn, if it is stale, so stale entries go while workers finish keys.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::OnceLock;

use super::{Failure, GivenUp, Reason};
use crate::KeyHandle;
use crate::keys::delay::Stamp;
use crate::keys::state::State;
use crate::sync::Mutex;

/// Created at the first retry. Failures are user code, so none is dropped under the lock.
pub(super) struct Pending<K, E>(OnceLock<Mutex<Entries<K, E>>>);

struct Entries<K, E> {
    /// By the address of the interned key, which the handle keeps in its place.
    by_key: BTreeMap<usize, Entry<K, E>>,
    /// Where to look for the next stale entry.
    next: usize,
}

pub(super) struct Entry<K, E> {
    key: KeyHandle<K>,
    stamp: Stamp,
    failure: Failure<E>,
    retries: u32,
}

impl<K, E> Entry<K, E> {
    fn is_stale(&self) -> bool {
        self.key.pin().delay().stamp() != Some(self.stamp)
    }

    fn claim(&self) -> bool {
        let pin = self.key.pin();
        pin.delay().claim_dropped(self.stamp) && pin.phase() == State::Idle
    }
}

fn address<K>(key: &K) -> usize {
    ptr::from_ref(key).addr()
}

impl<K, E> Pending<K, E> {
    pub(super) fn new() -> Self {
        Pending(OnceLock::new())
    }

    /// Keeps the failure of a key that the caller holds, if its retry is still pending.
    pub(super) fn keep(&self, key: KeyHandle<K>, failure: Failure<E>, retries: u32) {
        let Some(stamp) = key.pin().delay().stamp() else {
            return;
        };
        let entry = Entry {
            stamp,
            failure,
            retries,
            key,
        };
        let entries = self.0.get_or_init(|| {
            Mutex::new(Entries {
                by_key: BTreeMap::new(),
                next: 0,
            })
        });
        let mut entries = entries.lock();
        entries.by_key.insert(address(entry.key.key()), entry);
    }

    /// Takes out the entry of a key that the caller holds, and perhaps one that is stale.
    pub(super) fn take(&self, key: &K) -> [Option<Entry<K, E>>; 2] {
        let Some(entries) = self.0.get() else {
            return [None, None];
        };
        let entries = &mut *entries.lock();
        let own = entries.by_key.remove(&address(key));
        let from_next = entries.by_key.range(entries.next..).next();
        let seen = from_next.map(|(at, entry)| (*at, entry.is_stale()));
        entries.next = seen.map_or(0, |(at, _)| at + 1);
        let stale = seen.filter(|(_, is_stale)| *is_stale);
        [own, stale.and_then(|(at, _)| entries.by_key.remove(&at))]
    }

    /// Takes out the retries that a shut-down has dropped.
    pub(super) fn dropped(&self) -> Vec<(KeyHandle<K>, GivenUp<E>)> {
        let Some(entries) = self.0.get() else {
            return Vec::new();
        };
        let by_key = &mut entries.lock().by_key;
        let claimed = by_key.iter().filter(|(_, entry)| entry.claim());
        let claimed: Vec<_> = claimed.map(|(at, _)| *at).collect();
        let given_up = |entry: Entry<K, E>| {
            let given_up = GivenUp {
                failure: entry.failure,
                retries: entry.retries,
                reason: Reason::Dropped,
            };
            (entry.key, given_up)
        };
        let entries = claimed.iter().filter_map(|at| by_key.remove(at));
        entries.map(given_up).collect()
    }
}
