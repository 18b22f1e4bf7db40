//! How a thread waits: with its own parker, which a `Waker` wakes, as for a task.
//!
//! It does not use the standard library's `park`, whose token belongs to the user's code on this
//! thread.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use crossbeam_utils::sync::{Parker, Unparker};

use super::poll::Polls;

/// Wakes the thread whose parker it belongs to.
struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// The calling thread's parker and the waker that ends its sleep.
///
/// A token left over from an earlier sleep makes one `park` return early, so every caller checks
/// its condition again afterwards.
pub(crate) struct ThreadParker {
    parker: Parker,
    waker: Waker,
    polls: Polls,
}

impl ThreadParker {
    fn new() -> Self {
        let parker = Parker::new();
        let waker = Waker::from(Arc::new(Unpark(parker.unparker().clone())));
        ThreadParker {
            parker,
            waker,
            polls: Polls::default(),
        }
    }

    /// Returns the parker of this thread, or a fresh one while the thread is being torn down.
    pub(crate) fn current() -> Rc<Self> {
        thread_local!(static PARKER: Rc<ThreadParker> = Rc::new(ThreadParker::new()));
        let parker = PARKER.try_with(Rc::clone);
        parker.unwrap_or_else(|_| Rc::new(ThreadParker::new()))
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Calls `look` after short pauses until it returns something, or it is time to sleep. May not call it:
    /// see [`poll`](super::poll).
    pub(crate) fn poll<T>(&self, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.polls.poll(look)
    }

    /// Sleeps until woken, or until `deadline`. May also return for no reason.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => self.parker.park_deadline(deadline),
            None => self.parker.park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_token_of_the_users_is_left_alone() {
        thread::current().unpark();
        let in_a_moment = Instant::now() + Duration::from_millis(5);
        ThreadParker::current().park(Some(in_a_moment));
        // If the token had been consumed, this would last a minute.
        let before = Instant::now();
        thread::park_timeout(Duration::from_secs(60));
        assert!(before.elapsed() < Duration::from_secs(60));
    }
}
