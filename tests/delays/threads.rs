//! Delays with the queue's own thread and the real clock: the thread's life (S6), shut-downs (S5),
//! and a flood of new delays while many others end (D7).

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{eventually, watchdog};
use hdrhistogram::Histogram;
use keyqueue::{Added, Clock, WorkQueue};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

// ---- the thread's life ----------------------------------------------------------------------

/// The threads of this process that are timers of queues.
#[cfg(target_os = "linux")]
fn timers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("the list of threads");
    // A thread may end while its name is read.
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names
        .filter(|name| name.starts_with("keyqueue-timer"))
        .count()
}

#[cfg(target_os = "linux")]
#[test] // S6
fn a_queue_that_never_delays_has_no_thread() {
    crate::common::alone(|| {
        let queue = WorkQueue::builder().name("pods").build().unwrap();
        let handle = queue.handle(1);
        assert_eq!(queue.add_after(1, Duration::ZERO), Added::Queued);
        assert_eq!(queue.get().unwrap().retry(), Added::Deferred);
        handle.add();
        assert!(!queue.cancel(&1));
        queue.fire_due();
        assert_eq!(timers(), 0);
        queue.shut_down();
        assert_eq!(queue.add_after(1, MS), Added::ShutDown);
        assert_eq!(handle.add_after(MS), Added::ShutDown);
        assert_eq!(timers(), 0);

        let manual = WorkQueue::builder().manual_timers().build().unwrap();
        assert_eq!(manual.add_after(1, MS), Added::Delayed);
        assert_eq!(timers(), 0, "nor one whose timers are manual");
    });
}

#[test] // D1: whatever can be a queue's name, its delays end.
fn a_queue_with_a_nul_in_its_name_delays_like_any_other() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::builder().name("a\0b").build().unwrap();
    assert_eq!(queue.add_after(1, MS), Added::Delayed);
    assert_eq!(*queue.get().unwrap(), 1);
    assert_eq!(queue.name(), Some("a\0b"));
}

#[cfg(target_os = "linux")]
#[test] // S6
fn the_thread_comes_with_the_first_delay_and_goes_with_the_queue() {
    crate::common::alone(|| {
        let _watchdog = watchdog(60);
        for named in [false, true] {
            let builder = WorkQueue::builder();
            let queue = if named { builder.name("pods") } else { builder }
                .build()
                .unwrap();
            assert_eq!(queue.add_after(1, HOUR), Added::Delayed);
            queue.add_after(2, HOUR);
            // The system names it once it runs.
            eventually("one thread", || timers() == 1);
            let handle = queue.handle(1);
            drop(queue);
            // It was waited for; the system may take a moment to strike it off its list.
            eventually("no thread", || timers() == 0);
            assert_eq!(handle.add_after(MS), Added::ShutDown);
        }
    });
}

#[cfg(target_os = "linux")]
#[test] // S6
fn the_thread_goes_at_a_shut_down_of_either_kind() {
    crate::common::alone(|| {
        let _watchdog = watchdog(60);
        for drain in [false, true] {
            let queue = WorkQueue::new();
            queue.add_after(1, HOUR);
            // Not before: a thread that has no name yet would not be counted.
            eventually("one thread", || timers() == 1);
            if drain {
                queue.shut_down_with_drain();
            } else {
                queue.shut_down();
            }
            eventually("no thread", || timers() == 0);
            assert_eq!(queue.add_after(2, HOUR), Added::ShutDown);
            assert_eq!(timers(), 0);
        }
    });
}

// ---- delivering -----------------------------------------------------------------------------

#[test] // D1
fn the_thread_adds_what_is_due_and_wakes_who_waits() {
    let _watchdog = watchdog(60);
    let clock = Clock::new();
    let queue = WorkQueue::builder().clock(clock.clone()).build().unwrap();
    for delay in [MS, 20 * MS, MS / 3, MS] {
        let before = clock.now();
        assert_eq!(queue.add_after(1, delay), Added::Delayed);
        queue.get().unwrap().done();
        let waited = clock.now() - before;
        assert!(waited >= delay, "{waited:?} instead of {delay:?}");
    }
}

