//! The counters of a queue, in stripes: most threads have their own.
//!
//! A thread takes a number when it first counts, and returns it when it ends. The thread with
//! number `n` writes stripe `n` of every queue, without read-modify-writes; the next thread with
//! that number continues from its values. Threads that find no number left, and threads that run
//! the destructors of their thread-locals, share one stripe, with read-modify-writes.
//!
//! (`ThreadLocal` of the crate `thread_local` panics in such a destructor, which aborts the
//! process.)

use std::sync::{LazyLock, Mutex, OnceLock};

use crossbeam_utils::CachePadded;

use super::event::Event;
use super::histogram::{Count, Histogram};
use super::lock;

/// The stripe of all threads without a number.
const SHARED: usize = 255;

const KINDS: usize = Event::LetterLost as usize + 1;

#[derive(Default)]
pub(super) struct Stripe {
    pub(super) queue: Histogram,
    pub(super) work: Histogram,
    pub(super) events: [Count; KINDS],
}

/// The stripes of a queue, each allocated when its thread first counts.
pub(super) struct Stripes([OnceLock<Box<CachePadded<Stripe>>>; SHARED + 1]);

impl Stripes {
    pub(super) fn new() -> Self {
        Stripes([const { OnceLock::new() }; SHARED + 1])
    }

    /// Returns the calling thread's stripe, and whether the thread is its only writer.
    #[inline]
    pub(super) fn mine(&self) -> (&Stripe, bool) {
        let number = NUMBER.try_with(|number| number.0).unwrap_or(SHARED);
        (self.0[number].get_or_init(Box::default), number != SHARED)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Stripe> {
        self.0.iter().filter_map(|stripe| Some(&***stripe.get()?))
    }

    /// Returns the number of events of one kind, over all threads.
    pub(super) fn sum(&self, event: Event) -> u64 {
        let of_one = |stripe: &Stripe| stripe.events[event as usize].get();
        self.each().map(of_one).sum()
    }
}

/// The numbers that no thread has.
static FREE: LazyLock<Mutex<Vec<usize>>> =
    LazyLock::new(|| Mutex::new((0..SHARED).rev().collect()));

/// The number of a thread, which no other living thread has, or `SHARED`.
struct Number(usize);

thread_local!(static NUMBER: Number = Number(lock(&FREE).pop().unwrap_or(SHARED)));

impl Drop for Number {
    fn drop(&mut self) {
        if self.0 != SHARED {
            lock(&FREE).push(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaled::scaled;
    use std::cell::RefCell;
    use std::sync::{Arc, Barrier};
    use std::thread;

    fn count(stripes: &Stripes, event: Event) {
        let (stripe, alone) = stripes.mine();
        stripe.events[event as usize].add(1, alone);
    }

    #[test]
    fn more_threads_than_stripes_lose_nothing() {
        const THREADS: usize = SHARED + 20;
        let each = scaled(20_000);
        let stripes = Stripes::new();
        // Each round gets the numbers of the one before, and counts on.
        for round in 1..=5 {
            let together = Barrier::new(THREADS);
            let work = || {
                count(&stripes, Event::Merged);
                // Each thread has a number by now, or shares the last stripe.
                together.wait();
                (1..each).for_each(|_| count(&stripes, Event::Merged));
            };
            thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(work)));
            assert_eq!(stripes.sum(Event::Merged), (round * THREADS * each) as u64);
        }
        assert_eq!(stripes.sum(Event::Retried), 0);
    }

    #[test]
    fn a_thread_counts_in_the_destructors_of_its_thread_locals() {
        struct AtExit(Arc<Stripes>);

        impl Drop for AtExit {
            fn drop(&mut self) {
                count(&self.0, Event::Merged);
            }
        }

        thread_local!(static BEFORE: RefCell<Option<AtExit>> = const { RefCell::new(None) });
        thread_local!(static AFTER: RefCell<Option<AtExit>> = const { RefCell::new(None) });
        let stripes = Arc::new(Stripes::new());
        let at_exit = || Some(AtExit(Arc::clone(&stripes)));
        thread::scope(|scope| {
            // The scope alone does not wait for the destructors.
            let thread = scope.spawn(|| {
                BEFORE.set(at_exit());
                count(&stripes, Event::Merged);
                AFTER.set(at_exit());
            });
            thread.join().unwrap();
        });
        assert_eq!(stripes.sum(Event::Merged), 3);
    }
}
