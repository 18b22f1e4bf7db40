//! How the keys that a sweep removes are dropped: once each, with no lock held, whatever they do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::*;
use crate::wait::catch_panic::Bomb;

/// Counts its drops, and panics in them if configured to.
struct Counted {
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            std::panic::panic_any(Bomb);
        }
    }
}

#[test]
fn every_key_is_dropped_once_whatever_its_state() {
    let drops = Arc::new(AtomicUsize::new(0));
    let key = || Counted {
        drops: Arc::clone(&drops),
        panics: false,
    };
    let keys = keys();
    let dropped = || drops.load(Ordering::Relaxed);
    for number in 0..ROOM {
        work(insert(&keys, number, key()));
    }
    assert_eq!(dropped(), 0);
    work(insert(&keys, 1000, key()));
    assert_eq!(dropped(), ROOM, "by the adder that swept");
    let _queued = insert(&keys, 1001, key());
    let _processing = insert(&keys, 1002, key()).begin();
    keys.shrink();
    assert_eq!(dropped(), ROOM + 1);
    drop(keys);
    assert_eq!(dropped(), ROOM + 3);
}

#[test]
fn an_adder_drops_what_it_swept_when_it_likes() {
    let drops = Arc::new(AtomicUsize::new(0));
    let key = || Counted {
        drops: Arc::clone(&drops),
        panics: false,
    };
    let keys = keys();
    for number in 0..ROOM {
        work(insert(&keys, number, key()));
    }
    let mut shard = keys.lock(1000);
    let (entry, swept) = shard.insert_queued(1000, key());
    assert_eq!(drops.load(Ordering::Relaxed), 0, "dropped under the lock");
    drop(shard);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(swept);
    assert_eq!(drops.load(Ordering::Relaxed), ROOM);
    work(entry);
}

/// A key that, when it is dropped, uses the table it was in.
struct Nosy {
    keys: Weak<Keys<Nosy>>,
    visits: Arc<AtomicUsize>,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(keys) = self.keys.upgrade() {
            // Deadlocks if a shard is locked now.
            keys.shards()
                .for_each(|shard| assert!(shard.add(0, |_| false).is_none()));
            self.visits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn swept_keys_are_dropped_with_every_shard_unlocked() {
    let keys = Arc::new(keys());
    let visits = Arc::new(AtomicUsize::new(0));
    let key = || Nosy {
        keys: Arc::downgrade(&keys),
        visits: Arc::clone(&visits),
    };
    let visited = || visits.swap(0, Ordering::Relaxed);
    for number in 0..=ROOM {
        work(insert(&keys, number, key()));
    }
    assert_eq!(visited(), ROOM, "by an adder's sweep");
    keys.shrink();
    assert_eq!(visited(), 1, "by a shrink");
    let entries: Vec<_> = (0..2 * ROOM)
        .map(|number| insert(&keys, number, key()))
        .collect();
    entries.into_iter().for_each(work);
    look(&keys, 0);
    assert_eq!(visited(), 2 * ROOM, "by an idle consumer's sweep");
}

/// A key that, when it is dropped, notes when a thread would look again that is about to wait.
struct Waits {
    keys: Weak<Keys<Waits>>,
    looks: Arc<Mutex<Vec<Option<u64>>>>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(keys) = self.keys.upgrade() {
            let look = keys.next_look(|| 5);
            self.looks.lock().expect("nothing panics").push(look);
        }
    }
}

// C10: a thread that waits looks again although another one makes a pass just then. That one may
// never come back.
#[test]
fn a_thread_that_goes_to_sleep_during_a_pass_looks_again() {
    let keys = Arc::new(keys());
    let looks = Arc::new(Mutex::new(Vec::new()));
    let key = || Waits {
        keys: Arc::downgrade(&keys),
        looks: Arc::clone(&looks),
    };
    let entries: Vec<_> = (0..2 * ROOM)
        .map(|number| insert(&keys, number, key()))
        .collect();
    entries.into_iter().for_each(work);
    look(&keys, 0);
    let looks = std::mem::take(&mut *looks.lock().expect("nothing panics"));
    assert_eq!(looks, [Some(5 + REST)].repeat(2 * ROOM));
}

#[test]
fn a_panicking_drop_takes_no_other_key_with_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let key = |panics| Counted {
        drops: Arc::clone(&drops),
        panics,
    };
    let dropped = || drops.swap(0, Ordering::Relaxed);
    let keys = keys();
    // Several in one sweep, so that a second panic meets the first.
    for number in 0..ROOM {
        work(insert(&keys, number, key(number % 40 == 0)));
    }
    work(insert(&keys, 1000, key(true)));
    assert_eq!(dropped(), ROOM);
    keys.shrink();
    assert_eq!(dropped(), 1);
    // The table still works.
    work(insert(&keys, 1, key(true)));
    work(insert(&keys, 2, key(false)));
    drop(keys);
    assert_eq!(dropped(), 2);
}
