//! Waiting: every mix of threads and tasks, nobody woken in vain and nobody forgotten (C9).
//!
//! Tasks are mostly polled by hand, with wakers that count: that makes "woken exactly once" and
//! "passed on" statements about numbers. The races after that run in *rounds*: each round adds
//! keys while everybody is free to sleep and then waits for them to be delivered, so that a
//! single lost wake-up leaves the round hanging, where a steady stream would heal it.

mod common;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::{
    Config, Queue, WakeCount, assert_nothing_queued, eventually, poll, waiting, watchdog,
    with_queues, with_these_queues,
};
use keyqueue::{Added, GetTimeoutError};

fn races() -> [Config; 2] {
    [Config::usual(), Config::tiny()]
}

// ---- whom an add wakes ----------------------------------------------------------------------

#[cfg(target_os = "linux")]
#[test] // C9
fn one_add_wakes_exactly_one_of_a_hundred_threads_and_a_hundred_tasks() {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::PathBuf;

    /// How often the thread has gone to sleep, once it sleeps: a wake-up in vain makes it more.
    fn sleeps(thread: &std::path::Path) -> Option<usize> {
        let status = fs::read_to_string(thread.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        field("State:")?.trim().starts_with('S').then_some(())?;
        field("voluntary_ctxt_switches:")?.trim().parse().ok()
    }

    let _watchdog = watchdog(60);
    let queue = Config::usual().queue();
    let mut tasks: Vec<_> = (0..100)
        .map(|_| {
            let (count, waker) = WakeCount::new();
            (queue.get_async(), count, waker)
        })
        .collect();
    let (threads, started) = std::sync::mpsc::channel();
    let (got, gets) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for (future, _, waker) in &mut tasks {
            assert!(poll(future, waker).is_pending());
            let (queue, threads, got) = (&queue, threads.clone(), got.clone());
            scope.spawn(move || {
                let name = fs::read_link("/proc/thread-self").unwrap();
                let thread = PathBuf::from("/proc").join(name);
                threads.send(thread.clone()).unwrap();
                let item = queue.get().unwrap();
                got.send((thread, *item)).unwrap();
            });
        }
        let mut asleep: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for thread in started.iter().take(100) {
            asleep.insert(thread, 0);
        }
        eventually("all wait", || waiting(&queue) == 200);
        for (thread, count) in &mut asleep {
            eventually("the thread sleeps", || {
                sleeps(thread).is_some_and(|now| {
                    *count = now;
                    true
                })
            });
        }
        for key in 0..200_usize {
            assert_eq!(queue.add(key), Added::Queued);
            assert_eq!(waiting(&queue), 199 - key, "one was taken off the list");
            let woken: Vec<_> = tasks.iter().map(|(_, count, _)| count.get()).collect();
            match woken.iter().sum() {
                0 => {
                    let (thread, delivered) = gets.recv().unwrap();
                    assert_eq!(delivered, key);
                    asleep.remove(&thread).expect("a thread that slept");
                }
                1 => {
                    let place = woken.iter().position(|&count| count == 1).unwrap();
                    let (mut future, _, waker) = tasks.swap_remove(place);
                    match poll(&mut future, &waker) {
                        Poll::Ready(Some(item)) => assert_eq!(*item, key),
                        other => panic!("the woken task gets the key, not {other:?}"),
                    }
                }
                more => panic!("one add woke {more} tasks"),
            }
            if key % 8 == 0 {
                for (thread, count) in &asleep {
                    assert_eq!(sleeps(thread), Some(*count), "woken in vain");
                }
            }
        }
        assert!(tasks.is_empty() && asleep.is_empty());
    });
}

#[test] // C9
fn a_bulk_of_keys_wakes_as_many_tasks() {
    with_queues(|config| {
        for keys in [1, 2, 31, 32, 33, 40, 64, 99, 100, 200] {
            let queue = config.queue();
            let (count, waker) = WakeCount::new();
            let mut tasks: Vec<_> = (0..100).map(|_| queue.get_async()).collect();
            for task in &mut tasks {
                assert!(poll(task, &waker).is_pending());
            }
            assert_eq!(queue.add_all(0..keys), keys);
            assert_eq!(count.get(), keys.min(100));
            let ready: Vec<_> = tasks.iter_mut().map(|task| poll(task, &waker)).collect();
            let got = ready
                .iter()
                .filter(|got| matches!(got, Poll::Ready(Some(_))));
            assert_eq!(got.count(), keys.min(100));
        }
    });
}

