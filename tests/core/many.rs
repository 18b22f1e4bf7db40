//! Many at a time keep every promise of one at a time (C14).

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use keyqueue::{GetError, WorkQueue};

const PATIENCE: Duration = Duration::from_secs(20);

/// More than two chunks, and more than the ring holds.
const MANY: u32 = if cfg!(miri) { 300 } else { 1500 };

fn take_all<K: Copy, V, S>(queue: &WorkQueue<K, V, S>) -> Vec<K> {
    std::iter::from_fn(|| queue.try_get().ok().map(|item| *item.key())).collect()
}

#[test] // C1, C2, C14
fn keys_of_all_shards_come_out_in_the_order_of_the_call_and_once() {
    for (shards, ring) in [(2, 1), (8, 1024), (256, 64)] {
        let builder = WorkQueue::builder().shards(shards).ring(ring);
        let queue: WorkQueue<u32> = builder.build().unwrap();
        let twice = (0..MANY).flat_map(|n| [n, n / 2]);
        assert_eq!(queue.add_all(twice.collect::<Vec<_>>()), MANY as usize);
        assert!(take_all(&queue).into_iter().eq(0..MANY));
        // They are known now.
        assert_eq!(queue.add_all((0..MANY).rev()), MANY as usize);
        assert!(take_all(&queue).into_iter().eq((0..MANY).rev()));
    }
}

#[test] // C1, C14
fn keys_stay_behind_those_that_have_overflown() {
    let queue = WorkQueue::<u32>::builder().ring(16).build().unwrap();
    queue.add_all(0..100);
    for first in (100..1000).step_by(30) {
        // The ring has room now, and the overflow older keys.
        let next = first - 100..first - 70;
        assert!(
            queue
                .get_batch(30)
                .unwrap()
                .iter()
                .map(|item| *item.key())
                .eq(next)
        );
        queue.add_all(first..first + 30);
    }
    assert!(take_all(&queue).into_iter().eq(900..1000));
}

#[test] // C4, C12, C14
fn keys_that_are_processed_are_added_once_more() {
    let queue = WorkQueue::from_iter(0..100_u32);
    let batch = queue.get_batch(70).unwrap();
    assert_eq!((batch.len(), queue.len()), (70, 30));
    assert!(batch.iter().map(|item| *item.key()).eq(0..70));
    assert_eq!(queue.add_all((0..100).chain(0..100)), 0);
    batch.done();
    assert!(take_all(&queue).into_iter().eq((70..100).chain(0..70)));
}

#[test] // S1, C14
fn a_queue_that_is_shut_down_refuses_them() {
    let queue = WorkQueue::from_iter([1, 2, 3]);
    queue.shut_down();
    assert_eq!(queue.add_all(0..MANY), 0);
    assert_eq!(take_all(&queue), [1, 2, 3]);
    assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
}

/// Says that it has more items than come.
struct Boasting<I>(I);

impl<I: Iterator> Iterator for Boasting<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (1000, None)
    }
}

#[test] // C14
fn an_iterator_that_says_that_it_has_more_than_come_ends() {
    for len in [0, 1, 128, 129] {
        let queue = WorkQueue::new();
        assert_eq!(queue.add_all(Boasting(0..len)), len as usize);
        assert_eq!(take_all(&queue), (0..len).collect::<Vec<u32>>());
    }
}

#[test] // C5, C14
fn keys_of_an_iterator_that_waits_are_delivered_as_they_come() {
    let queue = Arc::new(WorkQueue::new());
    let (sender, receiver) = mpsc::channel();
    let adder = thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.add_all(receiver)
    });
    for key in 0..300 {
        sender.send(key).unwrap();
        // The iterator has no other key yet.
        assert_eq!(*queue.get_timeout(PATIENCE).unwrap(), key);
    }
    drop(sender);
    assert_eq!(adder.join().unwrap(), 300);
}
