//! Counters that no two threads write: a stripe of them for each thread.
//!
//! Threads have small numbers, given back as they end. The thread of number `n` writes stripe `n` of
//! every queue, alone, and so needs no read-modify-write: a sample costs two plain stores to lines that
//! are its own. The next thread of that number goes on where it stopped; the mutex that the number went
//! through orders the two. Threads beyond the numbers there are, and those that are being torn down,
//! share one stripe and its read-modify-writes.
//!
//! A stripe is allocated when its thread first uses the queue.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;

use super::histogram::{Count, Histogram};

/// The stripe of all who have no number.
const SHARED: usize = 63;
const UNKNOWN: usize = usize::MAX;

/// What one thread has counted.
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

    /// The calling thread's stripe, and whether it is its own.
    #[inline]
    pub(super) fn mine(&self) -> (&Stripe, bool) {
        let number = number();
        let stripe = self.0[number].get_or_init(|| Box::new(CachePadded::new(Stripe::new())));
        (stripe, number != SHARED)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Stripe> + Clone {
        self.0.iter().filter_map(|stripe| Some(&***stripe.get()?))
    }

    /// The sum of one counter over all threads.
    pub(super) fn sum(&self, count: impl Fn(&Stripe) -> &Count) -> u64 {
        self.each().map(|stripe| count(stripe).get()).sum()
    }
}

thread_local! {
    /// The thread's number, once it has asked.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    /// Gives it back.
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
    // An error: the thread is being torn down.
    let number = LEASE.try_with(|lease| lease.0).unwrap_or(SHARED);
    NUMBER.set(number);
    number
}

/// The numbers that are free: those that have come back, and all from `next` on.
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
        // What this thread still counts while it is torn down goes to the shared stripe.
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
