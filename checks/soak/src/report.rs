//! What is printed every few seconds and in the end: rates, and the memory of the process. What is
//! allocated must be the same after every life (C10).

use std::time::{Duration, Instant};

use memory_stats::memory_stats;
use rig::heap::{CountingHeap, held};

use crate::life::Done;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

/// Lives until everything that is made once has been made.
const WARM_UP: u64 = 20;
/// How much more than after the warm-up may be allocated: the runtime's own caches.
const SLACK: isize = 1 << 20;

pub(crate) struct Report {
    begun: Instant,
    every: Duration,
    next: Duration,
    lives: u64,
    adds: u64,
    deliveries: u64,
    /// The most that was allocated after a life of the warm-up.
    base: isize,
    /// Allocated after the last life.
    left: isize,
}

impl Report {
    pub(crate) fn new(every: Duration) -> Self {
        Report {
            begun: Instant::now(),
            every,
            next: every,
            lives: 0,
            adds: 0,
            deliveries: 0,
            base: 0,
            left: 0,
        }
    }

    pub(crate) fn life_ended(&mut self, done: &Done) {
        self.lives += 1;
        self.adds += done.adds;
        self.deliveries += done.deliveries;
        self.left = held();
        if self.lives <= WARM_UP {
            self.base = self.base.max(self.left);
        }
        assert!(
            self.left <= self.base + SLACK,
            "C10: {} bytes are allocated after life {}, {} after the first {WARM_UP}",
            self.left,
            self.lives,
            self.base
        );
        if self.begun.elapsed() >= self.next {
            self.print();
            self.next = self.begun.elapsed() + self.every;
        }
    }

    fn print(&self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        // 0 if the system does not tell.
        let resident = memory_stats().map_or(0, |stats| stats.physical_mem);
        println!(
            "{seconds:>7.1} s  {:>5} lives  {:>7.0} adds/ms  {:>6.0} deliveries/ms  \
             heap {:>6} KiB  resident {:>4} MiB",
            self.lives,
            rate(self.adds) / 1e3,
            rate(self.deliveries) / 1e3,
            self.left >> 10,
            resident >> 20,
        );
    }

    pub(crate) fn end(&self) {
        self.print();
        println!(
            "{} adds, {} deliveries in {} lives; nothing lost, nothing doubled",
            self.adds, self.deliveries, self.lives
        );
    }
}
