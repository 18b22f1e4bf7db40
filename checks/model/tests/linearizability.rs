//! What concurrent threads see of a queue can be explained by one that has no threads (C1 to C12,
//! D3 to D6, S1, S2, S5), and that one is the reference queue.
//!
//! Thousands of small histories: three threads with six calls each over three or four keys, so that
//! they meet. `KEYQUEUE_HISTORIES` sets how many; the default takes seconds.

use keyqueue::{Added, GetError};
use keyqueue_model::limit::Span;
use keyqueue_model::linear::{Call, Do, KEYS, Part, Spec, Via, explain};
use keyqueue_model::{Naive, Setup, Spread, recorded};

const THREADS: usize = 3;
const CALLS: usize = 6;

fn histories() -> u64 {
    let set = std::env::var("KEYQUEUE_HISTORIES").ok();
    set.map_or(3_000, |text| text.parse().expect("a number of histories"))
}

fn any_setup(random: &mut fastrand::Rng) -> Setup {
    Setup {
        ring: random.u8(..),
        shards: random.u8(..),
        levels: random.u8(..),
        spread: *random
            .choice(&[Spread::Even, Spread::OneShard, Spread::OneHash])
            .expect("not empty"),
        ..Setup::default()
    }
}

fn any_via(random: &mut fastrand::Rng) -> Via {
    let vias = [Via::Key, Via::Ref, Via::Handle, Via::NewHandle];
    *random.choice(&vias).expect("not empty")
}

/// One call. Of `keys` keys; what waits or ends is rare.
fn any_call(random: &mut fastrand::Rng, keys: u8) -> Do {
    let key = random.u8(..keys);
    let number = random.u8(..);
    match random.u8(..100) {
        0..30 => Do::Add(key, any_via(random)),
        30..40 => Do::AddAfter(key, random.u8(..3), any_via(random)),
        40..45 => Do::Cancel(key),
        45..60 => Do::TryGet,
        60..63 => Do::GetTimeout(random.u8(..20)),
        63..67 => Do::PollGet(number),
        67..70 => Do::Get,
        70..73 => Do::GetBatch(number),
        73..85 => Do::Done(number),
        85..88 => Do::RetryAfter(number, random.u8(..3)),
        88..93 => Do::Fire,
        93..95 => Do::ShutDown,
        95..97 => Do::Shrink,
        _ => Do::Pause(number),
    }
}

/// Runs one history.
fn record(seed: u64) -> (Spec, Vec<Vec<Call>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = random.u8(1..=4);
    let setup = any_setup(&mut random);
    let programs =
        [(); THREADS].map(|()| (0..CALLS).map(|_| any_call(&mut random, keys)).collect());
    (Spec::of(&setup), recorded::run(setup, &programs))
}

