//! The worker loop.

#[path = "../common/mod.rs"]
mod common;

mod attempts;
mod batch_ends;
mod batches;
mod cancelled;
mod crowded;
mod dead_letters;
mod dropped;
mod each;
mod failures;
mod handles;
mod held;
mod hooks;
mod jobs;
mod keeps_open;
mod outcomes;
mod panics;
mod reentry;
mod runtime;
mod subscribers;
mod taken;
mod tasks;
mod threads;
mod tracing;
mod verdicts;

use std::hash::Hash;
use std::time::Duration;

use keyqueue::{Added, WorkQueue};

/// Asserts that no workers keep the queue open.
#[track_caller]
fn assert_closed_by_its_drop(queue: WorkQueue<u64>) {
    let handle = queue.handle(1);
    assert!(handle.add().is_accepted());
    drop(queue);
    assert_eq!(handle.add(), Added::ShutDown);
}

/// Asserts that no key is queued or processing, of a queue that takes no others from now on.
#[track_caller]
fn assert_all_done<K: Hash + Eq>(queue: &WorkQueue<K>) {
    assert!(queue.drain_timeout(Duration::ZERO).is_finished());
}
