//! Guards that retry their key unless the work succeeds (C7, L1): however they are dropped, and
//! after a shut-down. The test advances the clock, and does not sleep.

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::timed::{HOUR, MS, built, ms};
use crate::common::{Task, eager, there};
use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{Added, Item, MockClock, RetryOnDrop, State, WorkQueue};

type Queue = WorkQueue<u32>;

/// A queue with one key, and back-off from 5 ms, on a clock that stands still.
fn exponential() -> (Queue, MockClock) {
    let limiter = ItemExponentialFailure::new(ms(5), HOUR).unwrap();
    let (queue, time) = built(|builder| builder.rate_limiter(limiter));
    queue.add(1);
    (queue, time)
}

fn guarded(queue: &Queue) -> RetryOnDrop<Item<'_, u32>> {
    queue.try_get().expect("a key is queued").retry_on_drop()
}

/// Whether the key was finished and its retry is pending, after this many failures.
#[track_caller]
fn assert_retried(queue: &Queue, failures: u32) {
    assert_eq!(queue.state(&1), Some(State::Idle), "finished");
    assert_eq!(queue.num_requeues(&1), failures);
    assert!(queue.cancel(&1), "the retry is pending");
}

#[track_caller]
fn assert_finished_for_good(queue: &Queue) {
    assert_eq!(queue.state(&1), None);
    assert_eq!(queue.num_requeues(&1), 0);
    assert!(!queue.cancel(&1), "no retry is pending");
}

#[test] // C7 L1
fn an_error_returned_by_question_mark_retries_the_key() {
    fn work(queue: &Queue) -> Result<(), std::num::ParseIntError> {
        let item = guarded(queue);
        assert_eq!((**item, item.key()), (1, &1));
        "one".parse::<u32>()?;
        item.done();
        Ok(())
    }
    let (queue, time) = exponential();
    for (failures, delay) in (1..).zip([5, 10, 20]) {
        assert!(work(&queue).is_err());
        assert_eq!(queue.num_requeues(&1), failures);
        time.advance(ms(delay) - MS);
        assert_eq!(queue.fire_due(), 0);
        time.advance(MS);
        assert_eq!(queue.fire_due(), 1);
    }
}

#[test] // C7 L1
fn a_panic_retries_the_key() {
    let (queue, _time) = exponential();
    let panics = || {
        let _item = guarded(&queue);
        resume_unwind(Box::new("the work fails"));
    };
    assert!(catch_unwind(panics).is_err());
    assert_retried(&queue, 1);

    queue.add(1);
    let item = queue.get().unwrap().into_owned().retry_on_drop();
    let panics = || {
        let _item = item;
        resume_unwind(Box::new("the work fails"));
    };
    assert!(catch_unwind(panics).is_err());
    assert_retried(&queue, 2);
}

#[test] // C7 L1
fn a_task_that_is_dropped_retries_the_key() {
    let (queue, _time) = exponential();
    let queue = Arc::new(queue);
    let task = Task::waiting(Box::pin({
        let queue = Arc::clone(&queue);
        async move {
            let item = queue.get_async().await.unwrap().into_owned();
            drop(queue);
            let item = item.retry_on_drop();
            std::future::pending::<()>().await;
            item.done();
        }
    }));
    assert_eq!(queue.state(&1), Some(State::Processing));
    drop(task);
    assert_retried(&queue, 1);
    assert_eq!(Arc::strong_count(&queue), 1);
}

#[test] // C7
fn a_guard_that_is_done_or_unwrapped_retries_nothing() {
    let (queue, _time) = exponential();
    guarded(&queue).done();
    assert_finished_for_good(&queue);

    queue.add(1);
    let item: Item<'_, _> = guarded(&queue).into_item();
    assert_eq!(
        queue.state(&1),
        Some(State::Processing),
        "the item still holds it"
    );
    drop(item);
    assert_finished_for_good(&queue);

    queue.add(1);
    let guard = queue.get().unwrap().into_owned().retry_on_drop();
    assert_eq!(format!("{guard:?}"), "RetryOnDrop(Item(1))");
    let item: Item<'static, _> = guard.into_item();
    item.done();
    assert_finished_for_good(&queue);
}

