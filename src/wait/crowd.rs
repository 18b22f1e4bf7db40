//! The retries in a bounded queue: how much room they take, and which key is given up when they are too many (B5).
//!
//! # Room
//!
//! A key that a failure has delayed or queued, or has found dirty, is *retrying* until it is delivered. Of what retries,
//! at most half of the capacity takes room, as everything else that waits does ([`super::room`]). What is beyond that
//! takes none, up to the capacity once more: so adds have the other half for themselves. What is beyond that *limit* takes
//! room again: adds wait, no retry is refused (B3), and what waits is at most twice the capacity, and what workers hold.
//!
//! ```text
//!     retrying    0 ......... half ............. half + capacity ........
//!     takes room  each does   none does          each does
//! ```
//!
//! The room that all retries take is a function of `retrying` alone, so none of them has to know which part it is in.
//! A retry first raises the room's `used` by what it adds to that, and then `retrying`, by an exchange; if another retry was
//! first, it corrects `used` by the difference. One that is delivered or cancelled lowers `retrying` first. So `used` is
//! never less than what the retries take, and is just that when nobody is between the two steps. What an exchange that
//! failed had taken too much is given back, and [offered](super::room::Room::offer) as all room that is given back.
//!
//! # Who is given up
//!
//! Beyond the limit, a key that fails *on its own* is given up: it fails, a worker finishes another key successfully, and
//! then a try of the key begins and fails. If everything fails, because what all keys need is out of order, no key
//! fails on its own: the retries take the room, and all goes on once keys succeed again.
//!
//! Successes are counted in *epochs*. A failure beyond the limit notes the epoch for its key, and arms; the first success
//! after that disarms, and begins the next epoch. So a success reads one word, which changes no more often than keys fail.
//! A try that begins in a later epoch than the noted one, and fails, is one on its own. A success between a
//! failure's reading of the epoch and its arming begins none: the key is then kept for one try more.
//!
//! Notes are for addresses of interned keys. One that is stale, because its key has succeeded or has left the queue, is
//! dropped at the first failure of the key, or of another one that has the address now: what was before an outage says
//! nothing about a key that fails in it. There are no more notes than the limit twice: then all are dropped, and
//! taken again at the next failures.

use std::collections::BTreeMap;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::wait::room::Room;

pub(crate) struct Crowd {
    capacity: u64,
    /// The weight of what retries.
    retrying: AtomicU64,
    armed: AtomicBool,
    epoch: AtomicU64,
    /// The epoch of the last failure beyond the limit, by the address of the key.
    noted: Mutex<BTreeMap<usize, u64>>,
}

impl Crowd {
    pub(super) fn new(capacity: usize) -> Self {
        Crowd {
            capacity: capacity as u64,
            retrying: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            noted: Mutex::new(BTreeMap::new()),
        }
    }

    fn half(&self) -> u64 {
        self.capacity / 2
    }

    fn limit(&self) -> u64 {
        self.half().saturating_add(self.capacity)
    }

    /// Returns the room that retries of this weight take.
    fn takes(&self, retrying: u64) -> u64 {
        retrying.min(self.half()) + retrying.saturating_sub(self.limit())
    }

    /// Counts a retry of this weight. Before that, `add` is called with the room that it takes, and after that `lower` with
    /// what was too much of it.
    pub(super) fn enter(&self, weight: u64, add: impl Fn(u64), lower: impl FnOnce(u64)) {
        let mut added = 0;
        // Ordering: Relaxed; a guess, which the exchange below confirms or corrects.
        let mut seen = self.retrying.load(Ordering::Relaxed);
        loop {
            let takes = self.takes(seen + weight) - self.takes(seen);
            add(takes.saturating_sub(added));
            added = added.max(takes);
            // Ordering: Release; pairs with the Acquire in `leave`: room is not given back before it was taken.
            match self.retrying.compare_exchange_weak(
                seen,
                seen + weight,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return lower(added - takes),
                Err(now) => seen = now,
            }
        }
    }

    /// Counts a retry no more. Returns the room to give back.
    pub(super) fn leave(&self, weight: u64) -> u64 {
        // Ordering: AcqRel; the Acquire pairs with the Release in `enter`, the Release continues what that has published.
        let before = self.retrying.fetch_sub(weight, Ordering::AcqRel);
        self.takes(before) - self.takes(before - weight)
    }

    /// Returns the epoch in which a try begins.
    pub(crate) fn epoch(&self) -> u64 {
        // Ordering: Relaxed; one that is too old only keeps a key for one try more.
        self.epoch.load(Ordering::Relaxed)
    }

