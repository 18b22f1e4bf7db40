//! client-go v0.37 (32ce75a7), `util/workqueue/delaying_queue_test.go` and `parallelizer_test.go`.
//!
//! The rest of the package is elsewhere: the queue in `tests/core/client_go.rs`, draining in
//! `tests/shutdown/`, limiters and the rate limiting queue in `tests/limits/`, metrics in
//! `tests/metrics/`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::timed::{after, ms, secs, timed};
use crate::common::watchdog;
use keyqueue::{Added, WorkQueue};

const NONE: [&str; 0] = [];

#[test] // D1
fn test_simple_queue() {
    let (queue, time) = timed();
    assert_eq!(queue.add_after("foo", ms(50)), Added::Delayed);
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, ms(60)), ["foo"]);
    assert_eq!(after(&queue, &time, secs(10)), NONE);
}

#[test] // D3
fn test_deduping() {
    let (queue, time) = timed();
    queue.add_after("foo", ms(50));
    queue.add_after("foo", ms(70));
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, ms(60)), ["foo"]);
    assert_eq!(after(&queue, &time, ms(20)), NONE);
    // And the other way around.
    queue.add_after("foo", ms(50));
    queue.add_after("foo", ms(30));
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, ms(40)), ["foo"]);
    assert_eq!(after(&queue, &time, ms(20)), NONE);
}

#[test] // D8
fn test_add_two_fire_early() {
    let (queue, time) = timed();
    queue.add_after("foo", secs(1));
    queue.add_after("bar", ms(50));
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, ms(60)), ["bar"]);
    queue.add_after("baz", secs(2));
    assert_eq!(after(&queue, &time, secs(1)), ["foo"]);
    assert_eq!(after(&queue, &time, secs(2)), ["baz"]);
}

#[test] // D8
fn test_copy_shifting() {
    let (queue, time) = timed();
    queue.add_after("foo", secs(1));
    queue.add_after("bar", ms(500));
    queue.add_after("baz", ms(250));
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, secs(2)), ["baz", "bar", "foo"]);
}

#[test] // C5 C12: the pieces are keys, and a chunk is a batch
fn test_parallelize_until() {
    let _watchdog = watchdog(60);
    for (pieces, chunk) in [(1000_u64, 1), (1000, 10), (1000, 100), (999, 13)] {
        let queue = WorkQueue::new();
        let seen: Vec<_> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
        queue.add_all(0..pieces);
        queue.shut_down();
        let work = || {
            while let Some(batch) = queue.get_batch(chunk) {
                assert!(batch.len() <= chunk);
                for item in &batch {
                    seen[**item as usize].fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        thread::scope(|scope| (0..10).for_each(|_| _ = scope.spawn(work)));
        assert!(seen.into_iter().all(|seen| seen.into_inner() == 1));
    }
}
