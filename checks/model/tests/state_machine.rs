//! Arbitrary steps taken with a queue and its model (B1 to B3, B5, C1 to C12, D1 to D9, G1, L1 to L8, L14, M2, P1 to P4,
//! S1 to S5, S7, S8, S12, T4, V7).

use keyqueue_model::limit::Span;
use keyqueue_model::{By, Op, Policy, Settings, Setup, Spread, lockstep};
use proptest::prelude::*;

fn setup() -> impl Strategy<Value = Setup> {
    let spread = prop::sample::select(vec![
        Spread::Even,
        Spread::OneShard,
        Spread::FourHashes,
        Spread::OneHash,
    ]);
    let policy = prop::sample::select(vec![
        Policy::Earliest,
        Policy::Latest,
        Policy::Replace,
        Policy::KeepFirst,
    ]);
    let sizes = (0..3_u8, 0..4_u8, 0..4_u8, 0..6_u8, 0..24_u8, 0..36_u8);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (sizes, spread, policy, flags).prop_map(
        |(
            (ring, keys, shards, tick, limiter, levels),
            spread,
            policy,
            (supersede, wait_for_retries, drain_delays),
        )| Setup {
            ring,
            keys,
            shards,
            spread,
            policy,
            supersede,
            wait_for_retries,
            drain_delays,
            tick,
            limiter,
            levels,
        },
    )
}

/// Mostly about a millisecond, where delays meet; any magnitude now and then.
fn span() -> impl Strategy<Value = Span> {
    let shift = prop_oneof![6 => 16..24_u8, 1 => any::<u8>()];
    (any::<u8>(), shift).prop_map(|(times, shift)| Span { times, shift })
}

/// The settings of an entry.
fn settings() -> impl Strategy<Value = Settings> {
    let by = prop::sample::select(vec![By::Owned, By::Ref, By::Handle]);
    let level = prop::option::of(0..9_u8);
    let delay = prop::option::weighted(0.3, span());
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
fn op() -> impl Strategy<Value = Op> {
    let which = any::<u8>;
    prop_oneof![
        8 => any::<u16>().prop_map(Op::Add),
        20 => (any::<u16>(), settings()).prop_map(|(key, how)| Op::Enter(key, how)),
        6 => any::<u16>().prop_map(Op::AddRef),
        4 => (any::<u16>(), 0..4_u8, which()).prop_map(|(first, stride, count)| Op::AddAll { first, stride, count }),
        6 => (any::<u16>(), span()).prop_map(|(key, delay)| Op::AddAfter(key, delay)),
        4 => any::<u16>().prop_map(Op::AddLimited),
        3 => any::<u16>().prop_map(Op::Cancel),
        3 => any::<u16>().prop_map(Op::RunNow),
        1 => any::<u16>().prop_map(Op::Forget),
        1 => any::<u16>().prop_map(Op::NumRequeues),
        6 => span().prop_map(Op::Advance),
        6 => Just(Op::FireDue),
        2 => (which(), span()).prop_map(|(handle, delay)| Op::HandleAddAfter(handle, delay)),
        4 => which().prop_map(Op::Retry),
        4 => (which(), span()).prop_map(|(item, delay)| Op::RetryAfter(item, delay)),
        2 => any::<u16>().prop_map(Op::Handle),
        6 => which().prop_map(Op::HandleAdd),
        1 => which().prop_map(Op::HandleClone),
        2 => which().prop_map(Op::HandleDrop),
        10 => Just(Op::TryGet),
        4 => Just(Op::Get),
        1 => Just(Op::GetTimeout),
        4 => which().prop_map(Op::GetBatch),
        8 => which().prop_map(Op::Done),
        6 => which().prop_map(Op::DropItem),
        3 => Just(Op::DropItems),
        10 => (which(), any::<bool>()).prop_map(|(who, waker)| Op::PollGet { who, waker }),
        4 => which().prop_map(Op::DropGet),
        2 => Just(Op::Shrink),
        3 => Just(Op::Snapshot),
        2 => span().prop_map(Op::Stuck),
    ]
}

/// One step while the queue is closing, or to close it.
fn closing_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => op(),
        1 => Just(Op::ShutDown),
        1 => Just(Op::ShutDownNow),
        1 => Just(Op::TakeLeft),
        1 => Just(Op::DrainNow),
        3 => any::<u8>().prop_map(Op::PollDrain),
        1 => any::<u8>().prop_map(Op::DropDrain),
    ]
}

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
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
    fn the_queue_does_what_its_model_does(
        setup in setup(),
        ops in prop_oneof![8 => ops(60), 1 => ops(1000)],
    ) {
        lockstep::run(setup, &ops);
    }
}
