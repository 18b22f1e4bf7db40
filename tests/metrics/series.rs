//! The series of a named queue, as an exporter gets them (promises M1 to M4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::built;
use crate::common::{poll_until_idle, watchdog};
use crate::recorder::Recorded;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Outcome, Verdict, Workers};
use keyqueue::{Added, Builder, Clock, GetError, MockClock, WorkQueue, merge};

pub(crate) const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

pub(crate) fn pods(recorded: &Recorded) -> (WorkQueue<&'static str>, MockClock) {
    built(|builder| builder.name("pods").recorder(recorded.recorder()))
}

/// A queue, its clock, and what it reports, at any time.
struct Watched {
    queue: WorkQueue<&'static str>,
    time: MockClock,
    recorded: Recorded,
}

impl Watched {
    fn new() -> Self {
        let recorded = Recorded::default();
        let (queue, time) = pods(&recorded);
        Watched {
            queue,
            time,
            recorded,
        }
    }

    /// The value of `workqueue_{series}`.
    fn value(&self, series: &str) -> f64 {
        self.queue.report();
        self.recorded.value(&format!("workqueue_{series}"), "pods")
    }

    /// The samples of `workqueue_{series}_duration_seconds`.
    fn samples(&self, series: &str) -> Vec<f64> {
        self.queue.report();
        let series = format!("workqueue_{series}_duration_seconds");
        self.recorded.samples(&series, "pods")
    }

    /// How long keys have been processing: in total, and the longest.
    fn in_flight(&self) -> (f64, f64) {
        (
            self.value("unfinished_work_seconds"),
            self.value("longest_running_processor_seconds"),
        )
    }
}

#[test] // P4
fn a_queue_with_levels_reports_the_depth_of_each() {
    let recorded = Recorded::default();
    let (queue, _time) = built(|builder: Builder<&str>| {
        builder.name("pods").recorder(recorded.recorder()).levels(3)
    });
    queue.entry("a").level(0).add();
    queue.entry("b").level(2).add();
    queue.entry("c").level(2).add();
    let depths = || {
        let depth = |level| recorded.value("workqueue_level_depth", &format!("pods, {level}"));
        [0, 1, 2].map(depth)
    };
    queue.report();
    assert_eq!(depths(), [1.0, 0.0, 2.0]);
    queue.entry("c").level(1).add();
    let item = queue.get().unwrap();
    queue.report();
    assert_eq!(depths(), [0.0, 1.0, 1.0]);
    item.done();
    drop(queue);
    assert_eq!(depths(), [0.0; 3], "gauges of a queue that is gone are 0");
}

#[test] // M1
fn a_named_queue_reports_the_seven_series_under_their_names_and_its_own() {
    let Watched {
        queue, recorded, ..
    } = Watched::new();
    queue.report();
    let names = recorded.series();
    let is_result = |series: &str| series == "workqueue_worker_results_total";
    let others = names.iter().filter(|(_, series, _)| !is_result(series));
    assert!(others.clone().all(|(_, _, name)| name == "pods"));
    assert_eq!((others.count(), names.len()), (18, 23), "{names:?}");
    let kinds: Vec<(&str, &str)> = names
        .iter()
        .map(|(kind, series, _)| (*kind, series.as_str()))
        .collect();
    for series in [
        ("gauge", "workqueue_depth"),
        ("counter", "workqueue_adds_total"),
        ("histogram", "workqueue_queue_duration_seconds"),
        ("histogram", "workqueue_work_duration_seconds"),
        ("gauge", "workqueue_unfinished_work_seconds"),
        ("gauge", "workqueue_longest_running_processor_seconds"),
        ("counter", "workqueue_retries_total"),
    ] {
        assert!(kinds.contains(&series), "{series:?} is not in {kinds:?}");
        let help = recorded.help(series.1);
        assert!(help.ends_with('.'), "{series:?}: {help:?}");
    }
}

