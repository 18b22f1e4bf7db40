//! Items that keep their queue open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::common::counted::Alive;
use crate::common::timed::{HOUR, MS};
use crate::common::{Task, eager, scaled, take_all, waiting, watchdog};
use keyqueue::limiter::default_controller_with_clock;
use keyqueue::{Added, Clock, Ended, Item, UpTo, WorkQueue, merge};

#[test] // C7 S6
fn an_owned_item_moves_into_a_task_and_keeps_its_queue_alive() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let queue = WorkQueue::new();
    let handle = queue.handle(5);
    handle.add();
    let item: Item<'static, u64> = queue.get().unwrap().into_owned();
    drop(queue);
    let work = async move {
        assert_eq!((*item, item.key()), (5, &5));
        assert_eq!(handle.add(), Added::Deferred, "the queue is alive");
        drop(item);
        assert_eq!(handle.add(), Added::ShutDown, "that was the last reference");
    };
    runtime.block_on(async { tokio::spawn(work).await.unwrap() });
}

#[test] // C4 C7
fn an_owned_item_is_finished_like_an_item() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder()
        .rate_limiter(default_controller_with_clock(clock.clone()))
        .clock(clock)
        .timing(true)
        .manual_timers()
        .build()
        .unwrap();
    let get = || queue.get().map(Item::into_owned);
    queue.add("key");
    time.advance(MS);
    let item = get().unwrap();
    assert_eq!(format!("{item:?} {item}"), r#"Item("key") key"#);
    assert_eq!(item.queue_time(), Some(MS));
    assert_eq!(queue.add("key"), Added::Deferred);
    assert!(queue.is_empty());
    item.done();
    assert_eq!(queue.len(), 1, "queued again");

    assert_eq!(get().unwrap().retry_after(MS), Added::Delayed);
    assert_eq!(queue.add("key"), Added::Queued, "finished, and delayed");
    assert!(queue.cancel("key"));
    assert_eq!(get().unwrap().retry(), Added::Delayed);
    assert_eq!(queue.num_requeues(&"key"), 1);
    time.advance(5 * MS);
    assert_eq!(queue.fire_due(), 1);

    let item = get().unwrap();
    queue.add("key");
    let panics = || {
        let _item = item;
        panic!("the work fails");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(take_all(&queue), ["key"]);
    queue.shut_down();
    assert!(get().is_none());
}

#[test] // C7 S6
fn an_owned_item_of_an_owned_item_is_the_same_delivery() {
    let queue = WorkQueue::<u64>::new();
    queue.add(1);
    let handle = queue.handle(1);
    let item = queue.get().unwrap().into_owned();
    let item = item.into_owned();
    assert_eq!(
        handle.add(),
        Added::Deferred,
        "it was not finished in between"
    );
    drop(queue);
    let item = item.into_owned();
    assert_eq!(handle.add(), Added::Merged, "the queue is open");
    item.done();
    assert_eq!(handle.add(), Added::ShutDown, "nothing else keeps it open");
}

#[test] // C7 S6
fn each_way_to_get_has_items_that_can_be_owned() {
    let queue = WorkQueue::<u64>::new();
    queue.add_all(0..8);
    let mut items = vec![
        queue.get().unwrap().into_owned(),
        queue.try_get().unwrap().into_owned(),
        queue.get_timeout(HOUR).unwrap().into_owned(),
        pollster::block_on(queue.get_async()).unwrap().into_owned(),
        queue.iter().next().unwrap().into_owned(),
        queue
            .get()
            .unwrap()
            .retry_on_drop()
            .into_item()
            .into_owned(),
    ];
    let batch = queue.get_batch(UpTo::new(2)).unwrap();
    items.extend(batch.into_iter().map(Item::into_owned));
    assert_eq!(queue.counts().processing, 8);
    drop(queue);
    let keys = thread::spawn(move || items.iter().map(|item| **item).collect::<Vec<_>>());
    assert_eq!(keys.join().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test] // S6 V2: first the key is finished, then the queue ends
fn the_last_owned_item_ends_the_queue_after_its_key() {
    let alive = Alive::default();
    let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
    let put = |key: u64| {
        let (entry, receipt) = queue.entry(alive.of(key)).tracked();
        entry.put(vec![alive.of(key)]);
        receipt
    };
    let receipts = [1, 2, 3, 4].map(put);
    let [first, second] = [(); 2].map(|()| queue.get().unwrap().into_owned());
    let retried = queue.get().unwrap().into_owned();
    drop(queue);
    assert_eq!(
        retried.retry_after(HOUR),
        Added::Delayed,
        "the queue is open"
    );
    first.done();
    let ends = || [0, 1, 2, 3].map(|n: usize| receipts[n].ended());
    assert_eq!(ends(), [Some(Ended::Done), None, None, None]);
    assert_eq!(second.value()[0].0, 2);
    drop(second);
    let dropped = Some(Ended::Dropped);
    assert_eq!(
        ends(),
        [Some(Ended::Done), Some(Ended::Done), dropped, dropped]
    );
    assert_eq!(alive.count(), 0);
}

#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "runs a process")]
#[test] // S6
fn an_owned_item_keeps_the_thread_of_its_queue_and_ends_it() {
    use crate::common::{alone, eventually, threads};

    alone(|| {
        let _watchdog = watchdog(60);
        let queue = WorkQueue::<u64>::new();
        queue.add(1);
        queue.add_after(2, MS);
        let item = queue.get().unwrap().into_owned();
        let handle = queue.handle(3);
        drop(queue);
        assert_eq!(handle.add_after(HOUR), Added::Delayed);
        eventually("one thread", || threads("keyqueue-timer") == 1);
        drop(item);
        eventually("no thread", || threads("keyqueue-timer") == 0);
        assert_eq!(handle.add_after(MS), Added::ShutDown);
    });
}

#[test] // S6 C7
fn owned_items_and_their_queue_are_dropped_at_the_same_time() {
    let _watchdog = watchdog(60);
    let alive = Alive::default();
    for _ in 0..scaled(500) {
        let queue = eager([]);
        queue.add_all((0..4).map(|key| alive.of(key)));
        let handle = queue.handle(alive.of(0));
        let items = [(); 2].map(|()| queue.get().unwrap().into_owned());
        let start = &Barrier::new(3);
        thread::scope(|scope| {
            for item in items {
                scope.spawn(move || {
                    start.wait();
                    let item = item.into_owned();
                    let _ = item.retry();
                });
            }
            start.wait();
            drop(queue);
        });
        assert_eq!(handle.add(), Added::ShutDown);
        drop(handle);
        assert_eq!(alive.count(), 0);
    }
}

/// A future that owns the queue while it waits, and whose item does then.
async fn get_owned<K: 'static>(queue: Arc<WorkQueue<K>>) -> Option<Item<'static, K>> {
    queue.get_async().await.map(Item::into_owned)
}

#[test] // C9
fn a_dropped_future_of_an_owned_item_passes_its_wake_up_on_and_lets_the_queue_go() {
    let queue = Arc::new(WorkQueue::<u64>::new());
    let first = Task::waiting(Box::pin(get_owned(Arc::clone(&queue))));
    let mut second = Task::waiting(Box::pin(get_owned(Arc::clone(&queue))));
    assert_eq!((waiting(&queue), Arc::strong_count(&queue)), (2, 3));
    queue.add(1);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1);
    assert_eq!(*second.output().unwrap(), 1);
    drop(second);
    assert_eq!((waiting(&queue), Arc::strong_count(&queue)), (0, 1));
}

#[test] // S1 S6
fn a_future_of_an_owned_item_can_be_spawned_and_ends_with_the_queue() {
    fn can_be_spawned<F: Send + 'static>(future: F) -> F {
        future
    }
    let queue = Arc::new(WorkQueue::new());
    let future = can_be_spawned(get_owned(Arc::clone(&queue)));
    queue.add_after("key", Duration::ZERO);
    let item = pollster::block_on(future).unwrap();
    queue.shut_down();
    assert!(pollster::block_on(get_owned(Arc::clone(&queue))).is_none());
    drop(queue);
    assert_eq!(item.len(), 3, "the key lives as long as the item");
}
