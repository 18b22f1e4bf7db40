//! The timing wheel against an ordered map, with jumps of the clock of every size, budgets that stop
//! half-way, and values that are dropped (D1, D7, D8).
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

// The files themselves: they have no public name to be reached by. (rustfmt would go on to their
// unit tests, and look for them here.)
#[allow(dead_code, unused_imports, reason = "the queue and its tests use all of it")]
#[rustfmt::skip]
#[path = "../../src/timer"]
mod timer {
    pub(crate) mod level;
    pub(crate) mod slot;
    pub(crate) mod wheel;

    pub(crate) const FEW: usize = slot::FEW;
}

use timer::FEW;
use timer::wheel::{Polled, Wheel};

/// At most so many steps.
const STEPS: usize = 200;
/// Units of work an entry can cost: six cascades and the hand-out.
const COST: usize = 7;

/// So many ticks: `times << shift`, and a little off.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Ticks {
    times: u8,
    shift: u8,
    off: i8,
}

impl Ticks {
    fn count(self) -> u64 {
        let ticks = u64::from(self.times) << (self.shift % 57);
        ticks.saturating_add_signed(self.off.into())
    }
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// Inserts so far after the time.
    Insert(Ticks),
    /// Inserts so far before the time.
    InsertLate(Ticks),
    /// Inserts so many at the tick of the earliest entry, so many ticks apart.
    InsertBesideEarliest(u16, u8),
    /// Moves the time on, and polls with a budget.
    Poll(Ticks, u8),
    /// Polls without a budget.
    PollAll(Ticks),
    /// Moves the time to the next wake-up, and polls with a budget.
    PollAtWake(u8),
    /// Polls at a time before the time.
    PollBackwards(Ticks, u8),
    /// Drops the values that have this remainder by 3.
    Retain(u8),
    /// Takes all, due or not.
    TakeAll,
}

/// A wheel of numbers beside the map; the value of an entry is the number of its insertion.
struct Pair {
    wheel: Wheel<usize>,
    model: BTreeMap<(u64, usize), usize>,
    inserted: usize,
    now: u64,
    /// Units of work that polls may have left to do.
    work: usize,
}

impl Pair {
    fn insert(&mut self, due: u64) {
        self.wheel.insert(due, self.inserted);
        self.model.insert((due, self.inserted), self.inserted);
        self.inserted += 1;
        self.work += COST;
    }

    fn earliest(&self) -> Option<u64> {
        self.model.first_key_value().map(|(&(due, _), _)| due)
    }

    fn poll(&mut self, now: u64, budget: usize) {
        let (mut fired, model) = (0, &mut self.model);
        let polled = self.wheel.poll(now, budget, |due, value| {
            assert!(due <= now, "{due} handed out at {now}");
            let expected = model.pop_first().expect("handed out, but never inserted");
            assert_eq!(((due, value), value), expected, "out of order at {now}");
            fired += 1;
        });
        assert!(fired <= budget, "{fired} on a budget of {budget}");
        if polled == Polled::CaughtUp {
            let due = self.earliest().is_some_and(|due| due <= now);
            assert!(!due, "caught up at {now} with {:?}", self.earliest());
        } else {
            // A poll that ran out has used its budget: no work without an end.
            assert!(
                self.work >= budget,
                "more work than {} entries can make",
                self.inserted
            );
            self.work -= budget;
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(after) => self.insert(self.now.saturating_add(after.count())),
            Step::InsertLate(before) => self.insert(self.now.saturating_sub(before.count())),
            Step::InsertBesideEarliest(count, apart) => {
                let due = self.earliest().unwrap_or(self.now);
                for number in 0..u64::from(count % 600) {
                    self.insert(due.saturating_add(number * u64::from(apart)));
                }
            }
            Step::Poll(by, budget) => {
                self.now = self.now.saturating_add(by.count());
                self.poll(self.now, budget.into());
            }
            Step::PollAll(by) => {
                self.now = self.now.saturating_add(by.count());
                self.poll(self.now, usize::MAX);
            }
            Step::PollAtWake(budget) => {
                self.now = self.now.max(self.wheel.next_wake().unwrap_or(0));
                self.poll(self.now, budget.into());
            }
            Step::PollBackwards(by, budget) => {
                self.poll(self.now.saturating_sub(by.count()), budget.into());
            }
            Step::Retain(remainder) => {
                let keep = |value: &usize| value % 3 != usize::from(remainder % 4);
                let before = self.model.len();
                self.model.retain(|_, value| keep(value));
                assert_eq!(self.wheel.retain(keep), before - self.model.len());
            }
            Step::TakeAll => {
                let mut taken = Vec::new();
                self.wheel
                    .take_all(|due, value| taken.push(((due, value), value)));
                let expected: Vec<_> = std::mem::take(&mut self.model).into_iter().collect();
                assert_eq!(taken, expected);
            }
        }
    }

    /// What an owner sees without a poll.
    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        assert_eq!(self.wheel.is_empty(), self.model.is_empty());
        let (wake, earliest) = (self.wheel.next_wake(), self.earliest());
        assert_eq!(wake.is_some(), earliest.is_some());
        assert!(wake <= earliest, "wake-up at {wake:?}, after {earliest:?}");
    }
}

fuzz_target!(|input: (Ticks, Vec<Step>)| {
    let (start, steps) = input;
    let now = start.count();
    let mut pair = Pair {
        wheel: Wheel::new(now),
        model: BTreeMap::new(),
        inserted: 0,
        now,
        work: 0,
    };
    for step in steps.iter().take(STEPS) {
        pair.step(step);
        pair.check();
    }
    // Whoever sleeps until each wake-up hands everything out, waking rarely.
    let mut wake_ups = 0;
    while let Some(now) = pair.wheel.next_wake() {
        wake_ups += 1;
        assert!(
            wake_ups <= COST * pair.inserted,
            "{wake_ups} wake-ups for {} entries",
            pair.inserted
        );
        pair.now = pair.now.max(now);
        let few = pair.wheel.len() <= FEW;
        let before = pair.wheel.len();
        pair.poll(pair.now, usize::MAX);
        assert!(
            wake_ups == 1 || !few || pair.wheel.len() < before,
            "an idle wake-up for {before} entries"
        );
    }
    assert!(pair.model.is_empty());
    pair.check();
});
