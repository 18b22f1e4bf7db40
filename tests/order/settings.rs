//! Settings of groups and the pace.

use std::time::Duration;

use crate::common::timed::secs;
use crate::groups::Key;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::{Added, Builder, Clock, WorkQueue, merge};

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let of = |set: fn(Builder<u64>) -> Builder<u64>| {
        set(WorkQueue::builder()).build().unwrap_err().field()
    };
    let by = |builder: Builder<Key>| builder.group_by(|key| key.0);
    assert_eq!(of(|builder| builder.group_limit(1)), "group_limit");
    assert_eq!(of(|builder| builder.group_rate(1.0, 1)), "group_rate");
    assert_eq!(
        of(|builder| builder.group_weight(|_: &u64| 1)),
        "group_weight"
    );
    assert_eq!(of(|builder| builder.dispatch_rate(0.0, 1)), "dispatch_rate");
    assert_eq!(of(|builder| builder.dispatch_rate(1.0, 0)), "dispatch_rate");
    // The bucket would take longer than 100 years to fill.
    assert_eq!(
        of(|builder| builder.dispatch_rate(1e-9, 100)),
        "dispatch_rate"
    );
    assert_eq!(
        of(|builder| builder.min_interval(Duration::ZERO)),
        "min_interval"
    );
    let error = by(WorkQueue::builder()).group_limit(0).build().unwrap_err();
    assert_eq!(error.field(), "group_limit");
    for (per_second, burst) in [
        (0.0, 1),
        (-1.0, 1),
        (f64::NAN, 1),
        (f64::INFINITY, 1),
        (1.0, 0),
        (1e-9, 100),
    ] {
        let error = by(WorkQueue::builder())
            .group_rate(per_second, burst)
            .build();
        assert_eq!(error.unwrap_err().field(), "group_rate", "{per_second}");
    }
    assert!(by(WorkQueue::builder()).group_rate(0.1, 1).build().is_ok());
    let error = by(WorkQueue::builder()).group_weight(|_: &u32| 1).build();
    assert_eq!(error.unwrap_err().field(), "group_weight");
    let builder = WorkQueue::<u64>::builder().weight(|(): &()| 1);
    let error = builder.merge(merge::sum::<u32>).build().unwrap_err();
    assert_eq!(error.field(), "weight");
    assert!(error.to_string().contains("must come after `merge`"));
    let error = WorkQueue::<u64>::builder().weight(|(): &()| 1).build();
    assert_eq!(error.unwrap_err().field(), "weight");
}

#[test] // V1 G1 L1
fn a_merge_may_come_after_every_other_setting_but_the_weight() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::<Key>::builder()
        .group_by(|key| key.0)
        .group_limit(1)
        .rate_limiter(ItemExponentialFailure::new(secs(1), secs(9)).unwrap())
        .levels(2)
        .clock(clock)
        .manual_timers()
        .capacity(9)
        .merge(merge::append)
        .weight(Vec::len)
        .hasher(std::hash::RandomState::new())
        .build()
        .unwrap();
    queue.put(("a", 1), vec![1, 2]);
    queue.put(("a", 2), vec![3]);
    queue.put(("b", 1), vec![4, 5, 6, 7, 8]);
    assert!(queue.entry(("b", 2)).try_put(vec![9, 9]).is_err());
    let first = queue.try_get().unwrap();
    let other = queue.try_get().unwrap();
    assert_eq!((*first, *other), (("a", 1), ("b", 1)), "they take turns");
    assert!(queue.try_get().is_err(), "one of a group at a time");
    assert_eq!(first.retry(), Added::Delayed);
    assert_eq!(queue.num_requeues(&("a", 1)), 1);
    assert_eq!(*queue.try_get().unwrap(), ("a", 2));
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(*queue.try_get().unwrap().value(), [1, 2]);
}
