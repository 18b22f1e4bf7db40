//! The only module that knows whether this is a normal build or a model check.
//!
//! Everything concurrent in the crate imports its atomics, locks, cells and queues from here. There
//! are three builds:
//!
//! | build | runs on |
//! | --- | --- |
//! | normal | the standard library and crossbeam-queue ([`real`]) |
//! | `--cfg keyqueue_loom` | loom's types, and stand-ins on top of them (`model`) |
//! | `--cfg keyqueue_shuttle` | shuttle's types, and the same stand-ins |
//!
//! The stand-ins are needed because loom cannot observe the internals of another crate. Only
//! `lib.rs` has another `cfg` for this: it opens the ring to loom's models.

#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
mod real;
#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
use real as base;

#[cfg(any(keyqueue_loom, keyqueue_shuttle))]
mod model;
#[cfg(any(keyqueue_loom, keyqueue_shuttle))]
use model as base;

#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
pub(crate) mod held;
#[cfg(not(any(keyqueue_loom, keyqueue_shuttle)))]
pub(crate) use held::{Held, assert_locks_held, assert_unlocked};

#[cfg(all(keyqueue_loom, not(feature = "loom")))]
compile_error!("`--cfg keyqueue_loom` needs keyqueue's feature `loom`");
#[cfg(all(keyqueue_shuttle, not(feature = "shuttle")))]
compile_error!("`--cfg keyqueue_shuttle` needs keyqueue's feature `shuttle`");

pub(crate) mod catch_panic;

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

pub(crate) use base::*;

/// A mutex without poisoning: a panic of the holder unlocks it, and leaves the value as it is.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(base::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(base::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `None` if the mutex is locked.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard::new(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard::new(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A locked [`Mutex`].
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    guard: base::MutexGuard<'a, T>,
    _held: Held,
}

impl<'a, T> MutexGuard<'a, T> {
    fn new(guard: base::MutexGuard<'a, T>) -> Self {
        MutexGuard {
            guard,
            _held: Held::new(),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
