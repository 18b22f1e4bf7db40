//! Receipts: how the caller of an add waits until the delivery that covers the add has finished.
//!
//! A receipt and its obligation share an outcome and a waker. The obligation travels with the key,
//! and fires once: when the delivery ends, or when it is dropped with the key.
//!
//! # Protocol
//!
//! ```text
//!     obligation                      receipt
//!     1 store the outcome             1 read the outcome; if there is one, return it
//!     2 take the waker, wake it       2 store the waker
//!                                     3 read the outcome again; if there is one, return it
//!                                     4 sleep until woken, repeat from 1
//! ```
//!
//! No wake-up is lost. [`AtomicWaker`] orders step 2 of the obligation and step 2 of the receipt:
//! if the receipt is first, the obligation finds its waker; if the obligation is first, the
//! receipt's step 3 sees the outcome.
//!
//! # Ground rules
//!
//! * Only the obligation writes the outcome, once. It stays, so a receipt may read it again.
//! * Only the receipt stores a waker, and needs `&mut self` for that, so there is one waiter.
//! * A receipt that is dropped takes its waker out: the shared state lives until the delivery ends,
//!   which may be long, and the task that waited should not live as long. If the obligation is
//!   taking the waker at that moment, one of them gets it, and a wake-up of nobody does no harm.
//! * The waker is user code. A panic in it does not reach the thread that fires, such as a worker,
//!   which may have other receipts to fire.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Arc, AtomicWaker, assert_unlocked};
use crate::wait::blocking::block_until;
use crate::wait::blocking::deadline_in;

/// How the delivery that covers an add has ended: what a [`Receipt`] returns.
///
/// ```
/// use keyqueue::Ended;
///
/// assert_eq!(Ended::GivenUp.to_string(), "given up");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The delivery was finished: its item was dropped or [`done`](crate::Item::done), or the
    /// function of the worker loop succeeded.
    Done,
    /// The worker loop gave the key up, or a panic dropped the item. Each delivery that a thread ends while it unwinds by a panic counts as that.
    GivenUp,
    /// A shut-down, or a call that takes back what waits, such as [`cancel`](crate::WorkQueue::cancel) or
    /// [`take_group`](crate::WorkQueue::take_group), dropped the add before it was delivered, or the queue refused it.
    Dropped,
}

/// Every way to end, each at its own discriminant.
const ENDS: [Ended; 3] = [Ended::Done, Ended::GivenUp, Ended::Dropped];

/// The outcome before the obligation has fired: the index of no end.
const PENDING: u8 = ENDS.len() as u8;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Done => "done",
            Ended::GivenUp => "given up",
            Ended::Dropped => "dropped",
        })
    }
}

/// What a receipt and its obligation share.
struct Shared {
    /// An index into [`ENDS`], or [`PENDING`].
    outcome: AtomicU8,
    waker: AtomicWaker,
}

// A waker that panics leaves nothing half-changed here: it has been taken out.
impl RefUnwindSafe for Shared {}

/// Returns an obligation, and the receipt that it fires.
pub(crate) fn receipt() -> (Obligation, Receipt) {
    let shared = Arc::new(Shared {
        outcome: AtomicU8::new(PENDING),
        waker: AtomicWaker::new(),
    });
    (Obligation(Some(Arc::clone(&shared))), Receipt(shared))
}

/// The duty to fire one receipt. Dropping it fires [`Ended::Dropped`].
#[must_use = "dropping an obligation fires its receipt"]
pub(crate) struct Obligation(
    /// `None` once it has fired.
    Option<Arc<Shared>>,
);

impl Obligation {
    /// Ends the wait of the receipt. Never panics, and never waits.
    pub(crate) fn fire(mut self, ended: Ended) {
        self.end(ended);
    }

    fn end(&mut self, ended: Ended) {
        let Some(shared) = self.0.take() else { return };
        // Ordering: Release; pairs with the Acquire in `Receipt::ended`, so that the waiter sees
        // what the worker did.
        shared.outcome.store(ended as u8, Ordering::Release);
        assert_unlocked();
        let _ = catch_panic(|| shared.waker.wake());
    }
}

impl Drop for Obligation {
    fn drop(&mut self) {
        self.end(Ended::Dropped);
    }
}

/// The receipts of the adds that one delivery covers.
pub(crate) struct Receipts {
    obligations: Vec<Obligation>,
    /// Of so many, the first ones, something was given up: they do not end as done.
    given_up: usize,
    /// How the delivery ends, if nothing else happens.
    end: Ended,
}

impl Receipts {
    pub(crate) fn of(obligation: Obligation) -> Box<Self> {
        Box::new(Receipts {
            obligations: vec![obligation],
            given_up: 0,
            end: Ended::Done,
        })
    }

    /// Sets how the delivery ends.
    pub(crate) fn end_as(&mut self, end: Ended) {
        self.end = end;
    }

    /// Goes on with a delivery of which a part was done, or given up.
    pub(crate) fn go_on(&mut self) {
        if self.end == Ended::GivenUp {
            self.given_up = self.obligations.len();
            self.end = Ended::Done;
        }
    }

    /// Takes over those of `newer`, which nothing of this is given up for.
    pub(crate) fn append(&mut self, newer: Receipts) {
        self.obligations.extend(newer.obligations);
    }

