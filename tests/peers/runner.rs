//! kube-runtime 4.2.0, `src/controller/runner.rs`, `future_hash_map.rs` and the applier's test in
//! `mod.rs`.
//!
//! A runner is [`Workers`] that are a future. What waits for readiness is a group that is held;
//! `runner_should_report_readiness_errors` tests the wait for it, which is the caller's here.

use std::cell::{Cell, RefCell};

use crate::common::timed::{DAY, ms, secs};
use crate::common::{poll_until_idle, watchdog};
use futures_lite::future::zip;
use keyqueue::worker::{Job, Outcome, Workers};
use keyqueue::{Added, WorkQueue};
use tokio::sync::{Notify, mpsc};
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep};

#[tokio::test(start_paused = true)] // C3 C4
async fn runner_should_never_run_two_instances_at_once() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let (running, runs) = (Cell::new(false), Cell::new(0));
    let work = async |_: Job<'_, ()>| {
        runs.set(runs.get() + 1);
        assert!(!running.replace(true), "two at once");
        sleep(secs(1)).await;
        running.set(false);
    };
    let feed = async {
        assert_eq!(queue.add(()), Added::Queued);
        sleep(ms(500)).await;
        assert_eq!(queue.add(()), Added::Deferred);
        sleep(secs(5)).await;
        queue.shut_down();
    };
    let (ended, ()) = zip(Workers::new(&queue).concurrency(4).run_async(work), feed).await;
    ended.unwrap();
    assert_eq!(runs.get(), 2);
}

#[tokio::test] // C9 W1
async fn runner_should_wake_when_scheduling_messages() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let (sender, mut received) = mpsc::unbounded_channel();
    let run = Workers::new(&queue).run_async(async move |job| {
        sender.send(*job).unwrap();
    });
    let runner = tokio::spawn(run);
    yield_now().await; // It waits for a key.
    queue.add(8);
    assert_eq!(received.recv().await, Some(8));
    queue.shut_down();
    runner.await.unwrap().unwrap();
}

/// Adds keys to a queue whose only group is held until the worker has looked at them, and returns
/// what is delivered then.
fn held_back(keys: &[u64]) -> Vec<u64> {
    let queue = WorkQueue::builder().group_by(|_| ()).build().unwrap();
    assert!(queue.hold_group(&(), DAY));
    let ran = RefCell::new(Vec::new());
    let mut run = Box::pin(Workers::new(&queue).concurrency(2).run_async(async |job| {
        ran.borrow_mut().push(*job);
    }));
    queue.add_all(keys.iter().copied());
    assert!(poll_until_idle(&mut run).is_pending());
    assert!(ran.borrow().is_empty());
    assert!(queue.hold_group(&(), Duration::ZERO));
    assert!(poll_until_idle(&mut run).is_pending());
    drop(run);
    ran.into_inner()
}

#[test] // G6
fn runner_should_wait_for_readiness() {
    assert_eq!(held_back(&[1]), [1]);
}

#[test] // G6 C2
fn runner_should_dedupe_while_waiting_for_readiness() {
    assert_eq!(held_back(&[1, 2, 1]), [1, 2]);
}

#[tokio::test(start_paused = true)] // W1 W4
async fn runner_should_respect_max_concurrent_executions() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let runs = Cell::new(0);
    let work = async |_: Job<'_, u64>| {
        runs.set(runs.get() + 1);
        sleep(secs(2)).await;
    };
    let feed = async {
        for key in [1, 2, 3] {
            queue.add(key);
            sleep(ms(1)).await;
        }
        assert_eq!(runs.get(), 2);
        sleep(secs(3)).await;
        assert_eq!(runs.get(), 3, "the third, once there is a place");
        sleep(secs(3)).await;
        queue.add(3);
        sleep(ms(1)).await;
        assert_eq!(runs.get(), 4, "the third again");
        // It is in flight as the queue is shut down.
        queue.shut_down();
        Instant::now()
    };
    let (ended, shut_down) = zip(Workers::new(&queue).concurrency(2).run_async(work), feed).await;
    ended.unwrap();
    assert_eq!(shut_down.elapsed(), secs(2) - ms(1), "the key was finished");
}

// ---- the map of futures, and the applier ----------------------------------------------------

#[test] // W1 W4
fn fhm_should_forward_all_values_and_shut_down() {
    let queue = WorkQueue::new();
    let ran = RefCell::new(Vec::new());
    queue.add_all(0..100);
    queue.shut_down();
    let work = async |job: Job<'_, u64>| ran.borrow_mut().push(*job);
    pollster::block_on(Workers::new(&queue).concurrency(100).run_async(work)).unwrap();
    let mut ran = ran.into_inner();
    ran.sort_unstable();
    assert!(ran.into_iter().eq(0..100));
}

#[test] // W4
fn fhm_should_stay_alive_until_all_sources_finish() {
    let queue = WorkQueue::new();
    let (sources, ended) = ([Notify::new(), Notify::new()], RefCell::new(Vec::new()));
    let mut run = Box::pin(Workers::new(&queue).concurrency(2).run_async(async |job| {
        sources[*job as usize].notified().await;
        ended.borrow_mut().push(*job);
    }));
    queue.add_all([0, 1]);
    queue.shut_down();
    assert!(poll_until_idle(&mut run).is_pending());
    sources[0].notify_one();
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(*ended.borrow(), [0]);
    sources[1].notify_one();
    assert!(poll_until_idle(&mut run).is_ready());
    assert_eq!(*ended.borrow(), [0, 1]);
}

#[test] // W3 C1 S1: every run queues its key again, at once
fn applier_must_not_deadlock_if_reschedule_buffer_fills() {
    const KEYS: u64 = 5000;
    let _watchdog = watchdog(120);
    let queue = WorkQueue::new();
    queue.add_all(0..KEYS);
    let (runs, all) = (RefCell::new(vec![0; KEYS as usize]), Cell::new(0));
    let work = async |job: Job<'_, u64>| {
        runs.borrow_mut()[*job as usize] += 1;
        all.set(all.get() + 1);
        if all.get() == 3 * KEYS {
            queue.shut_down();
        }
        Ok::<_, String>(Outcome::RequeueAfter(Duration::ZERO))
    };
    pollster::block_on(Workers::new(&queue).concurrency(100).run_async(work)).unwrap();
    assert!(runs.into_inner().into_iter().all(|runs| runs >= 3));
    let left = queue.counts();
    assert_eq!((left.queued, left.processing), (0, 0));
}
