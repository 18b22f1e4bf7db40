//! The order of what happened to keys that are added once each, and what a first-in-first-out queue allows.
//!
//! Moments are counted, not measured. What overlaps may have happened either way round; what is checked is
//! about calls of which one had returned before the other began.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// From the call to the return.
type Span = (u64, u64);

#[derive(Default, Debug)]
struct Events {
    now: u64,
    adds: Vec<(u64, Span)>,
    takes: Vec<(u64, Span)>,
    /// Calls that found nothing.
    misses: Vec<Span>,
}

/// What happened in one run.
#[derive(Default, Debug)]
pub struct History(Mutex<Events>);

impl History {
    fn events(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This moment, later than any before.
    pub fn now(&self) -> u64 {
        let mut events = self.events();
        events.now += 1;
        events.now
    }

    /// Notes that an add of the key, called at `from`, has returned and was accepted.
    pub fn added(&self, number: u64, from: u64) {
        let to = self.now();
        self.events().adds.push((number, (from, to)));
    }

    /// Notes that a getter that asked at `from` has got the key.
    pub fn taken(&self, number: u64, from: u64) {
        let to = self.now();
        self.events().takes.push((number, (from, to)));
    }

    /// Notes that a getter that asked at `from` was told that nothing is queued.
    pub fn missed(&self, from: u64) {
        let to = self.now();
        self.events().misses.push((from, to));
    }

    /// Checks the order (C1), and that no getter has overlooked a key.
    pub fn check(&self) {
        let events = self.events();
        let taken = |number: u64| {
            let mut takes = events.takes.iter().filter(|take| take.0 == number);
            let (take, again) = (takes.next(), takes.next());
            assert!(again.is_none(), "C2: key {number} was taken twice");
            take.map(|take| take.1)
        };
        let adds = events.adds.iter().map(|&(number, add)| {
            let take = taken(number).unwrap_or_else(|| panic!("C5: key {number} was not taken"));
            (number, add, take)
        });
        let lives: Vec<_> = adds.collect();
        for &(first, (_, added), (taking, _)) in &lives {
            for &(second, (adding, _), (_, taken)) in &lives {
                let overtaken = added < adding && taken < taking;
                assert!(!overtaken, "C1: key {second} has overtaken key {first}");
            }
            for &(from, to) in &events.misses {
                let overlooked = added < from && to < taking;
                assert!(!overlooked, "key {first} was queued, and nothing was found");
            }
        }
    }
}
