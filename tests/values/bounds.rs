//! How much may wait: by keys and by weight, tried and waited for (B1 to B3).

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::{deliveries, timed_lists};
use crate::common::timed::HOUR;
use crate::common::{Task, poll, watchdog};
use keyqueue::limiter::NoLimit;
use keyqueue::{Added, Full, WorkQueue, merge};

type Lists = super::Lists;

fn bounded(capacity: usize) -> Lists {
    timed_lists(|builder| builder.capacity(capacity)).0
}

fn weighted(capacity: usize) -> Lists {
    timed_lists(|builder| builder.capacity(capacity).weight(Vec::len)).0
}

/// How much room there is, in keys or in weight.
#[track_caller]
fn assert_room(queue: &Lists, room: usize) {
    for n in 0..room {
        let key = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"][n];
        assert_eq!(
            queue.entry(key).try_put(vec![0]),
            Ok(Added::Queued),
            "room for {n} of {room}"
        );
    }
    assert_eq!(
        queue.entry("full").try_put(vec![0]),
        Err(Full(("full", vec![0])))
    );
}

#[test] // B1
fn a_delivery_a_cancel_a_remove_and_a_clear_make_room() {
    let queue = bounded(3);
    let put = || {
        queue.put("a", vec![1]);
        queue.put("b", vec![1]);
        queue.entry("c").after(HOUR).put(vec![1]);
        assert_room(&queue, 0);
    };
    put();
    let item = queue.get().unwrap(); // "a"
    assert!(queue.cancel(&"c"));
    assert_eq!(queue.remove("b"), Some(vec![1]));
    assert_room(&queue, 3);
    assert_eq!(queue.clear(), 3);
    drop(item);
    put();
    queue.clear();
    queue.cancel(&"c");
    assert_room(&queue, 3);
}

#[test] // B1
fn a_weight_counts_what_values_are_merged_to() {
    let queue = weighted(8);
    queue.entry("a").try_put(vec![0; 3]).unwrap();
    queue.entry("b").try_put(vec![0; 3]).unwrap();
    assert!(queue.entry("a").try_put(vec![0; 3]).is_err());
    assert_eq!(queue.entry("a").try_put(vec![0; 2]), Ok(Added::Merged));
    assert_room(&queue, 0);
    // A change that makes a value lighter makes room, one that makes it heavier takes it.
    queue.entry("a").update(|list| list.truncate(1));
    assert_room(&queue, 4);
    queue.clear();
    queue.put("a", vec![0; 7]);
    assert_room(&queue, 1);
    queue.clear();
    // A retry weighs what it is then: up to the half of the capacity, all of that takes room.
    queue.put("a", vec![0; 8]);
    let mut item = queue.get().unwrap();
    item.value_mut().truncate(1);
    queue.put("a", vec![0; 2]);
    let _ = item.retry();
    assert_room(&queue, 5);
}

#[test] // B1 B2
fn weights_near_the_end_of_the_range_are_counted_and_given_back() {
    const MOST: usize = usize::MAX;
    // A weight above 2^40 counts as 2^40.
    for capacity in [1, 10, 1 << 40] {
        let builder = WorkQueue::builder().merge(|older: &mut usize, newer| *older = newer);
        let builder = builder.capacity(capacity).weight(|weight| *weight);
        let builder = builder.rate_limiter(NoLimit);
        let queue: WorkQueue<&str, usize> = builder.build().unwrap();
        for weights in [
            [MOST, 2],
            [MOST, MOST],
            [MOST / 2 + 1, MOST / 2 + 1],
            [1, MOST],
        ] {
            let what = format!("{weights:?} in {capacity}");
            // Puts that are not bounded: more waits than there is room for.
            queue.put("a", weights[0]);
            queue.put("b", weights[1]);
            for key in ["a", "b", "c"] {
                assert!(
                    queue.entry(key).try_put(1).is_err(),
                    "{what}: there is room"
                );
            }
            // A retry puts it back.
            assert_eq!(queue.get().unwrap().retry(), Added::Deferred, "{what}");
            // It takes no more than half of the room.
            queue.put("d", capacity);
            let mut waiting = Task::waiting(Box::pin(queue.entry("c").put_async(1)));
            assert_eq!(deliveries(&queue).len(), 3, "{what}");
            assert_eq!((waiting.wakes(), waiting.output()), (1, Added::Queued));
            assert_eq!(queue.remove("c"), Some(1));
            assert!(deliveries(&queue).is_empty());
            // All room is there again, and no more.
            assert!(
                queue.entry("a").try_put(capacity).is_ok(),
                "{what}: room is lost"
            );
            assert!(
                queue.entry("b").try_put(1).is_err(),
                "{what}: room has come"
            );
            assert_eq!(queue.remove("a"), Some(capacity));
            assert!(deliveries(&queue).is_empty());
        }
    }
}

