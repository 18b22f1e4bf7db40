//! Those who add plain keys.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use keyqueue::KeyHandle;

use crate::key::Numbered;
use crate::ledger::Counts;
use crate::life::Life;
use crate::plan::Adding;

// Ordering: Relaxed everywhere here; see `ledger.rs`.
const R: Ordering = Ordering::Relaxed;

/// Handles that one producer holds.
const HANDLES: usize = 256;

/// Only with up to this many keys is the queue looked through while others work.
const SNAPSHOT: usize = 1_000;

/// Keys in a bulk.
const BULK: usize = 24;

/// Adds random keys until stopped or refused.
pub(crate) fn produce(life: &Life, adding: Adding) {
    let keys = life.ledger.plain;
    let handles: Vec<KeyHandle<Numbered>> = match adding {
        Adding::Handle => (0..keys.min(HANDLES) as u64)
            .map(|key| life.queue.handle(life.name(key)))
            .collect(),
        _ => Vec::new(),
    };
    let mut counts = Counts::default();
    let mut left = life.plan.bout;
    while !life.is_stopped() {
        let open = match adding {
            Adding::Bulk => add_bulk(life, &mut counts),
            _ if life.plan.mixed && fastrand::u8(..) < 16 => meddle(life, &mut counts),
            _ => add_one(life, adding, &handles, &mut counts),
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
    life.ledger.count(&counts);
}

fn add_one(
    life: &Life,
    adding: Adding,
    handles: &[KeyHandle<Numbered>],
    counts: &mut Counts,
) -> bool {
    let known = match adding {
        Adding::Handle => handles.len(),
        _ => life.ledger.plain,
    };
    let number = fastrand::u64(..known as u64);
    let key = life.ledger.key(number);
    let version = key.version.fetch_add(1, R) + 1;
    let added = match adding {
        Adding::AddRef => life.queue.add_ref(&life.name(number)),
        Adding::Handle => handles[number as usize].add(),
        Adding::NewHandle => life.queue.handle(life.name(number)).add(),
        Adding::Add | Adding::Bulk => life.queue.add(life.name(number)),
    };
    let open = counts.note(added);
    if open {
        key.accepted.fetch_max(version, R);
    }
    open
}

fn add_bulk(life: &Life, counts: &mut Counts) -> bool {
    let keys: Vec<_> = (0..BULK)
        .map(|_| fastrand::u64(..life.ledger.plain as u64))
        .collect();
    let raise = |&key: &u64| (key, life.ledger.key(key).version.fetch_add(1, R) + 1);
    let raised: Vec<_> = keys.iter().map(raise).collect();
    let queued = life
        .queue
        .add_all(keys.into_iter().map(|key| life.name(key)));
    counts.adds += BULK as u64;
    counts.owed += queued as u64;
    counts.perhaps += (BULK - queued) as u64;
    // If the queue was shut down under the bulk, it does not say which keys were refused.
    if life.queue.is_shutting_down() {
        return false;
    }
    for (key, version) in raised {
        life.ledger.key(key).accepted.fetch_max(version, R);
    }
    true
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

/// Something else than an add: none of it may disturb an add.
fn meddle(life: &Life, counts: &mut Counts) -> bool {
    let number = fastrand::u64(..life.ledger.plain as u64);
    let delay = Duration::from_micros(fastrand::u64(1..20_000));
    match fastrand::u8(..64) {
        0..16 => return counts.note(life.queue.add_after(life.name(number), delay)),
        16..24 => return counts.note(life.queue.add_rate_limited(life.name(number))),
        24..32 => return counts.note(life.queue.handle(life.name(number)).add_after(delay)),
        32..48 => counts.cancels += u64::from(life.queue.cancel(&number)),
        48..58 => life.queue.forget(&life.name(number)),
        58 => _ = life.queue.num_requeues(&life.name(number)),
        59 => _ = life.queue.fire_due(),
        60 => _ = life.queue.len(),
        61 => _ = life.queue.is_empty(),
        62 if life.ledger.plain <= SNAPSHOT => check_snapshot(life),
        _ => life.queue.shrink(),
    }
    true
}
