//! What happened to each value that was put (V1 to V3).
//!
//! A put is a number, the larger the later it was begun; its remainder says which thread has put it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most threads that put.
const THREADS: u64 = 8;

#[derive(Default, Debug)]
struct State {
    begun: u64,
    accepted: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    /// Were delivered, and the delivery has finished; or were taken back, or left.
    over: BTreeSet<u64>,
    /// What each key was delivered with, in deliveries that have finished.
    delivered: Vec<(u64, Vec<u64>)>,
}

/// All puts of one run.
#[derive(Default, Debug)]
pub struct Puts(Mutex<State>);

impl Puts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a put of a thread.
    pub fn begin(&self, thread: u64) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        state.begun * THREADS + thread
    }

    /// Notes whether a put was accepted.
    pub fn added(&self, put: u64, is_accepted: bool) {
        let mut state = self.state();
        match is_accepted {
            true => state.accepted.insert(put),
            false => state.refused.insert(put),
        };
    }

    /// Notes that a delivery with these puts is about to finish.
    pub fn finish(&self, key: u64, puts: Vec<u64>) {
        self.end(&puts);
        self.state().delivered.push((key, puts));
    }

    /// Notes that these puts were taken back, or left.
    pub fn end(&self, puts: &[u64]) {
        for put in puts {
            let first = self.state().over.insert(*put);
            assert!(first, "V2: the put {put} is in two deliveries");
        }
    }

    /// Whether this put was in a delivery that has finished.
    pub fn is_delivered(&self, put: u64) -> bool {
        let state = self.state();
        let mut all = state.delivered.iter();
        all.any(|(_, puts)| puts.contains(&put))
    }

    /// Checks the values of all deliveries, and unless it `discards` that each put is over (S12).
    pub fn check(&self, discards: bool) {
        let state = self.state();
        let lost: Vec<_> = state.accepted.difference(&state.over).collect();
        assert!(
            discards || lost.is_empty(),
            "V2: the puts {lost:?} are lost"
        );
        let wrong: Vec<_> = state.refused.intersection(&state.over).collect();
        assert!(wrong.is_empty(), "V1: the puts {wrong:?} were refused");
        let mut latest = BTreeMap::new();
        for (key, puts) in &state.delivered {
            assert!(!puts.is_empty(), "V2: key {key} without a value");
            for put in puts {
                let before = latest.insert((key, put % THREADS), put);
                let in_order = before.is_none_or(|before| before < put);
                assert!(in_order, "V1, V3: {before:?} and then {put}, of key {key}");
            }
        }
    }
}