#[test] // L2
fn a_guard_that_is_done_forgets_the_failures_of_its_keys() {
    let (queue, time) = exponential();
    let fails = || {
        drop(guarded(&queue));
        time.advance(HOUR);
        assert_eq!(queue.fire_due(), 1);
    };
    fails();
    fails();
    assert_eq!(queue.num_requeues(&1), 2);
    drop(guarded(&queue).into_item());
    assert_eq!(queue.num_requeues(&1), 2);
    queue.add(1);
    guarded(&queue).done();
    assert_finished_for_good(&queue);

    queue.add(1);
    fails();
    queue.add(2);
    let batch = queue.get_batch(9).unwrap();
    assert_eq!(batch.len(), 2);
    batch.retry_on_drop().done();
    assert_finished_for_good(&queue);
    assert!(queue.is_empty());
}

#[test] // C4 C7
fn a_dropped_guard_of_a_dirty_key_causes_one_delivery() {
    let queue = eager(["a"]);
    let item = queue.get().unwrap().retry_on_drop();
    assert_eq!(queue.add("a"), Added::Deferred);
    drop(item);
    assert_eq!(there(&queue).count(), 1);
}

#[test] // S1 S2 L1
fn after_a_shut_down_a_dropped_guard_finishes_the_key_and_does_not_charge_the_limiter() {
    let ways: [fn(&Queue); 2] = [
        |queue| assert_eq!(queue.shut_down().processing, 1),
        |queue| assert_eq!(queue.shut_down_now().processing, 1),
    ];
    for end in ways {
        let (queue, _time) = exponential();
        let item = guarded(&queue);
        end(&queue);
        drop(item);
        assert_finished_for_good(&queue);
        assert!(queue.get().is_none());
        let drained = queue.drain_timeout(Duration::ZERO);
        assert!(drained.is_finished());
        let mut left = drained;
        assert_eq!(std::mem::take(&mut left.refused), 1);
        assert!(left.is_nothing(), "{left:?}");
    }
    // Added meanwhile: that add is delivered, the retry is not.
    let (queue, _time) = exponential();
    let item = guarded(&queue);
    queue.add(1);
    queue.shut_down();
    drop(item);
    drop(guarded(&queue));
    assert!(queue.get().is_none());
}

#[test] // S5
fn a_shut_down_drops_and_counts_the_retry_of_a_guard() {
    let (queue, _time) = exponential();
    drop(guarded(&queue));
    assert_eq!(queue.shut_down().delayed, 1);
    assert!(queue.get().is_none());
}

#[test] // C7 S6
fn a_guard_that_has_the_last_reference_to_its_queue_can_be_dropped() {
    let queue = eager(["a"]);
    let handle = queue.handle("a");
    let item = queue.get().unwrap().into_owned().retry_on_drop();
    drop(queue);
    drop(item);
    assert_eq!(handle.add(), Added::ShutDown);
}

/// Panics whenever it is asked, past the panic hook.
struct Broken;

impl RateLimiter<u32> for Broken {
    fn when(&self, _: &u32) -> Duration {
        resume_unwind(Box::new("the limiter is broken"));
    }

    fn forget(&self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }
}

// A panic that left a drop during an unwinding would abort the process.
#[test] // C7
fn a_limiter_that_panics_leaves_the_key_finished_also_while_a_panic_unwinds() {
    let (queue, _time) = built(|builder| builder.rate_limiter(Broken));
    queue.add_all([1, 2, 3]);
    drop(queue.get().unwrap().retry_on_drop());
    let cause = catch_unwind(|| {
        let _item = queue.get().unwrap().retry_on_drop();
        let _owned = queue.get().unwrap().into_owned().retry_on_drop();
        resume_unwind(Box::new("the work fails"));
    });
    let cause = cause.expect_err("the work fails");
    assert_eq!(cause.downcast_ref(), Some(&"the work fails"));
    for key in 1..=3 {
        assert_eq!(queue.state(&key), None);
        assert_eq!(queue.add(key), Added::Queued, "the queue goes on");
    }
}
