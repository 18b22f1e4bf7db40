//! Keys that fail again and again, in bounded queues: healthy ones are processed, whatever fails (B5).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built};
use crate::common::{Task, eventually, scaled, watchdog};
use keyqueue::limiter::{ItemExponentialFailure, ItemFastSlow};
use keyqueue::worker::{DeadLetters, GivenUp, Job, Reason, Workers};
use keyqueue::{Clock, WorkQueue, merge};

const CAPACITY: usize = 100;

/// Every tenth key fails, whenever it is tried.
fn fails(key: u64) -> bool {
    key.is_multiple_of(10)
}

/// What has happened to the keys of a run.
#[derive(Default)]
struct Run {
    done: AtomicUsize,
    crowded: AtomicUsize,
    dropped: AtomicUsize,
}

impl Run {
    fn work(&self, key: u64) -> Result<(), &'static str> {
        if fails(key) {
            return Err("it fails");
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn give_up<V>(&self, key: u64, given_up: &GivenUp<&str, V>) {
        assert!(fails(key), "{key} was given up: {given_up}");
        let count = match given_up.reason {
            Reason::Crowded => &self.crowded,
            Reason::Dropped | Reason::ShutDown => &self.dropped,
            other => panic!("{key}: {other:?}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all healthy ones of this many keys are done, and ends the queue.
    fn end<K, L>(&self, queue: &WorkQueue<K, L>, keys: u64) {
        let healthy = (0..keys).filter(|key| !fails(*key)).count();
        eventually("all healthy keys are done", || {
            self.done.load(Ordering::Relaxed) == healthy
        });
        queue.shut_down();
    }

    /// After the end: each key is done or given up, once.
    fn assert_all_accounted_for(&self, keys: u64) {
        let failing = (0..keys).filter(|key| fails(*key)).count();
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let (crowded, dropped) = (load(&self.crowded), load(&self.dropped));
        assert_eq!(crowded + dropped, failing);
        assert!(dropped <= 3 * CAPACITY, "{dropped}");
    }
}

/// Adds keys by `add`, which waits for room, and looks at what waits.
fn produce<K, L>(queue: &WorkQueue<K, L>, keys: u64, add: impl Fn(u64)) {
    for key in 0..keys {
        add(key);
        if key % 100 == 0 {
            let counts = queue.counts();
            let waits = counts.queued + counts.delayed;
            // Twice the capacity, and what has moved while it was counted.
            assert!(waits <= 3 * CAPACITY, "{counts:?}");
        }
    }
}

fn backoff<K>() -> ItemExponentialFailure<K> {
    ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1000)).unwrap()
}

#[test] // B5
fn keys_that_fail_for_ever_do_not_keep_a_producer_from_adding_healthy_ones() {
    let _watchdog = watchdog(120);
    let keys = scaled(100_000) as u64;
    let queue = WorkQueue::builder().capacity(CAPACITY);
    let queue = queue.rate_limiter(backoff()).build().unwrap();
    let run = &Run::default();
    thread::scope(|scope| {
        let workers = Workers::new(&queue).concurrency(2);
        let workers = workers.on_give_up(|key, given_up| run.give_up(*key, &given_up));
        scope.spawn(move || workers.run(|job: Job<'_, u64>| run.work(*job)));
        produce(&queue, keys, |key| _ = queue.entry(key).wait().add());
        run.end(&queue, keys);
    });
    run.assert_all_accounted_for(keys);
}

#[test] // B5
fn the_same_in_tasks() {
    let _watchdog = watchdog(120);
    let keys = scaled(20_000) as u64;
    let queue = WorkQueue::builder().capacity(CAPACITY);
    let queue = queue.rate_limiter(backoff()).build().unwrap();
    let run = &Run::default();
    thread::scope(|scope| {
        let workers = Workers::new(&queue).concurrency(4);
        let workers = workers.on_give_up(|key, given_up| run.give_up(*key, &given_up));
        let work = async |job: Job<'_, u64>| run.work(*job);
        scope.spawn(move || pollster::block_on(workers.run_async(work)));
        produce(&queue, keys, |key| {
            _ = pollster::block_on(queue.entry(key).add_async());
        });
        run.end(&queue, keys);
    });
    run.assert_all_accounted_for(keys);
}

#[test] // B5 V3
fn the_same_with_values_by_weight() {
    let _watchdog = watchdog(120);
    let keys = scaled(20_000) as u64;
    let builder = WorkQueue::builder().merge(merge::append);
    let queue: WorkQueue<u64, Vec<u8>, _> = builder
        .capacity(CAPACITY)
        .weight(Vec::len)
        .rate_limiter(backoff())
        .build()
        .unwrap();
    let run = &Run::default();
    thread::scope(|scope| {
        let workers = Workers::new(&queue).concurrency(2);
        let workers = workers.on_give_up(|key, given_up| {
            assert_eq!(given_up.value.as_ref().unwrap().len(), 1);
            run.give_up(*key, &given_up);
        });
        let work = |job: Job<'_, u64, Vec<u8>>| {
            assert_eq!(job.value().len(), 1);
            run.work(*job)
        };
        scope.spawn(move || workers.run(work));
        produce(&queue, keys, |key| {
            _ = queue.entry(key).wait().put(vec![1]);
        });
        run.end(&queue, keys);
    });
    run.assert_all_accounted_for(keys);
}

#[test] // B5 B3
fn an_outage_gives_nothing_up_and_stops_the_producer_until_it_ends() {
    let _watchdog = watchdog(60);
    let (queue, time) = built(|builder| {
        let backoff = ItemFastSlow::new(Duration::from_secs(1), HOUR, 2).unwrap();
        builder.capacity(10).rate_limiter(backoff)
    });
    let (is_out, done) = (AtomicBool::new(true), AtomicUsize::new(0));
    let workers = Workers::new(&queue)
        .concurrency(2)
        .on_give_up(|key, given_up| {
            panic!("{key} was given up: {given_up}");
        });
    let mut work = Task::waiting(Box::pin(workers.run_async(async |_: Job<'_, u64>| {
        if is_out.load(Ordering::Relaxed) {
            return Err("no database");
        }
        done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })));
    let mut produce = Task::waiting(Box::pin(async {
        for key in 0..100 {
            queue.entry(key).add_async().await;
        }
    }));
    let mut run = |time_passes: bool| {
        if time_passes {
            time.advance(HOUR);
            queue.fire_due();
        }
        // Until none of them has anything to do.
        let mut before = None;
        while before != Some((queue.counts(), done.load(Ordering::Relaxed))) {
            before = Some((queue.counts(), done.load(Ordering::Relaxed)));
            assert!(work.is_idle());
            if !produce.is_idle() {
                return true;
            }
        }
        false
    };
    for _ in 0..10 {
        assert!(!run(true), "the producer waits");
        let counts = queue.counts();
        let all = counts.queued + counts.delayed;
        assert_eq!(counts.retrying, all);
        assert!((20..=22).contains(&all), "{counts:?}");
    }
    is_out.store(false, Ordering::Relaxed);
    while !run(true) {}
    assert!(work.is_idle());
    time.advance(HOUR);
    queue.fire_due();
    assert!(work.is_idle());
    assert_eq!(done.load(Ordering::Relaxed), 100);
    assert_eq!(queue.counts(), keyqueue::Counts::default());
}

#[test] // B5
fn a_second_outage_gives_nothing_up_either() {
    let _watchdog = watchdog(60);
    let (queue, time) = built(|builder| {
        let backoff = ItemFastSlow::new(HOUR, HOUR, 1).unwrap();
        builder.capacity(2).rate_limiter(backoff)
    });
    let is_out = AtomicBool::new(true);
    let workers = Workers::new(&queue)
        .concurrency(1)
        .on_give_up(|key, given_up| {
            panic!("{key} was given up: {given_up}");
        });
    let work = async |_: Job<'_, u64>| match is_out.load(Ordering::Relaxed) {
        true => Err("no database"),
        false => Ok(()),
    };
    let mut work = Task::waiting(Box::pin(workers.run_async(work)));
    for _ in 0..3 {
        is_out.store(true, Ordering::Relaxed);
        queue.add_all(0..5);
        for _ in 0..3 {
            assert!(work.is_idle());
            assert_eq!(queue.counts().retrying, 5);
            time.advance(HOUR);
            queue.fire_due();
        }
        assert!(work.is_idle());
        // It is over: all of them succeed.
        is_out.store(false, Ordering::Relaxed);
        time.advance(HOUR);
        queue.fire_due();
        assert!(work.is_idle());
        assert_eq!(queue.counts(), keyqueue::Counts::default());
    }
}

#[test] // B5 W10
fn a_success_in_the_same_batch_gives_no_other_key_of_it_up() {
    let _watchdog = watchdog(60);
    let (queue, time) = built(|builder| {
        let backoff = ItemFastSlow::new(HOUR, HOUR, 1).unwrap();
        builder.capacity(2).rate_limiter(backoff)
    });
    let (one_succeeds, given_up) = (AtomicBool::new(false), AtomicUsize::new(0));
    let workers = Workers::new(&queue).concurrency(1);
    let workers = workers.on_give_up(|_, _| _ = given_up.fetch_add(1, Ordering::Relaxed));
    let work = async |jobs: Vec<Job<'static, u64>>| {
        let one = one_succeeds.load(Ordering::Relaxed);
        let verdict = |job: &Job<'_, u64>| match one && **job == 0 {
            true => Ok(()),
            false => Err("no database"),
        };
        jobs.iter().map(verdict).collect::<Vec<_>>()
    };
    let mut work = Task::waiting(Box::pin(workers.run_batches_async(8, work)));
    queue.add_all(0..8);
    for (succeeds, retrying) in [(false, 8), (false, 8), (true, 7)] {
        one_succeeds.store(succeeds, Ordering::Relaxed);
        assert!(work.is_idle());
        assert_eq!(queue.counts().retrying, retrying);
        time.advance(HOUR);
        queue.fire_due();
    }
    assert_eq!(given_up.load(Ordering::Relaxed), 0);
}

