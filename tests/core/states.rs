//! The core's promises in one thread: what every operation returns in every state of a key.

use std::time::Duration;

use crate::common::timed::{MS, NS};
use crate::common::{
    Config, Queue, Task, assert_nothing_queued, scaled, take_all, waiting, with_queues,
    with_these_queues,
};
use keyqueue::{Added, GetError, WorkQueue};

// ---- order ----------------------------------------------------------------------------------

#[test] // C1 C2
fn keys_come_out_in_the_order_in_which_they_became_queued() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        for key in [2, 4, 1, 3] {
            assert_eq!(queue.add(key), Added::Queued);
        }
        for key in [3, 2].repeat(scaled(100)) {
            assert_eq!(queue.add(key), Added::Merged, "it keeps its place");
            assert_eq!(queue.len(), 4);
        }
        queue.get().unwrap().done();
        assert_eq!(queue.add(2), Added::Queued, "it was done");
        assert_eq!(take_all(&queue), [4, 1, 3, 2]);
    });
}

#[test] // C1 C8
fn the_order_survives_filling_and_emptying_the_ring_by_turns() {
    const DEPTH: u64 = if cfg!(miri) { 6 } else { 40 };
    for ring in [1, 2, 3, 5, 1000] {
        let queue = WorkQueue::builder().ring(ring).build().unwrap();
        let (mut added, mut taken) = (0, 0);
        // A saw of every depth, over rings that hold a few: the boundary between ring and overflow
        // is crossed at every offset. Then many keys.
        let depths = (1..DEPTH).chain((1..DEPTH).rev());
        for depth in depths.chain([scaled(10_000) as u64]) {
            while added - taken < depth {
                queue.add(added);
                added += 1;
                assert_eq!(queue.len() as u64, added - taken);
            }
            for _ in 0..depth.div_ceil(2) {
                assert_eq!(*queue.try_get().unwrap(), taken, "with a ring of {ring}");
                taken += 1;
                assert_eq!(queue.len() as u64, added - taken);
            }
        }
        assert_eq!(take_all(&queue), (taken..added).collect::<Vec<_>>());
        assert_nothing_queued(&queue);
    }
}

// ---- one delivery for each add --------------------------------------------------------------

#[test] // C4
fn a_deferred_key_is_queued_at_the_tail_as_of_its_done() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..5);
        let mut items: Vec<_> = (0..5).map(|_| queue.get().unwrap()).collect();
        for key in 0..5 {
            assert_eq!(queue.add(key), Added::Deferred);
        }
        queue.add(10);
        for done in [3, 0, 4, 1, 2] {
            let place = items.iter().position(|item| **item == done).unwrap();
            items.remove(place).done();
            queue.add(11);
        }
        assert_eq!(take_all(&queue), [10, 3, 11, 0, 4, 1, 2]);
    });
}

#[test] // C5
fn every_accepted_add_is_followed_by_a_delivery() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        // All ways through the four states with up to six steps of add, get and done.
        for script in (0..3_u32.pow(6)).step_by(if cfg!(miri) { 20 } else { 1 }) {
            let mut item = None;
            let mut owed = 0;
            for step in 0..6 {
                match script / 3_u32.pow(step) % 3 {
                    0 => {
                        assert!(queue.add(1).is_accepted());
                        owed = 1;
                    }
                    1 => {
                        if let Ok(got) = queue.try_get() {
                            assert!(item.is_none(), "two holders");
                            assert_eq!(owed, 1, "nobody asked for this delivery");
                            owed = 0;
                            item = Some(got);
                        }
                    }
                    _ => item = None,
                }
            }
            drop(item);
            assert_eq!(take_all(&queue).len(), owed);
        }
    });
}

// ---- results --------------------------------------------------------------------------------

