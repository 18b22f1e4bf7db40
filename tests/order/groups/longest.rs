//! Holds that no clock sees the end of (G6).

use std::time::Duration;

use super::{grouped, keys};
use crate::common::timed::{DAY, HOUR, built, secs};
use crate::common::{Task, figures, scaled, take_all};
use keyqueue::worker::{Job, Outcome, Workers};

/// Beyond the end of every clock, 292 years, also if the hold begins with the clock.
const ENDLESS: [Duration; 4] = [
    Duration::from_nanos(u64::MAX - 1),
    Duration::from_nanos(u64::MAX),
    Duration::from_secs(u64::MAX),
    Duration::MAX,
];

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[test] // G6 G3
fn an_endless_hold_of_a_group_without_keys_is_not_forgotten() {
    for hold in ENDLESS {
        for age in [Duration::ZERO, HOUR, CENTURY] {
            let (queue, time) = grouped(|builder| builder);
            time.advance(age);
            assert!(queue.hold_group(&"a", hold));
            queue.shrink();
            queue.shrink();
            queue.add_all([("a", 1), ("b", 1)]);
            assert_eq!(take_all(&queue), [("b", 1)], "held for {hold:?}");
            time.advance(Duration::MAX);
            assert!(queue.try_get().is_err(), "held for {hold:?}");
            assert!(queue.hold_group(&"a", Duration::ZERO));
            assert_eq!(take_all(&queue), [("a", 1)]);
        }
    }
}

#[test] // G6 G3
fn an_endless_hold_survives_many_other_groups() {
    let (queue, time) = built(|builder| builder.group_by(|key: &u64| *key));
    assert!(queue.hold_group(&0_u64, Duration::MAX));
    for key in 1..scaled(50_000) as u64 {
        queue.add(key);
        queue.try_get().unwrap().done();
    }
    time.advance(DAY);
    assert!(queue.try_get().is_err()); // sweeps
    queue.add(0);
    assert!(queue.try_get().is_err());
    assert!(queue.hold_group(&0_u64, Duration::ZERO));
    assert_eq!(take_all(&queue), [0]);
}

#[test] // G6
fn an_endless_hold_is_reported_as_long_as_it_lasts() {
    for hold in ENDLESS {
        let (queue, time) = grouped(|builder| builder);
        assert!(queue.hold_group(&"a", hold));
        for queued in [0, 1] {
            let groups = queue.groups::<&str>();
            assert_eq!(groups.len(), 1, "held for {hold:?}");
            assert_eq!((groups[0].group, groups[0].queued), ("a", queued));
            assert!(groups[0].held_for > Some(CENTURY), "{groups:?}");
            time.advance(DAY);
            queue.shrink();
            queue.add(("a", 1));
        }
        assert!(queue.hold_group(&"a", Duration::ZERO));
        assert_eq!(queue.groups::<&str>()[0].held_for, None);
        assert_eq!(take_all(&queue), [("a", 1)]);
        queue.shrink();
        assert!(queue.groups::<&str>().is_empty());
    }
}

#[test] // G6 C9
fn an_endless_hold_of_keys_ends_with_a_release_or_another_hold() {
    for hold in ENDLESS {
        let (queue, time) = grouped(|builder| builder.group_limit(1));
        queue.add_all(keys("a", 0..2));
        let item = queue.try_get().unwrap();
        assert!(queue.hold_group(&"a", hold));
        item.done();
        time.advance(DAY);
        queue.fire_due();
        assert!(queue.try_get().is_err());
        let mut task = Task::waiting(queue.get_async());
        assert!(queue.hold_group(&"a", Duration::ZERO));
        assert_eq!(task.wakes(), 1);
        assert_eq!(*task.output().unwrap(), ("a", 1));
        // A later call replaces it.
        queue.add(("a", 2));
        assert!(queue.hold_group(&"a", hold));
        assert!(queue.hold_group(&"a", secs(1)));
        let mut task = Task::waiting(queue.get_async());
        time.advance(secs(1));
        queue.fire_due();
        assert_eq!(task.wakes(), 1);
        assert_eq!(*task.output().unwrap(), ("a", 2));
    }
}

#[test] // G6
fn an_endless_hold_of_an_outcome_is_kept_without_keys() {
    let (queue, time) = grouped(|builder| builder);
    queue.add(("a", 1));
    let hold = |_: Job<'_, _>| {
        // No retry: the group is left without a key.
        queue.shut_down_now();
        Outcome::HoldGroup(Duration::MAX)
    };
    Workers::new(&queue).concurrency(1).run(hold).unwrap();
    time.advance(DAY);
    queue.shrink();
    let groups = queue.groups::<&str>();
    assert!(groups[0].held_for > Some(CENTURY), "{groups:?}");
}

#[test] // G6 S7 S8 S10
fn a_drain_tells_what_an_endless_hold_keeps_and_an_abort_ends_it() {
    let (queue, _time) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..3));
    assert!(queue.hold_group(&"a", Duration::MAX));
    let drained = queue.drain_timeout(Duration::ZERO);
    assert_eq!((drained.is_finished(), drained.queued), (false, 3));
    assert!(queue.try_get().is_err());
    assert!(queue.hold_group(&"a", Duration::ZERO));
    queue.try_get().unwrap().done();
    assert!(queue.hold_group(&"a", Duration::MAX));
    assert_eq!(figures(queue.shut_down_now()), (2, 0, 0));
    assert!(queue.get().is_none());
}
