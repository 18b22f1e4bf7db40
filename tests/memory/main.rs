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

const MILLION: u64 = 1_000_000;
/// What may stay allocated: the stale entries that are let be, and room in tables and slots.
const CACHE: isize = 1 << 20;

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
    for n in 0..MILLION {
        step(n);
        most = most.max(held() - before);
    }
    println!("at most {most} bytes more");
    assert!(most <= bytes, "{most} bytes more");
}