    /// Ends them as `end` says, or else as the delivery does.
    #[cold]
    pub(crate) fn fire(self, end: Option<Ended>) {
        let end = end.unwrap_or(self.end);
        for (nth, obligation) in self.obligations.into_iter().enumerate() {
            let is_given_up = end == Ended::Done && nth < self.given_up;
            obligation.fire(if is_given_up { Ended::GivenUp } else { end });
        }
    }
}

/// A receipt for one add, which tells when the delivery that covers the add has finished, and how.
/// Created by an [`Entry`](crate::Entry) that is [`tracked`](crate::Entry::tracked).
///
/// It is a future for tasks of any executor, and has [`wait`](Self::wait) for threads. What the
/// worker did before it finished the key is visible to the caller once the receipt has ended.
///
/// | the receipt of an add | ends when | as |
/// | --- | --- | --- |
/// | that is queued, deferred, or merged with one that is | the delivery that covers it is finished | [`Done`](Ended::Done) |
/// | the same | the worker loop gives the key up, or a panic drops the item | [`GivenUp`](Ended::GivenUp) |
/// | the same | the key is retried, but its value was taken out | [`GivenUp`](Ended::GivenUp) |
/// | the same | the function of the worker loop has taken the value out, and returns [`RequeueAfter`](crate::worker::Outcome::RequeueAfter) | [`Done`](Ended::Done) |
/// | the same | a shut-down, a cancel or a clear drops it, or a shut-down refuses its retry (`GivenUp`, if workers report that to [`on_give_up`](crate::worker::Workers::on_give_up)) | [`Dropped`](Ended::Dropped) |
/// | that the queue refused | it is returned | [`Dropped`](Ended::Dropped) |
///
/// Unless the value was taken out, neither a retry nor another outcome that adds the key again ends it: the receipt stays
/// with the value until the last attempt. Leaking the item (`mem::forget`) means that the receipt never ends.
///
/// Dropping a receipt only ends the wait: the key is delivered all the same.
///
/// # Cancel safety
///
/// Dropping the future ends the wait. The future can also be polled, set aside, and polled or
/// waited for again, from another task or thread as well; the last one that polled it is woken. Once
/// it is ready, every further poll returns the same.
///
/// # Examples
///
/// ```
/// use keyqueue::{Ended, WorkQueue, merge};
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let queue = WorkQueue::builder().merge(merge::sum).build()?;
/// let [first, second] = [1, 2].map(|count| {
///     let (entry, receipt) = queue.entry("page").tracked();
///     entry.put(count);
///     receipt
/// });
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let item = queue.get().unwrap();
///         assert_eq!(*item.value(), 3); // one delivery covers both
///         item.done();
///     });
///     assert_eq!(first.wait(), Ended::Done); // in a thread
///     assert_eq!(pollster::block_on(second), Ended::Done); // in a task
/// });
/// # Ok(())
/// # }
/// ```
#[must_use = "an add without a receipt is cheaper: leave `tracked` out"]
pub struct Receipt(Arc<Shared>);

impl Receipt {
    /// Returns how the delivery has ended, or `None` if it has not. Does not wait.
    ///
    /// ```
    /// # use keyqueue::{Ended, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::latest).build()?;
    /// let (entry, receipt) = queue.entry("a").tracked();
    /// entry.put(1);
    /// let item = queue.get().unwrap();
    /// assert_eq!(receipt.ended(), None);
    /// item.done();
    /// assert_eq!(receipt.ended(), Some(Ended::Done));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        // Ordering: Acquire; pairs with the Release in `Obligation::end`.
        let outcome = self.0.outcome.load(Ordering::Acquire);
        ENDS.get(usize::from(outcome)).copied()
    }

    /// Blocks until the delivery has ended, and returns how.
    ///
    /// A thread that waits while it holds the item, or that is the queue's only worker, deadlocks.
    ///
    /// ```
    /// # use keyqueue::{Ended, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::latest).build()?;
    /// let (entry, receipt) = queue.entry("a").tracked();
    /// entry.put(1);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| queue.get().unwrap().done());
    ///     assert_eq!(receipt.wait(), Ended::Done);
    /// });
    /// queue.shut_down();
    /// let (entry, receipt) = queue.entry("b").tracked();
    /// entry.put(2);
    /// assert_eq!(receipt.wait(), Ended::Dropped); // it was refused
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn wait(mut self) -> Ended {
        let ended = self.wait_until(None);
        ended.expect("without a deadline, the wait ends with the delivery")
    }

    /// Like [`wait`](Self::wait), but waits for at most `limit`. Returns `None` if the delivery has
    /// not ended by then; the receipt can be waited for again. A limit that the clock cannot
    /// represent, such as [`Duration::MAX`], is none.
    ///
    /// ```
    /// # use keyqueue::{Ended, WorkQueue, merge};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::builder().merge(merge::latest).build()?;
    /// let (entry, mut receipt) = queue.entry("a").tracked();
    /// entry.put(1);
    /// assert_eq!(receipt.wait_timeout(Duration::from_millis(1)), None);
    /// queue.get().unwrap().done();
    /// assert_eq!(receipt.wait_timeout(Duration::ZERO), Some(Ended::Done));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Ended> {
        self.wait_until(deadline_in(limit))
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Ended> {
        self.ended().or_else(|| block_until(self, deadline))
    }
}

impl Future for Receipt {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        let ended = self.ended().or_else(|| {
            self.0.waker.register(context.waker());
            self.ended()
        });
        ended.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        drop(self.0.waker.take());
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipt").field(&self.ended()).finish()
    }
}

#[cfg(test)]
mod tests;
