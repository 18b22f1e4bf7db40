//! Sees every reconciliation of all controllers of a test.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Records who reconciles what, in the order of the beginnings.
#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<Record>);

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) begun: Vec<Begun>,
    /// The objects that two reconciliations were of at once.
    pub(crate) overlaps: Vec<String>,
    /// The reconciliations under way.
    pub(crate) running: HashMap<String, usize>,
    /// How many were dropped before they had finished.
    pub(crate) cancelled: usize,
    /// The most reconciliations under way at once.
    pub(crate) most: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Begun {
    pub(crate) key: String,
    pub(crate) replica: &'static str,
    pub(crate) value: Option<String>,
}

impl Witness {
    /// A reconciliation begins. It ends when the guard is dropped, also if its task is aborted.
    pub(crate) fn enter(
        &self,
        key: &str,
        replica: &'static str,
        value: Option<String>,
    ) -> Visit<'_> {
        let record = &mut *self.record();
        let key = key.to_owned();
        record.begun.push(Begun {
            key: key.clone(),
            replica,
            value,
        });
        let running = record.running.entry(key.clone()).or_default();
        *running += 1;
        if *running > 1 {
            record.overlaps.push(key.clone());
        }
        record.most = record.most.max(record.running.values().sum());
        Visit {
            witness: self,
            key,
            is_finished: false,
        }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of reconciliations that have begun.
    pub(crate) fn begun(&self) -> usize {
        self.record().begun.len()
    }

    pub(crate) fn begun_by(&self, replica: &str) -> usize {
        let of = |begun: &&Begun| begun.replica == replica;
        self.record().begun.iter().filter(of).count()
    }

    /// Panics if there were two reconciliations of an object at once.
    pub(crate) fn never_two_at_once(&self) {
        let record = self.record();
        assert!(record.most > 1, "nothing ran at once: {}", record.most);
        assert_eq!(record.overlaps, [""; 0], "two at once");
    }
}

#[derive(Debug)]
pub(crate) struct Visit<'a> {
    witness: &'a Witness,
    key: String,
    is_finished: bool,
}

impl Visit<'_> {
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let record = &mut *self.witness.record();
        record.cancelled += usize::from(!self.is_finished);
        let running = record.running.get_mut(&self.key).expect("it has entered");
        *running -= 1;
        if *running == 0 {
            record.running.remove(&self.key);
        }
    }
}
