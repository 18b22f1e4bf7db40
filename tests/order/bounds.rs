//! How many keys may wait, tried and waited for (B1 to B4). Queues of values have their own tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::common::calls::{Call, Calls};
use crate::common::timed::{HOUR, built};
use crate::common::{Task, poll, there, watchdog};
use keyqueue::{Added, Builder, Full, WorkQueue};

type Queue = WorkQueue<&'static str>;

fn bounded(capacity: usize) -> Queue {
    of(|builder| builder.capacity(capacity))
}

fn of(set: impl FnOnce(Builder<&'static str>) -> Builder<&'static str>) -> Queue {
    built(set).0
}

/// How much room there is.
#[track_caller]
fn assert_room(queue: &Queue, room: usize) {
    static KEYS: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..100).map(|n| n.to_string()).collect());
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    for n in 0..room {
        let key = &KEYS[NEXT.fetch_add(1, Ordering::Relaxed)];
        let added = queue.entry(&**key).try_add();
        assert_eq!(added, Ok(Added::Queued), "room for {n} of {room}");
    }
    assert_eq!(queue.entry("full").try_add(), Err(Full("full")));
}

#[test] // B1
fn a_key_that_is_there_already_needs_no_room() {
    let queue = bounded(3);
    queue.add("processing");
    let item = queue.get().unwrap();
    queue.entry("queued").try_add().unwrap();
    queue.add_after("delayed", HOUR);
    queue.entry("other").try_add().unwrap();
    assert_eq!(queue.entry("new").try_add(), Err(Full("new")));
    assert_eq!(queue.entry("queued").try_add(), Ok(Added::Merged));
    assert_eq!(queue.entry("processing").try_add(), Ok(Added::Deferred));
    assert_eq!(queue.entry("processing").try_add(), Ok(Added::Merged));
    assert_eq!(queue.entry("delayed").try_add(), Ok(Added::Queued));
    assert_eq!(queue.entry("queued").wait().add(), Added::Merged);
    assert_eq!(queue.add_after("delayed", HOUR), Added::Delayed);
    let wait = queue
        .entry("new")
        .within(Duration::from_millis(1))
        .try_add();
    assert_eq!(wait, Err(Full("new")));
    drop(item);
    assert!(queue.cancel(&"delayed"));
    while queue.try_get().is_ok() {}
    assert_room(&queue, 3);
}

#[test] // B1
fn a_key_that_is_known_and_idle_needs_room() {
    let queue = bounded(1);
    let handle = queue.handle("a");
    handle.add();
    assert_eq!(queue.entry("b").try_add(), Err(Full("b")));
    queue.get().unwrap().done();
    queue.add("b");
    assert_eq!(queue.entry("a").try_add(), Err(Full("a")));
}

#[test] // B1
fn a_delivery_a_cancel_a_clear_and_the_end_of_a_delay_make_room() {
    for levels in [1, 3] {
        let (queue, time) = built(|builder| builder.capacity(3).levels(levels));
        queue.add("a");
        queue.add_after("b", HOUR);
        queue.add_after("c", 2 * HOUR);
        // A delay that is kept, or moved, is no other one.
        queue.add_after("c", 3 * HOUR);
        queue.add_after("c", 2 * HOUR);
        assert_room(&queue, 0);
        let item = queue.get().unwrap(); // "a"
        assert_room(&queue, 1);
        assert!(queue.cancel(&"c"));
        assert_room(&queue, 1);
        time.advance(HOUR);
        queue.fire_due();
        assert_room(&queue, 0); // "b" is queued now
        assert_eq!(queue.clear(), 3);
        assert_room(&queue, 3);
        drop(item);
    }
}

#[test] // B1 B2
fn a_delay_that_is_cancelled_or_merges_lets_the_next_add_in() {
    let (queue, time) = built(|builder| builder.capacity(2));
    queue.add("a");
    queue.add_after("a", HOUR);
    let mut add = Task::waiting(Box::pin(queue.entry("b").add_async()));
    assert!(queue.cancel(&"a"));
    assert_eq!((add.wakes(), add.output()), (1, Added::Queued));
    queue.get().unwrap().done();
    queue.add_after("b", HOUR);
    let mut add = Task::waiting(Box::pin(queue.entry("c").add_async()));
    time.advance(HOUR);
    assert_eq!(queue.fire_due(), 1);
    assert_eq!((add.wakes(), add.output()), (1, Added::Queued));
}

