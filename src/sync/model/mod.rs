//! The types of a model check: the checker's types, and stand-ins for those that it cannot observe.
//!
//! The checker is loom (few threads, every interleaving, weak memory) or shuttle (`on_shuttle`).
//! The rest of this module is the same for both.
//!
//! The stand-ins are as weak as the originals where the protocols depend on it, so that a model
//! fails when an ordering is missing. The list of registrations is behind a mutex.
//!
//! A model reads no clock: `park` with a deadline returns as if the deadline had passed, under loom
//! immediately and under shuttle after a few steps of other threads.

#[cfg(keyqueue_loom)]
use loom as checker;
#[cfg(keyqueue_loom)]
use loom::sync::Notify;

#[cfg(keyqueue_shuttle)]
mod on_shuttle;
#[cfg(keyqueue_shuttle)]
use on_shuttle::Notify;
#[cfg(keyqueue_shuttle)]
use shuttle as checker;

// No model is about how a spin lock works.
pub(crate) use super::Mutex as SpinLock;
pub(crate) use super::MutexGuard as SpinLockGuard;
pub(crate) use checker::sync::{Mutex, MutexGuard, atomic};
pub(crate) use checker::thread;
// The reference counts of `Arc` are not part of any protocol here.
pub(crate) use std::sync::Arc;

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Wake, Waker};
use std::time::Instant;

/// The threads of a checker share one thread of the system, so nothing is counted.
#[derive(Debug)]
pub(crate) struct Held;

impl Held {
    pub(super) fn new() -> Self {
        Held
    }
}

pub(crate) fn assert_unlocked() {}

pub(crate) fn assert_locks_held(_: usize) {}

/// Not seeded at random, since a model must take the same steps when it is run again.
pub(crate) use foldhash::fast::FixedState as RandomState;

pub(crate) static LIMITER_SHARDS: usize = 1;

pub(crate) fn default_shards() -> usize {
    2
}

pub(crate) const DEFAULT_RING: usize = 4;

/// Keys are always added in chunks.
pub(crate) static FAR: usize = 0;
pub(crate) const FEW: usize = 2;

/// Waits for another thread's next step.
pub(crate) struct Backoff;

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff
    }

    pub(crate) fn snooze(&self) {
        thread::yield_now();
    }
}

/// In the model this is always a fence: the access before it may be weaker than on x86.
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst; the caller names the partner.
    atomic::fence(atomic::Ordering::SeqCst);
}

pub(crate) fn prefetch<T>(_: *const T) {}

/// The contract of atomic-waker, implemented with a mutex.
///
/// It does not use loom's own type: that one drops wakers, which is a step of the model, under a
/// real lock, and spins during a concurrent `wake`.
pub(crate) struct AtomicWaker(super::Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        AtomicWaker(super::Mutex::new(None))
    }

    pub(crate) fn register(&self, waker: &Waker) {
        let waker = waker.clone();
        let before = self.0.lock().replace(waker);
        drop(before);
    }

    pub(crate) fn take(&self) -> Option<Waker> {
        self.0.lock().take()
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.take() {
            waker.wake();
        }
    }
}

/// The standard one, with a mutex: the checker does not see that the standard one orders the threads that read it.
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    order: super::Mutex<()>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        OnceLock {
            value: std::sync::OnceLock::new(),
            order: super::Mutex::new(()),
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let _ordered = self.order.lock();
        self.value.get()
    }

    pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let _ordered = self.order.lock();
        self.value.get_or_init(init)
    }
}

struct Unpark(Notify);

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
    pub(crate) fn current() -> Rc<Self> {
        let unpark = Arc::new(Unpark(Notify::new()));
        let waker = Waker::from(Arc::clone(&unpark));
        Rc::new(ThreadParker { unpark, waker })
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn poll<T>(&self, _look: impl FnMut() -> Option<T>) -> Option<T> {
        None
    }

    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match deadline {
            None => self.unpark.0.wait(),
            #[cfg(keyqueue_shuttle)]
            Some(_) => on_shuttle::pass_time(),
            #[cfg(keyqueue_loom)]
            Some(_) => {}
        }
    }
}

/// A stand-in for crossbeam's unbounded queue.
pub(crate) struct SegQueue<T>(super::Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        SegQueue(super::Mutex::new(VecDeque::new()))
    }

    pub(crate) fn push(&self, value: T) {
        self.0.lock().push_back(value);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