#[test] // C6 C9
fn adds_that_queue_nothing_wake_nobody() {
    with_queues(|config| {
        let queue = config.queue::<String>();
        queue.add_ref("processing");
        let item = queue.get().unwrap();
        let (count, waker) = WakeCount::new();
        let mut task = queue.get_async();
        assert!(poll(&mut task, &waker).is_pending());
        let handle = queue.handle("processing".to_owned());
        assert_eq!(queue.add("processing".to_owned()), Added::Deferred);
        assert_eq!(queue.add_ref("processing"), Added::Merged);
        assert_eq!(handle.add(), Added::Merged);
        assert_eq!(queue.add_all(["processing".to_owned()]), 0);
        assert_eq!(count.get(), 0);
        item.done();
        assert_eq!(count.get(), 1, "the dirty key's done is like an add");
        assert!(matches!(poll(&mut task, &waker), Poll::Ready(Some(_))));
    });
}

#[test] // C9 C11
fn every_way_of_adding_wakes_a_task() {
    let ways: [fn(&Queue<String>); 4] = [
        |queue| assert!(queue.add("a".to_owned()).is_accepted()),
        |queue| assert!(queue.add_ref("a").is_accepted()),
        |queue| assert!(queue.handle("a".to_owned()).add().is_accepted()),
        |queue| assert_eq!(queue.add_all(["a".to_owned()]), 1),
    ];
    with_queues(|config| {
        let queue = config.queue::<String>();
        // Twice: of an unknown key, and of a known one.
        for way in ways.iter().chain(&ways) {
            let (count, waker) = WakeCount::new();
            let mut task = queue.get_async();
            assert!(poll(&mut task, &waker).is_pending());
            way(&queue);
            assert_eq!(count.get(), 1);
            assert!(matches!(poll(&mut task, &waker), Poll::Ready(Some(_))));
        }
    });
}

// ---- who leaves half-way --------------------------------------------------------------------

#[test] // C9
fn a_notified_task_that_is_dropped_passes_its_wake_up_on() {
    let _watchdog = watchdog(60);
    with_queues(|config| {
        let queue = config.queue();
        let (first_count, first_waker) = WakeCount::new();
        let (second_count, second_waker) = WakeCount::new();
        let mut first = queue.get_async();
        let mut second = queue.get_async();
        assert!(poll(&mut first, &first_waker).is_pending());
        assert!(poll(&mut second, &second_waker).is_pending());
        queue.add(1);
        assert_eq!((first_count.get(), second_count.get()), (1, 0));
        drop(first);
        assert_eq!((first_count.get(), second_count.get()), (1, 1));
        assert!(matches!(
            poll(&mut second, &second_waker),
            Poll::Ready(Some(_))
        ));

        // And to a thread.
        let mut task = queue.get_async();
        assert!(poll(&mut task, &first_waker).is_pending());
        thread::scope(|scope| {
            let thread = scope.spawn(|| *queue.get().unwrap());
            eventually("both wait", || waiting(&queue) == 2);
            queue.add(2);
            drop(task);
            assert_eq!(thread.join().unwrap(), 2);
        });
    });
}

#[test] // C9
fn notified_tasks_dropped_in_a_chain_pass_on_every_wake_up() {
    let queue = Config::usual().queue();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let (count, waker) = WakeCount::new();
        let mut task = queue.get_async();
        assert!(poll(&mut task, &waker).is_pending());
        tasks.push((task, count, waker));
    }
    queue.add_all(0..3);
    // Whoever is woken is dropped, but for the last three.
    while tasks.len() > 3 {
        let woken = tasks.iter().position(|(_, count, _)| count.get() > 0);
        drop(tasks.remove(woken.expect("three are woken at any time")));
    }
    for (mut task, count, waker) in tasks {
        assert_eq!(count.get(), 1);
        assert!(matches!(poll(&mut task, &waker), Poll::Ready(Some(_))));
    }
}

#[test] // C9
fn a_dropped_task_that_was_not_notified_takes_no_wake_up_with_it() {
    with_queues(|config| {
        let queue = config.queue();
        let (count, waker) = WakeCount::new();
        let mut kept = queue.get_async();
        let mut dropped = queue.get_async();
        assert!(poll(&mut dropped, &waker).is_pending());
        assert!(poll(&mut kept, &waker).is_pending());
        drop(dropped);
        assert_eq!((count.get(), waiting(&queue)), (0, 1));
        queue.add(1);
        assert_eq!(count.get(), 1);
        assert!(matches!(poll(&mut kept, &waker), Poll::Ready(Some(_))));
        drop(queue.get_async()); // never polled
        assert_nothing_queued(&queue);
    });
}

