//! What concurrent threads see of a queue can be explained by one that has no threads (C1 to C12,
//! D3 to D6, S1, S2, S5).
//!
//! Thousands of small histories: three threads with six calls each over three or four keys, so that
//! they meet. `KEYQUEUE_HISTORIES` sets how many; the default takes seconds.

use keyqueue_model::linear::{Call, Do, Via, explain};
use keyqueue_model::recorded::{self, Flaw};
use keyqueue_model::{Setup, Spread};

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
fn record(seed: u64, flaw: Option<Flaw>) -> Vec<Vec<Call>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = random.u8(1..=4);
    let setup = any_setup(&mut random);
    let programs =
        [(); THREADS].map(|()| (0..CALLS).map(|_| any_call(&mut random, keys)).collect());
    recorded::run(setup, &programs, flaw)
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
        let history = record(seed, None);
        overlapping += u64::from(overlaps(&history));
        match explain(&history) {
            Ok(seen) => states += seen,
            Err(unexplained) => panic!("history {seed}:\n{unexplained:?}"),
        }
    }
    println!(
        "{histories} histories, {overlapping} with overlapping calls, {states} states searched"
    );
    assert!(overlapping > 0, "no two calls ever overlapped");
}

#[test]
fn a_flaw_of_any_kind_cannot_be_explained() {
    for &flaw in Flaw::ALL {
        let caught = (0..2_000).find(|seed| explain(&record(*seed, Some(flaw))).is_err());
        let caught = caught.unwrap_or_else(|| panic!("{flaw:?} was never noticed"));
        println!("{flaw:?}: noticed in history {caught}");
    }
}
