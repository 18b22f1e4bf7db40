//! Which queues report under which names, and the thread and the recorders of their reports (M4, S6).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::timed::HOUR;
use crate::common::{alone, eventually, threads, watchdog};
use crate::recorder::Recorded;
use crate::series::{pods, us};
use keyqueue::WorkQueue;
use keyqueue::metrics::report_all;

#[test]
fn two_queues_of_one_name_are_told_apart_and_a_name_is_free_again() {
    let recorded = Recorded::default();
    let queue = || pods(&recorded).0;
    let (first, second) = (queue(), queue());
    first.add("a");
    second.add_all(["a", "b"]);
    first.report();
    second.report();
    let depth = |name| recorded.value("workqueue_depth", name);
    assert_eq!((depth("pods"), depth("pods#2")), (1.0, 2.0));
    drop(first);
    let third = queue();
    third.add_all(["a", "b", "c"]);
    third.report();
    assert_eq!((depth("pods"), depth("pods#2")), (3.0, 2.0));
    // Another recorder is another matter.
    let elsewhere = Recorded::default();
    pods(&elsewhere).0.report();
    assert_eq!(elsewhere.value("workqueue_depth", "pods"), 0.0);
}

#[test]
fn the_gauges_of_a_dropped_queue_are_zero_and_its_counters_stay() {
    let recorded = Recorded::default();
    let (queue, time) = pods(&recorded);
    queue.add_all(["a", "b", "c"]);
    queue.add_after("d", us(1000));
    drop(queue.get());
    time.advance(us(1_000_000));
    queue.report();
    assert_eq!(recorded.value("workqueue_depth", "pods"), 2.0);
    queue.add("e"); // reported by the drop
    drop(queue);
    for (kind, series, name) in recorded.series() {
        if kind == "gauge" {
            assert_eq!(recorded.value(&series, &name), 0.0, "{series}");
        }
    }
    assert_eq!(recorded.value("workqueue_adds_total", "pods"), 4.0);
}

#[test] // M4
fn an_unnamed_queue_and_one_that_is_not_timed_report_nothing() {
    let recorded = Recorded::default();
    let unnamed = WorkQueue::builder().recorder(recorded.recorder());
    let off = WorkQueue::builder()
        .name("off")
        .timing(false)
        .recorder(recorded.recorder());
    for builder in [unnamed, off] {
        let queue = builder.build().unwrap();
        queue.add("a");
        drop(queue.get());
        queue.report();
        drop(queue);
    }
    assert_eq!(recorded.series(), []);
}

// S6, and client-go's TestMetricShutdown: reports come by themselves, and no more after the end.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_reports_from_the_first_add_to_the_end_of_the_last_queue() {
    // The other tests of this process have threads, too.
    alone(|| {
        let has_thread = || threads("keyqueue-metric") > 0;
        let _watchdog = watchdog(60);
        let recorded = Recorded::default();
        let queue = |name: &str| {
            let builder = WorkQueue::builder().name(name);
            builder.recorder(recorded.recorder()).build().unwrap()
        };
        let (first, second) = (queue("first"), queue("second"));
        assert!(!has_thread(), "a constructor starts no thread");
        first.add("a");
        second.add("a");
        eventually("the thread is there", has_thread);
        let depth = |name| recorded.try_value("workqueue_depth", name).unwrap_or(0.0);
        eventually("both report", || {
            depth("first") == 1.0 && depth("second") == 1.0
        });
        drop(second);
        assert!(has_thread(), "one queue is left");

        let item = first.get().unwrap();
        first.shut_down();
        let unfinished = || recorded.value("workqueue_unfinished_work_seconds", "first");
        eventually("it goes on", || unfinished() > 0.0);
        item.done();
        // Shut down and at rest: nothing is left to report.
        eventually("the end", || unfinished() == 0.0 && !has_thread());
        drop(first);

        let third = queue("third");
        third.add("a");
        eventually("it is there again", has_thread);
        drop(third);
        // Joined by the drop; the system may need a moment to take it off its list.
        eventually("the thread is gone", || !has_thread());
    });
}

#[test] // M3
fn a_queue_that_has_only_delays_reports_them() {
    let recorded = Recorded::default();
    let builder = WorkQueue::builder().name("delays only");
    let queue = builder.recorder(recorded.recorder()).build().unwrap();
    report_all();
    assert_eq!(recorded.try_value("workqueue_delayed", "delays only"), None);
    queue.add_after("a", HOUR);
    report_all();
    assert_eq!(recorded.value("workqueue_delayed", "delays only"), 1.0);
}

/// A drop wakes the thread in order to join it: it does not wait for the half second to pass.
#[cfg(target_os = "linux")]
#[test]
fn a_drop_does_not_wait_for_the_next_report() {
    alone(|| {
        let _watchdog = watchdog(20); // Half a second each would be more.
        for _ in 0..80 {
            let queue = WorkQueue::builder().name("short-lived").build().unwrap();
            queue.add("a");
        }
    });
}

/// A recorder that panics takes down neither the thread nor the queue.
#[test]
fn a_recorder_that_panics_is_called_again() {
    let _watchdog = watchdog(60);
    let recorded = Recorded::default();
    let panicked = Arc::new(AtomicUsize::new(0));
    recorded.call_back({
        let panicked = Arc::clone(&panicked);
        move || {
            panicked.fetch_add(1, Ordering::Relaxed);
            panic!("the recorder has a bad day");
        }
    });
    let builder = WorkQueue::builder().name("panics");
    let queue = builder.recorder(recorded.recorder()).build().unwrap();
    queue.add("a");
    eventually("a report", || {
        recorded.try_value("workqueue_depth", "panics") == Some(1.0)
    });
    assert_eq!(panicked.load(Ordering::Relaxed), 1);
}

/// A recorder may use the queue that reports to it.
#[test]
fn a_recorder_that_calls_the_queue_does_not_deadlock() {
    let _watchdog = watchdog(60);
    let recorded = Recorded::default();
    let builder = WorkQueue::builder().name("calls back").manual_timers();
    let queue = builder.recorder(recorded.recorder()).build().unwrap();
    let queue = Arc::new(queue);
    let called = Arc::new(AtomicUsize::new(0));
    recorded.call_back({
        let (queue, called) = (Arc::clone(&queue), Arc::clone(&called));
        move || {
            queue.report();
            queue.add("b");
            assert_eq!(queue.len(), 2);
            called.fetch_add(1, Ordering::Relaxed);
        }
    });
    queue.add("a");
    queue.report();
    assert_eq!(called.load(Ordering::Relaxed), 1);
    queue.report();
    assert_eq!(recorded.value("workqueue_depth", "calls back"), 2.0);
}
