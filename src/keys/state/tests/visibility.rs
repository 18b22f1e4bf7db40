//! What the word of a key makes visible by itself, without a queue, for Miri with many seeds.
//!
//! `tests/visibility/` tests the same promises for a whole queue. There, an add ends with the
//! fence of a notification, and a delivery begins with one. In Miri these fences acquire what the
//! add itself should have acquired, unless the delivery begins in the few steps between.

use std::cell::UnsafeCell;

use super::*;
use crate::sync::atomic::AtomicBool;

/// Data that only the state protects.
#[derive(Default)]
struct Plain(UnsafeCell<u64>);

// SAFETY: the tests check that the state orders all accesses.
unsafe impl Sync for Plain {}

impl Plain {
    fn write(&self, value: u64) {
        // SAFETY: as above.
        unsafe { *self.0.get() = value }
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        unsafe { *self.0.get() }
    }
}

/// Signals another thread without ordering anything.
#[derive(Default)]
struct Flag(AtomicBool);

impl Flag {
    fn raise(&self) {
        // Ordering: Relaxed; only the state may order accesses.
        self.0.store(true, Ordering::Relaxed);
    }

    fn wait(&self) {
        // Ordering: Relaxed; as in `raise`.
        while !self.0.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
}

// C3 C5: one thread processes the key, another adds it, a third gets the next delivery.
#[test]
fn an_add_of_an_idle_key_hands_on_what_the_last_worker_did() {
    for add in [KeyState::add_locked, KeyState::add_pinned] {
        let state = state(bits(Phase::Processing));
        let data = Plain::default();
        let [begun, idle, queued]: [Flag; 3] = Default::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                data.write(1);
                assert_eq!(state.finish(), (Phase::Idle, false));
                idle.raise();
            });
            scope.spawn(|| {
                idle.wait();
                assert_eq!(add(&state), Marked::Queued);
                queued.raise();
            });
            scope.spawn(|| {
                queued.wait();
                state.begin();
                assert_eq!(data.read(), 1);
            });
            // Only now: a thread that is started after another's end may be ordered after it.
            begun.raise();
        });
    }
}