#[test] // C9
fn a_task_overtaken_by_another_getter_waits_again() {
    with_queues(|config| {
        let queue = config.queue();
        let (count, waker) = WakeCount::new();
        let mut task = queue.get_async();
        assert!(poll(&mut task, &waker).is_pending());
        for key in 0..5 {
            queue.add(key);
            assert_eq!(count.get(), key + 1);
            assert_eq!(*queue.try_get().unwrap(), key);
            assert!(poll(&mut task, &waker).is_pending());
            assert_eq!(waiting(&queue), 1);
        }
        queue.add(5);
        assert!(matches!(poll(&mut task, &waker), Poll::Ready(Some(item)) if *item == 5));
    });
}

#[test] // C9
fn a_pending_task_polled_again_waits_once_and_is_reached_by_its_latest_waker() {
    with_queues(|config| {
        let queue = config.queue();
        let (old_count, old) = WakeCount::new();
        let (new_count, new) = WakeCount::new();
        let mut task = queue.get_async();
        for _ in 0..3 {
            assert!(poll(&mut task, &old).is_pending());
        }
        assert!(poll(&mut task, &new).is_pending());
        assert_eq!(waiting(&queue), 1);
        queue.add(1);
        assert_eq!((old_count.get(), new_count.get()), (0, 1));
        assert!(matches!(poll(&mut task, &old), Poll::Ready(Some(_))));
    });
}

#[test] // C9
fn a_timed_thread_that_gives_up_leaves_nothing_behind() {
    with_queues(|config| {
        let queue = config.queue();
        for micros in [0, 1, 100, 1000] {
            let error = queue
                .get_timeout(Duration::from_micros(micros))
                .unwrap_err();
            assert_eq!(error, GetTimeoutError::Timeout);
            assert_eq!(waiting(&queue), 0);
        }
        let (count, waker) = WakeCount::new();
        let mut task = queue.get_async();
        assert!(poll(&mut task, &waker).is_pending());
        queue.add(1);
        assert_eq!(count.get(), 1);
    });
}

// ---- races in rounds ------------------------------------------------------------------------

/// Spins for a random while, so that two threads meet at ever different points.
fn dawdle(most: u32) {
    for _ in 0..fastrand::u32(0..=most) {
        std::hint::spin_loop();
    }
}

/// In every round one getter that gives up half-way and one key, and beside them a thread that
/// waits for good: if the quitter does not take the key, that thread must.
fn rounds_against_a_quitter(quitter: impl Fn(&Queue<usize>) -> bool + Sync) {
    const ROUNDS: usize = 2000;
    let _watchdog = watchdog(120);
    with_these_queues(&races(), |config| {
        let queue = config.queue();
        let delivered = AtomicUsize::new(0);
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                while queue.get().is_some() {
                    delivered.fetch_add(1, Ordering::SeqCst);
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    start.wait();
                    if quitter(&queue) {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                    start.wait();
                }
            });
            for round in 0..ROUNDS {
                start.wait();
                dawdle(3000);
                queue.add(round);
                start.wait(); // the quitter has left
                while delivered.load(Ordering::SeqCst) <= round {
                    thread::yield_now();
                }
            }
            queue.shut_down();
        });
        assert_eq!(delivered.into_inner(), ROUNDS);
    });
}

#[test] // C9
fn a_thread_that_times_out_as_it_is_notified_loses_no_key() {
    rounds_against_a_quitter(|queue| {
        let limit = Duration::from_nanos(fastrand::u64(0..60_000));
        queue.get_timeout(limit).is_ok()
    });
}

#[test] // C9
fn a_task_that_is_dropped_as_it_is_notified_loses_no_key() {
    rounds_against_a_quitter(|queue| {
        let mut task = queue.get_async();
        let got = poll(&mut task, Waker::noop()).is_ready();
        dawdle(3000);
        got
    });
}

#[test] // C9
fn a_task_that_loses_a_select_as_it_is_notified_loses_no_key() {
    rounds_against_a_quitter(|queue| {
        pollster::block_on(futures_lite::future::or(
            async { queue.get_async().await.is_some() },
            async {
                for _ in 0..fastrand::u32(0..4) {
                    futures_lite::future::yield_now().await;
                }
                false
            },
        ))
    });
}

#[test] // C9
fn tasks_cancelled_on_tokio_lose_no_key() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    rounds_against_a_quitter(|queue| {
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = tokio::task::yield_now() => false,
                item = queue.get_async() => item.is_some(),
            }
        })
    });
}

