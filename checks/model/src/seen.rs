//! What can be seen of a key from outside, and since when it is where it is.

use std::collections::BTreeMap;

use keyqueue::State;

/// One key in a snapshot. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub state: State,
    /// For how long, if it is not idle.
    pub age: Option<u128>,
    /// How long it has been held, if it is.
    pub held: Option<u128>,
    /// How often it has failed.
    pub requeues: u32,
    /// How long until its delay ends, if it has one.
    pub due_in: Option<u128>,
}

/// When each key was added, and when it was handed out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Since<K> {
    /// The first add that its next delivery serves.
    added: BTreeMap<K, u128>,
    /// Of held keys, when they were handed out, and how long they had waited then.
    held: BTreeMap<K, (u128, u128)>,
}

impl<K: Ord + Copy> Since<K> {
    /// An add that was not merged with another.
    pub(crate) fn added(&mut self, key: K, now: u128) {
        let before = self.added.insert(key, now);
        assert_eq!(before, None, "an add before was not delivered");
    }

    /// The adds while the key was held wait for its retry.
    pub(crate) fn waits(&mut self, key: K) {
        self.added.remove(&key);
    }

    pub(crate) fn handed_out(&mut self, key: K, now: u128) {
        let added = self.added.remove(&key).expect("it was added");
        self.held.insert(key, (now, now - added));
    }

    pub(crate) fn done(&mut self, key: K) {
        self.held.remove(&key);
    }

    pub(crate) fn queue_time(&self, key: K) -> u128 {
        self.held[&key].1
    }

    pub(crate) fn held(&self, key: K, now: u128) -> Option<u128> {
        self.held.get(&key).map(|(since, _)| now - since)
    }

    pub(crate) fn age(&self, key: K, state: State, now: u128) -> Option<u128> {
        match state {
            State::Processing => self.held(key, now),
            State::Queued | State::Dirty => self.added.get(&key).map(|since| now - since),
            _ => None,
        }
    }
}
