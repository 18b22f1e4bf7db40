//! Settings of groups and the pace.

use std::time::Duration;

use crate::groups::Key;
use keyqueue::{Builder, WorkQueue, merge};

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
    let error = by(WorkQueue::builder()).group_rate(f64::NAN, 1).build();
    assert_eq!(error.unwrap_err().field(), "group_rate");
    let error = by(WorkQueue::builder()).group_weight(|_: &u32| 1).build();
    assert_eq!(error.unwrap_err().field(), "group_weight");
    let error = by(WorkQueue::builder()).merge(merge::sum::<u32>).build();
    assert_eq!(error.unwrap_err().field(), "group_by");
}
