//! Items and futures that keep their queue alive.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::timed::MS;
use crate::common::{Task, take_all, waiting};
use keyqueue::limiter::default_controller_with_clock;
use keyqueue::{Added, Clock, OwnedItem, WorkQueue};

#[test] // C7 S6
fn an_owned_item_moves_into_a_task_and_keeps_its_queue_alive() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let queue = Arc::new(WorkQueue::new());
    let handle = queue.handle(5);
    handle.add();
    let item: OwnedItem<u64> = queue.get_owned().unwrap();
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
    let queue = Arc::new(queue);
    queue.add("key");
    time.advance(MS);
    let item = queue.get_owned().unwrap();
    assert_eq!(format!("{item:?}"), r#"Item("key")"#);
    assert_eq!(item.queue_time(), Some(MS));
    assert_eq!(queue.add("key"), Added::Deferred);
    assert!(queue.is_empty());
    item.done();
    assert_eq!(queue.len(), 1, "queued again");

    assert_eq!(queue.get_owned().unwrap().retry_after(MS), Added::Delayed);
    assert_eq!(queue.add("key"), Added::Queued, "finished, and delayed");
    assert!(queue.cancel("key"));
    assert_eq!(queue.get_owned().unwrap().retry(), Added::Delayed);
    assert_eq!(queue.num_requeues(&"key"), 1);
    time.advance(5 * MS);
    assert_eq!(queue.fire_due(), 1);

    let item = queue.get_owned().unwrap();
    queue.add("key");
    let panics = || {
        let _item = item;
        panic!("the work fails");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(take_all(&queue), ["key"]);
    queue.shut_down();
    assert!(queue.get_owned().is_none());
    assert_eq!(Arc::strong_count(&queue), 1);
}

#[test] // C9
fn a_dropped_future_of_an_owned_item_passes_its_wake_up_on_and_lets_the_queue_go() {
    let queue = Arc::new(WorkQueue::<u64>::new());
    let first = Task::waiting(Box::pin(queue.get_owned_async()));
    let mut second = Task::waiting(Box::pin(queue.get_owned_async()));
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
    let future = can_be_spawned(queue.get_owned_async());
    queue.add_after("key", Duration::ZERO);
    let item = pollster::block_on(future).unwrap();
    queue.shut_down();
    assert!(pollster::block_on(queue.get_owned_async()).is_none());
    drop(queue);
    assert_eq!(item.len(), 3, "the key lives as long as the item");
}
