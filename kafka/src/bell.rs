//! Wakes the driver.
//!
//! # Protocol
//!
//! The driver clears `rung`, looks at everything, and parks if `rung` is still false. A thread that changed something sets `rung`
//! after the change, and unparks the driver if it was false. So a change is either seen by the look, or ends the park.
//! librdkafka's callbacks can miss a message (rust-rdkafka 535), so each park has a limit.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    driver: OnceLock<Thread>,
}

impl Bell {
    /// Called by the driver, once.
    pub(crate) fn answer(&self) {
        _ = self.driver.set(thread::current());
    }

    pub(crate) fn ring(&self) {
        // Ordering: AcqRel; the Release half pairs with the Acquire half in `clear`: what was done before is seen by the look.
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(driver) = self.driver.get()
        {
            driver.unpark();
        }
    }

    /// Called by the driver before it looks at what there is.
    pub(crate) fn clear(&self) {
        // Ordering: AcqRel; the Acquire half pairs with the Release half in `ring`.
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// Called by the driver when there was nothing.
    pub(crate) fn wait(&self, limit: Duration) {
        // Ordering: Acquire; as in `clear`. If it is set after this, the park ends.
        if !self.rung.load(Ordering::Acquire) {
            thread::park_timeout(limit);
        }
    }
}
