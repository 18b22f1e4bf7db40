//! Waiting, in a scenario, for something that a worker will have done.

use std::sync::PoisonError;

use shuttle::sync::{Condvar, Mutex};

/// Rung whenever something may have changed.
#[derive(Default, Debug)]
pub struct Bell {
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Bell {
    /// To be called after the change.
    pub fn ring(&self) {
        drop(self.mutex.lock());
        self.condvar.notify_all();
    }

    /// Waits until `done`, which is asked after each ring.
    pub fn wait_until(&self, done: impl Fn() -> bool) {
        let mut guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        while !done() {
            let woken = self.condvar.wait(guard);
            guard = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
