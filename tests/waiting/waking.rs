//! Waiting: which getter is woken, which ones pass their wake-up on, and what waiting costs (C9).
//!
//! The tests mostly poll tasks themselves, with wakers that count: so "woken exactly once" and
//! "passed on" are numbers. For the races see `races.rs`.

use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::{
    Config, Queue, Task, WakeCount, alone, assert_nothing_queued, eventually, poll, waiting,
    watchdog, with_queues,
};
use keyqueue::{Added, WorkQueue};

// ---- which getter an add wakes --------------------------------------------------------------

#[cfg(target_os = "linux")]
#[test] // C9
#[cfg_attr(miri, ignore = "reads /proc")]
fn one_add_wakes_exactly_one_of_a_hundred_threads_and_a_hundred_tasks() {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// How often the thread has gone to sleep, once it sleeps: a wake-up in vain makes it more.
    fn sleeps(thread: &Path) -> Option<usize> {
        let status = fs::read_to_string(thread.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        field("State:")?.trim().starts_with('S').then_some(())?;
        field("voluntary_ctxt_switches:")?.trim().parse().ok()
    }

    let _watchdog = watchdog(60);
    let queue = Config::usual().queue();
    let mut tasks = Vec::new();
    let (threads, started) = mpsc::channel();
    let (got, gets) = mpsc::channel();
    // If an assertion fails, the getters that still wait are released, so that the scope ends.
    struct ShutDownOnDrop<'q>(&'q Queue<u64>);
    impl Drop for ShutDownOnDrop<'_> {
        fn drop(&mut self) {
            self.0.shut_down();
        }
    }
    thread::scope(|scope| {
        let _release = ShutDownOnDrop(&queue);
        for _ in 0..100 {
            tasks.push(Task::waiting(queue.get_async()));
            let (queue, threads, got) = (&queue, threads.clone(), got.clone());
            scope.spawn(move || {
                let name = fs::read_link("/proc/thread-self").unwrap();
                let thread = PathBuf::from("/proc").join(name);
                threads.send(thread.clone()).unwrap();
                if let Some(item) = queue.get() {
                    got.send((thread, *item)).unwrap();
                }
            });
        }
        eventually("all wait", || waiting(&queue) == 200);
        let mut asleep = BTreeMap::new();
        for thread in started.iter().take(100) {
            eventually("the thread sleeps", || {
                let count = sleeps(&thread);
                asleep.insert(thread.clone(), count);
                count.is_some()
            });
        }
        for key in 0..200 {
            assert_eq!(queue.add(key), Added::Queued);
            assert_eq!(waiting(&queue) as u64, 199 - key, "one left the list");
            let woken: Vec<_> = tasks.iter().map(Task::wakes).collect();
            match woken.iter().sum() {
                0 => {
                    let (thread, delivered) = gets.recv().unwrap();
                    assert_eq!(delivered, key);
                    asleep.remove(&thread).expect("a thread that slept");
                }
                1 => {
                    let place = woken.iter().position(|&wakes| wakes == 1).unwrap();
                    assert_eq!(*tasks.swap_remove(place).output().unwrap(), key);
                }
                more => panic!("one add woke {more} tasks"),
            }
            if key % 8 == 0 {
                for (thread, count) in &asleep {
                    assert_eq!(sleeps(thread), *count, "woken in vain");
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
            let queue = config.queue::<u64>();
            let tasks: Vec<_> = (0..100).map(|_| Task::waiting(queue.get_async())).collect();
            assert_eq!(queue.add_all(0..keys as u64), keys);
            let (woken, others): (Vec<_>, _) = tasks.into_iter().partition(|t| t.wakes() == 1);
            assert_eq!(woken.len(), keys.min(100));
            assert!(others.iter().all(|task| task.wakes() == 0));
            for mut task in woken {
                assert!(task.output().is_some());
            }
        }
    });
}

#[test] // C9
fn a_key_of_a_bulk_is_delivered_before_its_iterator_has_the_next() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        let mut next = 0;
        let mut task = Task::waiting(queue.get_async());
        let slow = std::iter::from_fn(|| {
            if next > 0 {
                assert_eq!(task.wakes(), 1, "woken while the iterator is about to wait");
                assert!(task.output().is_some());
                task = Task::waiting(queue.get_async());
            }
            next += 1;
            (next < 40).then_some(next)
        });
        assert_eq!(queue.add_all(slow), 39);
    });
}

#[test] // C6 C9
fn adds_that_queue_nothing_wake_nobody() {
    with_queues(|config| {
        let queue = config.queue::<String>();
        queue.entry_ref("processing").add();
        let item = queue.get().unwrap();
        let mut task = Task::waiting(queue.get_async());
        let handle = queue.handle("processing".to_owned());
        assert_eq!(queue.add("processing".to_owned()), Added::Deferred);
        assert_eq!(queue.entry_ref("processing").add(), Added::Merged);
        assert_eq!(handle.add(), Added::Merged);
        assert_eq!(queue.add_all(["processing".to_owned()]), 0);
        assert_eq!(task.wakes(), 0);
        item.done();
        assert_eq!(task.wakes(), 1, "the dirty key's done is like an add");
        assert!(task.output().is_some());
    });
}

#[test] // C9 C11
fn every_way_of_adding_wakes_a_task() {
    let ways: [fn(&Queue<String>); 4] = [
        |queue| assert!(queue.add("a".to_owned()).is_accepted()),
        |queue| assert!(queue.entry_ref("a").add().is_accepted()),
        |queue| assert!(queue.handle("a".to_owned()).add().is_accepted()),
        |queue| assert_eq!(queue.add_all(["a".to_owned()]), 1),
    ];
    with_queues(|config| {
        let queue = config.queue::<String>();
        // Twice: of an unknown key, and of a known one.
        for way in ways.iter().chain(&ways) {
            let mut task = Task::waiting(queue.get_async());
            way(&queue);
            assert_eq!(task.wakes(), 1);
            assert!(task.output().is_some());
        }
    });
}

