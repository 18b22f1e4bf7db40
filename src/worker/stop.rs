//! How workers are stopped while the queue stays open.
//!
//! # Protocol
//!
//! ```text
//!     stopper                     worker, a thread
//!     1 set the flag              1 put its waker on the list, once
//!     2 wake every thread         2 read the flag: if set, end
//!       on the list               3 take a key; if there is none, register with the getters
//!                                 4 read the flag: if set, leave the getters, and end
//!                                 5 park; when notified, repeat from 3, when woken, from 4
//! ```
//!
//! No worker sleeps through a stop. If its waker is on the list at the stopper's step 2, it is woken
//! after the flag is set, and a wake-up that comes before step 5 ends that `park` immediately. If
//! not, the list's lock orders its first read of the flag after the stopper's step 1.
//!
//! The stopper wakes these workers only, and none of the queue's other getters. A worker that leaves
//! passes on the notification that it may have received (`Core::leave`).
//!
//! A worker that is between 2 and 3 takes one more key. A worker that waits takes none.

use std::mem;
use std::task::Waker;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, assert_unlocked};

/// Stops the workers that share it. Permanent.
#[derive(Default)]
pub(crate) struct StopFlag {
    is_set: AtomicBool,
    threads: Mutex<Vec<Waker>>,
}

impl StopFlag {
    /// Puts a thread on the list, by the waker of its parker.
    pub(crate) fn enlist(&self, waker: &Waker) {
        self.threads.lock().push(waker.clone());
    }

    pub(crate) fn set(&self) {
        // Ordering: Relaxed; ordered by the list's lock and the wake-ups, see the header.
        self.is_set.store(true, Ordering::Relaxed);
        // A thread that comes on the list later finds the flag set.
        let threads = mem::take(&mut *self.threads.lock());
        assert_unlocked();
        threads.into_iter().for_each(Waker::wake);
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // Ordering: Relaxed; as in `set`.
        self.is_set.load(Ordering::Relaxed)
    }
}
