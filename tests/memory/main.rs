//! What a queue holds, and what it allocates (C10).
//!
//! A global allocator counts. Each test runs in a separate process; `--nocapture` shows the
//! figures.

#[path = "../common/mod.rs"]
mod common;

mod delays;
mod groups;
mod order;
mod queue;
mod shards;
mod steady;

use rig::heap::{CountingHeap, held};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

/// What may stay allocated: the stale entries that are let be, and room in tables and slots.
const CACHE: isize = 1 << 20;

/// The million of the tests: by day less, which is enough to see what grows. The job `ignored` runs them in full.
fn million() -> u64 {
    match std::env::var_os("KEYQUEUE_NIGHT") {
        Some(_) => 1_000_000,
        None => 300_000,
    }
}

/// Does something a million times, and asserts that no more is held at any time than a cache.
#[track_caller]
fn assert_flat(step: impl FnMut(u64)) {
    assert_flat_within(CACHE, step);
}

/// The same with another number of bytes.
#[track_caller]
fn assert_flat_within(bytes: isize, mut step: impl FnMut(u64)) {
    let before = held();
    let mut most = 0;
    for n in 0..million() {
        step(n);
        most = most.max(held() - before);
    }
    println!("at most {most} bytes more");
    assert!(most <= bytes, "{most} bytes more");
}
