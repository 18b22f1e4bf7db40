//! User code that panics: the merge, the weight, a change, the drop of a value (V4).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{assert_nothing_delivered, timed_lists, tracked};
use crate::common::timed::{HOUR, MS};
use keyqueue::limiter::NoLimit;
use keyqueue::worker::Workers;
use keyqueue::{Added, Ended, State, WorkQueue};

/// What a panicking call panics with; unwound quietly, past the panic hook.
struct Blown;

#[track_caller]
fn assert_blows<R>(call: impl FnOnce() -> R) {
    let end = catch_unwind(AssertUnwindSafe(|| drop(call())));
    assert!(end.is_err_and(|cause| cause.is::<Blown>()));
}

const BAD: u32 = 99;

/// Notes the newer values, and then panics if [`BAD`] is among them.
fn merge(older: &mut Vec<u32>, newer: Vec<u32>) {
    let is_bad = newer.contains(&BAD);
    older.extend(newer.into_iter().filter(|n| *n != BAD));
    if is_bad {
        resume_unwind(Box::new(Blown));
    }
}

fn queue() -> WorkQueue<&'static str, Vec<u32>> {
    let (clock, _time) = keyqueue::Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    builder.rate_limiter(NoLimit).merge(merge).build().unwrap()
}

/// The value of the next delivery, and that there is no other.
#[track_caller]
fn only_value(queue: &WorkQueue<&'static str, Vec<u32>>) -> Vec<u32> {
    let value = queue.try_get().unwrap().take().unwrap();
    assert_nothing_delivered(queue);
    assert!((queue.state(&"a")).is_none_or(|state| state == State::Idle));
    value
}

#[test] // V4
fn a_merge_that_panics_in_a_put_loses_neither_the_key_nor_the_older_value() {
    let queue = queue();
    let handle = queue.handle("a");
    let puts: [&dyn Fn(); 6] = [
        &|| _ = queue.put("a", vec![2, BAD]),
        &|| _ = queue.entry_ref(&"a").put(vec![2, BAD]),
        &|| drop(tracked(&queue, "a", vec![2, BAD])),
        &|| _ = handle.put(vec![2, BAD]),
        &|| _ = queue.entry("a").after(HOUR).put(vec![2, BAD]),
        &|| _ = queue.entry("a").update(|list| merge(list, vec![2, BAD])),
    ];
    for put in puts {
        let first = tracked(&queue, "a", vec![1]);
        assert_blows(put);
        assert_eq!(first.ended(), None);
        assert_eq!(only_value(&queue), [1, 2]);
        assert_eq!(first.ended(), Some(Ended::Done));
        queue.cancel(&"a");
    }
}

#[test] // V4
fn a_put_into_a_delivery_or_a_delay_that_panics_queues_the_key() {
    let queue = queue();
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    queue.put("a", vec![2]);
    assert_blows(|| queue.put("a", vec![BAD]));
    assert_eq!(
        (&item.value()[..], queue.state(&"a")),
        (&[1][..], Some(State::Dirty))
    );
    drop(item);
    assert_eq!(only_value(&queue), [2]);

    queue.entry("a").after(HOUR).put(vec![3]);
    assert_blows(|| queue.put("a", vec![BAD]));
    assert_eq!(only_value(&queue), [3]);
    assert!(queue.cancel(&"a"));

    // A change that panics on a key without a value, known or not.
    assert_blows(|| queue.entry("b").update(|_| resume_unwind(Box::new(Blown))));
    assert_nothing_delivered(&queue);
}

#[test] // V4
fn a_merge_that_panics_in_a_retry_loses_neither_the_key_nor_the_value_of_the_delivery() {
    let queue = queue();
    let older = tracked(&queue, "a", vec![1]);
    let item = queue.get().unwrap();
    let newer = tracked(&queue, "a", vec![BAD]);
    assert_eq!(item.retry(), Added::Merged);
    assert_eq!((older.ended(), newer.ended()), (None, Some(Ended::Dropped)));
    assert_eq!(only_value(&queue), [1]);
    assert_eq!(older.ended(), Some(Ended::Done));
}

#[test] // V4 W2
fn a_worker_whose_retry_panics_in_the_merge_does_not_give_the_key_up() {
    let queue = queue();
    queue.put("a", vec![1]);
    let workers = Workers::new(&queue).concurrency(1);
    workers
        .on_give_up(|_, given_up| panic!("{}", given_up.failure))
        .run(|mut job| {
            if job.value().len() == 1 {
                job.value_mut().push(2);
                queue.put("a", vec![BAD]);
                return Err("not yet");
            }
            assert_eq!(*job.value(), [1, 2]);
            queue.shut_down();
            Ok(())
        })
        .unwrap();
    assert!(queue.get().is_none());
}

#[test] // V4 B2
fn a_weight_that_panics_puts_nothing_or_all_and_counts_nothing_twice() {
    let armed = Arc::new(AtomicBool::new(false));
    let weight = {
        let armed = Arc::clone(&armed);
        move |list: &Vec<u32>| {
            if armed.load(Ordering::SeqCst) {
                resume_unwind(Box::new(Blown));
            }
            list.len()
        }
    };
    let (queue, _time) = timed_lists(|builder| builder.capacity(4).weight(weight));
    queue.put("a", vec![1]);
    armed.store(true, Ordering::SeqCst);
    assert_blows(|| queue.entry("b").try_put(vec![1]));
    assert_blows(|| queue.put("b", vec![1]));
    assert_eq!(queue.state(&"b"), Some(State::Queued)); // it is put, and not counted
    // A retry's weight is wrong then, but the key is delivered.
    let item = queue.get().unwrap();
    assert_eq!(item.retry(), Added::Deferred);
    armed.store(false, Ordering::SeqCst);
    assert_eq!(*queue.get().unwrap(), "b");
    assert_eq!(*queue.get().unwrap().value(), [1]);
    // All room is there again.
    assert_eq!(queue.entry("c").try_put(vec![0; 4]), Ok(Added::Queued));
    assert!(queue.entry("d").try_put(vec![0]).is_err());
}

/// A value whose drop panics, unless the thread is panicking already.
struct Bomb(Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        if !std::thread::panicking() {
            resume_unwind(Box::new(Blown));
        }
    }
}

#[test] // V4
fn a_value_whose_drop_panics_harms_neither_its_key_nor_others() {
    let dropped = Arc::new(AtomicBool::new(false));
    let bomb = || {
        dropped.store(false, Ordering::SeqCst);
        Some(Bomb(Arc::clone(&dropped)))
    };
    let keep = |older: &mut Option<Bomb>, _: Option<Bomb>| drop(older.take());
    let (clock, _time) = keyqueue::Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue: WorkQueue<&str, _> = builder.merge(keep).build().unwrap();

    let receipt = tracked(&queue, "a", bomb());
    queue.get().unwrap().done();
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(receipt.ended(), Some(Ended::Done));
    assert_eq!(queue.state(&"a"), None);

    queue.put("a", bomb());
    assert_eq!(queue.clear(), 1);
    queue.entry("a").after(MS).put(bomb());
    assert!(queue.cancel(&"a"));
    assert!(dropped.load(Ordering::SeqCst));

    // In the merge: the key is queued all the same.
    queue.put("a", bomb());
    assert_blows(|| queue.put("a", None));
    assert!(queue.get().unwrap().take().unwrap().is_none());

    // With the queue.
    queue.put("a", bomb());
    queue.put("b", None);
    drop(queue);
    assert!(dropped.load(Ordering::SeqCst));
}
