//! The lock of one shard: taken by one atomic read-modify-write, given back by a plain store.
//!
//! An uncontended lock that can park its waiters pays for that when it is given back, too: the
//! store must tell it whether somebody sleeps, which takes a second read-modify-write. On the
//! machines this was measured on each costs 2 to 5 ns, as much as all the rest of the critical
//! section, so here waiters look after themselves: they spin, then yield, then sleep for a short
//! time and look again. Critical sections are some tens of nanoseconds long, and waiting is rare;
//! that a waiter may oversleep by [`NAP`] matters only when the holder was preempted.

use std::time::Duration;

use crossbeam_utils::Backoff;

use super::atomic::{AtomicBool, Ordering};

/// How long a waiter sleeps at a time once spinning and yielding have not helped.
const NAP: Duration = Duration::from_micros(50);

pub(super) struct ShardLock(AtomicBool);

impl ShardLock {
    pub(super) const fn new() -> Self {
        ShardLock(AtomicBool::new(false))
    }

    #[inline]
    pub(super) fn lock(&self) {
        // Ordering: Acquire; pairs with the Release in `unlock`.
        if self.0.swap(true, Ordering::Acquire) {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        let backoff = Backoff::new();
        loop {
            // Ordering: Relaxed; only a look whether trying is worth while.
            while self.0.load(Ordering::Relaxed) {
                if backoff.is_completed() {
                    std::thread::sleep(NAP);
                } else {
                    backoff.snooze();
                }
            }
            // Ordering: Acquire; pairs with the Release in `unlock`.
            if !self.0.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }

    /// Gives the lock back. Only its holder may call this.
    #[inline]
    pub(super) fn unlock(&self) {
        // Ordering: Release; pairs with the Acquire in `lock`.
        self.0.store(false, Ordering::Release);
    }
}
