//! Delays with the queue's own thread and the real clock: the thread's life (S6), shut-downs (S5),
//! and a flood of new delays while many others end (D7).

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, MS, ms};
use crate::common::{Task, eager, eventually, panicking_waker, poll, take_all, threads, watchdog};
use keyqueue::{Added, Clock, WorkQueue};

// ---- the thread's life ----------------------------------------------------------------------

#[cfg(target_os = "linux")]
#[test] // S6
fn a_queue_that_never_delays_has_no_thread() {
    crate::common::alone(|| {
        let before = threads("");
        let queue = eager::<u64>([]);
        let handle = queue.handle(1);
        assert_eq!(queue.add_after(1, Duration::ZERO), Added::Queued);
        assert_eq!(queue.get().unwrap().retry(), Added::Deferred);
        handle.add();
        assert!(!queue.cancel(&1));
        queue.fire_due();
        queue.add_all(0..10_000);
        take_all(&queue);
        drop(queue.get_timeout(Duration::from_micros(1)));
        drop(Task::waiting(queue.get_async()));
        queue.shrink();
        assert_eq!(threads(""), before);
        queue.shut_down_with_drain();
        assert_eq!(queue.add_after(1, MS), Added::ShutDown);
        assert_eq!(handle.add_after(MS), Added::ShutDown);
        assert_eq!(threads(""), before);

        let manual = WorkQueue::<u64>::builder().manual_timers().build().unwrap();
        assert_eq!(manual.add_after(1, MS), Added::Delayed);
        assert_eq!(threads(""), before, "nor one whose timers are manual");

        let named = WorkQueue::<u64>::builder().name("pods").build().unwrap();
        assert_eq!(named.add_after(1, Duration::ZERO), Added::Queued);
        assert_eq!(threads("keyqueue-timer"), 0, "nor one with a name");
    });
}

#[cfg(target_os = "linux")]
#[test] // S6
fn the_thread_comes_with_the_first_delay_and_goes_with_the_queue() {
    type Queue = WorkQueue<u64>;
    let ends: [fn(Queue) -> Option<Queue>; 3] = [
        |_| None, // drops it
        |queue| {
            queue.shut_down();
            Some(queue)
        },
        |queue| {
            queue.shut_down_with_drain();
            Some(queue)
        },
    ];
    crate::common::alone(|| {
        let _watchdog = watchdog(60);
        for (end, named) in ends.iter().flat_map(|end| [(end, false), (end, true)]) {
            let builder = WorkQueue::builder();
            let queue = if named { builder.name("pods") } else { builder }
                .build()
                .unwrap();
            assert_eq!(queue.add_after(1, HOUR), Added::Delayed);
            queue.add_after(2, HOUR);
            // The system names it once it runs.
            eventually("one thread", || threads("keyqueue-timer") == 1);
            let handle = queue.handle(1);
            let _ended = end(queue);
            // It was waited for; the system may take a moment to strike it off its list.
            eventually("no thread", || threads("keyqueue-timer") == 0);
            assert_eq!(handle.add_after(MS), Added::ShutDown);
            assert_eq!(threads("keyqueue-timer"), 0);
        }
    });
}

// ---- delivering -----------------------------------------------------------------------------

#[test] // D1: of any queue, whatever its name is
fn the_thread_adds_what_is_due_and_wakes_who_waits() {
    let _watchdog = watchdog(60);
    let clock = Clock::new();
    let builder = WorkQueue::builder().name("a\0b").clock(clock.clone());
    let queue: WorkQueue<u64> = builder.build().unwrap();
    assert_eq!(queue.name(), Some("a\0b"));
    for delay in [MS, 20 * MS, MS / 3, MS] {
        let before = clock.now();
        assert_eq!(queue.add_after(1, delay), Added::Delayed);
        queue.get().unwrap().done();
        let waited = clock.now() - before;
        assert!(waited >= delay, "{waited:?} instead of {delay:?}");
    }
}

#[test] // D8 D9: on a mocked clock
fn of_two_delays_the_one_due_earlier_comes_first() {
    let _watchdog = watchdog(120);
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::<u64>::builder().clock(clock).build().unwrap();
    let mut random = fastrand::Rng::with_seed(17);
    for round in 0..100_000 {
        let (first, second) = (random.u64(1..4), random.u64(1..4));
        // The keys are even and odd, and so never the same.
        queue.add_after(2 * first, ms(first));
        queue.add_after(2 * second + 1, ms(second));
        time.advance(ms(3));
        let came = [(); 2].map(|()| *queue.get().unwrap());
        // Delays of the same tick come in the order of the calls.
        let mut expected = [2 * first, 2 * second + 1];
        expected.sort_unstable();
        assert_eq!(came, expected, "round {round}");
    }
}

#[test] // D3 D7: the thread sleeps for an hour when the shorter delay comes
fn a_shorter_delay_wakes_the_thread() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    queue.add_after(1, HOUR);
    for round in 0..100 {
        queue.add_after(2 + round % 3, MS);
        assert_eq!(*queue.get().unwrap(), 2 + round % 3);
    }
    queue.add_after(1, MS);
    assert_eq!(*queue.get().unwrap(), 1, "the same key, moved");
}

