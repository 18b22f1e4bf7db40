//! What an end leaves, with its values (S11 to S13): all that was put is finished, taken back, or left.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{Lists, lists};
use crate::common::timed::HOUR;
use crate::common::{eventually, scaled};
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{Job, Verdict, Workers};
use keyqueue::{LeftReason, WorkQueue, merge};

fn drains_delays() -> Lists<u32> {
    let builder = WorkQueue::builder().drain_delays(true);
    builder.merge(merge::append).build().unwrap()
}

/// Writes batches of rows, the first of which fails, until the queue has ended. Returns what was written.
fn write_batches(queue: &Lists<u32>) -> Vec<u32> {
    let mut written = Vec::new();
    let mut fails = true;
    while let Some(batch) = queue.get_batch(40) {
        eventually("the drain has begun", || queue.is_shutting_down());
        if std::mem::take(&mut fails) {
            batch.into_iter().for_each(|item| _ = item.retry());
            continue;
        }
        for mut item in batch {
            written.extend(item.take().unwrap());
        }
    }
    written
}

#[test] // S11
fn a_batch_that_fails_in_a_drain_is_written_or_left() {
    for delivers in [true, false] {
        let queue = match delivers {
            true => drains_delays(),
            false => lists(),
        };
        (0..100).for_each(|row| _ = queue.put(row, vec![row]));
        thread::scope(|scope| {
            let writer = scope.spawn(|| write_batches(&queue));
            let drained = queue.shut_down_with_drain();
            assert!(drained.is_finished());
            let mut rows = writer.join().unwrap();
            let refused = if delivers { 0 } else { 100 - rows.len() };
            assert_eq!(drained.refused, refused);
            let left = queue.take_left();
            assert_eq!(left.len(), refused);
            rows.extend(left.into_iter().flat_map(|left| left.value).flatten());
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..100));
        });
    }
}

#[test] // S12 S13
fn a_grace_period_that_is_too_short_leaves_or_reports_every_key() {
    for has_report in [true, false] {
        let queue = lists::<u32>();
        let (reported, may_end) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let mut all = Vec::new();
        thread::scope(|scope| {
            let mut workers = Workers::new(&queue).concurrency(2);
            if has_report {
                workers = workers.on_give_up(|key, given_up| {
                    reported.lock().unwrap().push((*key, given_up.value));
                });
            }
            let work = |mut job: Job<'_, u32, Vec<u32>>| {
                let key = *job;
                job.value_mut().push(key);
                eventually("it may end", || key < 3 || may_end.load(Ordering::Relaxed));
                Verdict::RetryAfter("no answer", HOUR)
            };
            scope.spawn(move || workers.run(work).unwrap());
            // Three wait for their retry, two are in flight, and five queued.
            (0..3).for_each(|key| _ = queue.put(key, vec![key]));
            eventually("three wait", || queue.counts().delayed == 3);
            (3..10).for_each(|key| _ = queue.put(key, vec![key]));
            eventually("two are in flight", || queue.counts().processing == 2);
            let drained = queue.drain_timeout(Duration::from_millis(5));
            assert!(!drained.is_finished());
            all.extend(queue.take_left());
            let of = |reason| all.iter().filter(|left| left.reason == reason).count();
            assert_eq!((of(LeftReason::Delayed), of(LeftReason::Queued)), (3, 5));
            may_end.store(true, Ordering::Relaxed);
        });
        all.extend(queue.take_left());
        let mut all: Vec<_> = all.into_iter().map(|left| (left.key, left.value)).collect();
        let reported = reported.into_inner().unwrap();
        assert_eq!(reported.len(), if has_report { 2 } else { 0 });
        all.extend(reported);
        all.sort_unstable();
        let expected = (0..10).map(|key| match key {
            0..5 => (key, Some(vec![key, key])),
            _ => (key, Some(vec![key])),
        });
        assert!(all.into_iter().eq(expected), "has_report: {has_report}");
    }
}