#[test] // B2
fn a_value_heavier_than_the_capacity_waits_until_nothing_else_does() {
    let queue = weighted(4);
    queue.put("a", vec![0]);
    assert!(queue.entry("b").try_put(vec![0; 9]).is_err());
    let mut put = Task::waiting(Box::pin(queue.entry("b").put_async(vec![0; 9])));
    queue.get().unwrap().done();
    assert_eq!((put.wakes(), put.output()), (1, Added::Queued));
    assert!(queue.entry("c").try_put(vec![0]).is_err());
    assert_eq!(queue.get().unwrap().value().len(), 9);
    assert_room(&queue, 4);
}

#[test] // B2
fn puts_that_wait_get_room_in_their_order() {
    let queue = weighted(4);
    queue.put("a", vec![0; 4]);
    let mut heavy = Task::waiting(Box::pin(queue.entry("heavy").put_async(vec![0; 3])));
    let mut light = Task::waiting(Box::pin(queue.entry("light").put_async(vec![0])));
    let mut last = Task::waiting(Box::pin(queue.entry("last").put_async(vec![0])));
    // Room for the light ones, who do not pass the heavy one; nor does a try.
    queue.entry("a").update(|list| list.truncate(2));
    light.assert_pending();
    assert!(queue.entry("b").try_put(vec![0]).is_err());
    assert_eq!((heavy.wakes(), light.wakes()), (0, 0));
    queue.get().unwrap().done();
    assert_eq!((heavy.wakes(), light.wakes(), last.wakes()), (1, 1, 0));
    assert_eq!(light.output(), Added::Queued);
    assert_eq!(heavy.output(), Added::Queued);
    assert_eq!(queue.get().unwrap().value().len(), 1); // "light"
    assert_eq!(last.output(), Added::Queued);
    assert_eq!(deliveries(&queue).len(), 2);
    assert_room(&queue, 4);
}

#[test] // B2
fn a_put_that_is_cancelled_passes_its_turn_on() {
    let queue = weighted(4);
    queue.put("a", vec![0; 4]);
    let mut heavy = Task::waiting(Box::pin(queue.entry("heavy").put_async(vec![0; 4])));
    let mut light = Task::waiting(Box::pin(queue.entry("light").put_async(vec![0])));
    queue.entry("a").update(|list| list.truncate(2));
    heavy.assert_pending();
    // While it waits.
    drop(heavy);
    assert_eq!(light.wakes(), 1);
    assert_eq!(light.output(), Added::Queued);
    // When it has room, and has not put.
    let granted = Task::waiting(Box::pin(queue.entry("granted").put_async(vec![0; 4])));
    let next = Task::waiting(Box::pin(queue.entry("next").put_async(vec![0; 3])));
    assert_eq!(deliveries(&queue).len(), 2);
    assert_eq!((granted.wakes(), next.wakes()), (1, 0));
    drop(granted);
    assert_eq!(next.wakes(), 1);
    drop(next);
    assert_room(&queue, 4);
}

#[test] // B2 S1
fn a_shut_down_ends_every_wait() {
    let _watchdog = watchdog(60);
    // Nobody comes later, who would let the others in.
    let queue = bounded(1);
    queue.put("a", vec![1]);
    let mut task = Task::waiting(Box::pin(queue.entry("b").put_async(vec![2])));
    queue.shut_down();
    assert_eq!((task.wakes(), task.output()), (1, Added::ShutDown));
}

/// A waker that puts a value for the key whose change made room, as a task that is polled in the
/// call would.
struct PutsBack(Arc<WorkQueue<&'static str, Vec<u32>>>);

impl Wake for PutsBack {
    fn wake(self: Arc<Self>) {
        self.0.put("a", vec![7]);
    }
}

#[test] // B2
fn a_waiting_put_is_woken_while_no_lock_is_held() {
    let _watchdog = watchdog(60);
    let builder = WorkQueue::builder().merge(merge::append).capacity(4);
    let queue: Arc<Lists> = Arc::new(builder.weight(Vec::len).build().unwrap());
    queue.put("a", vec![0; 4]);
    let mut put = Box::pin(queue.entry("b").put_async(vec![1]));
    let waker = Waker::from(Arc::new(PutsBack(Arc::clone(&queue))));
    assert!(poll(&mut put, &waker).is_pending());
    queue.entry("a").update(|list| list.truncate(1));
    assert_eq!(*queue.get().unwrap().value(), [0, 7]);
}

#[test] // B5
fn values_that_wait_for_a_retry_take_half_of_the_room_whatever_is_put_for_them() {
    let queue = weighted(4);
    for key in ["a", "b", "c"] {
        queue.put(key, vec![1]);
        let item = queue.get().unwrap();
        assert_eq!(item.retry_after(HOUR), Added::Delayed);
    }
    let put = queue.entry("a").try_put(vec![2]);
    assert_eq!(put, Ok(Added::Queued));
    assert_room(&queue, 2);
    let delivered = deliveries(&queue);
    assert_eq!(delivered[0], ("a", vec![1, 2]));
    assert!(queue.cancel(&"b") && queue.cancel(&"c"));
    assert_room(&queue, 4);
}
