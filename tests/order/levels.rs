//! The promises of levels in one thread.

use std::time::Duration;

use crate::common::timed::{MS, NS};
use crate::common::{assert_nothing_queued, there};
use keyqueue::limiter::NoLimit;
use keyqueue::{Added, Builder, Clock, State, WorkQueue};

type Queue = WorkQueue<u64>;

fn with(set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> Queue {
    let builder = WorkQueue::builder().rate_limiter(NoLimit);
    set(builder).build().expect("in range")
}

/// Takes every queued key, with its level.
fn take_all(queue: &Queue) -> Vec<(u64, usize)> {
    let taken = there(queue).map(|item| (*item, item.level()));
    taken.collect()
}

#[test] // P1
fn the_most_urgent_level_comes_first_and_each_is_a_fifo() {
    for levels in 2..=8 {
        let queue = with(|builder| builder.levels(levels).starvation_limit(usize::MAX).ring(3));
        let keys = 0..100;
        for key in keys.clone() {
            assert_eq!(
                queue.entry(key).level(key as usize % levels).add(),
                Added::Queued
            );
        }
        let mut expected: Vec<_> = keys.map(|key| (key, key as usize % levels)).collect();
        expected.sort_by_key(|(_, level)| *level); // stable
        assert_eq!(take_all(&queue), expected);
        assert_nothing_queued(&queue);
    }
}

#[test] // P2: of any n deliveries, one goes to a less urgent level, and these take turns
fn no_level_starves() {
    for limit in [2, 3, 16] {
        let queue = with(|builder| builder.levels(4).starvation_limit(limit));
        for (key, level) in [(1, 1), (2, 2), (3, 3), (11, 1), (12, 2), (13, 3)] {
            queue.entry(key).level(level).add();
        }
        let mut relieved = Vec::new();
        for delivery in 1..=6 * limit as u64 {
            queue.entry(100 + delivery).level(0).add();
            let item = queue.try_get().unwrap();
            if item.level() > 0 {
                assert_eq!(delivery % limit as u64, 0, "with {limit}");
                relieved.push(*item);
            }
        }
        assert_eq!(relieved, [1, 2, 3, 11, 12, 13], "with {limit}");
    }
}

#[test] // P2: levels without keys take no turn, and a lone level pays for no other
fn only_levels_with_keys_are_relieved() {
    let queue = with(|builder| builder.levels(3).starvation_limit(2));
    queue.add_all([1, 2, 3]); // at level 1
    assert_eq!(take_all(&queue), [(1, 1), (2, 1), (3, 1)]);
    queue.entry(9).level(2).add();
    for key in 1..=3 {
        queue.entry(key).level(0).add();
    }
    assert_eq!(take_all(&queue), [(1, 0), (9, 2), (2, 0), (3, 0)]);
}

#[test] // P3
fn a_queued_key_moves_to_the_tail_of_a_more_urgent_level_only() {
    let queue = with(|builder| builder.levels(3));
    queue.entry(1).level(2).add();
    queue.entry(2).level(1).add();
    queue.entry(3).level(0).add();
    assert_eq!(queue.entry(1).level(1).add(), Added::Merged);
    assert_eq!(queue.counts().by_level, [1, 2, 0]);
    assert_eq!(queue.entry(3).level(2).add(), Added::Merged, "less urgent");
    assert_eq!(queue.entry(1).level(0).add(), Added::Merged, "once more");
    assert_eq!(queue.counts().by_level, [2, 1, 0]);
    assert_eq!(queue.len(), 3);
    assert_eq!(take_all(&queue), [(3, 0), (1, 0), (2, 1)]);
    assert_nothing_queued(&queue);
}

#[test] // P3 P1
fn keys_that_become_more_urgent_leave_the_others_in_their_order() {
    let queue = with(|builder| builder.levels(2));
    queue.add_all(1..=5);
    for key in [3, 4, 5] {
        queue.entry(key).level(0).add();
    }
    queue.add(6);
    assert_eq!(
        take_all(&queue),
        [(3, 0), (4, 0), (5, 0), (1, 1), (2, 1), (6, 1)]
    );
}

#[test] // P3 C5
fn a_key_can_be_queued_again_where_it_was_raised_from() {
    let queue = with(|builder| builder.levels(2));
    for _ in 0..2 {
        queue.add(1);
        queue.entry(1).level(0).add();
        assert_eq!(*queue.try_get().unwrap(), 1);
        assert_nothing_queued(&queue);
        queue.add(1);
        assert_eq!(take_all(&queue), [(1, 1)]);
        assert_nothing_queued(&queue);
    }
    // It has lost the place before 2 that it was raised from.
    queue.add(1);
    queue.add(2);
    queue.entry(1).level(0).add();
    assert_eq!(*queue.try_get().unwrap(), 1);
    queue.add(1);
    assert_eq!(take_all(&queue), [(2, 1), (1, 1)]);
}

#[test] // P3 P1
fn a_key_that_comes_back_to_a_level_is_the_last_there() {
    let queue = with(|builder| builder.levels(2).starvation_limit(1000).ring(1));
    queue.entry(1).level(1).add();
    queue.entry(2).level(1).add();
    for _ in 0..100 {
        queue.entry(1).level(0).add();
        assert_eq!(*queue.try_get().unwrap(), 1);
        assert_eq!(queue.counts().by_level, [0, 1]);
        queue.entry(1).level(1).add();
    }
    queue.entry(3).level(1).add();
    assert_eq!(take_all(&queue), [(2, 1), (1, 1), (3, 1)]);
    assert_nothing_queued(&queue);
    assert!(queue.is_empty());
}

#[test] // P3
fn a_processing_key_comes_back_at_the_most_urgent_level_of_its_adds() {
    let queue = with(|builder| builder.levels(4));
    queue.entry(1).level(0).add();
    let item = queue.try_get().unwrap();
    assert_eq!(
        queue.entry(1).level(3).add(),
        Added::Deferred,
        "not at 0 by itself"
    );
    assert_eq!(queue.entry(1).level(1).add(), Added::Merged);
    assert_eq!(queue.entry(1).level(2).add(), Added::Merged);
    item.done();
    assert_eq!(take_all(&queue), [(1, 1)]);
    queue.entry(1).level(3).add();
    assert_eq!(take_all(&queue), [(1, 3)], "what was before is forgotten");
}

#[test] // P4
fn retries_and_delays_keep_their_level() {
    let (clock, time) = Clock::mock();
    let queue = with(|builder| builder.levels(3).clock(clock).manual_timers());
    queue.entry(1).level(0).add();
    assert_eq!(queue.try_get().unwrap().retry(), Added::Deferred);
    let item = queue.try_get().unwrap();
    assert_eq!(item.level(), 0);
    let _ = item.retry_after(MS);
    queue.add_after(2, MS); // at the default level
    queue.handle(3).add();
    time.advance(MS);
    queue.fire_due();
    assert_eq!(take_all(&queue), [(1, 0), (3, 1), (2, 1)]);
}

#[test] // P4 P3
fn a_delay_that_is_kept_or_moved_has_the_more_urgent_level() {
    let (clock, time) = Clock::mock();
    let queue = with(|builder| builder.levels(3).clock(clock).manual_timers());
    // A retry of level 2, and a delay at the default level, in either order of their due times.
    for (retry, delay) in [(2, 1), (1, 2)] {
        queue.entry(1).level(2).add();
        let _ = queue.try_get().unwrap().retry_after(retry * MS);
        queue.add_after(1, delay * MS);
        time.advance(MS - NS);
        assert_eq!(queue.fire_due(), 0);
        time.advance(NS);
        assert_eq!(queue.fire_due(), 1, "the earlier one");
        assert_eq!(take_all(&queue), [(1, 1)]);
        time.advance(MS);
        assert_eq!(queue.fire_due(), 0);
    }
    // A less urgent delay that is due earlier.
    queue.entry(1).level(0).add();
    let _ = queue.try_get().unwrap().retry_after(2 * MS);
    queue.add_after(1, MS);
    time.advance(MS);
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(take_all(&queue), [(1, 0)]);
    // The delay of a queued key raises it.
    queue.add_after(1, MS);
    queue.entry(1).level(2).add();
    time.advance(MS);
    queue.fire_due();
    assert_eq!(take_all(&queue), [(1, 1)]);
}

#[test] // P4 S5
fn a_drain_that_delivers_delays_keeps_their_levels() {
    let (clock, _time) = Clock::mock();
    let queue = with(|builder| {
        builder
            .levels(3)
            .clock(clock)
            .manual_timers()
            .drain_delays(true)
    });
    queue.add_after(1, Duration::from_secs(3600));
    queue.entry(2).level(2).add();
    queue.entry(3).level(0).add();
    let hour = Duration::from_secs(3600);
    let _ = queue.try_get().unwrap().retry_after(hour);
    assert_eq!(queue.drain_timeout(Duration::ZERO).queued, 3);
    assert_eq!(take_all(&queue), [(3, 0), (1, 1), (2, 2)]);
}

#[test] // P4
fn snapshots_tell_levels_apart() {
    let queue = with(|builder| builder.levels(3));
    queue.entry(1).level(2).add();
    queue.entry(2).level(0).add();
    let item = queue.try_get().unwrap();
    queue.entry(2).level(1).add();
    let mut keys = queue.snapshot();
    keys.sort_by_key(|key| *key.key());
    let seen: Vec<_> = keys.iter().map(|key| (key.state(), key.level())).collect();
    assert_eq!(seen, [(State::Queued, Some(2)), (State::Dirty, Some(1))]);
    item.done();
    let plain = Queue::new();
    plain.add(1);
    assert_eq!(plain.snapshot()[0].level(), None);
    assert_eq!(
        (plain.counts().by_level, plain.get().unwrap().level()),
        (vec![], 0)
    );
}

#[test]
fn a_level_that_is_not_there_is_the_least_urgent() {
    let queue = with(|builder| builder.levels(2));
    queue.entry(1).level(usize::MAX).add();
    assert_eq!(take_all(&queue), [(1, 1)]);
    let plain = Queue::new();
    assert_eq!(plain.entry(1).level(7).add(), Added::Queued);
    assert_eq!(take_all(&plain), [(1, 0)]);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let field = |set: fn(Builder<u64>) -> Builder<u64>| {
        set(WorkQueue::builder()).build().unwrap_err().field()
    };
    assert_eq!(field(|builder| builder.levels(0)), "levels");
    assert_eq!(field(|builder| builder.levels(9)), "levels");
    assert_eq!(field(|builder| builder.default_level(1)), "default_level");
    assert_eq!(
        field(|builder| builder.levels(3).default_level(3)),
        "default_level"
    );
    assert_eq!(
        field(|builder| builder.levels(2).starvation_limit(1)),
        "starvation_limit"
    );
    let queue = with(|builder| builder.levels(3).default_level(2));
    queue.add(1);
    assert_eq!(take_all(&queue), [(1, 2)]);
}

#[test] // S8
fn what_is_abandoned_is_delivered_at_no_level() {
    let queue = with(|builder| builder.levels(3));
    for key in 0..9 {
        queue.entry(key).level(key as usize % 3).add();
    }
    queue.entry(5).level(0).add();
    let item = queue.try_get().unwrap();
    assert_eq!(queue.shut_down_now().queued, 8);
    assert_eq!((queue.len(), queue.counts().by_level), (0, vec![0; 3]));
    assert!(queue.get().is_none());
    item.done();
    queue.shrink();
}
