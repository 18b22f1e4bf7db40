//! Kinds of keys, and the settings of a queue.

use crate::common::{take_all, with_queues};
use keyqueue::{Added, WorkQueue};

/// A key that can be moved and compared, and nothing else: not cloned, not printed.
#[derive(PartialEq, Eq, Hash)]
struct Bare(Box<u64>);

#[test]
fn keys_need_not_be_clone() {
    with_queues(|config| {
        let queue = config.queue();
        assert_eq!(queue.add(Bare(Box::new(1))), Added::Queued);
        assert_eq!(queue.add(Bare(Box::new(1))), Added::Merged);
        assert_eq!(queue.add_all([Bare(Box::new(1)), Bare(Box::new(2))]), 1);
        let handle = queue.handle(Bare(Box::new(2)));
        assert_eq!(handle.add(), Added::Merged);
        let batch = queue.get_batch(5).unwrap();
        assert_eq!(batch.iter().map(|item| *item.0).collect::<Vec<_>>(), [1, 2]);
    });
}

#[test]
fn keys_may_take_no_room_or_much() {
    let empty = WorkQueue::new();
    assert_eq!(empty.add(()), Added::Queued);
    assert_eq!(empty.add(()), Added::Merged);
    assert_eq!(take_all(&empty), [()]);

    #[derive(Clone, PartialEq, Eq, Hash)]
    #[repr(align(256))]
    struct Large([u64; 1024]);
    let large = WorkQueue::new();
    for key in 0..500 {
        assert_eq!(large.add(Large([key; 1024])), Added::Queued);
    }
    for (key, taken) in take_all(&large).into_iter().enumerate() {
        assert!(taken.0.iter().all(|&word| word == key as u64), "key {key}");
    }
    large.shrink();
}

#[test]
fn a_setting_out_of_range_is_refused_by_name() {
    let builder = WorkQueue::<u64>::builder;
    for shards in [0, 1, 3, 6, (1 << 16) + 1, 1 << 17, usize::MAX] {
        let refused = builder().shards(shards).build().unwrap_err();
        assert_eq!(refused.field(), "shards");
        assert_eq!(refused.value(), shards.to_string());
    }
    for ring in [0, (1 << 24) + 1, usize::MAX] {
        let refused = builder().ring(ring).build().unwrap_err();
        assert_eq!(refused.field(), "ring");
        assert_eq!(refused.value(), ring.to_string());
    }
    for (shards, ring) in [(2, 1), (1 << 16, 1), (2, 1 << 24)] {
        let queue = builder().shards(shards).ring(ring).build().unwrap();
        assert_eq!(queue.add(7), Added::Queued);
    }
}