#[test] // B1 D5
fn an_add_that_supersedes_a_delay_takes_its_room() {
    let queue = of(|builder| builder.capacity(2).supersede_delays(true));
    queue.add_after("a", HOUR);
    assert_room(&queue, 1);
    let mut task = Task::waiting(Box::pin(queue.entry("b").add_async()));
    // "a" is delayed, and another key is queued. Now "a" is queued.
    queue.add("a");
    task.assert_pending();
    queue.get().unwrap().done();
    assert_eq!((task.wakes(), task.output()), (1, Added::Queued));
    // An add cancels the delay of a key that is processing, and needs no room.
    let item = queue.get().unwrap();
    queue.add_after(*item, HOUR);
    let mut task = Task::waiting(Box::pin(queue.entry("d").add_async()));
    let mut next = Task::waiting(Box::pin(queue.entry("e").add_async()));
    assert_eq!(queue.add(*item), Added::Deferred);
    assert_eq!((task.wakes(), next.wakes()), (1, 0));
    assert_eq!(task.output(), Added::Queued);
    next.assert_pending();
}

#[test] // B3
fn what_was_accepted_is_never_refused() {
    let (queue, time) = built(|builder| builder.capacity(2));
    queue.add("a");
    queue.add("b");
    let items: Vec<_> = there(&queue).take(2).collect();
    for key in ["c", "d"] {
        queue.entry(key).try_add().unwrap();
    }
    // Retries of what workers hold, dirty keys, other adds, and delays that end exceed the bound.
    for item in items {
        assert_eq!(item.retry(), Added::Deferred);
    }
    assert_eq!(queue.add("e"), Added::Queued);
    assert_eq!(queue.add_after("f", HOUR), Added::Delayed);
    time.advance(HOUR);
    queue.fire_due();
    assert_eq!(queue.len(), 6);
    // There is room once fewer than the capacity wait, whatever was above it.
    for left in (1..6).rev() {
        assert!(queue.entry("new").try_add().is_err(), "{left}");
        queue.get().unwrap().done();
    }
    assert_room(&queue, 1);
}

#[test] // B2
fn adds_that_wait_get_room_in_their_order() {
    let queue = bounded(1);
    queue.add("a");
    let mut first = Task::waiting(Box::pin(queue.entry("first").add_async()));
    let mut second = Task::waiting(Box::pin(queue.entry("second").add_async()));
    queue.get().unwrap().done();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    // The room is the first one's, although it has not added yet.
    assert_eq!(queue.entry("b").try_add(), Err(Full("b")));
    second.assert_pending();
    assert_eq!(first.output(), Added::Queued);
    assert_eq!(*queue.get().unwrap(), "first");
    assert_eq!(second.output(), Added::Queued);
    assert_eq!(*queue.get().unwrap(), "second");
    assert_room(&queue, 1);
}

#[test] // B2
fn an_add_that_is_cancelled_passes_its_turn_on() {
    let queue = bounded(1);
    queue.add("a");
    let waiting = Task::waiting(Box::pin(queue.entry("waiting").add_async()));
    let granted = Task::waiting(Box::pin(queue.entry("granted").add_async()));
    let mut next = Task::waiting(Box::pin(queue.entry("next").add_async()));
    drop(waiting);
    queue.get().unwrap().done();
    assert_eq!((granted.wakes(), next.wakes()), (1, 0));
    drop(granted);
    assert_eq!((next.wakes(), next.output()), (1, Added::Queued));
    queue.clear();
    assert_room(&queue, 1);
}

#[test] // B2
fn an_add_that_is_cancelled_after_its_turn_leaves_the_line_as_it_is() {
    let queue = bounded(1);
    queue.add("a");
    let granted = Task::waiting(Box::pin(queue.entry("granted").add_async()));
    queue.get().unwrap().done();
    // The line was empty when it came.
    let mut next = Task::waiting(Box::pin(queue.entry("next").add_async()));
    drop(granted);
    assert_eq!((next.wakes(), next.output()), (1, Added::Queued));
    queue.clear();
    assert_room(&queue, 1);
}

#[test] // B2
fn an_add_that_needs_no_room_after_all_gives_it_back() {
    let queue = bounded(1);
    queue.add("a");
    let mut add = Task::waiting(Box::pin(queue.entry("b").add_async()));
    let mut next = Task::waiting(Box::pin(queue.entry("c").add_async()));
    queue.add("b"); // is not bounded
    queue.clear(); // room for one: for `add`
    queue.add("b");
    queue.clear();
    queue.add("b");
    let item = queue.get().unwrap();
    assert_eq!(add.output(), Added::Deferred);
    assert_eq!(next.wakes(), 1);
    assert_eq!(next.output(), Added::Queued);
    drop(item);
}

