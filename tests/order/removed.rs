//! Keys whose value is taken back before their delivery: they cost no token, no interval, and no turn of their
//! level.

use crate::common::timed::{HOUR, secs};
use crate::groups::Key;
use keyqueue::{Builder, Clock, MockClock, WorkQueue, merge};

type Settings = Builder<Key, u32>;

fn values(set: impl FnOnce(Settings) -> Settings) -> (WorkQueue<Key, u32>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = set(builder.merge(merge::latest)).build();
    (queue.expect("in range"), time)
}

fn next(queue: &WorkQueue<Key, u32>) -> Option<Key> {
    queue.try_get().map(|item| *item).ok()
}

#[test] // T1
fn a_removed_key_takes_no_token() {
    let (queue, time) = values(|builder| builder.dispatch_rate(1.0, 1));
    queue.put(("a", 1), 1);
    assert_eq!(queue.remove(&("a", 1)), Some(1));
    queue.put(("a", 2), 1);
    queue.put(("a", 3), 1);
    assert_eq!(next(&queue), Some(("a", 2)));
    assert_eq!(next(&queue), None);
    time.advance(secs(1));
    assert_eq!(next(&queue), Some(("a", 3)));
}

#[test] // G5
fn a_removed_key_takes_no_token_of_its_group() {
    let (queue, _time) = values(|builder| builder.group_by(|key| key.0).group_rate(1.0, 1));
    queue.put(("a", 1), 1);
    queue.put(("a", 2), 1);
    queue.put(("a", 3), 1);
    queue.remove(&("a", 1));
    assert_eq!(next(&queue), Some(("a", 2)));
    assert_eq!(next(&queue), None);
}

#[test] // T2
fn a_removed_key_begins_no_interval() {
    let (queue, _time) = values(|builder| builder.min_interval(HOUR));
    queue.put(("a", 1), 1);
    queue.remove(&("a", 1));
    assert_eq!(next(&queue), None);
    queue.put(("a", 1), 2);
    assert_eq!(next(&queue), Some(("a", 1)));
}

#[test] // P2
fn removed_keys_take_no_turn_of_their_level() {
    let (queue, _time) = values(|builder| builder.levels(2).starvation_limit(4));
    for n in 0..40 {
        queue.entry(("urgent", n)).level(0).put(0);
        queue.entry(("other", n)).level(1).put(0);
    }
    (0..39).for_each(|n| _ = queue.remove(&("other", n)));
    let mut order = std::iter::from_fn(|| next(&queue));
    let found = order.position(|key| key == ("other", 39));
    assert_eq!(found, Some(3));
}

#[test] // G1
fn a_removed_key_takes_no_place_in_the_turn_of_its_group() {
    let weight = |group: &&str| if *group == "a" { 2 } else { 1 };
    let (queue, _time) = values(|builder| builder.group_by(|key| key.0).group_weight(weight));
    (1..=3).for_each(|n| _ = queue.put(("a", n), 0));
    queue.put(("b", 1), 0);
    queue.remove(&("a", 1));
    let order: Vec<_> = std::iter::from_fn(|| next(&queue)).collect();
    assert_eq!(order, [("a", 2), ("a", 3), ("b", 1)]);
}

#[test] // P2
fn a_removed_key_leaves_the_turn_to_its_own_level() {
    let (queue, _time) = values(|builder| builder.levels(3).starvation_limit(2));
    for n in 0..3 {
        queue.entry(("urgent", n)).level(0).put(0);
        queue.entry(("usual", n)).level(1).put(0);
        queue.entry(("other", n)).level(2).put(0);
    }
    queue.remove(&("usual", 0));
    let order = [(); 4].map(|()| next(&queue).unwrap());
    assert_eq!(
        order,
        [("urgent", 0), ("usual", 1), ("urgent", 1), ("other", 0)]
    );
}

#[test] // P2
fn a_removed_key_of_the_most_urgent_level_leaves_the_turns_of_the_others() {
    let (queue, _time) = values(|builder| builder.levels(4).starvation_limit(2));
    for n in 0..4 {
        queue.entry(("urgent", n)).level(1).put(0);
        queue.entry(("usual", n)).level(2).put(0);
        queue.entry(("other", n)).level(3).put(0);
    }
    queue.remove(&("urgent", 1));
    let order = [(); 4].map(|()| next(&queue).unwrap());
    assert_eq!(
        order,
        [("urgent", 0), ("usual", 0), ("urgent", 2), ("other", 0)]
    );
}

#[test] // G1
fn a_group_whose_only_key_was_removed_has_its_whole_turn_when_it_comes_back() {
    let group_by = |builder: Settings| builder.group_by(|key| key.0);
    let (queue, _time) = values(|builder| group_by(builder).group_weight(|_: &&str| 2));
    queue.put(("a", 0), 0);
    queue.remove(&("a", 0));
    assert_eq!(next(&queue), None);
    (1..=2).for_each(|n| _ = queue.put(("a", n), 0));
    (1..=2).for_each(|n| _ = queue.put(("b", n), 0));
    let order: Vec<_> = std::iter::from_fn(|| next(&queue)).collect();
    assert_eq!(order, [("a", 1), ("a", 2), ("b", 1), ("b", 2)]);
}
