//! Arbitrary steps taken with a queue of values and its model (V1 to V3, V6, V7, B1, B3, D3 to D6, S1, S5, S8).

use keyqueue_model::limit::Span;
use keyqueue_model::values::{self, ValueOp, Verb};
use keyqueue_model::{By, Policy, Settings, Setup};
use proptest::prelude::*;

fn setup() -> impl Strategy<Value = Setup> {
    let policies = vec![
        Policy::Earliest,
        Policy::Latest,
        Policy::Replace,
        Policy::KeepFirst,
    ];
    let sizes = (0..3_u8, 0..4_u8, 0..4_u8, 0..6_u8, 0..16_u8, 0..36_u8);
    let policy = prop::sample::select(policies);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (sizes, policy, flags).prop_map(
        |(
            (ring, keys, shards, tick, limiter, levels),
            policy,
            (supersede, wait_for_retries, drain_delays),
        )| Setup {
            ring,
            keys,
            shards,
            policy,
            supersede,
            wait_for_retries,
            drain_delays,
            tick,
            limiter,
            levels,
            ..Setup::default()
        },
    )
}

/// About a millisecond, where delays meet, or none.
fn span() -> impl Strategy<Value = Span> {
    (any::<u8>(), 16..24_u8).prop_map(|(times, shift)| Span { times, shift })
}

/// The settings of an entry.
fn settings() -> impl Strategy<Value = Settings> {
    let by = prop::sample::select(vec![By::Owned, By::Ref, By::Handle]);
    let level = prop::option::of(0..9_u8);
    let delay = prop::option::weighted(0.4, span());
    let limit = prop::option::weighted(0.4, span());
    (by, level, delay, limit, any::<bool>()).prop_map(|(by, level, delay, limit, refuse)| {
        Settings {
            by,
            level,
            delay,
            limit,
            refuse,
        }
    })
}

/// One step; what ends the queue is rare.
fn op() -> impl Strategy<Value = ValueOp> {
    let which = any::<u8>;
    let key = any::<u16>;
    prop_oneof![
        8 => key().prop_map(ValueOp::Put),
        4 => (key(), which(), which())
            .prop_map(|(first, stride, count)| ValueOp::PutAll(first, stride, count % 40)),
        25 => (key(), settings(), any::<bool>(), any::<bool>())
            .prop_map(|(key, how, update, tracked)| ValueOp::Enter(key, how, Verb { update, tracked })),
        4 => key().prop_map(ValueOp::Update),
        2 => key().prop_map(ValueOp::Add),
        2 => key().prop_map(ValueOp::Handle),
        4 => which().prop_map(ValueOp::HandlePut),
        2 => which().prop_map(ValueOp::HandleDrop),
        4 => key().prop_map(ValueOp::Remove),
        3 => key().prop_map(ValueOp::Cancel),
        3 => key().prop_map(ValueOp::RunNow),
        16 => Just(ValueOp::TryGet),
        3 => which().prop_map(ValueOp::Change),
        2 => which().prop_map(ValueOp::Take),
        8 => which().prop_map(ValueOp::Done),
        6 => which().prop_map(ValueOp::Retry),
        4 => (which(), span()).prop_map(|(which, delay)| ValueOp::RetryAfter(which, delay)),
        6 => span().prop_map(ValueOp::Advance),
        6 => Just(ValueOp::FireDue),
        2 => Just(ValueOp::Shrink),
        1 => Just(ValueOp::Clear),
    ]
}

/// One step while the queue is closing, or to close it.
fn closing_op() -> impl Strategy<Value = ValueOp> {
    prop_oneof![
        12 => op(),
        1 => Just(ValueOp::ShutDown),
        1 => Just(ValueOp::DrainNow),
        1 => Just(ValueOp::ShutDownNow),
        1 => Just(ValueOp::TakeLeft),
    ]
}

fn ops(most: usize) -> impl Strategy<Value = Vec<ValueOp>> {
    let open = prop::collection::vec(op(), 0..most);
    let closing = prop::collection::vec(closing_op(), 0..40);
    (open, closing).prop_map(|(mut open, closing)| {
        open.extend(closing);
        open
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1152))]

    #[test]
    fn a_queue_of_values_does_what_its_model_does(
        setup in setup(),
        ops in prop_oneof![8 => ops(60), 1 => ops(1000)],
    ) {
        values::run(setup, &ops);
    }
}
