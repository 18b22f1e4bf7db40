//! Receipts: one for each tracked put, which ends once, with the delivery that has its value (V2).

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::{deliveries, lists, timed_lists, tracked};
use crate::common::counted::Alive;
use crate::common::timed::{HOUR, secs};
use crate::common::{WakeCount, poll, there, watchdog};
use keyqueue::worker::{Outcome, Verdict, Workers};
use keyqueue::{Added, Ended, Item, Receipt, WorkQueue, merge};

#[track_caller]
fn assert_ended(receipts: &[Receipt], end: impl Into<Option<Ended>>) {
    let ended: Vec<_> = receipts.iter().map(Receipt::ended).collect();
    assert_eq!(ended, vec![end.into(); receipts.len()]);
}

#[test] // V2
fn all_receipts_of_a_delivery_end_when_it_is_done() {
    let alive = Alive::default();
    let queue: WorkQueue<u32, Vec<_>> = WorkQueue::builder().merge(merge::append).build().unwrap();
    let handle = queue.handle(1);
    let put = || tracked(&queue, 1, vec![alive.of(0_u32)]);
    let first = [put(), put(), {
        let (entry, receipt) = handle.entry().tracked();
        entry.put(vec![alive.of(0)]);
        receipt
    }];
    let item = queue.get().unwrap();
    let second = [put(), put()];
    assert_ended(&first, None);
    item.done();
    assert_ended(&first, Ended::Done);
    assert_ended(&second, None);
    let mut item = queue.get().unwrap();
    drop(item.take());
    assert_ended(&second, None);
    drop(item);
    assert_ended(&second, Ended::Done);
    assert_eq!(alive.count(), 0);
}

#[test] // V3
fn a_retry_keeps_the_receipts() {
    let (queue, time) = timed_lists(|builder| builder);
    let older = [tracked(&queue, "a", vec![1])];
    let item = queue.get().unwrap();
    let newer = [tracked(&queue, "a", vec![2])];
    let _ = item.retry();
    let item = queue.get().unwrap();
    let _ = item.retry_after(secs(1));
    assert_ended(&older, None);
    assert_ended(&newer, None);
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
    assert_ended(&older, Ended::Done);
    assert_ended(&newer, Ended::Done);
}

#[test]
fn a_panic_of_a_loop_gives_the_key_up() {
    let queue = lists::<&str>();
    let receipts = [tracked(&queue, "a", vec![1])];
    let work = || {
        let _item = queue.get();
        resume_unwind(Box::new("the work fails"));
    };
    assert!(catch_unwind(work).is_err());
    assert_ended(&receipts, Ended::GivenUp);
    // A guard retries instead.
    let receipts = [tracked(&queue, "a", vec![1])];
    let work = || {
        let _item = queue.get().unwrap().retry_on_drop();
        resume_unwind(Box::new("the work fails"));
    };
    assert!(catch_unwind(work).is_err());
    assert_ended(&receipts, None);
    queue.get().unwrap().done();
    assert_ended(&receipts, Ended::Done);
}

#[test] // W2
fn a_worker_gives_up_after_its_retries() {
    let queue = lists::<&str>();
    let receipts = [tracked(&queue, "a", vec![1])];
    let given_up = [tracked(&queue, "b", vec![1])];
    let done = [tracked(&queue, "c", vec![1])];
    let workers = Workers::new(&queue).concurrency(1).max_retries(2);
    workers
        .run(|mut job| {
            job.value_mut().push(0);
            match *job {
                "a" if job.value().len() == 4 => {
                    queue.shut_down();
                    Verdict::Retry("no")
                }
                "a" => Verdict::Retry("no"),
                "b" => Verdict::GiveUp("never"),
                _ => Verdict::Ok(Outcome::Done),
            }
        })
        .unwrap();
    assert_ended(&receipts, Ended::GivenUp);
    assert_ended(&given_up, Ended::GivenUp);
    assert_ended(&done, Ended::Done);
}

#[test] // S1 S5
fn what_a_shut_down_drops_or_refuses_is_dropped() {
    let (queue, _time) = timed_lists(|builder| builder);
    let retried = [tracked(&queue, "a", vec![1])];
    let _ = queue.get().unwrap().retry_after(HOUR);
    let processing = [tracked(&queue, "b", vec![1])];
    let item = queue.get().unwrap();
    let dirty = [tracked(&queue, "b", vec![2])];
    let queued = [tracked(&queue, "c", vec![1])];
    assert_eq!(queue.shut_down().delayed, 1);
    assert_ended(&retried, Ended::Dropped);
    assert_ended(&[tracked(&queue, "c", vec![2])], Ended::Dropped);
    assert_ended(&[tracked(&queue, "new", vec![2])], Ended::Dropped);
    assert_ended(&processing, None);
    // The work has failed, and is tried again with what is owed.
    assert_eq!(item.retry(), Added::Merged);
    assert_ended(&processing, None);
    let item = queue.get().unwrap();
    assert_eq!(*item.key(), "c");
    // This is not, and nothing is owed.
    assert_eq!(item.retry(), Added::ShutDown);
    assert_ended(&queued, Ended::Dropped);
    assert_eq!(deliveries(&queue), [("b", vec![1, 2])]);
    assert_ended(&processing, Ended::Done);
    assert_ended(&dirty, Ended::Done);
}

#[test] // S1
fn a_refused_retry_of_each_kind_is_dropped() {
    for kind in 0..4 {
        let queue = lists::<&str>();
        let receipts = [tracked(&queue, "a", vec![1])];
        let item = queue.get().map(Item::into_owned).unwrap();
        queue.shut_down();
        match kind {
            0 => _ = item.retry(),
            1 => _ = item.retry_after(HOUR),
            2 => drop(item.retry_on_drop()),
            _ => item.retry_on_drop().done(),
        }
        let end = if kind < 3 {
            Ended::Dropped
        } else {
            Ended::Done
        };
        assert_ended(&receipts, end);
    }
}

