//! Counters without contention: each thread has its own stripe of them.
//!
//! Each thread leases a small number, and returns it when it ends. The thread with number `n` is
//! the only writer of stripe `n` of every queue, and so needs no read-modify-write: a sample costs
//! two plain stores to cache lines of its own. The next thread with that number continues from its
//! values; the mutex of the free numbers orders the two. Threads for which no number is left, and
//! threads that are being torn down, share one stripe, with read-modify-writes.
//!
//! A stripe is allocated when its thread first uses the queue.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;

use super::histogram::{Count, Histogram};

/// The stripe of all threads without a number.
const SHARED: usize = 63;
const UNKNOWN: usize = usize::MAX;

/// The counters of one thread.
pub(super) struct Stripe {
    pub(super) queue: Histogram,
    pub(super) work: Histogram,
    pub(super) retries: Count,
    pub(super) merged: Count,
    pub(super) cancelled: Count,
    pub(super) given_up: Count,
}

impl Stripe {
    fn new() -> Self {
        Stripe {
            queue: Histogram::new(),
            work: Histogram::new(),
            retries: Count::new(),
            merged: Count::new(),
            cancelled: Count::new(),
            given_up: Count::new(),
        }
    }
}

pub(super) struct Stripes(Box<[OnceLock<Box<CachePadded<Stripe>>>]>);

impl Stripes {
    pub(super) fn new() -> Self {
        Stripes((0..=SHARED).map(|_| OnceLock::new()).collect())
    }

    /// Returns the calling thread's stripe, and whether the thread owns it.
    #[inline]
    pub(super) fn mine(&self) -> (&Stripe, bool) {
        let number = number();
        let stripe = self.0[number].get_or_init(|| Box::new(CachePadded::new(Stripe::new())));
        (stripe, number != SHARED)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Stripe> + Clone {
        self.0.iter().filter_map(|stripe| Some(&***stripe.get()?))
    }

    /// Returns the sum of one counter over all threads.
    pub(super) fn sum(&self, count: impl Fn(&Stripe) -> &Count) -> u64 {
        self.each().map(|stripe| count(stripe).get()).sum()
    }
}

thread_local! {
    /// The thread's number, once it has leased one.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    /// Returns the number when the thread ends.
    static LEASE: Lease = Lease::take();
}

#[inline]
fn number() -> usize {
    match NUMBER.get() {
        UNKNOWN => first_number(),
        number => number,
    }
}

#[cold]
fn first_number() -> usize {
    // An error means that the thread is being torn down.
    let number = LEASE.try_with(|lease| lease.0).unwrap_or(SHARED);
    NUMBER.set(number);
    number
}

/// The free numbers: those that were returned, and all from `next` on.
struct Free {
    next: usize,
    back: Vec<usize>,
}

static FREE: Mutex<Free> = Mutex::new(Free {
    next: 0,
    back: Vec::new(),
});

struct Lease(usize);

impl Lease {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = free.back.pop().unwrap_or_else(|| {
            let number = free.next;
            free.next = (number + 1).min(SHARED);
            number
        });
        Lease(number)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Samples of this thread while it is being torn down go to the shared stripe.
        NUMBER.set(SHARED);
        if self.0 != SHARED {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            free.back.push(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn no_two_living_threads_own_a_stripe_and_nothing_is_lost() {
        const THREADS: usize = 100;
        let stripes = Stripes::new();
        for round in 1..=3 {
            let together = Barrier::new(THREADS);
            let numbers: Vec<_> = thread::scope(|scope| {
                let work = || {
                    for _ in 0..1000 {
                        let (stripe, owned) = stripes.mine();
                        stripe.retries.add(1, owned);
                    }
                    together.wait();
                    number()
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let owned: Vec<_> = numbers.iter().filter(|number| **number != SHARED).collect();
            assert_eq!(owned.iter().collect::<HashSet<_>>().len(), owned.len());
            assert!(owned.len() <= SHARED);
            assert_eq!(
                stripes.sum(|stripe| &stripe.retries),
                (round * THREADS * 1000) as u64
            );
        }
    }
}
