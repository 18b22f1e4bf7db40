//! Times near the ends of their range: holds, intervals, delays and rates of one key against a model (G5, G6, T1,
//! T2, D1, D8).

use std::time::Duration;

use proptest::prelude::*;

use crate::common::timed::{HOUR, MS, NS, built, secs};
use crate::common::{Note, scaled};
use keyqueue::{Added, Builder, Clock, MockClock, WorkQueue};

type Queue = WorkQueue<u64>;

/// The key that is watched, and its group. Key `n` is in group `n % 1000`.
const KEY: u64 = 7;

/// Where a mocked clock stops.
fn end() -> Duration {
    let (clock, time) = Clock::mock();
    time.advance(Duration::MAX);
    clock.now()
}

/// Spans at the ends of what is meant, of what a clock counts, and of the types.
fn spans() -> Vec<Duration> {
    let end = end();
    let longest_delay = secs(100 * 365 * 24 * 3600);
    vec![
        Duration::ZERO,
        NS,
        MS - NS,
        MS,
        MS + NS,
        HOUR,
        longest_delay - NS,
        longest_delay,
        longest_delay + HOUR,
        end - HOUR,
        end - NS,
        end,
        end + NS,
        Duration::from_nanos(u64::MAX - 1),
        Duration::from_nanos(u64::MAX),
        Duration::from_nanos(u64::MAX) + NS,
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ]
}

/// What the queue ought to do with the key. Times are nanoseconds, and never overflow.
#[derive(Debug)]
struct Model {
    end: u128,
    now: u128,
    interval: u128,
    rate: Option<Rate>,
    queued: bool,
    /// When the pending delay ends.
    due: Option<u128>,
    held_until: u128,
    /// The end of the interval since the last delivery.
    interval_until: u128,
    /// When the bucket is full, in the units of the rate.
    full: u128,
}

/// A rate counts time in units of which a token has a whole number, so that it neither is slower nor faster than set.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The units between two tokens, and those of the tokens that a full bucket has beyond the first.
    token: u128,
    spare: u128,
    /// The units in 2^62 nanoseconds.
    scale: u128,
}

impl Rate {
    fn new((per_second, burst): (f64, u32)) -> Self {
        let nanos = (1e9 / per_second).max(1.0);
        let token = nanos.ceil() as u128;
        Rate {
            token,
            spare: token * u128::from(burst - 1),
            scale: (nanos.ceil() / nanos * (1_u64 << 62) as f64) as u128,
        }
    }

    fn units(self, nanos: u128) -> u128 {
        (nanos * self.scale) >> 62
    }

    /// The first nanosecond at which these units are over.
    fn nanos(self, units: u128) -> u128 {
        (units << 62).div_ceil(self.scale)
    }
}

impl Model {
    fn new(interval: Duration, rate: Option<(f64, u32)>) -> Self {
        Model {
            end: end().as_nanos(),
            now: 0,
            interval: interval.as_nanos(),
            rate: rate.map(Rate::new),
            queued: false,
            due: None,
            held_until: 0,
            interval_until: 0,
            full: 0,
        }
    }

