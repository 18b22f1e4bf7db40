//! The specification that histories are checked against is the reference queue: whatever one thread
//! sees of the one, the other explains, and nothing else.

use keyqueue::{Added, TryGetError};
use keyqueue_model::limit::Span;
use keyqueue_model::linear::{Call, KEYS, Part, explain};
use keyqueue_model::{Naive, Setup};

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
        10 => vec![Part::Cancel(key, naive.delays.cancel(key))],
        11..15 => vec![match naive.get() {
            Ok(key) => {
                held.push(key);
                Part::Got(key)
            }
            Err(TryGetError::Empty) => Part::Empty,
            Err(TryGetError::ShutDown) => Part::Ended,
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
            // A millisecond, by powers of two.
            for bit in (0..20).filter(|bit| TICK & (1 << bit) != 0) {
                naive.delays.advance(Span {
                    times: 1,
                    shift: bit,
                });
            }
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
        Part::Cancel(key, was) => Part::Cancel(key, !was),
        Part::Got(key) => Part::Got((key + 1) % KEYS as u8),
        Part::Empty => Part::Ended,
        Part::Fired(count) => Part::Fired(count + 1),
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
        if let Err(unexplained) = explain(std::slice::from_ref(&history)) {
            panic!("history {seed}:\n{unexplained:?}");
        }
        for at in 0..history.len() {
            let mut wrong = history.clone();
            let Some(other) = another(wrong[at].parts[0]) else {
                continue;
            };
            wrong[at].parts[0] = other;
            let explained = explain(&[wrong]);
            assert!(
                explained.is_err(),
                "history {seed}: {other:?} in place of call {at}"
            );
        }
    }
}