#[test] // B1
fn a_queue_without_a_bound_is_never_full() {
    let queue = WorkQueue::<u64>::new();
    for key in 0..1000 {
        assert_eq!(queue.entry(key).try_add(), Ok(Added::Queued));
    }
    assert_eq!(queue.entry(1000).wait().add(), Added::Queued);
    let added = queue.entry(1000).within(Duration::ZERO).try_add();
    assert_eq!(added, Ok(Added::Merged));
    assert_eq!(
        pollster::block_on(queue.entry(1001).add_async()),
        Added::Queued
    );
}

#[test] // B1
fn a_capacity_of_zero_is_refused() {
    let error = WorkQueue::<u64>::builder().capacity(0).build().unwrap_err();
    assert_eq!(error.field(), "capacity");
    assert!(error.to_string().contains('0'), "{error}");
}

#[test] // B4
fn counts_tell_what_waits() {
    let queue = bounded(9);
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let item = queue.get().unwrap();
    queue.add("a");
    queue.add_after("d", HOUR);
    let counts = queue.counts();
    assert_eq!(
        (counts.queued, counts.delayed, counts.processing),
        (2, 1, 1)
    );
    drop(item);
    assert_eq!((queue.counts().queued, queue.counts().processing), (3, 0));
}

#[test] // B1 D4
fn a_getter_that_a_delay_wakes_finds_the_room_of_each_key_counted_once() {
    // A waker whose call panics does not return.
    let call: Call<u64> = |queue| assert_eq!(queue.entry(9).try_add(), Ok(Added::Queued));
    for (queued, delayed) in [(0, 1), (1, 2), (0, 100)] {
        let capacity = queued + delayed + 1;
        let (queue, time) = built(|builder| builder.capacity(capacity as usize));
        let queue = Arc::new(queue);
        let (calls, waker) = Calls::new(&queue, call);
        let mut first = queue.get_async();
        assert!(queued == 0 || poll(&mut first, Waker::noop()).is_pending());
        let mut getter = queue.get_async();
        assert!(poll(&mut getter, &waker).is_pending());
        // Wakes the first getter, which is not polled again. The key's delay is going to be merged.
        (100..100 + queued).for_each(|key| _ = queue.add(key));
        for key in (100..100 + queued).chain(200..200 + delayed - queued) {
            queue.add_after(key, HOUR);
        }
        time.advance(HOUR);
        queue.fire_due();
        let merged = format!("{queued} of {delayed} delays are merged");
        assert_eq!(calls.returned(), 1, "{merged}");
        assert_eq!(queue.len() as u64, delayed + 1, "{merged}");
    }
}

/// A waker that adds a key, as a task that is polled in the call would.
struct Adds(Arc<Queue>);

impl Wake for Adds {
    fn wake(self: Arc<Self>) {
        self.0.add("a");
    }
}

#[test] // B2
fn a_waiting_add_is_woken_while_no_lock_is_held() {
    let _watchdog = watchdog(60);
    let queue = of(|builder| builder.capacity(1).supersede_delays(true));
    let queue: Arc<Queue> = Arc::new(queue);
    let waker = Waker::from(Arc::new(Adds(Arc::clone(&queue))));
    type MakeRoom = fn(&Queue);
    let makers: [(&str, MakeRoom); 3] = [
        ("get", |queue| drop(queue.get())),
        ("cancel", |queue| {
            queue.cancel(&"a");
            drop(queue.get());
        }),
        // Supersedes the delay.
        ("add", |queue| {
            queue.add("a");
            drop(queue.get());
        }),
    ];
    for (name, make_room) in makers {
        queue.add("a");
        if name != "get" {
            queue.add_after("a", HOUR);
        }
        let mut add = Box::pin(queue.entry("b").add_async());
        assert!(poll(&mut add, &waker).is_pending());
        make_room(&queue);
        assert!(poll(&mut add, Waker::noop()).is_ready(), "{name}");
        queue.clear();
        while queue.try_get().is_ok() {}
    }
}

#[test] // B2
fn an_add_that_waits_wakes_the_task_that_polled_it_last() {
    let queue = bounded(1);
    queue.add("a");
    let mut add = Box::pin(queue.entry("b").add_async());
    assert!(poll(&mut add, Waker::noop()).is_pending());
    let mut task = Task::waiting(add);
    drop(queue.try_get());
    assert_eq!((task.wakes(), task.output()), (1, Added::Queued));
}