/// Lets keys 1 and 2, which fail, crowd a queue of one, while key 3 succeeds, and returns what became of 1 and 2.
fn crowd(letters: Option<&DeadLetters<u64>>, hook: bool) -> (Vec<(u64, Reason)>, usize) {
    let (queue, time) = built(|builder| {
        let backoff = ItemFastSlow::new(HOUR, HOUR, 1).unwrap();
        builder.capacity(1).rate_limiter(backoff)
    });
    let given_up = Mutex::new(Vec::new());
    let mut workers = Workers::new(&queue).concurrency(1);
    if let Some(letters) = letters {
        workers = workers.dead_letters(letters);
    }
    if hook {
        workers = workers.on_give_up(|key, why: GivenUp<&str>| {
            given_up.lock().unwrap().push((*key, why.reason));
        });
    }
    let work =
        workers.run_async(async |job: Job<'_, u64>| if *job < 3 { Err("no") } else { Ok(()) });
    let mut work = Task::waiting(Box::pin(work));
    for _ in 0..5 {
        queue.add_all([1, 2, 3]);
        assert!(work.is_idle());
        time.advance(HOUR);
        queue.fire_due();
        assert!(work.is_idle());
    }
    let retrying = queue.counts().retrying;
    drop(work);
    (given_up.into_inner().unwrap(), retrying)
}

#[test] // B5 S13 S14
fn a_key_that_is_crowded_out_is_reported_or_kept_and_without_either_it_is_retried() {
    let (given_up, retrying) = crowd(None, true);
    assert!(
        given_up.len() >= 2 && retrying <= 2,
        "{given_up:?} {retrying}"
    );
    assert!(
        given_up
            .iter()
            .all(|(_, reason)| *reason == Reason::Crowded)
    );
    let letters = DeadLetters::new(10).unwrap();
    crowd(Some(&letters), false);
    let letters = letters.list();
    assert!(!letters.is_empty());
    assert!(
        letters
            .iter()
            .all(|letter| letter.reason == Reason::Crowded)
    );
    assert_eq!(crowd(None, false), (Vec::new(), 2));
}

#[test] // B5 W9
fn a_value_that_is_taken_is_not_crowded_out() {
    for (takes, each, messages) in [
        (false, false, 1),
        (true, false, 1),
        (false, true, 1),
        (true, true, 1),
        (true, true, 2),
    ] {
        let (clock, time) = Clock::mock();
        let backoff = ItemFastSlow::new(HOUR, HOUR, 1).unwrap();
        let queue = WorkQueue::builder().capacity(2).rate_limiter(backoff);
        let queue = queue.clock(clock).manual_timers().merge(merge::append);
        let queue: WorkQueue<u64, Vec<u8>> = queue.build().unwrap();
        let given_up = Mutex::new(Vec::new());
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.on_give_up(|key, why: GivenUp<&str, Vec<u8>>| {
            given_up.lock().unwrap().push((*key, why.reason));
        });
        let workers = if each { workers.each(9) } else { workers };
        let work = workers.run_async(async |mut job: Job<'_, u64, Vec<u8>>| {
            if *job == 3 {
                return Ok(());
            }
            if takes && *job == 4 && job.attempt() > 1 {
                drop(job.take());
            }
            Err("no")
        });
        let mut work = Task::waiting(Box::pin(work));
        queue.put_all([1, 2, 5, 4, 3].map(|key| (key, vec![0; messages])));
        assert!(work.is_idle());
        time.advance(HOUR);
        queue.fire_due();
        assert!(work.is_idle());
        drop(work);
        let given_up = given_up.into_inner().unwrap();
        let expected = if takes {
            vec![]
        } else {
            vec![(4, Reason::Crowded)]
        };
        assert_eq!(given_up, expected, "{each} {messages}");
    }
}