// The walk of client-go's TestMetrics. There the key is done as soon as it is added again, which
// does not tell when its waiting begins.
#[test] // M2
fn the_series_follow_a_key_as_client_gos_do() {
    let watched = Watched::new();
    let Watched { queue, time, .. } = &watched;
    let adds_and_depth = || (watched.value("adds_total"), watched.value("depth"));

    queue.add("foo");
    assert_eq!(adds_and_depth(), (1.0, 1.0));
    time.advance(us(50));

    let item = queue.get().unwrap();
    assert_eq!(watched.samples("queue"), [50e-6]);
    assert_eq!(adds_and_depth(), (1.0, 0.0));

    // Re-added while it is processed, any number of times.
    time.advance(us(25));
    for _ in 0..5 {
        queue.add("foo");
    }
    assert_eq!(adds_and_depth(), (2.0, 1.0));

    time.advance(us(10));
    item.done();
    assert_eq!(watched.samples("work"), [35e-6]);
    assert_eq!(adds_and_depth(), (2.0, 1.0), "it is queued now");

    time.advance(us(25));
    let item = queue.get().unwrap();
    let waited = watched.samples("queue");
    assert_eq!(waited, [50e-6, 35e-6], "from the add, not from the done");
    assert_eq!(adds_and_depth(), (2.0, 0.0));

    time.advance(us(1000));
    assert_eq!(watched.in_flight(), (0.001, 0.001));
    item.done();
    assert_eq!(watched.samples("work"), [35e-6, 0.001]);
    assert_eq!(watched.in_flight(), (0.0, 0.0));
    assert_eq!(adds_and_depth(), (2.0, 0.0));
    assert_eq!(watched.value("retries_total"), 0.0);
}

#[test] // M2
fn unfinished_is_the_sum_and_longest_the_maximum_of_what_is_in_flight() {
    let watched = Watched::new();
    let Watched { queue, time, .. } = &watched;
    queue.add_all(["a", "b"]);
    let a = queue.get().unwrap();
    time.advance(us(3_000_000));
    let b = queue.get().unwrap();
    time.advance(us(1_000_000));
    assert_eq!(watched.in_flight(), (5.0, 4.0));
    a.done();
    assert_eq!(watched.in_flight(), (1.0, 1.0));
    // client-go's freeze at a shut-down; these go on, and end at 0.
    queue.shut_down();
    time.advance(us(1_000_000));
    assert_eq!(watched.in_flight(), (2.0, 2.0));
    b.done();
    assert_eq!(watched.in_flight(), (0.0, 0.0));
}

// Retries are accepted adds with a delay, also of none, and also those that lose to another.
#[test] // M2 S8
fn a_key_that_a_shut_down_discards_counts_as_delivered_and_not_as_work() {
    let watched = Watched::new();
    let Watched { queue, time, .. } = &watched;
    queue.add("processing");
    let item = queue.get().unwrap();
    queue.add("queued");
    time.advance(us(50));
    queue.shut_down_now();
    assert_eq!(watched.samples("queue"), [0.0, 50e-6]);
    assert_eq!(
        (watched.value("adds_total"), watched.value("depth")),
        (2.0, 0.0)
    );
    assert_eq!(watched.in_flight(), (50e-6, 50e-6));
    assert!(watched.samples("work").is_empty());
    item.done();
    assert_eq!(watched.samples("work"), [50e-6]);
}

#[test] // M2 V2
fn a_key_that_comes_up_without_a_value_counts_as_delivered_and_as_no_time_of_work() {
    let recorded = Recorded::default();
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.name("values").recorder(recorded.recorder());
    let queue = builder.merge(merge::append).build().unwrap();
    queue.put("a", vec![1]);
    assert_eq!(queue.get().unwrap().retry_after(us(2000)), Added::Delayed);
    queue.put("a", vec![2]);
    let item = queue.get().unwrap();
    assert_eq!(*item.value(), [1, 2]);
    time.advance(us(1000));
    item.done();
    time.advance(us(1000));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
    queue.report();
    let works = recorded.samples("workqueue_work_duration_seconds", "values");
    assert_eq!(works, [0.0, 0.0, 1e-3]);
    let totals = queue.totals().unwrap();
    assert_eq!((totals.delivered, totals.ended), (3, 3));
}

#[test] // M2
fn every_accepted_add_with_a_delay_is_a_retry() {
    let watched = Watched::new();
    let queue = &watched.queue;
    queue.add_after("a", us(5000));
    queue.add_after("a", us(9000));
    queue.add_after("b", Duration::ZERO);
    queue.add_rate_limited("c");
    let _ = queue.get().unwrap().retry();
    queue.add("a");
    assert_eq!(watched.value("retries_total"), 5.0);
    queue.shut_down();
    queue.add_after("a", us(5000));
    queue.add_after("b", Duration::ZERO);
    assert_eq!(watched.value("retries_total"), 5.0);
}

