//! What a model check runs on: the checker's types, and stand-ins for what it cannot look into.
//!
//! The checker is loom ([`on_loom`]) or shuttle (`on_shuttle`); all else here is written once for
//! the two.
//!
//! The stand-ins are as weak as the originals where the protocols depend on it, so that a model
//! fails when an ordering is missing. The list of registrations is behind a mutex.
//!
//! No clock is asked in a model: `park` with a deadline returns as if it were over, under loom at
//! once and under shuttle after a few steps of other threads.

#[cfg(keyqueue_loom)]
mod on_loom;
#[cfg(keyqueue_loom)]
use on_loom as checker;

#[cfg(keyqueue_shuttle)]
mod on_shuttle;
#[cfg(keyqueue_shuttle)]
use on_shuttle as checker;

pub(crate) use checker::{Mutex, MutexGuard, MutexGuard as LockedGuard, atomic, yield_now};
// Its counts are not part of any protocol here.
pub(crate) use std::sync::Arc;
// What is built in it takes no step of the model, so no thread finds another at it.
pub(crate) use std::sync::OnceLock;

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::task::{Wake, Waker};
use std::time::Instant;

// No constants: clippy takes a range that it knows to be empty for a mistake.
pub(crate) static PAUSES_PER_LOOK: u32 = 0;
pub(crate) static LOOKS_SPINNING: u32 = 0;
pub(crate) static LOOKS_YIELDING: u32 = 0;

/// A queue's core is built with the queue. `OnceLock` is the standard library's, of which the checker knows
/// nothing, and building takes steps of the model: a thread that waited in it for another's first call would
/// stop the scheduler, and with it that other thread.
pub(crate) const BUILDS_LAZILY: bool = false;

pub(crate) fn pause() {
    yield_now();
}

/// Waiting for what another thread is about to do.
pub(crate) struct Backoff;

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff
    }

    pub(crate) fn snooze(&self) {
        yield_now();
    }
}

/// In the model a fence is a fence: what comes before it may be weaker than on x86.
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst; the caller names the partner.
    atomic::fence(atomic::Ordering::SeqCst);
}

/// Nothing is far away in a model.
pub(crate) fn prefetch<T>(_: *const T) {}

/// No model is about how it is given back.
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Locked(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What atomic-waker promises, by means of a mutex.
///
/// Not loom's own: that one drops wakers, which is a step of the model, under a real lock, and
/// answers a concurrent `wake` by a spin.
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

/// Not the checker's `park`: under loom an `unpark` that comes late would disturb whatever the
/// thread waits for then, such as a `join`.
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

/// The unbounded queue of crossbeam.
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
