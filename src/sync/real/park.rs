//! How a thread waits: a parker of its own, reached through a `Waker` like any task.
//!
//! # Yielding before sleeping
//!
//! Where more threads want to run than there are processors, a consumer with nothing to do may
//! *yield*: the producers run for a while, and it comes back to many keys at once, without a
//! wake-up for each. But it comes back when the scheduler pleases, some milliseconds later beside
//! threads that compute, and again and again at the end of the line; a thread that *sleeps* is
//! scheduled within a fraction of a millisecond of its wake-up. So yielding has to pay: a thread to
//! which fewer keys came than one a microsecond of the time that it lost sleeps at once the next
//! [`SHUNNED`] times. (Waking a thread costs about as much as a microsecond or two.)

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{Parker, Unparker};

/// How often a consumer that found nothing yields before it sleeps.
const YIELDS: u32 = 4;

/// A yield that took no longer found the processor free, more or less.
const BRIEF: Duration = Duration::from_micros(50);

/// How many waits go without yielding after it did not pay.
const SHUNNED: u32 = 1024;

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
/// A token left over from an earlier sleep makes one `park` return early, so every caller looks
/// at its condition again afterwards.
pub(crate) struct ThreadParker {
    parker: Parker,
    waker: Waker,
    /// So many waits are to go without yielding.
    shunned: Cell<u32>,
}

impl ThreadParker {
    fn new() -> Self {
        let parker = Parker::new();
        let waker = Waker::from(Arc::new(Unpark(parker.unparker().clone())));
        ThreadParker {
            parker,
            waker,
            shunned: Cell::new(0),
        }
    }

    /// Runs `f` with the parker of this thread, which is made once a thread.
    ///
    /// While a thread is being torn down its stored parker may be gone; then `f` gets a fresh one.
    pub(crate) fn with<R>(f: impl FnOnce(&ThreadParker) -> R) -> R {
        thread_local!(static PARKER: ThreadParker = ThreadParker::new());
        let mut f = Some(f);
        let mut run = |parker: &ThreadParker| f.take().map(|f| f(parker));
        match PARKER.try_with(&mut run) {
            Ok(Some(result)) => result,
            _ => run(&ThreadParker::new()).expect("the closure has not run yet"),
        }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// How often to yield in the wait that begins now; see the header.
    pub(crate) fn yields(&self) -> u32 {
        match self.shunned.get() {
            0 => YIELDS,
            waits => {
                self.shunned.set(waits - 1);
                0
            }
        }
    }

    /// Yields, and judges by the number of keys that `came` whether that paid.
    pub(crate) fn yield_beside(&self, came: impl FnOnce() -> usize) {
        let before = Instant::now();
        std::thread::yield_now();
        let lost = before.elapsed();
        if lost > BRIEF && (came() as u128) < lost.as_micros() {
            self.shunned.set(SHUNNED);
        }
    }

    /// Sleeps until woken, or until `deadline`. May also return for no reason.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => self.parker.park_deadline(deadline),
            None => self.parker.park(),
        }
    }
}