#[test] // X1
fn the_size_of_a_store_of_dead_letters_its_age_and_what_it_loses_are_reported() {
    let watched = Watched::new();
    let Watched { queue, time, .. } = &watched;
    let letters = || {
        (
            watched.value("dead_letters"),
            watched.value("oldest_dead_letter_seconds"),
            watched.value("dead_letters_lost_total"),
        )
    };
    let store = DeadLetters::new(2).unwrap();
    let work = |keys: &[&'static str]| {
        queue.add_all(keys.iter().copied());
        let workers = Workers::new(queue).concurrency(1).dead_letters(&store);
        let mut run = Box::pin(workers.run_async(async |_| Verdict::GiveUp("no")));
        assert!(poll_until_idle(&mut run).is_pending());
    };
    work(&[]);
    assert_eq!(letters(), (0.0, 0.0, 0.0));
    time.advance(us(1000));
    work(&["a"]);
    assert_eq!(letters(), (1.0, 0.0, 0.0));
    time.advance(us(1000));
    work(&["b", "a", "c"]); // no room for the last
    time.advance(us(500));
    assert_eq!(letters(), (2.0, 1500e-6, 1.0));
    drop(store.remove(store.list()[0].id));
    assert_eq!(letters(), (1.0, 500e-6, 1.0));
    drop(store.clone().drop_oldest());
    work(&["a", "c"]);
    assert_eq!(letters(), (2.0, 0.0, 2.0));
    store
        .list()
        .iter()
        .for_each(|letter| _ = store.put_back(letter.id));
    assert_eq!(letters(), (0.0, 0.0, 2.0));
    work(&[]);
    drop(store);
    assert_eq!(letters(), (0.0, 0.0, 2.0));
}

#[test] // M3 V7
fn an_add_that_waits_for_a_retry_counts_as_merged() {
    let recorded = Recorded::default();
    let (queue, _time) = built(|builder: Builder<&str>| {
        let builder = builder.name("pods").recorder(recorded.recorder());
        builder.adds_wait_for_retries(true)
    });
    queue.add("pod");
    assert!(queue.get().unwrap().retry_after(us(10)).is_accepted());
    queue.add("pod");
    queue.handle("pod").add();
    queue.report();
    let merged = recorded.value("workqueue_merged_adds_total", "pods");
    assert_eq!(merged, 2.0);
}

#[test] // M3
fn delays_merges_cancels_sweeps_and_the_oldest_key_are_reported() {
    let watched = Watched::new();
    let Watched { queue, time, .. } = &watched;
    let delays = || {
        (
            watched.value("delayed"),
            watched.value("cancelled_delays_total"),
        )
    };
    queue.add_after("late", us(5_000_000));
    queue.add_after("later", us(9_000_000));
    assert_eq!(delays(), (2.0, 0.0));
    assert!(queue.cancel("later"));
    assert_eq!(delays(), (1.0, 1.0));
    time.advance(us(5_000_000));
    queue.fire_due();
    assert_eq!(delays(), (0.0, 1.0));

    time.advance(us(2_000_000));
    queue.add("young");
    assert_eq!(watched.value("oldest_queued_seconds"), 2.0);
    assert_eq!(watched.value("merged_adds_total"), 0.0);
    queue.add("young");
    queue.entry_ref(&"young").add();
    queue.handle("young").add();
    assert_eq!(watched.value("merged_adds_total"), 3.0);
    drop(queue.get());
    drop(queue.get());
    assert_eq!(watched.value("oldest_queued_seconds"), 0.0);

    let before = watched.value("sweeps_total");
    queue.shrink();
    assert!(watched.value("sweeps_total") > before);
    assert_eq!(
        watched.value("adds_total"),
        2.0,
        "all of this were two adds"
    );
}

