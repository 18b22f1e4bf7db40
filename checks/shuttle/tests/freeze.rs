//! F1, F2, F3: a thread that is stopped forever inside an operation keeps no other thread from completing its own.
//!
//! *What is frozen.* One thread, the victim, performs one operation, and is frozen before each of its
//! steps in turn (`src/freezer.rs`).
//!
//! *What must complete.* Two other threads go on: `try_get` of a key and of nothing, `done` of a clean and of a dirty
//! key, `KeyHandle::add` of an idle, a queued and a processing key, and `add`, the add of an
//! `entry_ref` and (of a bounded queue) refused adds of known and new keys; but while the victim may hold a shard's lock,
//! only of keys of another shard (F2). What they add is delivered, too, before the victim goes on (unless it was frozen among them, and may hold one of their
//! keys). Then it goes on, and in the end every add was delivered, and once (C2 to C6).
//!
//! *What is not covered.* Rings without room, getters that have to be woken, adds that wait for room, delays, shutting
//! down, and reports of metrics: these take locks, and so do levels and groups. The shards' lock is a stand-in
//! (`src/sync/model/mod.rs`).
#![cfg(keyqueue_shuttle)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyqueue::{Added, Clock, KeyHandle};
use keyqueue_shuttle_tests::Caller::{self, Aside, Other, Victim};
use keyqueue_shuttle_tests::{
    Delivery, Key, Ledger, Queue, Spread, Spreading, Stage, freeze, queue,
};
use shuttle::sync::Arc;

/// How often each of the others performs everything.
const ROUNDS: u64 = 4;

#[derive(Clone, Copy)]
struct Setting {
    ring: usize,
    /// Whether the others add by key, too. If not, the queue's only adds are those of handles, and the victim's.
    by_key: bool,
    /// Whether the others run before the freeze, too. If not, the victim runs alone until then.
    mixed: bool,
    /// Whether a `try_get` of nothing finds idle keys to sweep, in the victim's shard.
    crowded: bool,
    timed: bool,
    /// Handles and plain adds exceed it, so that some adds that keep it are refused.
    capacity: Option<usize>,
}

const PLAIN: Setting = Setting {
    ring: 16,
    by_key: false,
    mixed: false,
    crowded: false,
    timed: false,
    capacity: None,
};

const BOUNDED: Setting = Setting {
    by_key: true,
    capacity: Some(4),
    ..PLAIN
};

const SETTINGS: [Setting; 12] = [
    PLAIN,
    // The ring wraps around many times while the victim is frozen.
    Setting { ring: 2, ..PLAIN },
    Setting { ring: 4, ..PLAIN },
    Setting {
        timed: true,
        ..PLAIN
    },
    Setting {
        by_key: true,
        ..PLAIN
    },
    Setting {
        mixed: true,
        ..PLAIN
    },
    Setting {
        by_key: true,
        mixed: true,
        ..PLAIN
    },
    Setting {
        crowded: true,
        ring: 64,
        ..PLAIN
    },
    Setting { ..BOUNDED },
    Setting {
        ring: 2,
        by_key: false,
        ..BOUNDED
    },
    Setting {
        mixed: true,
        ..BOUNDED
    },
    // Hardly anything has room.
    Setting {
        ring: 4,
        timed: true,
        capacity: Some(1),
        ..BOUNDED
    },
];

/// The victim's keys, in the shard of the even ones: one with a handle, one that is known, and one
/// that is new.
const PINNED: u64 = 0;
const KNOWN: u64 = 4;
const NEW: u64 = 6;
/// The others' keys: 1 and 2 have handles, and from here on, two are known and the next are new.
const FIRST: u64 = 8;
/// Those that are swept are every fourth from here on, with the hash of `NEW`.
const IDLE: u64 = FIRST + 2 + 4 * ROUNDS;

#[derive(Clone, Copy)]
enum By {
    Handle,
    Key,
    Ref,
    /// If there is room.
    Try,
}

