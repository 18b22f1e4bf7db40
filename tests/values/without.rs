//! Queues without values, in which each verb for values does what is left of it (V6, W9).

use crate::common::{eager, there};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::timed::{HOUR, built, secs};
use keyqueue::worker::{Outcome, Verdict, Workers};
use keyqueue::{Added, DelayPolicy, Full, GetError, State, WorkQueue, merge};

#[test] // V6
fn a_put_is_an_add() {
    let queue = WorkQueue::<u64>::new();
    let handle = queue.handle(1);
    assert_eq!(queue.put(1, ()), Added::Queued);
    assert_eq!(handle.put(()), Added::Merged);
    assert_eq!(queue.entry_ref(&1).put(()), Added::Merged);
    assert_eq!(
        pollster::block_on(queue.entry(1).put_async(())),
        Added::Merged
    );
    assert_eq!(queue.put(2, ()), Added::Queued);
    let item = queue.get().unwrap();
    assert_eq!((*item, queue.put(1, ())), (1, Added::Deferred));
    drop(item);
    let keys: Vec<u64> = there(&queue).map(|item| *item).collect();
    assert_eq!(keys, [2, 1]);
    queue.shut_down();
    assert_eq!(queue.put(3, ()), Added::ShutDown);
    assert_eq!(handle.put(()), Added::ShutDown);
}

#[test] // V6
fn an_update_is_an_add_and_runs_if_that_is_accepted() {
    let (queue, time) = built(|builder| builder.delay_policy(DelayPolicy::Earliest));
    let calls = Cell::new(0);
    let count = |(): &mut ()| calls.set(calls.get() + 1);
    assert_eq!(queue.entry(1_u64).update(count), Added::Queued);
    assert_eq!(queue.entry(1).try_update(count).ok(), Some(Added::Merged));
    assert_eq!(queue.entry(2).after(secs(1)).update(count), Added::Delayed);
    let task = queue.entry(2).after(HOUR).update_async(count);
    assert_eq!(pollster::block_on(task), Added::Delayed);
    assert_eq!((calls.get(), queue.len()), (4, 1));
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(there(&queue).count(), 2);
    queue.shut_down();
    assert_eq!(queue.entry(3).update(count), Added::ShutDown);
    assert_eq!(calls.get(), 4);
}

#[test] // V6 B2
fn what_there_is_no_room_for_comes_back_and_has_not_run() {
    let (queue, _time) = built(|builder| builder.capacity(1));
    queue.put(1_u64, ());
    assert_eq!(queue.entry(1).try_put(()), Ok(Added::Merged));
    assert_eq!(queue.entry(2).try_put(()), Err(Full((2, ()))));
    assert_eq!(queue.handle(2).entry().try_put(()).ok(), None);
    let calls = Cell::new(0);
    let count = |(): &mut ()| calls.set(calls.get() + 1);
    let Full((key, count)) = queue.entry_ref(&2).try_update(count).unwrap_err();
    assert_eq!((*key, calls.get()), (2, 0));
    count(&mut ());
    // Without `try`, the bound is exceeded.
    assert_eq!(queue.entry(2).put(()), Added::Queued);
    assert_eq!((calls.get(), queue.len()), (1, 2));
}

#[test] // V6
fn a_remove_takes_nothing_back() {
    let queue = WorkQueue::<String>::new();
    queue.put("a".into(), ());
    queue.entry_ref("b").after(HOUR).put(());
    assert_eq!(
        (queue.remove("a"), queue.remove("b"), queue.remove("c")),
        (None, None, None)
    );
    assert_eq!(queue.state("a"), Some(State::Queued));
    assert!(queue.cancel("b"), "the delay is still there");
    assert_eq!(*queue.try_get().unwrap(), "a");
    assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
}

/// What a panic says.
fn panics<R>(f: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| _ = f())).unwrap_err();
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref().cloned()).unwrap()
}

#[test] // V2 V6
fn there_is_no_value_and_no_receipt() {
    let queue = WorkQueue::<u64>::builder().capacity(1).build().unwrap();
    let handle = queue.handle(2);
    queue.put(1, ());
    let mut item = queue.get().unwrap();
    assert_eq!(item.take(), None);
    assert!(panics(|| item.value()).contains("the queue has none"));
    assert!(panics(|| item.value_mut()).contains("the queue has none"));
    let text = "tracked adds need a queue with `Builder::merge`";
    assert_eq!(panics(|| queue.entry(2).tracked()), text);
    assert_eq!(panics(|| handle.entry().tracked()), text);
    assert!(queue.state(&2).is_none());
    assert_eq!(
        queue.entry(2).try_add(),
        Ok(Added::Queued),
        "no room is taken"
    );
    queue.get().unwrap().done();
    queue.shut_down();
    assert_eq!(item.retry(), Added::ShutDown);
    let left = queue.take_left();
    assert_eq!((left.len(), left[0].key, left[0].value), (1, 1, None));

    let queue = WorkQueue::builder().merge(merge::sum).build().unwrap();
    queue.put("a", 1);
    let mut item = queue.get().unwrap();
    assert_eq!((*item.value(), item.take()), (1, Some(1)));
    assert!(panics(|| item.value()).contains("the value was taken"));
    assert!(panics(|| item.value_mut()).contains("the value was taken"));
    assert_eq!(item.take(), None);
    drop(item);
    assert_eq!(queue.put("a", 2), Added::Queued);
}

#[test] // V6 W9
fn a_job_of_a_key_without_a_value_has_none_and_its_handle_puts() {
    let queue = eager([1_u64]);
    let run = Workers::new(&queue).concurrency(1).on_give_up(|key, end| {
        assert_eq!((*key, end.value), (1, None));
        queue.shut_down();
    });
    run.run(|mut job| {
        assert_eq!(job.take(), None);
        if job.attempt() == 1 {
            assert_eq!(job.handle().put(()), Added::Deferred);
            return Verdict::Retry("no");
        }
        let value = catch_unwind(AssertUnwindSafe(|| *job.value()));
        assert!(value.is_err(), "{:?}", Outcome::Done);
        Verdict::GiveUp("no")
    })
    .unwrap();
}
