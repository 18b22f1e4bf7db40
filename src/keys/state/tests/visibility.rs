//! What the word of a key makes visible by itself, without a queue, for Miri with many seeds.
//!
//! `tests/visibility/` tests the same promises for a whole queue. There, an add ends with the
//! fence of a notification, and a delivery begins with one. In Miri these fences acquire what the
//! add itself should have acquired, unless the delivery begins in the few steps between.

use std::cell::UnsafeCell;
use std::thread;

use super::*;
use crate::sync::atomic::AtomicBool;

/// Data that only the state protects.
#[derive(Default)]
struct Plain(UnsafeCell<u64>);

// SAFETY: the test checks that the state orders all accesses.
unsafe impl Sync for Plain {}

impl Plain {
    fn get(&self) -> *mut u64 {
        self.0.get()
    }
}

/// Waits until another thread has set the flag, which orders nothing.
fn wait(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        thread::yield_now();
    }
}

// C3 C5: one thread processes the key, another adds it, a third gets the next delivery.
#[test]
fn an_add_of_an_idle_key_hands_on_what_the_last_worker_did() {
    for add in [KeyState::add_locked, KeyState::add_pinned] {
        let state = state(bits(State::Processing));
        let data = Plain::default();
        let [begun, idle, queued]: [AtomicBool; 3] = Default::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                wait(&begun);
                // SAFETY: as for `Sync`.
                unsafe { *data.get() = 1 };
                assert_eq!(state.finish(), (State::Idle, false));
                idle.store(true, Ordering::Relaxed);
            });
            scope.spawn(|| {
                wait(&idle);
                assert_eq!(add(&state), Marked::Queued);
                queued.store(true, Ordering::Relaxed);
            });
            scope.spawn(|| {
                wait(&queued);
                state.begin();
                // SAFETY: as for `Sync`.
                assert_eq!(unsafe { *data.get() }, 1);
            });
            // Only now: a thread that is started after another's end may be ordered after it.
            begun.store(true, Ordering::Relaxed);
        });
    }
}
