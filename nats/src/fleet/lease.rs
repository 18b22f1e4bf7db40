//! The lease of this replica, as its workers see it: until when a delivery may begin.
//!
//! The driver writes it after each renewal; workers compare it with the clock before each delivery,
//! so a process that was stopped for longer than its lease begins nothing when it wakes, whether the
//! driver has run again or not.

use std::time::Instant;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::ownership::Time;

pub(crate) struct Lease {
    start: Instant,
    until: watch::Sender<Time>,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Lease {
            start: Instant::now(),
            until: watch::Sender::new(Time::ZERO),
        }
    }

    /// The replica's monotonic clock: the time since the lease was created.
    pub(crate) fn now(&self) -> Time {
        self.start.elapsed()
    }

    /// Sets until when deliveries may begin.
    pub(crate) fn set(&self, until: Time) {
        self.until.send_if_modified(|old| {
            let changed = *old != until;
            *old = until;
            changed
        });
    }

    /// Returns until when deliveries may begin.
    pub(crate) fn until(&self) -> Time {
        *self.until.borrow()
    }

    /// Returns whether a delivery may begin now.
    pub(crate) fn holds(&self) -> bool {
        self.now() < self.until()
    }

    /// Waits until deliveries may begin.
    pub(crate) async fn held(&self) {
        let mut until = self.until.subscribe();
        while !self.holds() {
            // The sender is in `self`.
            let _ = until.changed().await;
        }
    }

    /// Waits until no delivery may begin.
    pub(crate) async fn lapsed(&self) {
        let mut until = self.until.subscribe();
        loop {
            let end = *until.borrow_and_update();
            let Some(left) = end.checked_sub(self.now()).filter(|left| !left.is_zero()) else {
                return;
            };
            tokio::select! {
                () = sleep(left) => {}
                _ = until.changed() => {}
            }
        }
    }
}
