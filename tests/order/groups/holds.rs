//! Groups that are held for a time (G6).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{grouped, groups_of, keys, turns};
use crate::common::timed::{HOUR, built, secs};
use crate::common::{Task, take_all, watchdog};
use keyqueue::worker::{Job, Outcome, Workers};
use keyqueue::{Added, Builder, WorkQueue};

#[test] // G6
fn a_group_is_held_until_its_time_and_the_others_go_on() {
    let (queue, time) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..2).chain(keys("b", 0..1)));
    assert!(queue.hold_group(&"a", secs(30)));
    assert_eq!(groups_of(&queue, 9), ["b"]);
    assert_eq!(queue.add(("a", 0)), Added::Merged);
    assert_eq!(queue.add(("a", 9)), Added::Queued);
    assert_eq!(queue.len(), 3);
    let groups = queue.groups::<&str>();
    assert_eq!((groups[0].group, groups[0].queued), ("a", 3));
    assert_eq!(groups[0].held_for, Some(secs(30)));
    time.advance(secs(29));
    assert!(queue.try_get().is_err());
    time.advance(secs(1));
    assert_eq!(take_all(&queue), [("a", 0), ("a", 1), ("a", 9)]);
}

#[test] // G6
fn a_hold_can_be_replaced_and_released() {
    let (queue, time) = grouped(|builder| builder);
    assert!(queue.hold_group(&"a", HOUR)); // before it has keys
    queue.add_all(keys("a", 0..3));
    assert!(queue.try_get().is_err());
    assert!(queue.hold_group(&"a", secs(2))); // a shorter one counts
    time.advance(secs(2));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    assert!(queue.hold_group(&"a", HOUR));
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    assert!(queue.hold_group(&"a", Duration::ZERO));
    assert_eq!(task.wakes(), 1);
    assert_eq!(*task.output().unwrap(), ("a", 1));
    // Again while its earlier time is still waited for.
    assert!(queue.hold_group(&"a", 2 * HOUR));
    time.advance(HOUR);
    assert!(queue.try_get().is_err());
    time.advance(HOUR);
    assert_eq!(groups_of(&queue, 9), ["a"]);
}

#[test] // G6
fn a_hold_without_end_is_kept_without_keys() {
    let (queue, time) = grouped(|builder| builder);
    assert!(queue.hold_group(&"a", Duration::MAX));
    queue.shrink();
    queue.add(("a", 1));
    time.advance(HOUR);
    assert!(queue.try_get().is_err());
    assert!(queue.hold_group(&"a", Duration::ZERO));
    assert_eq!(take_all(&queue), [("a", 1)]);
}

#[test] // G6
fn another_type_of_group_is_held_by_nobody() {
    let queue = turns();
    queue.add(("a", 1));
    assert!(!queue.hold_group(&7_u32, HOUR));
    assert!(!queue.hold_group(&String::from("a"), Duration::ZERO));
    assert!(queue.groups::<u32>().is_empty());
    assert_eq!(take_all(&queue), [("a", 1)]);
    let plain = WorkQueue::<u64>::new();
    assert!(!plain.hold_group(&"a", HOUR));
    assert!(plain.groups::<&str>().is_empty());
}

#[test] // G6
fn a_worker_holds_the_group_of_its_key() {
    let (queue, time) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..2).chain(keys("b", 0..1)));
    let seen = std::sync::Mutex::new(Vec::new());
    Workers::new(&queue)
        .concurrency(1)
        .run(|key| {
            let mut seen = seen.lock().unwrap();
            seen.push(*key);
            match seen.len() {
                1 => Outcome::HoldGroup(secs(30)),
                2 => {
                    time.advance(secs(30));
                    queue.fire_due();
                    Outcome::Done
                }
                3 => Outcome::Done,
                _ => {
                    queue.shut_down();
                    Outcome::Done
                }
            }
        })
        .unwrap();
    // Its own key comes back, behind the other of its group.
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen, [("a", 0), ("b", 0), ("a", 1), ("a", 0)]);
}

#[test] // G6
fn the_hold_of_an_outcome_does_not_shorten_another_one() {
    let (queue, _time) = grouped(|builder| builder);
    queue.add(("a", 1));
    let hold = |_: Job<'_, _>| {
        // Meanwhile the tenant is stopped for an hour.
        assert!(queue.hold_group(&"a", HOUR));
        queue.shut_down();
        Outcome::HoldGroup(secs(1))
    };
    Workers::new(&queue).concurrency(1).run(hold).unwrap();
    assert_eq!(queue.groups::<&str>()[0].held_for, Some(HOUR));
}

#[test] // G6
fn without_groups_a_worker_puts_off_the_key() {
    type Set = fn(Builder<&'static str>) -> Builder<&'static str>;
    let sets: [Set; 4] = [
        |builder| builder,
        |builder| builder.levels(2),
        |builder| builder.dispatch_rate(1000.0, 1000),
        |builder| builder.min_interval(secs(1)),
    ];
    let _watchdog = watchdog(30);
    for set in sets {
        let (queue, time) = built(set);
        queue.add("a");
        let runs = AtomicUsize::new(0);
        Workers::new(&queue)
            .concurrency(1)
            .run(|_| match runs.fetch_add(1, Ordering::Relaxed) {
                0 => {
                    queue.add("b");
                    Outcome::HoldGroup(secs(30))
                }
                1 => {
                    time.advance(secs(30));
                    assert_eq!(queue.fire_due(), 1);
                    Outcome::Done
                }
                _ => {
                    queue.shut_down();
                    Outcome::Done
                }
            })
            .unwrap();
        assert_eq!(runs.into_inner(), 3);
    }
}
