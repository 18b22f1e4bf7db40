//! Many at a time: chunks of adds and puts, and batches that pop before they begin (`src/engine/many.rs`), and the push of
//! several entries in one step (`src/fifo`).
#![cfg(keyqueue_loom)]

use keyqueue::{Added, GetError};
use keyqueue_loom_tests::values::{bag, drain, values};
use keyqueue_loom_tests::{Queue, check, queue, spawn_with};

/// Gets and finishes what is queued.
fn take_all(queue: &Queue) -> Vec<u8> {
    std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect()
}

/// C1, C14. The ring has room for two: the others are pushed to the overflow in one step, beside pops from both.
#[test]
fn a_chunk_that_overflows_beside_a_getter_comes_out_in_the_order_of_the_call() {
    check("chunk_overflows", 3, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add_all([1, 2, 3, 4, 5]));
        let mut taken = take_all(&queue);
        assert_eq!(adder.join().unwrap(), 5);
        taken.extend(take_all(&queue));
        assert_eq!(taken, [1, 2, 3, 4, 5]);
    });
}

/// C1, C14. The same beside another pusher, whose key comes anywhere between them.
#[test]
fn a_chunk_that_overflows_beside_an_add_keeps_its_order() {
    check("chunk_and_add", 3, || {
        let queue = queue(1);
        let adder = spawn_with(&queue, |queue| queue.add_all([1, 2, 3]));
        queue.add(9);
        assert_eq!(adder.join().unwrap(), 3);
        let mut taken = take_all(&queue);
        assert_eq!(taken.len(), 4);
        taken.retain(|key| *key != 9);
        assert_eq!(taken, [1, 2, 3]);
    });
}

/// C3, C5, C14. Interleaving: the chunk makes key 2 queued; an add of it is merged; the chunk pushes its entry.
#[test]
fn a_chunk_beside_an_add_a_get_and_a_done_loses_and_doubles_nothing() {
    check("chunk_add_done", 3, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.try_get().unwrap();
        let adder = spawn_with(&queue, |queue| queue.add_all([1, 2]));
        let added = queue.add(2);
        item.done();
        let mut taken = take_all(&queue);
        let queued = adder.join().unwrap();
        taken.extend(take_all(&queue));
        let times = |key| taken.iter().filter(|taken| **taken == key).count();
        assert_eq!(times(1), 1, "added while it was processed, or after");
        match added {
            Added::Merged => assert_eq!(times(2), 1),
            _ => assert!((1..=2).contains(&times(2))),
        }
        assert!(queued <= 2);
    });
}

/// C9, C14. One notification is for as many getters as keys came.
#[test]
fn a_chunk_wakes_a_getter_for_each_of_its_keys() {
    check("chunk_wakes", 2, || {
        let queue = queue(2);
        let getters = [(); 2].map(|()| spawn_with(&queue, |queue| queue.get().map(|item| *item)));
        assert_eq!(queue.add_all([1, 2]), 2);
        let mut taken = getters.map(|getter| getter.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [Some(1), Some(2)]);
    });
}

/// S1, C5, C14. What a chunk says to be queued is delivered, and the others are refused.
#[test]
fn a_chunk_beside_a_shut_down_is_refused_or_delivered() {
    check("chunk_shut_down", 3, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add_all([1, 2]));
        let _ = queue.shut_down();
        let mut taken = 0;
        // Once nothing is left, nothing comes.
        loop {
            match queue.try_get() {
                Ok(_) => taken += 1,
                Err(GetError::Empty) => loom::thread::yield_now(),
                Err(_) => break,
            }
        }
        assert_eq!(adder.join().unwrap(), taken);
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
    });
}

/// C5, C12, V2, C14. Interleaving: the getter pops all entries; a put to the second key is merged; the getter begins it.
#[test]
fn a_put_beside_a_batch_is_served_by_it_or_by_a_delivery_that_follows() {
    check("batch_put", 3, || {
        let queue = values(|builder| builder);
        queue.put_all([(1, bag(1)), (2, bag(2)), (3, bag(3))]);
        let putter = spawn_with(&queue, |queue| queue.put(3, bag(4)));
        let mut batch = queue.try_get_batch(3).unwrap();
        let mut taken: Vec<_> = batch
            .iter_mut()
            .map(|item| item.value_mut().touch())
            .collect();
        batch.done();
        taken.extend(drain(&queue));
        let added = putter.join().unwrap();
        taken.extend(drain(&queue));
        match added {
            Added::Merged => assert_eq!(taken, [vec![1], vec![2], vec![3, 4]]),
            _ => assert_eq!(taken, [[1], [2], [3], [4]]),
        }
    });
}

/// S8, C14. Interleaving: the getter pops both entries; the end abandons their keys; the getter begins them.
#[test]
fn a_batch_beside_an_end_at_once_delivers_or_discards_each_key() {
    check("batch_end", 2, || {
        let queue = values(|builder| builder);
        queue.put_all([(1, bag(1)), (2, bag(2)), (3, bag(3))]);
        let ender = spawn_with(&queue, |queue| _ = queue.shut_down_now());
        let taken = queue.try_get_batch(3).map_or(0, |batch| batch.len());
        ender.join().unwrap();
        assert_eq!(taken + queue.take_left().len(), 3);
    });
}

/// V1, V2, C14. Each value is in one delivery, those of a key in the order of the call.
#[test]
fn a_chunk_of_puts_beside_deliveries_hands_over_each_value_once() {
    check("chunk_put", 3, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(0));
        assert_eq!(drain(&queue), [[0]]);
        let putter = spawn_with(&queue, |queue| {
            queue.put_all([(1, bag(1)), (2, bag(2)), (1, bag(3))])
        });
        let mut all = drain(&queue);
        putter.join().unwrap();
        all.extend(drain(&queue));
        let mut all = all.concat();
        let of_one: Vec<u8> = all.iter().copied().filter(|value| *value != 2).collect();
        assert_eq!(of_one, [1, 3]);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}