/// Puts, takes back, finishes, retries, panics and cancels beside an end of any kind. What was accepted is then
/// finished, taken back or left, each number once.
fn crowd(round: usize) {
    let builder = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .drain_delays(round.is_multiple_of(2));
    let queue: Lists<u32> = builder.merge(merge::append).build().unwrap();
    let ended = Mutex::new(Vec::new());
    let end = |numbers: Vec<u32>| ended.lock().unwrap().extend(numbers);
    let mut accepted = Vec::new();
    thread::scope(|scope| {
        let putters = [0, 1].map(|thread| {
            let queue = &queue;
            scope.spawn(move || {
                let put = |n: &u32| {
                    let (key, value) = (fastrand::u32(0..6), vec![*n]);
                    let added = match fastrand::u32(0..3) {
                        0 => queue.entry(key).after(HOUR).put(value),
                        _ => queue.put(key, value),
                    };
                    added.is_accepted()
                };
                let numbers = thread * 100..thread * 100 + 30;
                numbers.filter(put).collect::<Vec<_>>()
            })
        });
        let workers = [(); 2].map(|()| {
            scope.spawn(|| {
                while let Some(mut item) = queue.get() {
                    match fastrand::u32(0..4) {
                        0 => _ = item.retry(),
                        1 => _ = item.retry_after(HOUR),
                        2 => drop(item.retry_on_drop()),
                        _ => end(item.take().unwrap()),
                    }
                }
            })
        });
        let taker = scope.spawn(|| {
            for key in 0..6 {
                queue.remove(&key).into_iter().for_each(&end);
            }
        });
        (0..fastrand::u32(0..400)).for_each(|_| std::hint::spin_loop());
        match round % 4 {
            0 | 1 => _ = queue.drain_timeout(Duration::from_micros(fastrand::u64(0..300))),
            2 => _ = queue.shut_down(),
            _ => _ = queue.shut_down_now(),
        }
        let take_left = || {
            queue
                .take_left()
                .into_iter()
                .for_each(|left| end(left.value.unwrap()));
        };
        take_left();
        for putter in putters {
            accepted.extend(putter.join().unwrap());
        }
        taker.join().unwrap();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        take_left();
    });
    let mut ended = ended.into_inner().unwrap();
    ended.sort_unstable();
    assert_eq!(ended, accepted, "round {round}");
}

#[test] // S11 S12 V2
fn all_that_was_put_is_finished_taken_back_or_left() {
    (0..scaled(400)).for_each(crowd);
}

#[test] // S12: a merge that panics loses the newer value alone, and says so to its receipts.
fn a_refused_retry_whose_merge_panics_leaves_the_older_value() {
    let merge = |older: &mut Vec<u32>, newer: Vec<u32>| {
        assert!(newer != [2], "no twos");
        older.extend(newer);
    };
    let queue: Lists<u32> = WorkQueue::builder().merge(merge).build().unwrap();
    queue.put(1, vec![1]);
    let item = queue.get().unwrap();
    queue.put(1, vec![2]);
    queue.shut_down_now();
    let refused = catch_unwind(AssertUnwindSafe(|| item.retry()));
    assert!(!refused.unwrap().is_accepted());
    let left = queue.take_left();
    let values: BTreeMap<_, _> = left
        .into_iter()
        .map(|left| (left.key, left.value))
        .collect();
    assert_eq!(values, BTreeMap::from([(1, Some(vec![1]))]));
}

/// A key whose clones panic when they are made or dropped, as its number says.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile {
    number: u32,
    is_clone: bool,
}

impl Fragile {
    fn of(number: u32) -> Self {
        let is_clone = false;
        Fragile { number, is_clone }
    }
}

static CLONES: AtomicUsize = AtomicUsize::new(0);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        let clones = CLONES.fetch_add(1, Ordering::Relaxed);
        assert_ne!(clones, 3, "a clone panics");
        Fragile {
            number: self.number,
            is_clone: true,
        }
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        let is_clone_of_zero = self.is_clone && self.number == 0;
        assert!(!is_clone_of_zero || thread::panicking(), "a drop panics");
    }
}

#[test] // S12 S16
fn a_clone_or_a_drop_that_panics_loses_no_value_that_is_left() {
    let queue = WorkQueue::builder().merge(merge::append).shards(2);
    let queue: WorkQueue<_, Vec<u32>> = queue.build().unwrap();
    (0..6).for_each(|key| _ = queue.put(Fragile::of(key), vec![key]));
    let after = |key| queue.entry(Fragile::of(key)).after(HOUR);
    (6..9).for_each(|key| _ = after(key).put(vec![key]));
    queue.shut_down_now();
    // What is taken back is not left, and its key is not returned.
    assert_eq!(queue.remove(&Fragile::of(0)), Some(vec![0]));
    let taken = catch_unwind(AssertUnwindSafe(|| queue.take_left()));
    assert!(taken.is_err(), "by the clone");
    let left = queue.take_left().into_iter();
    let mut left: Vec<_> = left
        .map(|left| (left.key.number, left.value, left.reason))
        .collect();
    left.sort_unstable();
    let reason = |key| match key {
        0..6 => LeftReason::Queued,
        _ => LeftReason::Delayed,
    };
    let expected = (1..9).map(|key| (key, Some(vec![key]), reason(key)));
    assert!(left.into_iter().eq(expected));
}
