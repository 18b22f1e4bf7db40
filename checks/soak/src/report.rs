//! What is printed: rates and memory, every few seconds and in the end.

use std::time::{Duration, Instant};

use crate::life::Done;
use crate::memory::{Watch, resident};

pub(crate) struct Report {
    begun: Instant,
    every: Duration,
    next: Duration,
    lives: u64,
    adds: u64,
    deliveries: u64,
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
        }
    }

    pub(crate) fn life_ended(&mut self, done: &Done, memory: &Watch) {
        self.lives += 1;
        self.adds += done.adds;
        self.deliveries += done.deliveries;
        if self.begun.elapsed() >= self.next {
            self.print(memory);
            self.next = self.begun.elapsed() + self.every;
        }
    }

    fn print(&self, memory: &Watch) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        println!(
            "{seconds:>7.1} s  {:>5} lives  {:>7.0} adds/ms  {:>6.0} deliveries/ms  \
             heap {:>6} KiB  resident {:>4} MiB",
            self.lives,
            rate(self.adds) / 1e3,
            rate(self.deliveries) / 1e3,
            memory.left >> 10,
            resident() >> 20,
        );
    }

    pub(crate) fn end(&self, memory: &Watch) {
        self.print(memory);
        println!(
            "{} adds, {} deliveries in {} lives; nothing lost, nothing doubled",
            self.adds, self.deliveries, self.lives
        );
    }
}
