//! Back-off of any settings, valid or not, against its formula; the manager's way back to the start;
//! and the loops around it on a simulated clock (L9, L10, L11, L13).
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use keyqueue::Clock;
use keyqueue::backoff::{
    Backoff, ExponentialBackoffManager, Interval, Stop, backoff_until, jitter, retry_with,
};
use keyqueue_model::limit::{Span, duration};
use libfuzzer_sys::fuzz_target;

/// At most so many delays.
const DELAYS: usize = 200;

#[derive(Clone, Debug, Arbitrary)]
struct Settings {
    duration: Span,
    factor: f64,
    /// A factor that is whole and small, in place of the other.
    whole: Option<u8>,
    jitter: Option<f64>,
    steps: u16,
    cap: Span,
}

#[derive(Debug, Arbitrary)]
struct Input {
    settings: Settings,
    /// Between the delays of a manager.
    pauses: Vec<Span>,
    reset: Span,
    /// How long the runs of a loop take, in milliseconds, and the delays between.
    runs: Vec<(u8, u8)>,
    sliding: bool,
    stop_in: u8,
}

impl Settings {
    fn backoff(&self) -> Backoff {
        Backoff {
            duration: self.duration.duration(),
            factor: self.whole.map_or(self.factor, f64::from),
            jitter: self.jitter.unwrap_or(0.0),
            steps: self.steps.into(),
            cap: self.cap.duration(),
        }
    }
}

/// The delay after `delay`: how small and how large it may be, before the cap.
fn grown(delay: u128, factor: f64) -> (u128, u128) {
    let longest = Duration::MAX.as_nanos();
    if factor.is_nan() || factor <= 0.0 {
        return (delay, delay);
    }
    if factor.fract() == 0.0 && factor < 1e9 {
        let exact = delay.saturating_mul(factor as u128).min(longest);
        return (exact, exact);
    }
    let product = delay as f64 * factor;
    // Two roundings of an `f64`, and the fraction that is cut off.
    let off = product / f64::from(1 << 30) / f64::from(1 << 20) + 1.0;
    (
        ((product - off).max(0.0) as u128).min(longest),
        ((product + off) as u128).min(longest),
    )
}

/// The sequence of delays: each within what the one before it allows.
fn check_steps(settings: &Settings) {
    let mut backoff = settings.backoff();
    let valid = |value: f64| value >= 0.0 && value.is_finite();
    assert_eq!(
        backoff.validate().is_ok(),
        valid(backoff.factor) && valid(backoff.jitter)
    );
    let cap = match settings.cap.nanos() {
        0 => u128::MAX,
        cap => cap,
    };
    let (mut low, mut high) = (
        settings.duration.nanos().min(cap),
        settings.duration.nanos().min(cap),
    );
    let (mut changes, factor, most) = (backoff.steps, backoff.factor, backoff.jitter);
    for _ in 0..DELAYS {
        let base = backoff.duration.as_nanos().min(cap);
        assert!(
            (low..=high).contains(&base),
            "{base} is not in {low}..={high} of {settings:?}"
        );
        check_jitter(duration(base), backoff.step(), most);
        if changes > 0 {
            changes -= 1;
            (low, high) = grown(base, factor);
        } else {
            (low, high) = (base, base);
        }
        (low, high) = (low.min(cap), high.min(cap));
        assert_eq!(backoff.steps, changes);
    }
    if usize::from(settings.steps) < DELAYS {
        assert_eq!(settings.backoff().count(), usize::from(settings.steps));
    }
}

/// `d + U[0, factor) * d`, saturating.
fn check_jitter(d: Duration, delay: Duration, factor: f64) {
    assert!(delay >= d, "{delay:?} is less than {d:?}");
    if factor > 0.0 && !d.is_zero() {
        let most = d.as_nanos() as f64 * (1.0 + factor) * (1.0 + 1e-12) + 1.0;
        assert!(
            delay.as_nanos() as f64 <= most,
            "{delay:?} is more than {d:?} and {factor} of it"
        );
    } else {
        assert_eq!(delay, d);
    }
}

/// A manager starts over after `reset`, and otherwise goes on as its back-off does.
fn check_manager(input: &Input) {
    let settings = &input.settings;
    let backoff = settings.backoff();
    let Backoff {
        duration,
        cap,
        factor,
        jitter,
        ..
    } = backoff;
    let reset = input.reset.duration();
    let made = ExponentialBackoffManager::new(backoff, reset);
    let valid = |value: f64| value >= 0.0 && value.is_finite();
    assert_eq!(
        made.is_ok(),
        (cap.is_zero() || duration <= cap) && valid(factor) && valid(jitter)
    );
    let Ok(manager) = made else { return };
    if jitter > 0.0 {
        return;
    }
    let (clock, time) = Clock::mock();
    let mut manager = manager.with_clock(clock.clone());
    let start = Backoff {
        steps: u32::MAX,
        ..settings.backoff()
    };
    let mut expected = start.clone();
    for pause in input.pauses.iter().take(DELAYS) {
        assert_eq!(manager.next(), Some(expected.step()));
        let before = clock.now();
        time.advance(pause.duration());
        if clock.now() - before > reset {
            expected = start.clone();
        }
    }
}

/// A loop's runs start when they should; none starts after it was stopped.
fn check_loop(input: &Input) {
    let runs: Vec<_> = input.runs.iter().take(DELAYS).collect();
    let millis = |n: u8| Duration::from_millis(n.into());
    let (clock, time) = Clock::mock();
    let stop = Stop::simulated(time.clone());
    let mut expected = Vec::new();
    let mut now = Duration::ZERO;
    for number in 0..=runs.len() {
        if number > usize::from(input.stop_in) {
            break;
        }
        expected.push(now);
        let Some((takes, delay)) = runs.get(number) else {
            break;
        };
        let (takes, delay) = (millis(*takes), millis(*delay));
        now += if input.sliding {
            takes + delay
        } else {
            takes.max(delay)
        };
    }
    let mut starts = Vec::new();
    backoff_until(
        || {
            if starts.len() == usize::from(input.stop_in) {
                stop.stop();
            }
            if let Some((takes, _)) = runs.get(starts.len()) {
                starts.push(clock.now());
                time.advance(millis(*takes));
            } else {
                starts.push(clock.now());
            }
        },
        runs.iter().map(|(_, delay)| millis(*delay)),
        if input.sliding {
            Interval::FromEnd
        } else {
            Interval::FromStart
        },
        &stop,
    );
    assert_eq!(starts, expected);
}

/// Tries are as many as the steps, with a delay between each two.
fn check_retry(settings: &Settings) {
    let backoff = Backoff {
        jitter: 0.0,
        steps: u32::from(settings.steps) % 64,
        ..settings.backoff()
    };
    let (mut tries, mut slept) = (0, Vec::new());
    let outcome = retry_with(
        backoff.clone(),
        || {
            tries += 1;
            Err::<(), u32>(tries)
        },
        |delay| slept.push(delay),
    );
    assert_eq!(outcome, Err(backoff.steps.max(1)));
    let between = backoff.steps.saturating_sub(1) as usize;
    assert_eq!(slept, backoff.take(between).collect::<Vec<_>>());
}

fuzz_target!(|input: Input| {
    check_steps(&input.settings);
    let (d, factor) = (input.settings.duration.duration(), input.settings.factor);
    check_jitter(d, jitter(d, factor), factor);
    check_manager(&input);
    check_loop(&input);
    check_retry(&input.settings);
});
