//! The wheel against a model: an ordered set of (due tick, number of the call).

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::*;
use super::{CHUNK, COST, FEW, assert_consistent};

/// The most steps of a run.
const MOST: usize = if cfg!(miri) { 6 } else { 60 };

/// The distances at which the wheel's behaviour changes, and their neighbours.
fn distance() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        5 => (0..LEVELS).prop_map(|level| 1u64 << (level * SLOT_BITS)),
        2 => (0..48u32).prop_map(|bit| 1u64 << bit),
        1 => Just(u64::MAX),
    ];
    prop_oneof![
        4 => 0..200u64,
        2 => 0..10_000u64,
        1 => any::<u64>(),
        4 => (edge, -2..=2i64, 1..=3u64).prop_map(|(edge, off, times)| {
            edge.saturating_mul(times).saturating_add_signed(off)
        }),
    ]
}

#[derive(Debug, Clone)]
enum Op {
    /// Insert this many, from this far after the time, this many ticks apart.
    InsertMany(u64, usize, u64),
    /// Insert this far before the time.
    InsertLate(u64),
    /// Insert at the tick of the earliest entry, so that ticks are shared.
    InsertBesideEarliest,
    /// Advance the time, and poll with a budget.
    Poll(u64, usize),
    /// Move the time to the next wake-up, and poll with a budget.
    PollAtWake(usize),
    /// Poll at a time before the time.
    PollBackwards(u64, usize),
    /// Drop the values that have this remainder by 3.
    Retain(usize),
}

/// Counts near the sizes at which a slot changes.
fn many() -> impl Strategy<Value = usize> {
    prop_oneof![4 => FEW - 2..=FEW + 2, 1 => CHUNK - 1..=CHUNK + 1, 1 => 2 * CHUNK..3 * CHUNK]
}

fn op() -> impl Strategy<Value = Op> {
    let budget = || prop_oneof![6 => 0..4usize, 2 => 0..2 * CHUNK, 3 => Just(usize::MAX)];
    prop_oneof![
        8 => distance().prop_map(|after| Op::InsertMany(after, 1, 0)),
        1 => (distance(), many(), 0..70u64)
            .prop_map(|(after, count, apart)| Op::InsertMany(after, count, apart)),
        1 => distance().prop_map(Op::InsertLate),
        3 => Just(Op::InsertBesideEarliest),
        3 => (distance(), budget()).prop_map(|(by, budget)| Op::Poll(by, budget)),
        2 => budget().prop_map(|budget| Op::Poll(0, budget)),
        3 => budget().prop_map(Op::PollAtWake),
        1 => (distance(), budget()).prop_map(|(by, budget)| Op::PollBackwards(by, budget)),
        1 => (0..3usize).prop_map(Op::Retain),
    ]
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        distance(),
        distance().prop_map(|back| LAST.saturating_sub(back))
    ]
}

/// A wheel of numbers together with its model; the value of an entry is the number of its call.
struct Pair {
    wheel: Wheel<usize>,
    model: BTreeSet<(u64, usize)>,
    calls: usize,
}

impl Pair {
    fn new(start: u64) -> Self {
        Pair {
            wheel: Wheel::new(start),
            model: BTreeSet::new(),
            calls: 0,
        }
    }

    fn insert(&mut self, due: u64) {
        let due = due.min(LAST);
        self.wheel.insert(due, self.calls);
        self.model.insert((due, self.calls));
        self.calls += 1;
    }

    fn insert_many(&mut self, due: u64, count: usize, apart: u64) {
        for number in 0..count as u64 {
            self.insert(due.saturating_add(number * apart));
        }
    }

    fn earliest(&self) -> Option<u64> {
        self.model.first().map(|&(due, _)| due)
    }

    fn is_due(&self, now: u64) -> bool {
        self.earliest().is_some_and(|due| due <= now)
    }

    /// Polls both. The wheel may fire fewer entries than the model, since cascades cost budget,
    /// too, but no others.
    fn poll(&mut self, now: u64, budget: usize) -> Polled {
        let mut fired = 0;
        let (model, wheel) = (&mut self.model, &mut self.wheel);
        let polled = wheel.poll(now, budget, |due, value| {
            assert!(due <= now, "{due} handed out at {now}");
            let expected = model.pop_first().expect("handed out, but never inserted");
            assert_eq!((due, value), expected, "out of order at {now}");
            fired += 1;
        });
        assert!(fired <= budget, "{fired} on a budget of {budget}");
        if polled == Polled::CaughtUp {
            assert!(self.wheel.current >= now, "the time is before {now}");
            assert!(!self.is_due(now), "not caught up at {now}");
        }
        polled
    }