#[test] // D3 D7: the thread sleeps for an hour when the shorter delay comes
fn a_shorter_delay_wakes_the_thread() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_after(1, HOUR);
    for round in 0..100 {
        queue.add_after(2 + round % 3, MS);
        assert_eq!(*queue.get().unwrap(), 2 + round % 3);
    }
    queue.add_after(1, MS);
    assert_eq!(*queue.get().unwrap(), 1, "the same key, moved");
}

#[test] // D9: a mocked clock, and the queue's own thread
fn advancing_a_mocked_clock_wakes_the_thread() {
    let _watchdog = watchdog(60);
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).build().unwrap();
    for round in 0..1000 {
        queue.add_after(round, HOUR);
        assert_eq!(queue.len(), 0);
        time.advance(HOUR);
        assert_eq!(*queue.get().unwrap(), round);
    }
}

// ---- the end --------------------------------------------------------------------------------

#[test] // S5
fn a_shut_down_drops_and_counts_what_the_thread_has_not_delivered() {
    let _watchdog = watchdog(60);
    for round in 0..100_u64 {
        let queue = WorkQueue::new();
        for key in 0..1000 {
            queue.add_after(key, Duration::from_micros(1 + key * (round % 10)));
        }
        let left = queue.shut_down();
        let delivered = std::iter::from_fn(|| queue.get().map(|item| *item)).count();
        assert_eq!(delivered + left.delayed, 1000, "{left:?}");
    }
}

#[test] // S5
fn a_drain_delivers_what_the_thread_has_not_if_told_to() {
    let _watchdog = watchdog(60);
    for round in 0..100_u64 {
        let queue = WorkQueue::builder().drain_delays(true).build().unwrap();
        for key in 0..1000 {
            queue.add_after(key, Duration::from_micros(1 + key * (round % 10)));
        }
        queue.add_after(1000, HOUR);
        let delivered = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while queue.get().is_some() {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            queue.shut_down_with_drain();
        });
        assert_eq!(delivered.load(Ordering::SeqCst), 1001);
    }
}

#[test] // S5 S6: delays set while the queue ends neither hang nor start a thread that stays
fn a_queue_dropped_beside_new_delays_ends() {
    let _watchdog = watchdog(60);
    for _ in 0..200 {
        let queue = WorkQueue::new();
        let handle = queue.handle(0);
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while handle.add_after(MS) != Added::ShutDown {
                    begun.store(true, Ordering::SeqCst);
                }
            });
            eventually("it delays", || begun.load(Ordering::SeqCst));
            drop(queue);
        });
    }
}

/// A task whose waker drops it, and with it the last share of the queue.
struct DropsItself(
    Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    Arc<AtomicBool>,
);

impl Wake for DropsItself {
    fn wake(self: Arc<Self>) {
        let task = self.0.lock().unwrap().take();
        drop(task);
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test] // S6: the thread would wait for itself
fn a_waker_on_the_timers_thread_may_drop_the_queue() {
    let _watchdog = watchdog(60);
    let queue = Arc::new(WorkQueue::new());
    let weak = Arc::downgrade(&queue);
    let dropped = Arc::new(AtomicBool::new(false));
    let task = Arc::new(DropsItself(Mutex::new(None), Arc::clone(&dropped)));
    let waker = Waker::from(Arc::clone(&task));
    queue.add_after(1, 20 * MS);
    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let _ = queue.get_async().await;
    });
    let first = future.as_mut().poll(&mut Context::from_waker(&waker));
    if first.is_pending() {
        *task.0.lock().unwrap() = Some(future);
        // Woken between the poll and the line above it found no task to drop.
        if dropped.load(Ordering::SeqCst) {
            drop(task.0.lock().unwrap().take());
        }
    } else {
        drop(future);
    }
    eventually("the queue is gone", || weak.strong_count() == 0);
}

#[test] // a waker that panics loses no delay
fn a_waker_that_panics_does_not_end_the_thread() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("this waker always panics");
        }
    }
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let waker = Waker::from(Arc::new(Panics));
    let mut task = queue.get_async();
    if crate::common::poll(&mut task, &waker).is_pending() {
        queue.add_after(1, MS);
        eventually("the first is added", || queue.len() == 1);
    }
    drop(task);
    queue.add_after(2, MS);
    eventually("the second is added", || queue.len() == 2);
}

