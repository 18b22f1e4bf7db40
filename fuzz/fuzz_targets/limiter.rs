//! Limiters of any settings, alone and several at once, against their formulae, with the clock
//! jumping in between (L2 to L7, L12, L13).
#![no_main]

use arbitrary::Arbitrary;
use keyqueue::Clock;
use keyqueue::limiter::{Bucket, ItemExponentialFailure, ItemFastSlow, RateLimiter};
use keyqueue_model::limit::{Limits, NaiveLimits, Span};
use libfuzzer_sys::fuzz_target;

// The property tests build their limiters with the same file.
#[path = "../../checks/model/tests/lockstep/limiter.rs"]
mod limiter;

/// At most so many calls.
const CALLS: usize = 1_000;
/// The clock stays below this, so that the model's numbers do.
const END: u128 = 1 << 62;

#[derive(Debug, Arbitrary)]
enum Step {
    When(u8),
    /// Charges a key so many times.
    Whens(u8, u8),
    Forget(u8),
    Requeues(u8),
    Advance(Span),
}

#[derive(Debug, Arbitrary)]
struct Input {
    limits: Limits,
    steps: Vec<Step>,
    /// Settings that may be invalid.
    rate: f64,
    burst: u32,
    delays: (Span, Span),
}

/// Every setting is taken, or refused by the name of the field.
fn check_settings(input: &Input) {
    let bucket = Bucket::new(input.rate, input.burst);
    let valid = input.rate > 0.0 && input.rate.is_finite();
    match bucket {
        Ok(bucket) => {
            assert!(valid && input.burst > 0);
            let (clock, _time) = Clock::mock();
            assert!(
                bucket.with_clock(clock).when(&0).is_zero(),
                "a full bucket waits"
            );
        }
        Err(error) => {
            let field = if valid { "burst" } else { "per_second" };
            assert!(error.to_string().contains(field), "{error}");
        }
    }
    let (one, other) = (input.delays.0.duration(), input.delays.1.duration());
    assert_eq!(
        ItemExponentialFailure::<u8>::new(one, other).is_ok(),
        one <= other
    );
    assert_eq!(ItemFastSlow::<u8>::new(one, other, 1).is_ok(), one <= other);
}

fuzz_target!(|input: Input| {
    check_settings(&input);
    let (clock, time) = Clock::mock();
    let limiter = limiter::build::<u8>(&input.limits, &clock);
    let mut model = NaiveLimits::new(input.limits);
    let mut calls = 0;
    for step in &input.steps {
        let now = clock.now().as_nanos();
        let mut when = |key: u8| {
            let (delay, expected) = (limiter.when(&key), model.when(key, now));
            assert!(expected.is(delay), "{delay:?}, expected {expected:?}");
        };
        match *step {
            Step::When(key) => when(key),
            Step::Whens(key, times) => (0..times).for_each(|_| when(key)),
            Step::Forget(key) => {
                limiter.forget(&key);
                model.forget(key);
            }
            Step::Requeues(key) => {
                assert_eq!(limiter.num_requeues(&key), model.num_requeues(key, now));
            }
            Step::Advance(by) if now + by.nanos() < END => time.advance(by.duration()),
            Step::Advance(_) => {}
        }
        calls += match *step {
            Step::Whens(_, times) => usize::from(times),
            _ => 1,
        };
        if calls > CALLS {
            break;
        }
    }
});
