//! Which try of a key is running: [`current`].
//!
//! Each loop sets a thread-local around the call of the function, and around each poll of its
//! future. It points to a closure that reads the attempt, so a function that does not call
//! [`current`] costs no look-up.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::mem;
use std::pin::pin;
use std::ptr;
use std::time::Duration;

use super::{Key, Loop};
use crate::Item;

/// The try of the key that a worker is processing: see [`current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Attempt {
    /// The number of the try, from 1: one more than the number of
    /// [retries that count](super#which-retries-count).
    pub number: u32,
    /// How long the key was queued before this delivery; `None` if the queue is not timed
    /// ([`Builder::timing`](crate::Builder::timing)).
    pub queue_time: Option<Duration>,
}

/// Returns the attempt of the key whose function is running on this thread, or whose future is
/// being polled; `None` elsewhere, in hooks too.
///
/// A function that starts other threads or tasks calls it before. If the function of one
/// [`Workers`](super::Workers) runs other workers, this is the attempt of the innermost.
///
/// # Panics
///
/// Panics if the queue's limiter panics in `num_requeues`.
///
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::worker::{self, Workers};
///
/// let queue = WorkQueue::from_iter(["key"]);
/// Workers::new(&queue).threads(1).run(|key| {
///     let attempt = worker::current().expect("called by a worker");
///     if attempt.number < 3 {
///         return Err(format!("{key} fails for time {}", attempt.number));
///     }
///     queue.shut_down();
///     Ok(())
/// })?;
/// assert_eq!(worker::current(), None);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use]
pub fn current() -> Option<Attempt> {
    let read = CURRENT.take()?;
    // A limiter that calls this gets `None`.
    let _restore = Restore(Some(read));
    // SAFETY: `during` is running on this thread, and borrows what this points to; it removes the
    // pointer before it returns or unwinds.
    Some(unsafe { (*read)() })
}

type Read<'a> = dyn Fn() -> Attempt + 'a;

thread_local!(static CURRENT: Cell<Option<*const Read<'static>>> = const { Cell::new(None) });

/// Sets the thread's attempt back when it is dropped.
struct Restore(Option<*const Read<'static>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Calls `f`, during which `read` returns the current attempt of this thread.
pub(super) fn during<T>(read: &Read<'_>, f: impl FnOnce() -> T) -> T {
    // SAFETY: extends the lifetime, and nothing else. The pointer is used only while `read` is
    // borrowed: `_restore` removes it before this returns or unwinds.
    let erased =
        unsafe { mem::transmute::<*const Read<'_>, *const Read<'static>>(ptr::from_ref(read)) };
    let _restore = Restore(CURRENT.replace(Some(erased)));
    f()
}

/// Polls the future `during`.
pub(super) async fn around<F: Future>(read: impl Fn() -> Attempt, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| during(&read, || future.as_mut().poll(context))).await
}

impl<K: Key, S: BuildHasher, E: fmt::Display> Loop<'_, K, S, E> {
    pub(super) fn attempt(&self, item: &Item<'_, K, S>) -> Attempt {
        Attempt {
            number: self.retries(item).saturating_add(1),
            queue_time: item.queue_time(),
        }
    }
}
