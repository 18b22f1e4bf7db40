//! A spin lock: one atomic read-modify-write locks it, a plain store unlocks it.
//!
//! A lock that can park its waiters pays for that even when it is not contended: to find out
//! whether a thread is parked, an unlock needs a second read-modify-write. On the machines
//! measured, each costs 2 to 5 ns, as much as the rest of the critical section. So here waiters
//! poll: they spin, then yield, then sleep for a short time and check again. Critical sections take
//! some tens of nanoseconds, and waiting is rare. A waiter may oversleep by up to [`NAP`], but it
//! sleeps only if the holder was preempted.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crossbeam_utils::Backoff;

use super::atomic::{AtomicBool, Ordering};

/// How long a waiter sleeps at a time after it has spun and yielded in vain.
const NAP: Duration = Duration::from_micros(50);

struct RawLock(AtomicBool);

impl RawLock {
    const fn new() -> Self {
        RawLock(AtomicBool::new(false))
    }

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Ordering: Acquire; pairs with the Release in `unlock`.
        !self.0.swap(true, Ordering::Acquire)
    }

    #[cold]
    fn lock_slow(&self) {
        let backoff = Backoff::new();
        loop {
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

    /// Unlocks. Only the holder may call this.
    #[inline]
    fn unlock(&self) {
        // Ordering: Release; pairs with the Acquire in `lock`.
        self.0.store(false, Ordering::Release);
    }
}

/// A value behind a spin lock. In memory it follows the lock: on the same cache line if it is
/// small, on its own lines if it is aligned to them. A panic of the holder unlocks, and leaves the
/// value as it is.
#[repr(C)]
pub(crate) struct SpinLock<T> {
    lock: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock accesses the value, one thread at a time, which may be any
// thread.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinLock {
            lock: RawLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinLockGuard<'_, T> {
        self.lock.lock();
        self.locked()
    }

    /// Returns `None` if the value is locked now.
    pub(crate) fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        self.lock.try_lock().then(|| self.locked())
    }

    #[inline]
    fn locked(&self) -> SpinLockGuard<'_, T> {
        SpinLockGuard {
            locked: self,
            _value: PhantomData,
        }
    }
}

/// Exclusive access to the value. Dropping the guard unlocks.
pub(crate) struct SpinLockGuard<'a, T> {
    locked: &'a SpinLock<T>,
    /// The guard acts as an exclusive reference, and is `Send` and `Sync` like one.
    _value: PhantomData<&'a mut T>,
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.locked.lock.unlock();
    }
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the lock's only holder, and `&self` allows no `&mut` meanwhile.
        unsafe { &*self.locked.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { &mut *self.locked.value.get() }
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

    #[test]
    fn an_attempt_fails_while_the_value_is_locked() {
        let locked = SpinLock::new(1);
        let guard = locked.lock();
        assert!(locked.try_lock().is_none());
        drop(guard);
        *locked.try_lock().unwrap() += 1;
        assert_eq!(*locked.lock(), 2);
    }

    #[test]
    fn a_holder_that_panics_unlocks() {
        let locked = SpinLock::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = locked.lock();
            panic!("as intended");
        }));
        assert!(panicked.is_err());
        assert_eq!(*locked.lock(), 1);
    }
}