    fn check(&self) {
        assert_consistent(&self.wheel);
        self.check_face();
    }

    /// Compares what an owner sees without a poll.
    fn check_face(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        let (wake, earliest) = (self.wheel.next_wake(), self.earliest());
        assert_eq!(wake.is_some(), earliest.is_some());
        assert!(wake <= earliest, "wake-up at {wake:?}, after {earliest:?}");
        let soon = earliest.is_some_and(|due| due >> SLOT_BITS <= self.wheel.current >> SLOT_BITS);
        if self.wheel.draining == 0 && (soon || self.wheel.len() <= FEW) {
            assert_eq!(wake, earliest, "not exact at {}", self.wheel.current);
        }
    }
}

proptest! {
    // D1, D8: never early, in due order, and within a tick in call order, whatever happens in
    // between.
    #[test]
    fn it_behaves_like_an_ordered_map(
        start in start(),
        ops in prop::collection::vec(op(), 1..MOST),
    ) {
        let mut pair = Pair::new(start);
        let mut now = start;
        for op in ops {
            match op {
                Op::InsertMany(after, count, apart) => {
                    pair.insert_many(now.saturating_add(after), count, apart);
                }
                Op::InsertLate(before) => pair.insert(now.saturating_sub(before)),
                Op::InsertBesideEarliest => pair.insert(pair.earliest().unwrap_or(now)),
                Op::Poll(by, budget) => {
                    now = now.saturating_add(by);
                    let _ = pair.poll(now, budget);
                }
                Op::PollAtWake(budget) => {
                    now = now.max(pair.wheel.next_wake().unwrap_or(now));
                    let _ = pair.poll(now, budget);
                }
                Op::PollBackwards(by, budget) => {
                    let _ = pair.poll(now.saturating_sub(by), budget);
                }
                Op::Retain(remainder) => {
                    pair.model.retain(|(_, value)| value % 3 != remainder);
                    pair.wheel.retain(|value| value % 3 != remainder);
                }
            }
            pair.check();
        }
        // The remaining entries come out in the same order, and the time stays.
        let current = pair.wheel.current;
        let mut taken = Vec::new();
        pair.wheel.take_all(|due, value| taken.push((due, value)));
        prop_assert_eq!(taken, std::mem::take(&mut pair.model).into_iter().collect::<Vec<_>>());
        prop_assert_eq!(pair.wheel.current, current);
        pair.check();
    }

    // D1: an owner that sleeps until each wake-up fires every entry at its exact tick, and rarely
    // wakes.
    #[test]
    fn following_the_wake_ups_hands_every_entry_out_at_its_tick(
        start in start(),
        first in prop::collection::vec((distance(), many(), 0..70u64), 1..4),
        mut later in prop::collection::vec((distance(), 1..2 * FEW), 0..10),
    ) {
        let mut pair = Pair::new(start);
        for (after, count, apart) in first {
            pair.insert_many(start.saturating_add(after), count, apart);
        }
        let mut wake_ups = 0;
        while let Some(now) = pair.wheel.next_wake() {
            wake_ups += 1;
            let before = pair.wheel.len();
            if pair.is_due(now) {
                prop_assert_eq!(pair.earliest(), Some(now));
            }
            prop_assert_eq!(pair.poll(now, usize::MAX), Polled::CaughtUp);
            if pair.wheel.len() < before
                && let Some((after, count)) = later.pop() {
                    pair.insert_many(now.saturating_add(after), count, 1);
                }
            pair.check_face();
            prop_assert!(
                wake_ups <= COST * pair.calls,
                "{} wake-ups for {} entries", wake_ups, pair.calls
            );
        }
        pair.check();
        prop_assert!(pair.model.is_empty());
    }

    // D7: a bounded poll does a bounded amount of work, and a bounded number of polls catches up.
    #[test]
    fn bounded_polls_get_there_in_bounded_work(
        start in start(),
        afters in prop::collection::vec(distance(), 1..MOST),
        jump in distance(),
        budget in 1..9usize,
    ) {
        let mut pair = Pair::new(start);
        for after in afters {
            pair.insert(start.saturating_add(after));
        }
        let now = start.saturating_add(jump);
        let mut polls = 1;
        while pair.poll(now, budget) == Polled::More {
            polls += 1;
            pair.check();
            prop_assert!(polls * budget <= COST * pair.calls + budget, "{} polls", polls);
        }
    }
}