#[test] // C6 C11: each way alone, and any two of them on one key
fn add_entry_ref_and_handle_answer_alike_in_every_state() {
    let ways: [fn(&Queue<String>) -> Added; 4] = [
        |queue| queue.add("a".to_owned()),
        |queue| queue.entry_ref("a").add(),
        |queue| queue.handle("a".to_owned()).add(),
        |queue| queue.handle("a".to_owned()).clone().add(),
    ];
    with_queues(|config| {
        for (one, other) in ways.iter().flat_map(|one| ways.map(|other| (one, other))) {
            for pinned in [false, true] {
                let queue = config.queue::<String>();
                let _handle = pinned.then(|| queue.handle("a".to_owned()));
                assert_eq!(one(&queue), Added::Queued, "unknown");
                assert_eq!(other(&queue), Added::Merged, "queued");
                let item = queue.get().unwrap();
                assert_eq!(one(&queue), Added::Deferred, "processing");
                assert_eq!(other(&queue), Added::Merged, "processing and dirty");
                item.done();
                assert_eq!(one(&queue), Added::Merged, "queued by done");
                assert_eq!(take_all(&queue), ["a"]);
                assert_eq!(other(&queue), Added::Queued, "idle");
            }
        }
    });
}

#[test] // C6 S1
fn a_shut_down_queue_refuses_keys_in_every_state() {
    with_queues(|config| {
        let queue = config.queue::<String>();
        for key in ["queued", "processing", "dirty", "idle"] {
            queue.entry_ref(key).add();
        }
        let [queued, processing, dirty, idle] = [(); 4].map(|()| queue.get().unwrap());
        idle.done();
        queue.entry_ref("dirty").add();
        queue.entry_ref("queued").add();
        queued.done();
        queue.shut_down();
        for key in ["queued", "processing", "dirty", "idle", "unknown"] {
            assert_eq!(queue.entry_ref(key).add(), Added::ShutDown, "{key}");
            assert_eq!(queue.add(key.to_owned()), Added::ShutDown, "{key}");
            assert_eq!(queue.handle(key.to_owned()).add(), Added::ShutDown, "{key}");
        }
        assert_eq!(queue.add_all(["queued".to_owned(), "new".to_owned()]), 0);
        drop((processing, dirty));
        assert_eq!(take_all(&queue), ["queued", "dirty"]);
    });
}

#[test] // C1 C6
fn add_all_keeps_the_order_and_counts_the_keys_that_became_queued() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all([1, 2]);
        let item = queue.get().unwrap();
        assert_eq!(*item, 1);
        // 1 is deferred, 2 merged, 3 queued once, 4 queued.
        assert_eq!(queue.add_all([1, 2, 3, 3, 4]), 2);
        assert_eq!(queue.add_all([]), 0);
        assert_eq!(queue.add_all([1, 2, 3, 4]), 0);
        item.done();
        assert_eq!(take_all(&queue), [2, 3, 4, 1]);
        // More than it announces at once, by more than one.
        assert_eq!(queue.add_all((0..100).rev()), 100);
        assert_eq!(take_all(&queue), (0..100).rev().collect::<Vec<_>>());
    });
}

#[test] // C9 S1
fn every_way_of_getting_answers_exactly() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
        for limit in [Duration::ZERO, NS, 100 * NS, MS] {
            let error = queue.get_timeout(limit).unwrap_err();
            assert_eq!(error, GetError::Empty);
            assert_eq!(waiting(&queue), 0, "it gave up");
        }
        let mut task = Task::waiting(queue.get_async());
        queue.add_all(0..5);
        let got = [
            queue.get().unwrap(),
            queue.try_get().unwrap(),
            queue.get_timeout(Duration::ZERO).unwrap(),
            queue.get_timeout(Duration::MAX).unwrap(),
            task.output().unwrap(),
        ];
        assert_eq!(got.each_ref().map(|item| **item), [0, 1, 2, 3, 4]);
        drop(got);
        queue.add_all(0..10);
        assert!(!queue.is_shutting_down());
        queue.shut_down();
        assert!(queue.is_shutting_down());
        for expected in 0..10 {
            assert_eq!(*queue.get().unwrap(), expected);
        }
        for limit in [Duration::ZERO, NS, Duration::MAX] {
            assert!(queue.get().is_none(), "for ever");
            assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
            let error = queue.get_timeout(limit).unwrap_err();
            assert_eq!(error, GetError::ShutDown);
            assert!(queue.get_batch(10).is_none());
            assert!(pollster::block_on(queue.get_async()).is_none());
        }
    });
}