/// Whether calls of different threads were under way at the same time.
fn overlaps(history: &[Vec<Call>]) -> bool {
    let mut calls: Vec<_> = history
        .iter()
        .flatten()
        .map(|call| (call.invoked, call.returned))
        .collect();
    calls.sort_unstable();
    calls.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

#[test] // C1 C2 C3 C4 C5 C6 C7 C11 C12 D3 D4 D6 S1 S2 S5
fn what_threads_see_can_be_explained() {
    let (mut states, mut overlapping) = (0, 0);
    let histories = histories();
    for seed in 0..histories {
        let (spec, history) = record(seed);
        overlapping += u64::from(overlaps(&history));
        match explain(spec, &history) {
            Ok(seen) => states += seen,
            Err(unexplained) => panic!("history {seed}:\n{unexplained:?}"),
        }
    }
    println!(
        "{histories} histories, {overlapping} with overlapping calls, {states} states searched"
    );
    assert!(overlapping > 0, "no two calls ever overlapped");
}

/// Whether a call is about a delivery of key 0.
fn delivers(call: &Call) -> bool {
    let delivery = |part: &Part| matches!(part, Part::Got(0) | Part::Done(0));
    call.parts.iter().any(delivery)
}

/// Adds are lost.
fn lose(history: &mut [Vec<Call>]) {
    for calls in history {
        calls.retain(|call| !delivers(call));
    }
}

/// A key has two holders.
fn double(history: &mut Vec<Vec<Call>>) {
    let deliveries = history.iter().flatten().filter(|call| delivers(call));
    history.push(deliveries.cloned().collect());
}

/// A key overtakes another.
fn swap(history: &mut [Vec<Call>]) {
    let calls = history.iter_mut().flatten();
    for part in calls.flat_map(|call| &mut call.parts) {
        if let Part::Got(key @ (0 | 1)) | Part::Done(key @ (0 | 1)) = part {
            *key = 1 - *key;
        }
    }
}

/// Whether one of many histories cannot be explained any more after a change.
fn is_noticed(change: impl Fn(&mut Vec<Vec<Call>>)) -> bool {
    (0..2_000).any(|seed| {
        let (spec, mut history) = record(seed);
        change(&mut history);
        explain(spec, &history).is_err()
    })
}

/// What single calls may return is checked below, by histories of the reference queue.
#[test]
fn what_threads_would_see_of_a_broken_queue_cannot_be_explained() {
    assert!(is_noticed(|history| lose(history)), "adds that are lost");
    assert!(is_noticed(double), "a key with two holders");
    assert!(
        is_noticed(|history| swap(history)),
        "a key that overtakes another"
    );
}

/// A tick of a millisecond.
const TICK: u128 = 1_000_000;

/// One call of the reference queue.
fn call(random: &mut fastrand::Rng, naive: &mut Naive<u8>, held: &mut Vec<u8>) -> Vec<Part> {
    let key = random.u8(..KEYS as u8);
    let ticks = random.u8(1..3);
    let delayed = |added| Part::Delay(key, ticks, added == Added::Delayed);
    match random.u8(..20) {
        0..8 => vec![Part::Add(key, naive.add(key))],
        8..10 => vec![delayed(naive.add_after(key, TICK * u128::from(ticks)))],
        10 => vec![Part::Cancel(key, naive.delays.cancel(key).is_some())],
        11..15 => vec![match naive.get() {
            Ok(key) => {
                held.push(key);
                Part::Got(key)
            }
            Err(GetError::Empty) => Part::Empty,
            Err(GetError::ShutDown) => Part::Ended,
        }],
        15..18 if !held.is_empty() => {
            let key = held.swap_remove(random.usize(..held.len()));
            naive.done(key);
            vec![Part::Done(key)]
        }
        18 if random.u8(..4) == 0 && !naive.is_shutting_down() => {
            vec![Part::ShutDown(naive.shut_down())]
        }
        _ => {
            // A tick is 125 times 125 * 2^6 ns.
            let (times, shift) = (125, 6);
            (0..125).for_each(|_| naive.delays.advance(Span { times, shift }));
            vec![Part::Fired(naive.fire_due().len() as u8)]
        }
    }
}

/// What one thread sees of the reference queue.
fn history(seed: u64) -> Vec<Call> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut naive = Naive::new(Setup::default());
    let mut held = Vec::new();
    (0..30)
        .map(|number| Call {
            invoked: 2 * number,
            returned: 2 * number + 1,
            parts: call(&mut random, &mut naive, &mut held),
        })
        .collect()
}

/// The same call with another result.
fn another(part: Part) -> Option<Part> {
    Some(match part {
        Part::Add(key, Added::Queued) => Part::Add(key, Added::Merged),
        Part::Add(key, Added::Merged) => Part::Add(key, Added::Deferred),
        Part::Add(key, Added::Deferred) => Part::Add(key, Added::ShutDown),
        Part::Add(key, _) => Part::Add(key, Added::Queued),
        Part::Delay(key, ticks, accepted) => Part::Delay(key, ticks, !accepted),
        Part::Retry(key, ticks, accepted) => Part::Retry(key, ticks, !accepted),
        Part::Cancel(key, was) => Part::Cancel(key, !was),
        Part::Got(key) => Part::Got((key + 1) % KEYS as u8),
        Part::Empty => Part::Ended,
        Part::Fired(0) => Part::Fired(1),
        Part::Fired(count) => Part::Fired(count - 1),
        Part::ShutDown(mut left) => {
            left.processing += 1;
            Part::ShutDown(left)
        }
        // `Empty` would be no lie after the end, and a key that is not held cannot be done.
        Part::Ended | Part::Done(_) => return None,
    })
}

#[test]
fn the_specification_explains_what_the_reference_does_and_nothing_else() {
    for seed in 0..500 {
        let history = history(seed);
        if let Err(unexplained) = explain(Spec::default(), std::slice::from_ref(&history)) {
            panic!("history {seed}:\n{unexplained:?}");
        }
        for at in 0..history.len() {
            let mut wrong = history.clone();
            let Some(other) = another(wrong[at].parts[0]) else {
                continue;
            };
            wrong[at].parts[0] = other;
            let explained = explain(Spec::default(), &[wrong]);
            assert!(
                explained.is_err(),
                "history {seed}: {other:?} in place of call {at}"
            );
        }
    }
}
