//! What shuttle lacks. It runs many threads in random schedules.
//!
//! shuttle runs one thread at a time and switches before each access, and every access sees the
//! latest value: its memory is sequentially consistent, whatever ordering is given, and a fence
//! does nothing. So it finds no ordering that is too weak; loom does.

use std::sync::PoisonError;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::yield_now;

/// A deadline passes after a random number of other threads' steps.
pub(super) fn pass_time() {
    for _ in 0..thread_rng().gen_range(0..16) {
        yield_now();
    }
}

/// Lets one thread wait until another has notified it.
///
/// It does not use shuttle's `park`, which may return spuriously at every step: a thread that loops
/// around it would hardly ever be asleep, and the model would miss a lost wake-up.
pub(super) struct Notify {
    notified: Mutex<bool>,
    condvar: Condvar,
}

impl Notify {
    pub(super) fn new() -> Self {
        Notify {
            notified: Mutex::new(false),
            condvar: Condvar::new(),
        }
    }

    pub(super) fn notify(&self) {
        *self.notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condvar.notify_one();
    }

    /// Waits for a notification, and consumes it.
    pub(super) fn wait(&self) {
        let waiting = |notified: &mut bool| !std::mem::take(notified);
        let notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self.condvar.wait_while(notified, waiting);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
    }
}
