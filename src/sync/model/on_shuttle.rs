//! The base of the stand-ins under shuttle: many threads, random schedules.
//!
//! shuttle runs one thread at a time and switches before each access, and every access sees the
//! latest value: its memory is sequentially consistent, whatever ordering is given, and a fence
//! does nothing. So it finds no ordering that is too weak; loom does.

pub(crate) use shuttle::sync::{Mutex, MutexGuard};
pub(crate) use shuttle::thread::{JoinHandle, spawn, yield_now};

use std::sync::PoisonError;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Condvar;

pub(crate) mod atomic {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// A deadline passes after a random number of other threads' steps.
pub(crate) fn pass_time() {
    for _ in 0..thread_rng().gen_range(0..16) {
        yield_now();
    }
}

/// Lets one thread wait until another has notified it.
///
/// It does not use shuttle's `park`, which may return spuriously at every step: a thread that loops
/// around it would hardly ever be asleep, and the model would miss a lost wake-up.
pub(crate) struct Notify {
    notified: Mutex<bool>,
    condvar: Condvar,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Notify {
            notified: Mutex::new(false),
            condvar: Condvar::new(),
        }
    }

    fn notified(&self) -> MutexGuard<'_, bool> {
        self.notified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        *self.notified() = true;
        self.condvar.notify_one();
    }

    /// Waits for a notification, and consumes it.
    pub(crate) fn wait(&self) {
        let mut notified = self.notified();
        while !std::mem::take(&mut *notified) {
            let woken = self.condvar.wait(notified);
            notified = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
