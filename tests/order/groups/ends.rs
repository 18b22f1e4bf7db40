//! Shut-downs and drains of groups.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{Key, grouped, keys};
use crate::common::timed::{HOUR, MS};
use crate::common::{take_all, watchdog};
use keyqueue::{Item, WorkQueue};

#[test] // G1 S1 S4 S5
fn shut_downs_and_drains_deliver_or_discard_what_groups_have() {
    let _watchdog = watchdog(60);
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3).chain(keys("b", 0..1)));
    thread::scope(|scope| {
        scope.spawn(|| queue.iter().for_each(drop));
        assert!(queue.shut_down_with_drain().is_finished());
    });
    // What is discarded waits for nothing.
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3).chain(keys("b", 0..1)));
    assert!(queue.hold_group(&"b", HOUR));
    let item = queue.try_get().unwrap();
    let left = queue.shut_down_now();
    assert_eq!((left.queued, left.processing), (3, 1));
    assert!(queue.get().is_none());
    drop(item);
    assert_eq!(queue.len(), 0);
}

#[test] // G6 S4
fn a_drain_waits_for_a_group_that_is_held() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::builder()
        .group_by(|key: &Key| key.0)
        .build()
        .unwrap();
    queue.add_all(keys("a", 0..3));
    assert!(queue.hold_group(&"a", Duration::from_millis(30)));
    thread::scope(|scope| {
        let worker = scope.spawn(|| queue.iter().count());
        assert!(queue.shut_down_with_drain().is_finished());
        assert_eq!(worker.join().unwrap(), 3);
    });
}

#[test] // G6 S8
fn the_groups_of_an_abandoned_queue_have_no_queued_keys() {
    let (queue, _time) = grouped(|builder| builder);
    queue.add(("a", 1));
    assert!(queue.hold_group(&"a", HOUR));
    assert_eq!(queue.shut_down_now().queued, 1);
    let groups = queue.groups::<&str>();
    assert!(groups.iter().all(|group| group.queued == 0), "{groups:?}");
}

#[test] // G1 S5 S15
fn a_drain_that_delivers_delays_finds_their_groups() {
    let (queue, _time) = grouped(|builder| builder.drain_delays(true));
    queue.add_after(("a", 1), HOUR);
    assert_eq!(queue.drain_timeout(Duration::ZERO).queued, 1);
    assert_eq!(take_all(&queue), [("a", 1)]);
}

/// Both keys are in the same shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn(bool);

impl Hash for Turn {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The queue, and the one key that is held.
type Held = (Arc<WorkQueue<Turn>>, Item<'static, Turn>);

#[test] // G8
fn a_drain_of_a_group_ends_at_its_limit_while_its_keys_take_turns() {
    let _watchdog = watchdog(60);
    let held = Arc::new(Mutex::new(None::<Held>));
    let of_group = Arc::clone(&held);
    // A walk calls this for the key that is held. Before it ends, that one is done, and the other one is held.
    let group_of = move |_: &Turn| {
        if let Ok(mut held) = of_group.try_lock()
            && let Some((queue, item)) = held.take()
        {
            let other = Turn(!item.0);
            item.done();
            queue.add(other);
            let item = queue.try_get().unwrap().into_owned();
            *held = Some((queue, item));
        }
        0
    };
    let builder = WorkQueue::builder().group_by(group_of);
    let queue = Arc::new(builder.build().unwrap());
    queue.add(Turn(true));
    let item = queue.try_get().unwrap().into_owned();
    *held.lock().unwrap() = Some((Arc::clone(&queue), item));
    let left = queue.drain_group(&0, MS).unwrap();
    assert!(!left.is_finished(), "{left:?}");
    let last = held.lock().unwrap().take();
    drop(last);
    assert!(queue.drain_group(&0, HOUR).unwrap().is_finished());
}
