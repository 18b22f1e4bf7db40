//! How the keys that a sweep removes are dropped: once each, with no lock held, whatever they do.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::sync::catch_panic::Bomb;

/// A key that calls a function when it is dropped.
struct OnDrop<'a>(Box<dyn Fn() + 'a>);

fn on_drop<'a>(f: impl Fn() + 'a) -> OnDrop<'a> {
    OnDrop(Box::new(f))
}

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn count(calls: &Cell<usize>) {
    calls.set(calls.get() + 1);
}

#[test]
fn every_key_is_dropped_once_whatever_its_state() {
    let drops = Cell::new(0);
    let key = || on_drop(|| count(&drops));
    let keys = keys();
    for number in 0..ROOM {
        work(insert(&keys, number, key()));
    }
    assert_eq!(drops.take(), 0);
    work(insert(&keys, 1000, key()));
    assert_eq!(drops.take(), ROOM, "by the adder that swept");
    let _queued = insert(&keys, 1001, key());
    let _processing = insert(&keys, 1002, key()).begin();
    keys.shrink();
    assert_eq!(drops.take(), 1);
    drop(keys);
    assert_eq!(drops.take(), 2);
}

#[test]
fn swept_keys_are_dropped_with_every_shard_unlocked() {
    let keys = Rc::new(keys());
    let visits = Rc::new(Cell::new(0));
    let key = || {
        let (keys, visits) = (Rc::downgrade(&keys), Rc::clone(&visits));
        on_drop(move || {
            if let Some(keys) = keys.upgrade() {
                // Deadlocks if a shard is locked now.
                keys.shards()
                    .for_each(|shard| assert!(shard.add(0, |_| false).is_none()));
                count(&visits);
            }
        })
    };
    for number in 0..=ROOM {
        work(insert(&keys, number, key()));
    }
    assert_eq!(visits.take(), ROOM, "by an adder's sweep");
    keys.shrink();
    assert_eq!(visits.take(), 1, "by a shrink");
    burst(&keys, 2 * ROOM, |_| key());
    look(&keys, 0);
    assert_eq!(visits.take(), 2 * ROOM, "by an idle consumer's sweep");
}

// C10: a thread that waits looks again although another one makes a pass just then. That one may
// never come back.
#[test]
fn a_thread_that_goes_to_sleep_during_a_pass_looks_again() {
    let keys = keys::<usize>();
    burst(&keys, 2 * ROOM, |number| number);
    let pass = keys.next.lock();
    assert_eq!(keys.next_look(|| 5), Some(5 + REST));
    drop(pass);
    assert_eq!(keys.next_look(|| 5), Some(0));
}

#[test]
fn a_panicking_drop_takes_no_other_key_with_it() {
    let drops = Cell::new(0);
    let key = |panics| {
        let drops = &drops;
        on_drop(move || {
            count(drops);
            if panics {
                std::panic::panic_any(Bomb);
            }
        })
    };
    let keys = keys();
    // Several in one sweep, so that a second panic meets the first.
    for number in 0..ROOM {
        work(insert(&keys, number, key(number % 40 == 0)));
    }
    work(insert(&keys, 1000, key(true)));
    assert_eq!(drops.take(), ROOM);
    keys.shrink();
    assert_eq!(drops.take(), 1);
    // The table still works.
    work(insert(&keys, 1, key(true)));
    work(insert(&keys, 2, key(false)));
    drop(keys);
    assert_eq!(drops.take(), 2);
}
