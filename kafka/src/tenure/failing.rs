//! The keys of a tenure that fail.

use std::collections::{HashMap, HashSet};

use crate::key::Key;

/// The keys whose last record that was tried has failed.
#[derive(Default)]
pub(super) struct Failing {
    /// Of each, how many had succeeded when it began to fail.
    since: HashMap<Key, u64>,
    /// The records of the tenure that have succeeded while keys failed. What succeeds in other partitions gains nothing from room here.
    successes: u64,
}

impl Failing {
    /// Notes that a record of this key has failed. Returns whether others have succeeded since it began to.
    pub(super) fn fail(&mut self, key: Key) -> bool {
        let since = *self.since.entry(key).or_insert(self.successes);
        self.successes > since
    }

    /// Notes that a record of this key has succeeded, or was delayed.
    pub(super) fn succeed(&mut self, key: &Key, is_done: bool) {
        self.since.remove(key);
        self.successes += u64::from(is_done);
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.since.contains_key(key)
    }

    /// Forgets all keys but these.
    pub(super) fn retain(&mut self, keys: &HashSet<&Key>) {
        self.since.retain(|key, _| keys.contains(key));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }
}