use By::Handle;

struct Place {
    handles: [KeyHandle<Key>; 3],
    queue: Arc<Queue>,
    ledger: Ledger,
    stage: Stage,
    mixed: bool,
    /// How many of the others have ended.
    ended: AtomicUsize,
}

impl Place {
    fn new(setting: Setting, stage: &Stage) -> Self {
        // With 256 shards, a shard is crowded from 33 keys on.
        let (shards, idle) = if setting.crowded { (256, 40) } else { (2, 0) };
        let queue = queue(setting.ring, |builder| {
            // Keys are in the shard of their lowest bit, and those of one hash in one of 256.
            let builder = builder.hasher(Spreading(Spread::FourHashes)).shards(shards);
            let builder = builder.clock(Clock::mock().0).timing(setting.timed);
            match setting.capacity {
                Some(capacity) => builder.capacity(capacity),
                None => builder,
            }
        });
        let ledger = Ledger::new(IDLE + 4 * idle, true);
        let place = Place {
            handles: [PINNED, 1, 2].map(|number| queue.handle(ledger.key(number))),
            queue,
            ledger,
            stage: stage.clone(),
            mixed: setting.mixed,
            ended: AtomicUsize::new(0),
        };
        // While they are all queued, the adder sweeps none of them.
        (0..idle).for_each(|nth| place.add(Aside, By::Key, IDLE + 4 * nth));
        (0..idle).for_each(|_| place.finish(Aside, place.get(Aside).expect("it is queued")));
        for number in [KNOWN, FIRST, FIRST + 1] {
            place.finish(Aside, place.begin(By::Key, number));
        }
        place
    }

    fn add(&self, caller: Caller, by: By, number: u64) {
        let key = self.ledger.key(number);
        let name = match by {
            Handle => "handle.add",
            By::Key => "add",
            By::Ref => "entry_ref",
            By::Try => "try_add",
        };
        let add = || match by {
            Handle => self.handles[number as usize].add(),
            By::Key => self.queue.add(key),
            By::Ref => self.queue.entry_ref(&key).add(),
            // For the ledger, an add without room is one that was refused.
            By::Try => self.queue.entry(key).try_add().unwrap_or(Added::ShutDown),
        };
        self.ledger
            .add(number, || self.stage.call(caller, name, add));
    }

    fn get(&self, caller: Caller) -> Option<Delivery<'_>> {
        let item = self.stage.call(caller, "try_get", || self.queue.try_get());
        item.ok().inspect(|item| self.ledger.begin(item.number))
    }

    fn finish(&self, caller: Caller, item: Delivery<'_>) {
        self.ledger.end(item.number);
        self.stage.call(caller, "done", || item.done());
    }

    fn finish_all(&self, caller: Caller) {
        while let Some(item) = self.get(caller) {
            self.finish(caller, item);
        }
    }

    /// Makes a key processing, before the others run.
    fn begin(&self, by: By, number: u64) -> Delivery<'_> {
        self.add(Aside, by, number);
        self.get(Aside).expect("it is queued")
    }

    /// What one of the others does. It adds by key to the shards of these parities.
    fn work(&self, which: usize, own: u64, parities: &[u64]) {
        let me = Other(which);
        for round in 0..ROUNDS {
            // An idle key, and a queued one.
            self.add(me, Handle, own);
            self.add(me, Handle, own);
            if let Some(item) = self.get(me) {
                let has_handle = (item.number as usize) < self.handles.len();
                self.add(me, Handle, if has_handle { item.number } else { own });
                self.finish(me, item);
            }
            for parity in parities {
                let new = FIRST + 2 + 4 * round + 2 * which as u64 + parity;
                let by = [By::Key, By::Ref, By::Try];
                by.into_iter()
                    .for_each(|by| self.add(me, by, FIRST + parity));
                self.add(me, [By::Try, By::Key, By::Ref][round as usize % 3], new);
            }
            self.finish_all(me);
        }
        let is_last = self.ended.fetch_add(1, Ordering::Relaxed) == 1;
        if is_last && !self.mixed {
            self.finish_all(me);
            let others = (0..IDLE).filter(|number| ![PINNED, KNOWN, NEW].contains(number));
            let held_up: Vec<_> = others
                .filter(|key| !self.ledger.is_key_served(*key))
                .collect();
            assert!(
                held_up.is_empty(),
                "F1: the victim holds up the keys {held_up:?}"
            );
        }
    }
}

