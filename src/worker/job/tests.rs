use std::cell::RefCell;
use std::sync::Mutex;

use super::*;
use crate::limiter::NoLimit;
use crate::worker::lending::{Lane, free};
use crate::worker::{Failed, Workers};
use crate::{WorkQueue, merge};

const HOUR: Duration = Duration::from_secs(3600);

/// The first key is given up, the second one comes back, and the third one succeeds after all.
fn decide(job: Job<'_, u64>) -> Result<(), &'static str> {
    match *job {
        1 => job.give_up("for good"),
        2 => job.retry_after("for now", HOUR),
        _ => job.give_up("not meant").or(Ok::<(), _>(())),
    }
}

fn queue() -> WorkQueue<u64> {
    let builder = WorkQueue::builder().manual_timers();
    let queue = builder.build().unwrap();
    queue.add_all([3, 1, 2]);
    queue
}

/// The failures of keys, and the delays of their retries. The last one ends the queue.
type Failures = Mutex<Vec<(u64, Option<Duration>)>>;

fn workers<'a>(
    queue: &'a WorkQueue<u64>,
    failures: &'a Failures,
) -> Workers<'a, u64, (), &'static str> {
    let note = |key: &u64, failed: &Failed<'_, _>| {
        failures.lock().unwrap().push((*key, failed.next));
        if *key == 2 {
            queue.shut_down();
        }
    };
    Workers::new(queue).concurrency(1).on_error(note)
}

fn check(failures: Failures) {
    assert_eq!(failures.into_inner().unwrap(), [(1, None), (2, Some(HOUR))]);
}

#[test] // W2 W9
fn a_job_of_a_thread_gives_up_or_chooses_a_delay_if_its_function_fails() {
    let (queue, failures) = (queue(), Failures::default());
    workers(&queue, &failures)
        .concurrency(1)
        .run(decide)
        .unwrap();
    check(failures);
}

#[test] // W2 W9
fn a_job_of_a_future_gives_up_or_chooses_a_delay_if_its_function_fails() {
    let (queue, failures) = (queue(), Failures::default());
    let run = workers(&queue, &failures).run_async(async |job| decide(job));
    pollster::block_on(run).unwrap();
    check(failures);
}

#[test] // V3 W9
fn a_job_that_outlives_its_call_gives_nothing_to_another_one() {
    let builder = WorkQueue::builder().rate_limiter(NoLimit);
    let queue = builder.merge(merge::sum).build().unwrap();
    queue.put(1, 5);
    queue.put(2, 7);
    let (outlives, seen) = (RefCell::new(None), RefCell::new(Vec::new()));
    let workers = Workers::new(&queue).concurrency(1);
    // What is to be tried again at once is delivered before the end.
    let workers = workers.on_error(|_, _| _ = queue.shut_down());
    let run = workers.run_async(async |job| {
        if *job == 1 {
            *outlives.borrow_mut() = Some(job);
            return Ok(());
        }
        seen.borrow_mut().push(*job.value());
        if job.attempt() == 1 {
            drop(job);
            drop(outlives.take());
            return Err("tried again, with its value");
        }
        Ok(())
    });
    pollster::block_on(run).unwrap();
    assert_eq!(seen.into_inner(), [7, 7]);
}

#[test] // W9
fn a_job_that_comes_back_late_leaves_nothing_to_the_next_one() {
    let come_back = |place: Arc<crate::sync::Mutex<Back<u32>>>, value| {
        let (value, mark) = (Some(value), Mark::default());
        mark.set(GIVE_UP);
        *place.lock() = Back { value, mark };
    };
    let mut lane = Lane::default();
    come_back(Arc::clone(free(&mut lane)), 1);
    let late = Arc::clone(free(&mut lane));
    assert_eq!(late.lock().value, None);
    // It is still somewhere when the next one begins.
    let next = Arc::clone(free(&mut lane));
    come_back(late, 2);
    let back = mem::take(&mut *next.lock());
    assert_eq!(back.value, None);
    assert!(matches!(
        back.mark.on(Verdict::Retry(())),
        Verdict::Retry(())
    ));
}
