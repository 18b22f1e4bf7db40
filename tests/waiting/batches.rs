//! Batches wait for the first key like a get of one key, and for no more.

use std::pin::pin;
use std::thread;
use std::time::Duration;

use crate::common::{Queue, Task, eventually, poll_until_idle, waiting, with_queues};
use keyqueue::GetError;

#[test] // C12
fn every_kind_of_batch_takes_what_is_queued_up_to_max_and_waits_for_no_more() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        for kind in 0..4 {
            for (max, expected) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (usize::MAX, 3)] {
                queue.add_all(0..3);
                let batch = match kind {
                    0 => queue.get_batch(max).unwrap(),
                    1 => queue.try_get_batch(max).unwrap(),
                    2 => queue.get_batch_timeout(max, Duration::MAX).unwrap(),
                    _ => pollster::block_on(queue.get_batch_async(max)).unwrap(),
                };
                let keys = batch.iter().map(|item| **item);
                assert!(keys.eq(0..expected), "{batch:?} of at most {max}");
                drop(batch);
                assert_eq!(queue.clear() as u64, 3 - expected);
            }
        }
    });
}

#[test] // C12 S1
fn batches_end_with_the_queue() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        let wait = |limit| queue.get_batch_timeout(2, limit).unwrap_err();
        assert_eq!(queue.try_get_batch(2).unwrap_err(), GetError::Empty);
        assert_eq!(wait(Duration::ZERO), GetError::Empty);
        let mut task = Task::waiting(Box::pin(queue.get_batch_async(2)));
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add(1);
        queue.shut_down();
        task.assert_pending(); // the dirty key is still to come
        item.done();
        assert_eq!(task.output().unwrap().len(), 1);
        assert_eq!(queue.try_get_batch(2).unwrap_err(), GetError::ShutDown);
        assert_eq!(wait(Duration::MAX), GetError::ShutDown);
        assert!(pollster::block_on(queue.get_batch_async(2)).is_none());
    });
}

#[test] // C9 C12
fn a_batch_that_is_awaited_takes_nothing_before_it_is_there() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        let first = Task::waiting(Box::pin(queue.get_batch_async(9)));
        let mut second = Task::waiting(Box::pin(queue.get_batch_async(9)));
        queue.add(0);
        assert_eq!((first.wakes(), second.wakes()), (1, 0));
        queue.add_all(1..4);
        assert_eq!(queue.len(), 4);
        drop(first); // passes its wake-up on
        assert_eq!((second.wakes(), queue.len()), (1, 4));
        assert_eq!(second.output().unwrap().len(), 4);
        let mut third = pin!(queue.get_batch_async(9));
        assert!(poll_until_idle(&mut third).is_pending());
    });
}

#[test] // C9 C12
fn a_thread_that_waits_for_a_batch_is_woken_by_the_first_key() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        thread::scope(|scope| {
            const HOUR: Duration = Duration::from_secs(3600);
            let getter = scope.spawn(|| queue.get_batch_timeout(5, HOUR).unwrap().len());
            eventually("the getter waits", || waiting(&queue) == 1);
            queue.add(1);
            assert_eq!(getter.join().unwrap(), 1);
        });
    });
}
