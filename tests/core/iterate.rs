//! Iterators over a queue, and queues from iterators.

use std::thread;

use crate::common::{eventually, take_all, waiting, with_queues};
use keyqueue::WorkQueue;

#[test]
fn a_loop_over_a_queue_waits_for_keys_and_ends_with_it() {
    with_queues(|config| {
        let queue = config.queue();
        let keys: Vec<u64> = thread::scope(|scope| {
            let worker = scope.spawn(|| (&queue).into_iter().map(|item| *item).collect());
            eventually("the loop waits", || waiting(&queue) == 1);
            queue.add_all([1, 2]);
            eventually("it has taken both", || queue.is_empty());
            queue.add(3);
            queue.shut_down();
            worker.join().unwrap()
        });
        assert_eq!(keys, [1, 2, 3]);
        assert!(queue.iter().next().is_none());
    });
}

#[test]
fn a_queue_is_made_and_extended_from_an_iterator() {
    let mut queue: WorkQueue<u64> = [1, 2, 1].into_iter().collect();
    queue.extend([2, 3]);
    assert_eq!(take_all(&queue), [1, 2, 3]);
}