#[test] // M5
fn what_the_worker_loops_function_returns_is_counted_by_result() {
    let recorded = Recorded::default();
    let queue = WorkQueue::builder()
        .name("pods")
        .rate_limiter(ItemExponentialFailure::new(us(0), us(0)).unwrap())
        .manual_timers()
        .recorder(recorded.recorder())
        .build()
        .unwrap();
    queue.add_all([
        "good", "bad", "worse", "gone", "later", "limited", "periodic",
    ]);
    let gave_up = |_: &&str, _| {
        if queue.is_empty() {
            queue.shut_down();
        }
    };
    let again = AtomicBool::new(false);
    let workers = Workers::new(&queue).concurrency(1).max_retries(2);
    let ran = workers.on_give_up(gave_up).run(|key| match *key {
        "good" => Verdict::Ok(Outcome::Done),
        "bad" => Verdict::Retry("bad"),
        "worse" => panic!("worse"),
        "gone" => Verdict::GiveUp("gone"),
        "later" => Verdict::Ok(Outcome::Later(us(5000))),
        "limited" if !again.swap(true, Ordering::Relaxed) => {
            Verdict::Ok(Outcome::RequeueRateLimited)
        }
        "limited" => Verdict::Ok(Outcome::Done),
        _ => Verdict::Ok(Outcome::RequeueAfter(us(5000))),
    });
    ran.unwrap();
    queue.report();
    let result =
        |result: &str| recorded.value("workqueue_worker_results_total", &format!("pods, {result}"));
    let results = ["done", "requeue_after", "error", "panic", "given_up"].map(result);
    // Of 12 runs: 2 keys fail three times each, and one once.
    assert_eq!(results, [2.0, 3.0, 4.0, 3.0, 3.0]);
    // client-go's counts every delayed add, whether or not the key has failed.
    assert_eq!(recorded.value("workqueue_retries_total", "pods"), 7.0);
    assert_eq!(recorded.value("workqueue_adds_total", "pods"), 12.0);
    let worked = recorded.samples("workqueue_work_duration_seconds", "pods");
    assert_eq!(worked.len(), 12);
}

#[test] // M5 S5
fn a_retry_that_a_shut_down_drops_is_given_up_and_no_run() {
    let recorded = Recorded::default();
    let limiter = ItemExponentialFailure::new(us(1000), us(1000)).unwrap();
    let (queue, _time) = built(|builder| {
        let builder = builder.name("pods").recorder(recorded.recorder());
        builder.rate_limiter(limiter)
    });
    queue.add_all(["bad", "last"]);
    let workers = Workers::new(&queue).concurrency(1).on_give_up(|_, _| ());
    let ran = workers.run(|key| match *key {
        "bad" => Err("bad"),
        _ => {
            queue.shut_down();
            Ok(())
        }
    });
    ran.unwrap();
    queue.report();
    let result =
        |result: &str| recorded.value("workqueue_worker_results_total", &format!("pods, {result}"));
    assert_eq!(["done", "error", "given_up"].map(result), [1.0; 3]);
}

/// Counts of many threads add up, and each sample is reported exactly once.
#[test]
fn nothing_is_lost_under_load() {
    const KEYS: u64 = 20_000;
    let _watchdog = watchdog(120);
    let recorded = Recorded::default();
    let queue = WorkQueue::builder()
        .name("pods")
        .recorder(recorded.recorder())
        .build()
        .unwrap();
    let queue = Arc::new(queue);
    thread::scope(|scope| {
        for worker in 0..4 {
            let queue = &queue;
            scope.spawn(move || {
                for key in 0..KEYS {
                    queue.add(4 * key + worker);
                }
            });
            scope.spawn(|| {
                while let Some(item) = queue.get() {
                    drop(item);
                }
            });
        }
        scope.spawn(|| {
            let all = (4 * KEYS) as f64;
            let mut last = 0.0;
            while last < all {
                queue.report();
                let adds = recorded.value("workqueue_adds_total", "pods");
                assert!(adds >= last && adds <= all, "{adds} after {last}");
                last = adds;
            }
            queue.shut_down();
        });
    });
    queue.report();
    for series in [
        "workqueue_queue_duration_seconds",
        "workqueue_work_duration_seconds",
    ] {
        let samples = recorded.samples(series, "pods");
        assert_eq!(samples.len() as u64, 4 * KEYS, "{series}");
        assert!(samples.iter().all(|s| (0.0..60.0).contains(s)), "{series}");
    }
    assert_eq!(recorded.value("workqueue_depth", "pods"), 0.0);
}