    /// Notes that a worker has finished a key successfully.
    pub(crate) fn succeeded(&self) {
        // Ordering: Relaxed, all; only evidence, which the next success gives as well.
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            // Ordering: Relaxed; as above.
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a try of the key at this address, which began in this epoch, has failed, after as many failures since its
    /// last success. Returns whether there are too many retries, and the key fails on its own.
    pub(crate) fn fails_alone(&self, key: usize, began: u64, failures: u32) -> bool {
        let epoch = self.epoch();
        if failures == 0 && epoch > 0 {
            // A note of epoch 0, which is not dropped before that, is as good as one of this failure.
            self.noted.lock().remove(&key);
        }
        // Ordering: Relaxed; retries that come and go beside this one may count or not.
        if self.retrying.load(Ordering::Relaxed) < self.limit() {
            return false;
        }
        let before = {
            let mut noted = self.noted.lock();
            if noted.len() as u64 > self.limit().saturating_mul(2) {
                noted.clear();
            }
            noted.insert(key, epoch)
        };
        // Ordering: Relaxed; as in `succeeded`.
        self.armed.store(true, Ordering::Relaxed);
        failures > 0 && before.is_some_and(|before| before < began)
    }
}

impl Room {
    /// Takes room for a retry, or for an add. Returns whether to [offer](Self::offer) some, once nothing is locked.
    pub(crate) fn add_as(&self, retry: bool, weight: usize) -> bool {
        let mut owes = false;
        match retry {
            false => self.add(weight),
            true => self.crowd.enter(
                weight as u64,
                |takes| self.add(takes as usize),
                |surplus| {
                    self.lower(surplus as usize);
                    owes = surplus > 0;
                },
            ),
        }
        owes
    }

    /// Gives back the room of a retry, or of an add, as [`lower`](Self::lower) does.
    pub(crate) fn lower_as(&self, retry: bool, weight: usize) {
        let takes = match retry {
            false => weight,
            true => self.crowd.leave(weight as u64) as usize,
        };
        self.lower(takes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // B5
    fn retries_take_half_of_the_room_and_more_only_beyond_their_limit() {
        for (capacity, takes) in [
            (1, vec![0, 0, 1, 2]),
            (2, vec![0, 1, 1, 1, 2, 3]),
            (5, vec![0, 1, 2, 2, 2, 2, 2, 2, 3]),
        ] {
            let crowd = Crowd::new(capacity);
            let taken: Vec<_> = (0..takes.len() as u64).map(|n| crowd.takes(n)).collect();
            assert_eq!(taken, takes, "{capacity}");
        }
    }

    #[test] // B5
    fn only_a_key_that_fails_before_and_after_a_success_fails_alone() {
        let crowd = Crowd::new(1);
        let again = |key, began| crowd.fails_alone(key, began, 1);
        assert!(!again(1, crowd.epoch()), "few retries");
        crowd.enter(1, |_| (), |_| ());
        // An outage.
        for _ in 0..3 {
            for key in [1, 2] {
                assert!(!again(key, crowd.epoch()));
            }
        }
        let began = crowd.epoch();
        crowd.succeeded();
        crowd.succeeded();
        assert_eq!(crowd.epoch(), began + 1, "one for all successes");
        assert!(!again(1, began), "the try began in the outage");
        assert!(again(2, crowd.epoch()));
        assert!(!again(2, crowd.epoch()), "none succeeded since");
        assert!(!again(3, crowd.epoch()), "it failed once");
        crowd.succeeded();
        assert_eq!(crowd.leave(1), 0);
        assert!(!again(2, crowd.epoch()), "there is room");
    }

    #[test] // B5
    fn what_failed_before_a_success_of_the_key_does_not_count() {
        for crowded in [false, true] {
            let crowd = Crowd::new(1);
            crowd.enter(1, |_| (), |_| ());
            assert!(!crowd.fails_alone(1, crowd.epoch(), 0));
            // Also of the key itself.
            crowd.succeeded();
            if !crowded {
                crowd.leave(1);
            }
            assert!(!crowd.fails_alone(1, crowd.epoch(), 0));
            if !crowded {
                crowd.enter(1, |_| (), |_| ());
            }
            assert!(!crowd.fails_alone(1, crowd.epoch(), 1), "no key succeeded");
            crowd.succeeded();
            assert!(crowd.fails_alone(1, crowd.epoch(), 2));
        }
    }
}
