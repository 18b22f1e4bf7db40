//! The times beside a key: what is told of a key was so, whatever happens to it meanwhile (M2).
#![cfg(keyqueue_loom)]

use std::time::Duration;

use keyqueue::{MockClock, State};
use keyqueue_loom_tests::{Queue, check, delayed_queue, spawn_with};
use loom::sync::Arc;

const fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// A timed queue whose clock stands at 0.
fn timed() -> (Arc<Queue>, MockClock) {
    delayed_queue(|builder| builder.manual_timers().timing(true))
}

/// M2. A key that is added while it is processed waits from that add on, or, if the `done` comes at the very
/// same time, from the `done`; never from an earlier time round.
#[test]
fn a_deferred_key_waits_from_its_add_or_its_done() {
    check("deferred_time", 5, || {
        let (queue, time) = timed();
        queue.add(1);
        time.advance(ns(10));
        let item = queue.try_get().unwrap();
        assert_eq!(item.queue_time(), Some(ns(10)));
        let adder = spawn_with(&queue, |queue| queue.add(1));
        time.advance(ns(1));
        item.done();
        let early = queue.try_get().map(|item| item.queue_time().unwrap());
        adder.join().unwrap();
        time.advance(ns(2));
        let waited = early.unwrap_or_else(|_| queue.try_get().unwrap().queue_time().unwrap());
        assert!(waited <= ns(3), "{waited:?}");
    });
}

/// M2. The state and the age that a snapshot has of a key belong together: when the key is done and no more, and
/// when it is queued once more, which then is just now.
#[test]
fn a_snapshot_has_an_age_that_belongs_to_the_state() {
    check("snapshot_pair", 4, || pair(false, &[5]));
    check("snapshot_again", 4, || pair(true, &[5, 0]));
}

/// A snapshot beside a worker that gets the key at 5 and is done with it at 8. It is added again meanwhile, or
/// not; `queued` are the ages that it may have when it is queued.
fn pair(again: bool, queued: &[u64]) {
    let (queue, time) = timed();
    queue.add(1);
    time.advance(ns(5));
    let worker = spawn_with(&queue, move |queue| {
        let item = queue.try_get().unwrap();
        time.advance(ns(3));
        if again {
            queue.add(1);
        }
        item.done();
    });
    for key in queue.snapshot() {
        let allowed = match key.state() {
            State::Queued => queued,
            // Since 5, as of 5 or 8.
            State::Processing => &[0, 3],
            // Since 8.
            State::Dirty => &[0],
            State::Idle => &[],
            other => panic!("no such state was expected: {other}"),
        };
        let age = key.age().expect("the queue is timed");
        assert!(allowed.iter().any(|allowed| ns(*allowed) == age), "{key:?}");
    }
    worker.join().unwrap();
    let left = queue.snapshot();
    assert_eq!(left.len(), usize::from(again));
    assert!(left.iter().all(|key| key.age() == Some(ns(0))), "{left:?}");
}