/// A consumer that counts what it delivers.
async fn consume(queue: Arc<Queue<usize>>, delivered: Arc<AtomicUsize>) {
    while let Some(item) = queue.get_async().await {
        delivered.fetch_add(1, Ordering::SeqCst);
        item.done();
    }
}

#[test] // C9 C12
fn threads_and_tasks_of_every_kind_share_a_queue_and_nobody_is_forgotten() {
    const ROUNDS: usize = 1500;
    let _watchdog = watchdog(120);
    with_these_queues(&races(), |config| {
        let queue = Arc::new(config.queue());
        let delivered = Arc::new(AtomicUsize::new(0));
        let task = || consume(Arc::clone(&queue), Arc::clone(&delivered));
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let on_tokio: Vec<_> = (0..3).map(|_| tokio.spawn(task())).collect();
        let on_smol: Vec<_> = (0..3).map(|_| smol::spawn(task())).collect();
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let task = task();
                thread::spawn(move || pollster::block_on(task))
            })
            .collect();
        for max in [0, 0, 3] {
            let (queue, delivered) = (Arc::clone(&queue), Arc::clone(&delivered));
            threads.push(thread::spawn(move || {
                loop {
                    let taken = match max {
                        0 => queue.get().map_or(0, |_| 1),
                        max => queue.get_batch(max).len(),
                    };
                    if taken == 0 {
                        break;
                    }
                    delivered.fetch_add(taken, Ordering::SeqCst);
                }
            }));
        }
        let mut added = 0;
        for round in 0..ROUNDS {
            let keys = added..added + fastrand::usize(1..=12);
            added = keys.end;
            match round % 3 {
                0 => assert_eq!(queue.add_all(keys.clone()), keys.len()),
                1 => keys.for_each(|key| assert_eq!(queue.add(key), Added::Queued)),
                _ => keys.for_each(|key| assert_eq!(queue.handle(key).add(), Added::Queued)),
            }
            while delivered.load(Ordering::SeqCst) < added {
                thread::yield_now();
            }
        }
        queue.shut_down();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        on_smol.into_iter().for_each(smol::block_on);
        tokio.block_on(async {
            for task in on_tokio {
                task.await.unwrap();
            }
        });
        assert_eq!(delivered.load(Ordering::SeqCst), added);
    });
}

#[test]
fn getting_is_a_future_that_can_move_between_threads() {
    fn is_send<F: Future + Send>(_: &F) {}
    let queue = Config::usual().queue::<String>();
    is_send(&queue.get_async());
    is_send(&queue.drain_async());
}

// ---- what waiting costs ---------------------------------------------------------------------

/// Has a hundred threads and a hundred tasks wait, and measures the process while they do.
#[cfg(unix)]
fn cost_of_waiting(test: &str, time: Duration) {
    common::alone(test, || {
        let _watchdog = watchdog(60 + time.as_secs());
        let queue = Arc::new(Config::usual().queue());
        let delivered = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        for _ in 0..100 {
            runtime.spawn(consume(Arc::clone(&queue), Arc::clone(&delivered)));
        }
        thread::scope(|scope| {
            for n in 0..100 {
                let queue = &queue;
                scope.spawn(move || match n % 2 {
                    0 => assert!(queue.get().is_none()),
                    _ => assert!(queue.get_timeout(Duration::from_secs(3600)).is_err()),
                });
            }
            eventually("all wait", || waiting(&queue) == 200);
            eventually("all sleep", || {
                used_in(Duration::from_millis(20)).as_micros() < 500
            });
            let used = used_in(time);
            println!("200 waiters used {used:?} in {time:?}");
            assert!(used < Duration::from_millis(5), "used {used:?} in {time:?}");
            queue.shut_down();
        });
    });
}

/// The processor time this process uses in some time. This one has to sleep: it is about time.
#[cfg(unix)]
fn used_in(time: Duration) -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let used = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = used();
    thread::sleep(time);
    used() - before
}

#[cfg(unix)]
#[test] // C9
fn two_hundred_waiters_cost_no_processor_time() {
    cost_of_waiting(
        "two_hundred_waiters_cost_no_processor_time",
        Duration::from_secs(1),
    );
}

#[cfg(unix)]
#[test] // C9
#[ignore = "takes 10 s; cargo test --test waiting -- --ignored"]
fn two_hundred_waiters_cost_no_processor_time_for_ten_seconds() {
    cost_of_waiting(
        "two_hundred_waiters_cost_no_processor_time_for_ten_seconds",
        Duration::from_secs(10),
    );
}