// ---- getters that leave half-way ------------------------------------------------------------

#[test] // C9
fn a_notified_task_that_is_dropped_passes_its_wake_up_on() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        let mut tasks: Vec<_> = (0..100).map(|_| Task::waiting(queue.get_async())).collect();
        queue.add_all(0..3);
        // Each woken task is dropped, except for the last three.
        while tasks.len() > 3 {
            let woken = tasks.iter().position(|task| task.wakes() > 0);
            drop(tasks.remove(woken.expect("three are woken at any time")));
        }
        for mut task in tasks {
            assert_eq!(task.wakes(), 1);
            assert!(task.output().is_some());
        }

        // And to a thread.
        let task = Task::waiting(queue.get_async());
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
fn a_dropped_task_that_was_not_notified_takes_no_wake_up_with_it() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        let [dropped, mut kept] = [(); 2].map(|()| Task::waiting(queue.get_async()));
        drop(dropped);
        assert_eq!((kept.wakes(), waiting(&queue)), (0, 1));
        queue.add(1);
        assert_eq!(kept.wakes(), 1);
        assert!(kept.output().is_some());
        drop(queue.get_async()); // never polled
        assert_nothing_queued(&queue);
    });
}

#[test] // C9
fn a_task_overtaken_by_another_getter_waits_again() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        let mut task = Task::waiting(queue.get_async());
        for key in 0..5 {
            queue.add(key);
            assert_eq!(task.wakes() as u64, key + 1);
            assert_eq!(*queue.try_get().unwrap(), key);
            task.assert_pending();
            assert_eq!(waiting(&queue), 1);
        }
        queue.add(5);
        assert_eq!(*task.output().unwrap(), 5);
    });
}

#[test] // C9
fn a_pending_task_polled_again_waits_once_and_is_reached_by_its_latest_waker() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
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

// ---- what waiting costs ---------------------------------------------------------------------

/// Has a hundred threads and a hundred tasks wait, and measures the process while they do.
#[cfg(unix)]
fn cost_of_waiting(time: Duration) {
    let _watchdog = watchdog(60 + time.as_secs());
    let queue = Arc::new(Config::usual().queue::<u64>());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for _ in 0..100 {
        let queue = Arc::clone(&queue);
        runtime.spawn(async move { assert!(queue.get_async().await.is_none()) });
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
}

/// The processor time this process uses in some time. This one has to sleep: it is about time.
#[cfg(unix)]
fn used_in(time: Duration) -> Duration {
    used_while(|| thread::sleep(time))
}

#[cfg(unix)]
fn used_while(run: impl FnOnce()) -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let used = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = used();
    run();
    used() - before
}

#[cfg(unix)]
#[test] // C9
fn two_hundred_waiters_cost_no_processor_time() {
    alone(|| cost_of_waiting(Duration::from_secs(1)));
}

#[cfg(unix)]
#[test] // C9
#[ignore = "takes 10 s, in which nothing else may run; `.ci/run ignored` runs it"]
fn two_hundred_waiters_cost_no_processor_time_for_ten_seconds() {
    alone(|| cost_of_waiting(Duration::from_secs(10)));
}

/// The processor time that this process uses for each add, one a millisecond.
#[cfg(unix)]
fn cost_of_adds(add: impl Fn(u64)) -> Duration {
    const ADDS: u32 = 200;
    let used = used_while(|| {
        for key in 0..ADDS {
            add(key.into());
            thread::sleep(Duration::from_millis(1));
        }
    });
    used / ADDS
}

/// The same with getters that wait for the keys.
#[cfg(unix)]
fn cost_with_getters(getters: usize) -> Duration {
    let queue = &WorkQueue::<u64>::new();
    thread::scope(|scope| {
        for _ in 0..getters {
            scope.spawn(|| queue.iter().for_each(drop));
        }
        eventually("all wait", || waiting(queue) == getters);
        let cost = cost_of_adds(|key| _ = queue.add(key));
        queue.shut_down();
        cost
    })
}

/// The same with the receivers of channels, which are crossbeam's; they receive in turn, as getters do.
#[cfg(unix)]
fn cost_with_receivers(receivers: usize) -> Duration {
    thread::scope(|scope| {
        let channel = |_| {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(|| receiver.into_iter().for_each(drop));
            sender
        };
        let senders: Vec<_> = (0..receivers).map(channel).collect();
        cost_of_adds(|key| senders[key as usize % receivers].send(key).unwrap())
    })
}

#[cfg(unix)]
#[test] // C9
#[ignore = "takes 10 s, in which nothing else may run; `.ci/run ignored` runs it"]
fn a_getter_beside_a_slow_producer_costs_no_more_than_a_receiver() {
    alone(|| {
        let _watchdog = watchdog(120);
        for waiting in [1, 8] {
            let mut costs = [const { Vec::new() }; 2];
            for _ in 0..9 {
                costs[0].push(cost_with_getters(waiting));
                costs[1].push(cost_with_receivers(waiting));
            }
            let [ours, theirs] = costs.map(|mut costs| {
                costs.sort_unstable();
                costs[costs.len() / 2]
            });
            println!("an add with {waiting} waiting: {ours:?}; through channels {theirs:?}");
            assert!(ours < theirs * 5 / 4, "{ours:?}, {theirs:?}");
        }
    });
}
