//! The types of a model check: the checker's types, and stand-ins for those that it cannot observe.
//!
//! The checker is loom ([`on_loom`]) or shuttle (`on_shuttle`); the rest of this module is the same
//! for both.
//!
//! The stand-ins are as weak as the originals where the protocols depend on it, so that a model
//! fails when an ordering is missing. The list of registrations is behind a mutex.
//!
//! A model reads no clock: `park` with a deadline returns as if the deadline had passed, under loom
//! immediately and under shuttle after a few steps of other threads.

#[cfg(keyqueue_loom)]
mod on_loom;
#[cfg(keyqueue_loom)]
use on_loom as checker;

#[cfg(keyqueue_shuttle)]
mod on_shuttle;
#[cfg(keyqueue_shuttle)]
use on_shuttle as checker;

pub(crate) use checker::{Mutex, MutexGuard, MutexGuard as SpinLockGuard, atomic, yield_now};
// The reference counts of `Arc` are not part of any protocol here.
pub(crate) use std::sync::Arc;

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::task::{Wake, Waker};
use std::time::Instant;

// Statics, not constants: clippy warns about a range that is known to be empty.
pub(crate) static PAUSES_PER_POLL: u32 = 0;
pub(crate) static POLLS_SPINNING: u32 = 0;
pub(crate) static POLLS_YIELDING: u32 = 0;

pub(crate) static LIMITER_SHARDS: usize = 1;

pub(crate) fn pause() {
    yield_now();
}

/// Waits for another thread's next step.
pub(crate) struct Backoff;

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff
    }

    pub(crate) fn snooze(&self) {
        yield_now();
    }
}

/// In the model this is always a fence: the access before it may be weaker than on x86.
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst; the caller names the partner.
    atomic::fence(atomic::Ordering::SeqCst);
}

/// A mutex of the checker: no model is about how the lock works.
pub(crate) struct SpinLock<T>(Mutex<T>);

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinLock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// The contract of atomic-waker, implemented with a mutex.
///
/// It does not use loom's own type: that one drops wakers, which is a step of the model, under a
/// real lock, and spins during a concurrent `wake`.
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        AtomicWaker(Mutex::new(None))
    }

    fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stored, waker)
    }

    pub(crate) fn register(&self, waker: &Waker) {
        drop(self.replace(Some(waker.clone())));
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.replace(None) {
            waker.wake();
        }
    }
}

struct Unpark(checker::Notify);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// It does not use the checker's `park`: under loom, a late `unpark` would disturb what the thread
/// waits for next, such as a `join`.
pub(crate) struct ThreadParker {
    unpark: Arc<Unpark>,
    waker: Waker,
}

impl ThreadParker {
    pub(crate) fn with<R>(f: impl FnOnce(&ThreadParker) -> R) -> R {
        let unpark = Arc::new(Unpark(checker::Notify::new()));
        let waker = Waker::from(Arc::clone(&unpark));
        f(&ThreadParker { unpark, waker })
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match deadline {
            Some(_) => checker::pass_time(),
            None => self.unpark.0.wait(),
        }
    }
}

pub(crate) struct Thread(checker::JoinHandle<()>);

impl Thread {
    pub(crate) fn spawn(_name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        Ok(Thread(checker::spawn(run)))
    }

    pub(crate) fn join_unless_current(self) {
        let _ = self.0.join();
    }
}

/// A stand-in for crossbeam's unbounded queue.
pub(crate) struct SegQueue<T>(Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        SegQueue(Mutex::new(VecDeque::new()))
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, value: T) {
        self.queue().push_back(value);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.queue().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue().is_empty()
    }
}
