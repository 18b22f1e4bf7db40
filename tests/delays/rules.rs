//! Two delays of one key, and a plain add of a delayed key: which of them wins (D3, D5). The test
//! advances the clock, and does not sleep.

use std::time::Duration;

use crate::common::take_all;
use crate::common::timed::{DAY, MS, after, built, ms, timed};
use keyqueue::{Added, DelayPolicy, WorkQueue};

// ---- two delays of one key ------------------------------------------------------------------

/// The times, in milliseconds, at which a key comes out that is delayed by each of `delays`.
fn deliveries(policy: DelayPolicy, delays: &[u64]) -> Vec<u64> {
    let (queue, time) = built::<u64>(|builder| builder.delay_policy(policy));
    for &delay in delays {
        assert_eq!(queue.add_after(1, ms(delay)), Added::Delayed, "{policy:?}");
    }
    let mut at = Vec::new();
    for now in 1..=200 {
        at.extend(after(&queue, &time, MS).iter().map(|_| now));
    }
    at
}

#[test] // D3
fn each_policy_picks_one_of_the_delays() {
    use DelayPolicy::{Earliest, KeepFirst, Latest, Replace};
    let many = [70, 30, 90, 10, 120, 60];
    for (policy, down, up, of_many) in [
        (Earliest, 50, 50, 10),
        (Latest, 100, 100, 120),
        (Replace, 50, 100, 60),
        (KeepFirst, 100, 50, 70),
    ] {
        assert_eq!(deliveries(policy, &[100, 50]), [down], "{policy:?} earlier");
        assert_eq!(deliveries(policy, &[50, 100]), [up], "{policy:?} later");
        assert_eq!(deliveries(policy, &[50, 50]), [50], "{policy:?} the same");
        assert_eq!(deliveries(policy, &many), [of_many], "{policy:?} of many");
    }
}

#[test] // D3: what is compared is when they are due, not how long they are
fn the_earliest_is_the_default() {
    assert_eq!(DelayPolicy::default(), DelayPolicy::Earliest);
    let (queue, time) = timed::<u64>();
    queue.add_after(1, ms(100));
    time.advance(ms(30));
    queue.add_after(1, ms(50));
    time.advance(ms(40));
    queue.add_after(1, ms(30)); // due at 100
    assert_eq!(after(&queue, &time, ms(10)), [1]);
    assert_eq!(after(&queue, &time, DAY), []);
}

#[test] // D3
fn a_delay_that_has_ended_is_no_rival_of_the_next() {
    for policy in [DelayPolicy::Earliest, DelayPolicy::KeepFirst] {
        let (queue, time) = built::<u64>(|builder| builder.delay_policy(policy));
        queue.add_after(1, ms(10));
        assert_eq!(after(&queue, &time, ms(10)), [1]);
        queue.add_after(1, ms(50));
        assert_eq!(after(&queue, &time, ms(50)), [1], "{policy:?}");
    }
}

#[test] // D3: with the latest a series of adds waits for a quiet moment
fn latest_debounces() {
    let (queue, time) = built::<u64>(|builder| builder.delay_policy(DelayPolicy::Latest));
    for _ in 0..100 {
        queue.add_after(1, ms(10));
        assert_eq!(after(&queue, &time, ms(9)), []);
    }
    assert_eq!(after(&queue, &time, ms(1)), [1]);
}

// ---- a plain add of a delayed key -----------------------------------------------------------

/// The plain adds of a key.
const ADDS: [fn(&WorkQueue<u64>) -> Added; 5] = [
    |queue| queue.add(1),
    |queue| queue.entry_ref(&1).add(),
    |queue| queue.handle(1).add(),
    |queue| queue.add_after(1, Duration::ZERO),
    |queue| match queue.add_all([1]) {
        1 => Added::Queued,
        _ => Added::Merged,
    },
];

#[test] // D5
fn a_plain_add_leaves_the_delay_alone() {
    let (queue, time) = timed();
    for add in ADDS {
        queue.add_after(1, ms(50));
        assert_eq!(add(&queue), Added::Queued);
        assert_eq!(after(&queue, &time, ms(49)), [1], "now");
        assert_eq!(after(&queue, &time, MS), [1], "and again at its time");
    }
}

#[test] // D5
fn a_plain_add_supersedes_the_delay_if_asked_to() {
    let (queue, time) = built(|builder| builder.supersede_delays(true));
    for add in ADDS {
        queue.add_after(1, ms(50));
        assert_eq!(add(&queue), Added::Queued);
        assert!(!queue.cancel(&1), "nothing is pending any more");
        assert_eq!(take_all(&queue), [1]);
        assert_eq!(after(&queue, &time, DAY), []);
        let handle = queue.handle(1);
        assert_eq!(handle.add_after(ms(5)), Added::Delayed, "a new one may be");
        assert_eq!(after(&queue, &time, ms(5)), [1]);
    }
}

#[test] // D5: what supersedes is the add, whatever it finds the key doing
fn a_merged_or_deferred_add_supersedes_as_well() {
    let (queue, time) = built::<u64>(|builder| builder.supersede_delays(true));
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add_after(1, ms(50));
    assert_eq!(queue.handle(1).add(), Added::Deferred);
    assert!(!queue.cancel(&1));
    item.done();
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(after(&queue, &time, DAY), []);
}

#[test] // D5: controller-runtime's rule, whole
fn a_delay_of_a_key_that_is_queued_or_dirty_is_dropped_if_adds_supersede() {
    let (queue, time) = built::<u64>(|builder| builder.supersede_delays(true).levels(2));
    queue.add(1);
    assert_eq!(queue.add_after(1, ms(50)), Added::Merged);
    assert_eq!(queue.handle(1).add_after(ms(50)), Added::Merged);
    assert!(!queue.cancel(&1));
    let urgent = queue.entry(1).level(0).after(ms(50)).add();
    assert_eq!(urgent, Added::Merged, "and is more urgent");
    let item = queue.get().unwrap();
    assert_eq!(item.level(), 0);
    drop(item);
    queue.entry(1).level(0).after(ms(50)).add();
    queue.add(1);
    let item = queue.get().unwrap();
    assert_eq!(item.level(), 0, "as urgent as the delay that it cancels");

    assert_eq!(queue.add_after(1, ms(50)), Added::Delayed, "processing");
    assert_eq!(queue.add(1), Added::Deferred);
    assert!(!queue.cancel(&1));
    assert_eq!(queue.add_after(1, ms(50)), Added::Merged, "dirty");
    assert_eq!(item.retry_after(ms(50)), Added::Merged);
    assert_eq!(after(&queue, &time, DAY), [1]);
    assert_eq!(after(&queue, &time, DAY), []);
}
