//! Counters with little contention: each thread adds to one of several stripes.
//!
//! Threads take the stripes in turn, so few threads share one. A stripe is allocated when a thread
//! first uses it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::histogram::{Count, Histogram};
use crate::engine::timing::Event;

const STRIPES: usize = 16;

/// The counters of some threads.
#[derive(Default)]
pub(super) struct Stripe {
    pub(super) queue: Histogram,
    pub(super) work: Histogram,
    events: [Count; Event::KINDS],
}

impl Stripe {
    pub(super) fn count(&self, event: Event) -> &Count {
        &self.events[event as usize]
    }
}

pub(super) struct Stripes([OnceLock<Box<CachePadded<Stripe>>>; STRIPES]);

impl Stripes {
    pub(super) fn new() -> Self {
        Stripes([const { OnceLock::new() }; STRIPES])
    }

    /// Returns the calling thread's stripe.
    #[inline]
    pub(super) fn mine(&self) -> &Stripe {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Ordering: Relaxed; a number that orders nothing.
        thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        self.0[MINE.with(|mine| *mine)].get_or_init(Box::default)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Stripe> + Clone {
        self.0.iter().filter_map(|stripe| Some(&***stripe.get()?))
    }

    /// Returns the number of events of one kind, over all threads.
    pub(super) fn sum(&self, event: Event) -> u64 {
        self.each().map(|stripe| stripe.count(event).get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn more_threads_than_stripes_lose_nothing() {
        const THREADS: usize = 100;
        let stripes = Stripes::new();
        let work = || (0..1000).for_each(|_| stripes.mine().count(Event::Merged).add(1));
        thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(work)));
        assert_eq!(stripes.sum(Event::Merged), THREADS as u64 * 1000);
        assert_eq!(stripes.sum(Event::Retried), 0);
    }
}
