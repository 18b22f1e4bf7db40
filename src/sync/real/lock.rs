//! A spin lock: one atomic read-modify-write locks it, a plain store unlocks it.
//!
//! A lock that can park its waiters pays for that even when it is not contended: to find out
//! whether a thread is parked, an unlock needs a second read-modify-write. On the machines
//! measured, each costs 2 to 5 ns, as much as the rest of the critical section. So here waiters
//! poll: they spin, then yield, then sleep for a short time and check again. Critical sections take
//! some tens of nanoseconds, and waiting is rare. A waiter may oversleep by up to [`NAP`], but it
//! sleeps only if the holder was preempted.
//!
//! [`lock_api`] adds the value and the guard. A panic of the holder unlocks, and leaves the value.

use std::time::Duration;

use crossbeam_utils::Backoff;
use lock_api::{GuardSend, RawMutex};

use super::atomic::{AtomicBool, Ordering};
use crate::sync::held;

/// How long a waiter sleeps at a time after it has spun and yielded in vain.
const NAP: Duration = Duration::from_micros(50);

/// How many pauses a waiter makes before its first look, and after each exchange that another one has won. A look takes
/// the line from the holder, who would use it for the next keys: without pauses, two threads take turns at every key.
const PAUSES: u32 = 32;

pub(crate) type SpinLock<T> = lock_api::Mutex<RawLock, T>;
pub(crate) type SpinLockGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

pub(crate) struct RawLock(AtomicBool);

// SAFETY: the swap that returns false is the only way to lock, and only the holder unlocks, so
// there is one holder at a time.
unsafe impl RawMutex for RawLock {
    const INIT: Self = RawLock(AtomicBool::new(false));

    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Ordering: Acquire; pairs with the Release in `unlock`.
        let locked = !self.0.swap(true, Ordering::Acquire);
        if locked {
            held::count(true);
        }
        locked
    }

    #[inline]
    unsafe fn unlock(&self) {
        held::count(false);
        // Ordering: Release; pairs with the Acquire in `try_lock`.
        self.0.store(false, Ordering::Release);
    }
}

impl RawLock {
    #[cold]
    fn lock_slow(&self) {
        let backoff = Backoff::new();
        loop {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            // Ordering: Relaxed; only checks whether an attempt is worthwhile.
            while self.0.load(Ordering::Relaxed) {
                if backoff.is_completed() {
                    std::thread::sleep(NAP);
                } else {
                    backoff.snooze();
                }
            }
            if self.try_lock() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaled::scaled;

    #[test]
    fn threads_take_turns_with_the_value() {
        const ROUNDS: usize = scaled(100_000);
        let locked = SpinLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *locked.lock() += 1));
            }
        });
        assert_eq!(*locked.lock(), 4 * ROUNDS);
    }
}
