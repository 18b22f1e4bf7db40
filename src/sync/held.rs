//! How many of the crate's locks a thread holds, in builds with debug assertions: no user code runs under
//! one (S15).
//!
//! Two kinds of calls are excepted: `Eq` of keys and of `entry_with` under the lock of a shard, and merge
//! functions, and those of `with_value`, under the lock of the key's value. There the count is 1. Recorders of metrics run under a mutex
//! that is not counted, because only reports and the queue's drop lock it.

use std::cell::Cell;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// A lock that this thread holds.
#[derive(Debug)]
pub(crate) struct Held(());

/// Counts a lock that this thread has got, or one less.
#[inline]
pub(super) fn count(locked: bool) {
    if cfg!(debug_assertions) {
        // A thread that ends has no count any more, and needs none.
        let _ = HELD.try_with(|held| {
            held.set(match locked {
                true => held.get() + 1,
                false => held.get() - 1,
            });
        });
    }
}

impl Held {
    #[inline]
    pub(super) fn new() -> Self {
        count(true);
        Held(())
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        count(false);
    }
}

/// Called before user code runs, outside of what catches its panics.
///
/// # Panics
///
/// If this thread holds another number of the crate's locks, in builds with debug assertions.
#[inline]
#[track_caller]
pub(crate) fn assert_locks_held(expected: usize) {
    if cfg!(debug_assertions) {
        let held = HELD.try_with(Cell::get).unwrap_or(expected);
        // A thread that panics already would abort, and not say why.
        if !std::thread::panicking() {
            assert_eq!(
                held, expected,
                "locks that user code runs under (a merge function, `update`, `with_value`, a weight or `Eq` must call no queue)"
            );
        }
    }
}

/// As above, for user code that runs under no lock.
#[inline]
#[track_caller]
pub(crate) fn assert_unlocked() {
    assert_locks_held(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Mutex, SpinLock};

    #[test] // S15
    fn each_lock_counts_until_it_is_released() {
        let (mutex, spin) = (Mutex::new(()), SpinLock::new(()));
        let held = || HELD.with(Cell::get);
        assert_unlocked();
        let first = mutex.lock();
        assert_eq!(held(), 1);
        assert!(mutex.try_lock().is_none());
        let second = spin.lock();
        assert_eq!(held(), 2);
        assert!(spin.try_lock().is_none());
        drop(first);
        assert_locks_held(1);
        drop(second);
        assert!(mutex.try_lock().is_some());
        assert!(spin.try_lock().is_some());
        assert_unlocked();
    }

    #[test] // S15
    #[cfg(debug_assertions)]
    #[should_panic(expected = "user code runs under")]
    fn user_code_under_a_lock_is_noticed() {
        let mutex = Mutex::new(());
        let _held = mutex.lock();
        assert_unlocked();
    }
}
