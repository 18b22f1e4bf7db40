//! Threads that run at the same time, and the data that shows what is visible to them.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::watchdog;

// Ordering: Relaxed everywhere here; only the queue is to order anything.
const R: Ordering = Ordering::Relaxed;

/// How often a test runs its threads.
const ROUNDS: usize = if cfg!(miri) { 1 } else { 200 };

pub(crate) fn rounds(round: impl Fn()) {
    let _watchdog = watchdog(120);
    (0..ROUNDS).for_each(|_| round());
}

/// Data that nothing protects but the queue.
#[derive(Default)]
pub(crate) struct Plain(UnsafeCell<u64>);

// SAFETY: none. That the queue orders all accesses is what is tested.
unsafe impl Sync for Plain {}

impl Plain {
    pub(crate) fn write(&self, value: u64) {
        // SAFETY: as above.
        unsafe { *self.0.get() = value }
    }

    /// Writes, and then does something.
    pub(crate) fn write_then<R>(&self, then: impl FnOnce() -> R) {
        self.write(1);
        then();
    }

    pub(crate) fn read(&self) -> u64 {
        // SAFETY: as above.
        unsafe { *self.0.get() }
    }
}

/// Data for promises that are kept by fences.
#[derive(Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn write(&self, value: u64) {
        self.0.store(value, R);
    }

    /// Writes, and then does something.
    pub(crate) fn write_then<R>(&self, then: impl FnOnce() -> R) {
        self.write(1);
        then();
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(R)
    }
}

/// Tells another thread that something has happened, and orders nothing.
#[derive(Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) const fn new() -> Self {
        Flag(AtomicBool::new(false))
    }

    pub(crate) fn lower(&self) {
        self.0.store(false, R);
    }

    pub(crate) fn raise(&self) {
        self.0.store(true, R);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(R)
    }

    pub(crate) fn wait(&self) {
        while !self.is_raised() {
            thread::yield_now();
        }
    }
}

/// Runs the threads at the same time, once all of them have been started.
pub(crate) fn together<const N: usize>(threads: [Box<dyn FnOnce() + Send + '_>; N]) {
    let go = &Flag::default();
    thread::scope(|scope| {
        for thread in threads {
            scope.spawn(move || {
                go.wait();
                thread();
            });
        }
        go.raise();
    });
}

/// Runs closures at the same time, see [`together`].
macro_rules! race {
    ($($thread:expr),+ $(,)?) => { crate::race::together([$(Box::new($thread)),+]) };
}

pub(crate) use race;