/// Freezes `victim` in every setting, and fails if that keeps the others from going on. They add by key to the shards
/// of these parities.
fn check(parities: &'static [u64], victim: fn(&Place)) {
    let mut failures = BTreeSet::new();
    for setting in SETTINGS {
        // If the victim runs alone, only what comes after the freeze depends on the seed.
        let seeds = if setting.mixed { 32 } else { 4 };
        let found = freeze(setting.mixed, seeds, move |stage| {
            let place = Place::new(setting, stage);
            let parities = if setting.by_key { parities } else { &[] };
            // A ring of two has room for the victim's key and one more.
            let own = |which| 1 + which as u64 % (setting.ring as u64 / 2);
            let other = |which| place.work(which, own(which), parities);
            stage.run(|| victim(&place), other);
            place.finish_all(Aside);
            place.ledger.check();
        });
        failures.extend(found);
    }
    for failure in &failures {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "F3: a frozen thread stops others");
}

/// All shards, for a victim that holds none.
const ALL: &[u64] = &[0, 1];
/// The shard of the odd keys, for a victim that may hold the other one.
const ODD: &[u64] = &[1];

#[test]
fn a_frozen_try_get_of_a_key_stops_no_other_thread() {
    check(ALL, |place| {
        place.add(Aside, Handle, PINNED);
        if let Some(item) = place.get(Victim) {
            place.finish(Aside, item);
        }
    });
}

#[test]
fn a_frozen_try_get_of_nothing_stops_no_other_thread() {
    check(ALL, |place| {
        if let Some(item) = place.get(Victim) {
            place.finish(Aside, item);
        }
    });
}

#[test]
fn a_frozen_done_of_a_clean_key_stops_no_other_thread() {
    check(ALL, |place| {
        place.finish(Victim, place.begin(Handle, PINNED));
    });
}

#[test]
fn a_frozen_done_of_a_dirty_key_stops_no_other_thread() {
    check(ALL, |place| {
        let item = place.begin(Handle, PINNED);
        place.add(Aside, Handle, PINNED);
        place.finish(Victim, item);
    });
}

#[test]
fn a_frozen_add_by_handle_of_an_idle_key_stops_no_other_thread() {
    check(ALL, |place| place.add(Victim, Handle, PINNED));
}

#[test]
fn a_frozen_add_by_handle_of_a_queued_key_stops_no_other_thread() {
    check(ALL, |place| {
        place.add(Aside, Handle, PINNED);
        place.add(Victim, Handle, PINNED);
    });
}

#[test]
fn a_frozen_add_by_handle_of_a_processing_key_stops_no_other_thread() {
    check(ALL, |place| {
        let item = place.begin(Handle, PINNED);
        place.add(Victim, Handle, PINNED);
        place.finish(Aside, item);
    });
}

#[test]
fn a_frozen_add_of_a_known_key_stops_only_adds_to_its_shard() {
    check(ODD, |place| place.add(Victim, By::Key, KNOWN));
    check(ODD, |place| place.add(Victim, By::Ref, KNOWN));
    check(ODD, |place| place.add(Victim, By::Try, KNOWN));
}

#[test]
fn a_frozen_add_of_a_new_key_stops_only_adds_to_its_shard() {
    check(ODD, |place| place.add(Victim, By::Key, NEW));
    check(ODD, |place| place.add(Victim, By::Ref, NEW));
    check(ODD, |place| place.add(Victim, By::Try, NEW));
}