// ---- the end --------------------------------------------------------------------------------

#[test] // S5
fn what_the_thread_has_not_delivered_is_dropped_and_counted_or_delivered_by_a_drain() {
    let _watchdog = watchdog(60);
    for round in 0..200_u64 {
        let deliver = round % 2 == 1;
        let builder = WorkQueue::builder().drain_delays(deliver);
        let queue = builder.build().unwrap();
        for key in 0..1000 {
            queue.add_after(key, Duration::from_micros(1 + key * (round / 2 % 10)));
        }
        queue.add_after(1000, HOUR);
        let (delivered, left) = thread::scope(|scope| {
            let workers = [(); 2].map(|()| scope.spawn(|| queue.iter().count()));
            let left = if deliver {
                queue.shut_down_with_drain()
            } else {
                queue.shut_down()
            };
            (workers.map(|worker| worker.join().unwrap()), left)
        });
        assert_eq!(left.delayed == 0, deliver, "{left:?}");
        assert_eq!(delivered.iter().sum::<usize>() + left.delayed, 1001);
    }
}

#[test] // S5 S6: delays set while the queue ends neither hang nor start a thread that stays
fn a_queue_dropped_beside_new_delays_ends() {
    let _watchdog = watchdog(60);
    for _ in 0..200 {
        let queue = WorkQueue::<u64>::new();
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
#[derive(Default)]
struct DropsItself(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for DropsItself {
    fn wake(self: Arc<Self>) {
        let task = self.0.lock().unwrap().take();
        drop(task);
    }
}

#[test] // S6: the thread would wait for itself
fn a_waker_on_the_timers_thread_may_drop_the_queue() {
    let _watchdog = watchdog(60);
    let queue = Arc::new(WorkQueue::<u64>::new());
    let weak = Arc::downgrade(&queue);
    let task = Arc::new(DropsItself::default());
    let waker = Waker::from(Arc::clone(&task));
    queue.add_after(1, ms(20));
    let mut slot = task.0.lock().unwrap();
    let future = slot.insert(Box::pin(async move {
        let _ = queue.get_async().await;
    }));
    // Who wakes it waits for the slot's lock.
    let polled = poll(future, &waker);
    drop(slot);
    if polled.is_ready() {
        waker.wake();
    }
    eventually("the queue is gone", || weak.strong_count() == 0);
}

#[test] // a waker that panics loses no delay
fn a_waker_that_panics_does_not_end_the_thread() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    let mut task = queue.get_async();
    assert!(poll(&mut task, &panicking_waker()).is_pending());
    queue.add_after(1, MS);
    eventually("the first is added", || queue.len() == 1);
    drop(task);
    queue.add_after(2, MS);
    eventually("the second is added", || queue.len() == 2);
}

// ---- a flood --------------------------------------------------------------------------------

/// Delays `keys` keys, all due at random times within two seconds that begin when every one is set,
/// and adds delays far in the future from four threads, as fast as they can, until all of the first
/// have been delivered to four consumers.
fn flood(keys: u64, most_new: u64) {
    let clock = Clock::new();
    let builder = WorkQueue::<u64>::builder().clock(clock.clone());
    let queue = builder.build().unwrap();
    let random = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    // Setting one takes less than 2 us.
    let all_set = clock.now() + ms(100) + Duration::from_micros(2 * keys);
    let set = |key| {
        let now = clock.now();
        let into = Duration::from_nanos(1 + random(key) % 2_000_000_000);
        let delay = all_set.saturating_sub(now) + into;
        assert_eq!(queue.add_after(key, delay), Added::Delayed);
        now + delay
    };
    let due: Vec<Duration> = (0..keys).map(set).collect();

    let set_new = |n| {
        let set = |added: &u64| {
            let key = keys + 4 * (added % most_new) + n;
            // Each round sooner than the one before, so that each call sets a delay.
            let sooner = MS * u32::try_from(added / most_new).unwrap();
            queue.add_after(key, HOUR - sooner) == Added::Delayed
        };
        (0..).take_while(set).count()
    };
    let left = AtomicU64::new(keys);
    let consume = || {
        let mut came = Vec::new();
        for item in &queue {
            let (now, key) = (clock.now(), *item);
            assert!(now >= due[key as usize], "{key} came early");
            came.push(key);
            // Ordering: Relaxed; only counts.
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                queue.shut_down();
            }
        }
        came
    };
    let came = thread::scope(|scope| {
        for n in 0..4 {
            scope.spawn(move || set_new(n));
        }
        let consumers = [(); 4].map(|()| scope.spawn(consume));
        consumers.map(|consumer| consumer.join().unwrap())
    });
    let mut came = came.concat();
    came.sort_unstable();
    assert!(came.into_iter().eq(0..keys), "each comes once");
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