    /// Delays the key by the rules for the earliest of two times: ticks of 1 ms, 100 years at most, and no later than
    /// the clock goes.
    fn delay(&mut self, delay: Duration) {
        let tick = MS.as_nanos();
        let longest = secs(100 * 365 * 24 * 3600).as_nanos();
        let due = self.now + delay.as_nanos().min(longest);
        let due = due.next_multiple_of(tick).min(self.end / tick * tick);
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    fn fire(&mut self) -> usize {
        match self.due.take_if(|due| *due <= self.now) {
            Some(_) => {
                self.queued = true;
                1
            }
            None => 0,
        }
    }

    fn ready_at(&self) -> Option<u128> {
        let token = |rate: Rate| rate.nanos(self.full.saturating_sub(rate.spare));
        let token = self.rate.map_or(0, token);
        let ready = self.held_until.max(self.interval_until).max(token);
        self.queued.then_some(ready)
    }

    /// Whether the key is delivered now.
    fn deliver(&mut self) -> bool {
        let is_ready = self.ready_at().is_some_and(|at| at <= self.now);
        if is_ready {
            self.queued = false;
            self.interval_until = self.now + self.interval;
            if let Some(rate) = self.rate {
                self.full = self.full.max(rate.units(self.now)) + rate.token;
            }
        }
        is_ready
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add,
    AddAfter(Duration),
    /// Gets the key, and finishes it if it is delivered.
    Get,
    /// The same, and retries it after this.
    GetAndRetry(Duration),
    Hold(Duration),
    Release,
    Advance(Duration),
    /// To the nanosecond before the key is ready, and to that at which it is.
    AdvanceToReady,
    Fire,
    Cancel,
    Clear,
    /// Sweeps keys and groups.
    Shrink,
    /// Other keys and groups come and go.
    Others,
}

struct Run {
    queue: Queue,
    time: MockClock,
    model: Model,
    others: u64,
}

impl Run {
    fn new(interval: Duration, rate: Option<(f64, u32)>, levels: usize) -> Self {
        let set = |builder: Builder<u64>| {
            let builder = builder.levels(levels).group_by(|key| key % 1000);
            let builder = match rate {
                Some((per_second, burst)) => builder.group_rate(per_second, burst),
                None => builder,
            };
            match interval.is_zero() {
                false => builder.min_interval(interval),
                true => builder,
            }
        };
        let (queue, time) = built(set);
        Run {
            queue,
            time,
            model: Model::new(interval, rate),
            others: 1000,
        }
    }

    fn advance(&mut self, by: Duration) {
        self.time.advance(by);
        self.model.now = (self.model.now + by.as_nanos()).min(self.model.end);
    }

    /// Gets the key and asserts that it is delivered if it ought to be.
    fn get(&mut self, retry: Option<Duration>) {
        let item = self.queue.try_get();
        let expected = self.model.deliver();
        assert_eq!(item.is_ok(), expected, "{:?}", self.model);
        let Ok(item) = item else { return };
        assert_eq!(*item, KEY);
        match retry {
            None => item.done(),
            Some(delay) => {
                let _ = item.retry_after(delay);
                match delay.is_zero() {
                    true => self.model.queued = true,
                    false => self.model.delay(delay),
                }
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        let group = KEY % 1000;
        match op {
            Op::Add => {
                let expected = match self.model.queued {
                    true => Added::Merged,
                    false => Added::Queued,
                };
                assert_eq!(self.queue.add(KEY), expected);
                self.model.queued = true;
            }
            Op::AddAfter(delay) => {
                self.queue.add_after(KEY, *delay);
                match delay.is_zero() {
                    true => self.model.queued = true,
                    false => self.model.delay(*delay),
                }
            }
            Op::Get => self.get(None),
            Op::GetAndRetry(delay) => self.get(Some(*delay)),
            Op::Hold(hold) => {
                assert!(self.queue.hold_group(&group, *hold));
                self.model.held_until = match hold.is_zero() {
                    true => 0,
                    false => self.model.now + hold.as_nanos(),
                };
            }
            Op::Release => {
                assert!(self.queue.hold_group(&group, Duration::ZERO));
                self.model.held_until = 0;
            }
            Op::Advance(by) => self.advance(*by),
            Op::AdvanceToReady => self.advance_to_ready(),
            Op::Fire => assert_eq!(self.queue.fire_due(), self.model.fire(), "{:?}", self.model),
            Op::Cancel => assert_eq!(self.queue.cancel(&KEY), self.model.due.take().is_some()),
            Op::Clear => {
                assert_eq!(self.queue.clear(), usize::from(self.model.queued));
                self.model.queued = false;
            }
            Op::Shrink => self.queue.shrink(),
            Op::Others => {
                for _ in 0..scaled(300) {
                    self.others += 1;
                    assert!(self.queue.hold_group(&self.others, Duration::ZERO));
                }
            }
        }
    }

    fn advance_to_ready(&mut self) {
        let Some(at) = self.model.ready_at().filter(|at| *at > self.model.now) else {
            return;
        };
        let wait = u64::try_from(at - self.model.now).unwrap_or(u64::MAX);
        self.advance(Duration::from_nanos(wait - 1));
        if self.model.now < at {
            self.get(None);
        }
        self.advance(NS);
        self.get(None);
    }

    /// Asserts what can be seen of the key, between two steps.
    fn assert_agrees(&self) {
        let counts = self.queue.counts();
        assert_eq!(counts.queued, usize::from(self.model.queued));
        assert_eq!(counts.delayed, usize::from(self.model.due.is_some()));
        assert_eq!(self.queue.len(), counts.queued);
        let group = KEY % 1000;
        let groups = self.queue.groups::<u64>();
        let held = groups.iter().find(|counts| counts.group == group);
        let held = held.and_then(|counts| counts.held_for);
        let left = self.model.held_until.saturating_sub(self.model.now);
        // What is beyond the range of the type is reported as its end, or later.
        let least = left.min(u128::from(u64::MAX) - self.model.now);
        assert_eq!(held.is_some(), left > 0, "{held:?} of {left}");
        assert!(
            held.map_or(0, |held| held.as_nanos()) >= least,
            "{held:?} of {left}"
        );
    }
}

#[test] // G5 G6 T1 T2 D1 D8
#[cfg_attr(miri, ignore = "hundreds of queues in one thread")]
fn waits_at_the_ends_of_the_range_end_to_the_nanosecond() {
    let spans = spans();
    let end = end();
    let starts = [Duration::ZERO, NS, HOUR, end - HOUR, end - NS, end];
    for span in &spans {
        for start in starts {
            // A hold, of a group that is known and one that is not; released, and held again.
            for known in [false, true] {
                let mut run = Run::new(Duration::ZERO, None, 1);
                let mut ops = vec![Op::Advance(start)];
                if known {
                    ops.extend([Op::Add, Op::Get]);
                }
                let hold = Op::Hold(*span);
                let again = [
                    Op::Release,
                    Op::Shrink,
                    Op::Add,
                    Op::Get,
                    hold.clone(),
                    Op::Shrink,
                ];
                ops.extend([hold, Op::Shrink, Op::Others, Op::Add, Op::Get]);
                ops.extend(again);
                ops.extend([Op::Add, Op::AdvanceToReady, Op::Release, Op::Get]);
                run.all(&ops);
            }
            // An interval, for adds and retries.
            if !span.is_zero() {
                let mut run = Run::new(*span, None, 1);
                let ops = [
                    Op::Advance(start),
                    Op::Add,
                    Op::Get,
                    Op::Shrink,
                    Op::Add,
                    Op::Get,
                ];
                run.all(&ops);
                run.all(&[Op::AdvanceToReady, Op::Shrink, Op::Add, Op::AdvanceToReady]);
            }
            // A delay, and a retry after one.
            let mut run = Run::new(Duration::ZERO, None, 2);
            run.all(&[
                Op::Advance(start),
                Op::AddAfter(*span),
                Op::Fire,
                Op::Get,
                Op::Shrink,
            ]);
            run.pass_due();
            run.all(&[Op::Get, Op::Add, Op::GetAndRetry(*span), Op::Fire, Op::Get]);
            run.pass_due();
            run.all(&[Op::Get]);
        }
    }
    // Rates, from a token a nanosecond to one a century.
    let century = 100.0 * 365.0 * 86_400.0;
    for (per_second, burst) in [
        (f64::MAX, 1),
        (1e9, u32::MAX),
        (2.0, u32::MAX),
        (3.0, 2),
        (1.0 / century, 1),
        (2.0 / century, 2),
    ] {
        for start in starts {
            let mut run = Run::new(Duration::ZERO, Some((per_second, burst)), 1);
            run.all(&[
                Op::Advance(start),
                Op::Add,
                Op::Get,
                Op::Shrink,
                Op::Add,
                Op::Get,
            ]);
            run.all(&[Op::Add, Op::Get, Op::Add, Op::AdvanceToReady, Op::Shrink]);
            run.all(&[Op::Add, Op::AdvanceToReady, Op::Get]);
        }
    }
}

impl Run {
    fn all(&mut self, ops: &[Op]) {
        for (n, op) in ops.iter().enumerate() {
            self.apply(op);
            self.assert_agrees_after(&ops[..=n]);
        }
    }

    fn assert_agrees_after(&self, ops: &[Op]) {
        let _note = Note(ops);
        self.assert_agrees();
    }

    /// Ends the pending delay, to the nanosecond.
    fn pass_due(&mut self) {
        let Some(due) = self.model.due else { return };
        if let Ok(wait) = u64::try_from(due.saturating_sub(self.model.now))
            && wait > 0
        {
            self.advance(Duration::from_nanos(wait - 1));
            self.all(&[Op::Fire]);
            self.advance(NS);
        }
        self.all(&[Op::Fire]);
        assert!(self.model.queued, "{:?}", self.model);
    }
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        3 => (0..5_u64).prop_map(Duration::from_nanos),
        3 => (0..5000_u64).prop_map(Duration::from_micros),
        3 => prop::sample::select(spans()),
        1 => any::<u64>().prop_map(Duration::from_nanos),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(Op::Add),
        2 => span().prop_map(Op::AddAfter),
        4 => Just(Op::Get),
        1 => span().prop_map(Op::GetAndRetry),
        3 => span().prop_map(Op::Hold),
        1 => Just(Op::Release),
        2 => (0..3000_u64).prop_map(|n| Op::Advance(Duration::from_micros(n))),
        1 => span().prop_map(Op::Advance),
        2 => Just(Op::AdvanceToReady),
        2 => Just(Op::Fire),
        1 => Just(Op::Cancel),
        1 => Just(Op::Clear),
        2 => Just(Op::Shrink),
        1 => Just(Op::Others),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(1000) as u32))]

    #[test] // G5 G6 T2 D1 D3 D6 D8: all of them at once
    fn holds_intervals_rates_and_delays_agree_with_a_model(
        interval in prop_oneof![Just(Duration::ZERO), span()],
        rate in prop::option::of((prop_oneof![Just(1e9), Just(1000.0), Just(3.0), Just(1e-6)], 1..4_u32)),
        levels in 1..3_usize,
        ops in ops(),
    ) {
        Run::new(interval, rate, levels).all(&ops);
    }
}
