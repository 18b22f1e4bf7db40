//! Limiters of any settings, alone and several at once, against their formulae, with the clock
//! jumping in between (L2 to L7, L12).

use keyqueue::Clock;
use keyqueue_model::limit::{Limit, Limits, NaiveLimits, Span};
use keyqueue_model::lockstep;
use proptest::collection::vec;
use proptest::prelude::*;

/// The clock stays below this, so that the model's numbers do.
const END: u128 = 1 << 62;

#[derive(Clone, Debug)]
enum Step {
    /// Charges a key this many times.
    When(u8, u8),
    Forget(u8),
    Requeues(u8),
    Advance(Span),
}

fn span() -> impl Strategy<Value = Span> {
    any::<(u8, u8)>().prop_map(|(times, shift)| Span { times, shift })
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit = prop_oneof![
        (span(), span()).prop_map(|(one, other)| {
            let (base, max) = one.sorted(other);
            Limit::Exponential(base, max)
        }),
        (span(), span(), any::<u8>())
            .prop_map(|(one, other, fast)| Limit::FastSlow(one, other, fast)),
        any::<(u16, u16, u16)>()
            .prop_map(|(tokens, seconds, burst)| Limit::Bucket(tokens, seconds, burst)),
    ];
    let max_wait = prop::option::of(span());
    (vec(limit, 0..=3), max_wait).prop_map(|(of, max_wait)| Limits { of, max_wait })
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..4_u8;
    let times = prop_oneof![4 => 1..3_u8, 1 => any::<u8>()];
    prop_oneof![
        4 => (key(), times).prop_map(|(key, times)| Step::When(key, times)),
        1 => key().prop_map(Step::Forget),
        1 => key().prop_map(Step::Requeues),
        2 => span().prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn limiters_do_what_their_formulae_say(limits in limits(), steps in vec(step(), 1..60)) {
        let (clock, time) = Clock::mock();
        let limiter = lockstep::limiter::build::<u8>(&limits, &clock);
        let mut model = NaiveLimits::new(limits);
        for step in steps {
            let now = clock.now().as_nanos();
            match step {
                Step::When(key, times) => for _ in 0..times {
                    let (delay, expected) = (limiter.when(&key), model.when(key, now));
                    prop_assert!(expected.is(delay), "{delay:?}, expected {expected:?}");
                },
                Step::Forget(key) => {
                    limiter.forget(&key);
                    model.forget(key);
                }
                Step::Requeues(key) => {
                    prop_assert_eq!(limiter.num_requeues(&key), model.num_requeues(key, now));
                }
                Step::Advance(by) if now + by.nanos() < END => time.advance(by.duration()),
                Step::Advance(_) => {}
            }
        }
    }
}