// ---- a flood --------------------------------------------------------------------------------

/// Delays `keys` keys, all due at random times within two seconds that begin when every one is set,
/// and adds delays far in the future from four threads, as fast as they can, until all of the first
/// have been delivered to four consumers.
fn flood(keys: usize, most_new: usize) {
    let clock = Clock::new();
    let queue = WorkQueue::<usize>::builder()
        .clock(clock.clone())
        .build()
        .unwrap();
    let _ = clock.now(); // calibrates
    let random = |key: usize| (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    let begun = (Instant::now(), clock.now());
    // Setting one takes less than 2 us.
    let all_set = begun.0 + Duration::from_millis(100) + Duration::from_micros(2 * keys as u64);
    let calls: Vec<(Instant, Duration, Duration)> = (0..keys)
        .map(|key| {
            let called = (Instant::now(), clock.now());
            let into = Duration::from_nanos(1 + random(key) % 2_000_000_000);
            let delay = all_set.saturating_duration_since(called.0) + into;
            assert_eq!(queue.add_after(key, delay), Added::Delayed);
            (called.0, called.1, delay)
        })
        .collect();

    let over = AtomicBool::new(false);
    let floods = AtomicUsize::new(0);
    let seen: Vec<AtomicBool> = (0..keys).map(|_| AtomicBool::new(false)).collect();
    let delivered = AtomicUsize::new(0);
    let lateness = Mutex::new(Histogram::<u64>::new(3).unwrap());
    thread::scope(|scope| {
        for n in 0..4 {
            let (queue, over, floods) = (&queue, &over, &floods);
            scope.spawn(move || {
                let mut added = 0;
                // Ordering: Relaxed; a flag that need not be seen at once.
                while !over.load(Ordering::Relaxed) {
                    let key = keys + 4 * (added % most_new) + n;
                    // Each round sooner than the one before, so that each call sets a delay.
                    let sooner = MS * u32::try_from(added / most_new).unwrap();
                    queue.add_after(key, HOUR - sooner);
                    added += 1;
                }
                floods.fetch_add(added, Ordering::SeqCst);
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                let mut late = Histogram::<u64>::new(3).unwrap();
                while let Some(item) = queue.get() {
                    let (now, clock_now) = (Instant::now(), clock.now());
                    let key = *item;
                    // Ordering: Relaxed; marks and counts, as below.
                    let twice = seen[key].swap(true, Ordering::Relaxed);
                    assert!(!twice, "{key} came twice");
                    let (called, clock_called, delay) = calls[key];
                    assert!(clock_now - clock_called >= delay, "{key} came early");
                    late += (now - called).saturating_sub(delay).as_nanos() as u64;
                    if delivered.fetch_add(1, Ordering::Relaxed) + 1 == keys {
                        over.store(true, Ordering::Relaxed);
                        queue.shut_down();
                    }
                }
                lateness.lock().unwrap().add(late).unwrap();
            });
        }
    });
    let lateness = lateness.into_inner().unwrap();
    assert_eq!(lateness.len(), keys as u64);
    let drift = (clock.now() - begun.1).as_nanos() as i128 - begun.0.elapsed().as_nanos() as i128;
    println!(
        "{keys} delays beside {} new ones in {:?}; late p50 {:?}, p99 {:?}, most {:?}; \
         the queue's clock is {drift} ns ahead",
        floods.load(Ordering::SeqCst),
        begun.0.elapsed(),
        Duration::from_nanos(lateness.value_at_quantile(0.5)),
        Duration::from_nanos(lateness.value_at_quantile(0.99)),
        Duration::from_nanos(lateness.max()),
    );
}

#[test] // D1 D7
fn a_flood_of_new_delays_postpones_none_that_is_due() {
    let _watchdog = watchdog(120);
    flood(20_000, 50_000);
}

#[test] // D1 D7
#[ignore = "takes a gigabyte and two cores; `.ci/run ignored` runs it"]
fn a_flood_of_new_delays_postpones_none_of_a_million() {
    let _watchdog = watchdog(600);
    flood(1_000_000, 1_000_000);
}
