//! Producers of plain keys.

use std::thread;
use std::time::Duration;

use keyqueue::{Added, KeyHandle};
use keyqueue_model::ledger::Key;

use crate::life::Life;
use crate::plan::Adding;

/// Handles that one producer holds.
const HANDLES: u64 = 256;

/// Only with up to this many keys is the queue looked through while others work.
const SNAPSHOT: u64 = 1_000;

/// Keys in a bulk.
const BULK: usize = 24;

/// Adds random keys until stopped or refused.
pub(crate) fn produce(life: &Life, adding: Adding) {
    let handles: Vec<KeyHandle<Key>> = match adding {
        Adding::Handle => (0..life.plan.keys.min(HANDLES))
            .map(|number| life.queue.handle(life.ledger.key(number)))
            .collect(),
        _ => Vec::new(),
    };
    let mut left = life.plan.bout;
    for _ in 0..life.plan.adds.unwrap_or(u64::MAX) {
        if life.is_stopped() {
            break;
        }
        let open = match adding {
            Adding::Bulk => add_bulk(life),
            _ if life.plan.mixed && fastrand::u8(..) < 16 => meddle(life),
            _ => add_one(life, adding, &handles),
        };
        if !open {
            break;
        }
        left -= 1;
        if left == 0 {
            left = life.plan.bout;
            thread::sleep(Duration::from_micros(fastrand::u64(1..500)));
        }
    }
}

fn add_one(life: &Life, adding: Adding, handles: &[KeyHandle<Key>]) -> bool {
    let known = match adding {
        Adding::Handle => handles.len() as u64,
        _ => life.plan.keys,
    };
    let number = fastrand::u64(..known);
    let key = life.ledger.key(number);
    let added = life.ledger.add(number, || match adding {
        Adding::AddRef => life.queue.add_ref(&key),
        Adding::Handle => handles[number as usize].add(),
        Adding::NewHandle => life.queue.handle(key).add(),
        Adding::Add | Adding::Bulk => life.queue.add(key),
    });
    added.is_accepted()
}

fn add_bulk(life: &Life) -> bool {
    let numbers = [(); BULK].map(|()| fastrand::u64(..life.plan.keys));
    life.ledger.add_all(&life.queue, &numbers)
}

/// C3, C5: at a moment a key is in one state.
fn check_snapshot(life: &Life) {
    let keys = life.queue.snapshot();
    let mut numbers: Vec<u64> = keys.iter().map(|key| key.key().number).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "a snapshot has a key twice");
}

/// Something else than an add: none of it may disturb an add. False if the queue is shut down.
fn meddle(life: &Life) -> bool {
    let Life { ledger, queue, .. } = life;
    let number = fastrand::u64(..life.plan.keys);
    let key = ledger.key(number);
    let delay = Duration::from_micros(fastrand::u64(1..20_000));
    let count = |added: Added| {
        ledger.count(number, added);
        added.is_accepted()
    };
    match fastrand::u8(..64) {
        0..16 => return count(queue.add_after(key, delay)),
        16..24 => return count(queue.add_rate_limited(key)),
        24..32 => return count(queue.handle(key).add_after(delay)),
        32..48 => _ = queue.cancel(&number),
        48..58 => queue.forget(&key),
        58 => _ = queue.num_requeues(&key),
        59 => _ = queue.fire_due(),
        60 => _ = queue.len(),
        61 => _ = queue.is_empty(),
        62 if life.plan.keys <= SNAPSHOT => check_snapshot(life),
        _ => queue.shrink(),
    }
    true
}
