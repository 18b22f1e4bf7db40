//! Kinds of keys, and the settings of a queue.

use std::time::Duration;

use crate::common::take_all;
use crate::common::timed::{NS, secs};
use keyqueue::{Added, WorkQueue};

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
    for (tick, value) in [
        (Duration::ZERO, "0ns"),
        (Duration::from_micros(100) - NS, "99.999µs"),
        (secs(60) + NS, "60.000000001s"),
        (Duration::MAX, "18446744073709551615.999999999s"),
    ] {
        let refused = builder().tick(tick).build().unwrap_err();
        assert_eq!((refused.field(), refused.value()), ("tick", value));
        let text = refused.to_string();
        assert!(text.contains("tick") && text.contains(value), "{text}");
    }
    for tick in [Duration::from_micros(100), secs(60)] {
        assert!(builder().tick(tick).build().is_ok());
    }
    let refused = builder().name("").build().unwrap_err();
    assert_eq!((refused.field(), refused.value()), ("name", r#""""#));
    for (shards, ring) in [(2, 1), (1 << 16, 1), (2, 1 << 24)] {
        let queue = builder().shards(shards).ring(ring).build().unwrap();
        assert_eq!(queue.add(7), Added::Queued);
    }
}