// ---- guards ---------------------------------------------------------------------------------

#[test] // C7
fn dropping_an_item_is_done() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add(1);
        let item = queue.get().unwrap();
        assert_eq!((*item, item.key()), (1, &1));
        assert_eq!(queue.add(1), Added::Deferred);
        drop(item);
        drop(queue.get().unwrap());
        assert_eq!(queue.add(1), Added::Queued, "it is idle");
    });
}

#[test] // C8
fn len_counts_queued_keys_only() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        assert!(queue.is_empty());
        let handle = queue.handle(3);
        assert_eq!(queue.len(), 0, "a handle adds nothing");
        queue.add(1);
        queue.add(2);
        queue.add(2);
        assert_eq!(queue.len(), 2);
        let item = queue.get().unwrap();
        assert_eq!(queue.len(), 1, "processing does not count");
        queue.add(1);
        assert_eq!(queue.len(), 1, "dirty does not count");
        item.done();
        assert_eq!(queue.len(), 2, "queued again");
        handle.add();
        assert_eq!(queue.len(), 3);
        queue.shut_down();
        assert_eq!(queue.len(), 3, "what is queued stays queued");
        take_all(&queue);
        assert_eq!(queue.len(), 0);
    });
}

// ---- handles --------------------------------------------------------------------------------

#[test] // C11
#[cfg_attr(miri, ignore = "20 000 keys to make two shards sweep")]
fn a_handle_keeps_its_key_through_shrinks_and_sweeps() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue::<u64>();
        let handles: Vec<_> = (0..1000).map(|key| queue.handle(key)).collect();
        queue.shrink();
        // Streams of other keys make the shards sweep.
        for key in 1000..20_000 {
            queue.add(key);
            queue.get().unwrap().done();
        }
        queue.shrink();
        for (key, handle) in handles.iter().enumerate() {
            assert_eq!(*handle.key(), key as u64);
            assert_eq!(handle.add(), Added::Queued);
            assert_eq!(queue.add(key as u64), Added::Merged, "the same node");
        }
        assert_eq!(take_all(&queue), (0..1000).collect::<Vec<_>>());
        drop(handles);
        queue.shrink();
        assert_eq!(queue.add(1), Added::Queued, "unpinned, and still good");
    });
}

// ---- batches --------------------------------------------------------------------------------

#[test] // C12
fn a_batch_has_up_to_max_keys_in_order_each_its_own_guard() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..10);
        let batch = queue.get_batch(4).unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (4, false));
        assert_eq!(
            batch.iter().map(|item| **item).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert_eq!(queue.len(), 6);
        for key in 0..4 {
            assert_eq!(queue.add(key), Added::Deferred, "each is processed");
        }
        let mut items = batch.into_iter();
        items.next().unwrap().done();
        assert_eq!(queue.len(), 7, "one is done, three are not");
        let third = items.nth(1).unwrap(); // passes over the second, which is done by that
        drop(items);
        assert_eq!(take_all(&queue), [4, 5, 6, 7, 8, 9, 0, 1, 3]);
        drop(third);
        assert_eq!(take_all(&queue), [2]);
    });
}

#[test] // C12
fn a_batch_takes_what_is_there_and_never_waits_for_more() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..3);
        assert_eq!(queue.get_batch(usize::MAX).unwrap().len(), 3);
        for max in [0, 1] {
            queue.add_all(0..3);
            let batch = queue.get_batch(max).unwrap();
            assert_eq!(batch.len(), 1, "a max of {max} is one key");
            assert_eq!(queue.len(), 2);
            drop(queue.get_batch(2));
        }
        // A deferred key is not there yet, so the batch must not hold it twice or wait for it.
        queue.add(7);
        let item = queue.get().unwrap();
        queue.add(7);
        queue.add(8);
        assert_eq!(queue.get_batch(10).unwrap().len(), 1);
        item.done();
        queue.shut_down();
        assert_eq!(queue.get_batch(10).unwrap().len(), 1);
        assert!(queue.get_batch(10).is_none());
    });
}
