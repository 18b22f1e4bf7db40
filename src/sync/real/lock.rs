//! The lock of one shard: taken by one atomic read-modify-write, given back by a plain store.
//!
//! An uncontended lock that can park its waiters pays for that when it is given back, too: the
//! store must tell it whether somebody sleeps, which takes a second read-modify-write. On the
//! machines this was measured on each costs 2 to 5 ns, as much as all the rest of the critical
//! section, so here waiters look after themselves: they spin, then yield, then sleep for a short
//! time and look again. Critical sections are some tens of nanoseconds long, and waiting is rare;
//! that a waiter may oversleep by [`NAP`] matters only when the holder was preempted.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crossbeam_utils::Backoff;

use super::atomic::{AtomicBool, Ordering};

/// How long a waiter sleeps at a time once spinning and yielding have not helped.
const NAP: Duration = Duration::from_micros(50);

struct ShardLock(AtomicBool);

impl ShardLock {
    const fn new() -> Self {
        ShardLock(AtomicBool::new(false))
    }

    #[inline]
    fn lock(&self) {
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
    fn unlock(&self) {
        // Ordering: Release; pairs with the Acquire in `lock`.
        self.0.store(false, Ordering::Release);
    }
}

/// A value behind such a lock, in memory as well: beside it if it is small, or on lines of its own if it is
/// aligned to them. A panic of its holder leaves the value as it is, unlocked.
#[repr(C)]
pub(crate) struct Locked<T> {
    lock: ShardLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of its lock, one thread at a time, which may be
// any thread.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Locked {
            lock: ShardLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockedGuard<'_, T> {
        self.lock.lock();
        LockedGuard {
            locked: self,
            _value: PhantomData,
        }
    }
}

/// The right to the value. Dropping it unlocks.
pub(crate) struct LockedGuard<'a, T> {
    locked: &'a Locked<T>,
    /// As good as the exclusive reference, also for who may share it.
    _value: PhantomData<&'a mut T>,
}

impl<T> Drop for LockedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.locked.lock.unlock();
    }
}

impl<T> Deref for LockedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the lock's only holder, and `&self` allows no `&mut` meanwhile.
        unsafe { &*self.locked.value.get() }
    }
}

impl<T> DerefMut for LockedGuard<'_, T> {
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
        let locked = Locked::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *locked.lock() += 1));
            }
        });
        assert_eq!(*locked.lock(), 4 * ROUNDS);
    }

    #[test]
    fn a_holder_that_panics_unlocks() {
        let locked = Locked::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = locked.lock();
            panic!("as intended");
        }));
        assert!(panicked.is_err());
        assert_eq!(*locked.lock(), 1);
    }
}