#[test] // S8
fn what_shut_down_now_discards_is_dropped() {
    let (queue, _time) = timed_lists(|builder| builder);
    let processing = [tracked(&queue, "a", vec![1])];
    let item = queue.get().unwrap();
    let discarded = [tracked(&queue, "a", vec![2]), tracked(&queue, "b", vec![3])];
    queue.entry("c").after(HOUR).put(vec![4]);
    queue.shut_down_now();
    assert_ended(&discarded, Ended::Dropped);
    assert_ended(&processing, None);
    item.done();
    assert_ended(&processing, Ended::Done);
}

#[test]
fn cancel_clear_and_remove_drop() {
    let (queue, _time) = timed_lists(|builder| builder);
    let receipts = [tracked(&queue, "a", vec![1])];
    assert_eq!(queue.clear(), 1);
    assert_ended(&receipts, Ended::Dropped);
    let receipts = [tracked(&queue, "a", vec![1]), tracked(&queue, "a", vec![2])];
    assert_eq!(queue.remove("a"), Some(vec![1, 2]));
    assert_ended(&receipts, Ended::Dropped);
    let receipts = [tracked(&queue, "b", vec![1])];
    queue.remove("a");
    assert_eq!(queue.try_get().unwrap().retry_after(HOUR), Added::Delayed);
    assert_ended(&receipts, None);
    assert!(queue.cancel(&"b"));
    assert_ended(&receipts, Ended::Dropped);
}

#[test] // S6
fn a_dropped_queue_ends_the_receipts_also_if_a_handle_lives() {
    for keep_handle in [false, true] {
        let queue = lists::<&str>();
        let handle = keep_handle.then(|| queue.handle("a"));
        let receipts = [tracked(&queue, "a", vec![1]), tracked(&queue, "b", vec![1])];
        let delayed = [tracked(&queue, "c", vec![1])];
        let mut items: Vec<_> = there(&queue).take(3).collect();
        let _ = items.pop().unwrap().retry_after(HOUR);
        items.into_iter().for_each(|item| _ = item.retry());
        drop(queue);
        assert_ended(&receipts, Ended::Dropped);
        assert_ended(&delayed, Ended::Dropped);
        drop(handle);
    }
}

#[test]
fn a_tracked_put_of_nothing_ends_with_its_delivery() {
    let queue: WorkQueue<&str, ()> = WorkQueue::builder().merge(merge::latest).build().unwrap();
    let receipts = [tracked(&queue, "a", ()), tracked(&queue, "a", ())];
    let item = queue.get().unwrap();
    let next = tracked(&queue, "a", ());
    item.done();
    assert_ended(&receipts, Ended::Done);
    assert_ended(&[next], None);
}

#[test]
fn a_receipt_wakes_its_task_once() {
    let queue = lists::<&str>();
    let mut receipt = tracked(&queue, "a", vec![1]);
    let (wakes, waker) = WakeCount::new();
    assert!(poll(&mut receipt, &waker).is_pending());
    let _ = queue.get().unwrap().retry();
    assert_eq!(wakes.get(), 0);
    queue.get().unwrap().done();
    assert_eq!(wakes.get(), 1);
    queue.put("a", vec![1]);
    queue.get().unwrap().done();
    drop(queue);
    assert_eq!(wakes.get(), 1);
    assert!(poll(&mut receipt, &waker).is_ready());
    assert_eq!(receipt.wait(), Ended::Done);
}

/// A waker that calls the queue, as a task that is polled in the call would.
struct CallsBack(Arc<WorkQueue<&'static str, Vec<u32>>>);

impl Wake for CallsBack {
    fn wake(self: Arc<Self>) {
        let queue = &self.0;
        queue.put("a", vec![9]);
        queue.remove("a");
        queue.cancel(&"a");
        queue.shut_down();
    }
}

#[test] // V4
fn a_receipt_ends_while_no_lock_is_held() {
    let _watchdog = watchdog(60);
    type Queue = Arc<WorkQueue<&'static str, Vec<u32>>>;
    let ends: [fn(&Queue); 6] = [
        |queue| queue.get().unwrap().done(),
        |queue| _ = queue.clear(),
        |queue| _ = queue.remove("a"),
        |queue| _ = queue.shut_down_now(),
        |queue| {
            let _ = queue.get().unwrap().retry_after(HOUR);
            queue.cancel(&"a");
        },
        |queue| {
            let _ = queue.get().unwrap().retry_after(HOUR);
            queue.shut_down();
        },
    ];
    for end in ends {
        let queue: Queue = Arc::new(lists());
        let mut receipt = tracked(&queue, "a", vec![1]);
        let waker = Waker::from(Arc::new(CallsBack(Arc::clone(&queue))));
        assert!(poll(&mut receipt, &waker).is_pending());
        end(&queue);
        assert!(receipt.ended().is_some());
        assert!(queue.is_shutting_down(), "the waker ran");
    }
}

#[test] // V3
fn the_receipts_of_a_value_that_was_taken_end_with_the_retry() {
    let queue = lists::<&str>();
    let taken = tracked(&queue, "a", vec![1]);
    let mut item = queue.get().unwrap();
    let newer = tracked(&queue, "a", vec![2]);
    assert_eq!(item.take(), Some(vec![1]));
    assert!(item.retry().is_accepted());
    assert_eq!((taken.ended(), newer.ended()), (Some(Ended::GivenUp), None));
    assert_eq!(*queue.get().unwrap().value(), [2]);
    assert_eq!(newer.ended(), Some(Ended::Done));
}
