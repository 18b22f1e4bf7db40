//! Finding a known key by something else: adding it, its state, and how many keys are in which.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Queue, assert_nothing_queued, take_all, watchdog, with_queues};
use keyqueue::{Added, State};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn the_state_of_a_key_and_the_counts_follow_what_happens_to_it() {
    with_queues(|config| {
        let queue: Queue<String> = config.queue();
        queue.entry_ref("other").add();
        let other = queue.get();
        let is = |state, (queued, delayed, processing)| {
            assert_eq!(queue.state("key"), state);
            let counts = queue.counts();
            assert_eq!(
                (counts.queued, counts.delayed, counts.processing - 1),
                (queued, delayed, processing)
            );
        };
        is(None, (0, 0, 0));
        queue.add_after("key".into(), HOUR);
        is(Some(State::Idle), (0, 1, 0));
        queue.entry_ref("key").add();
        is(Some(State::Queued), (1, 1, 0));
        assert!(queue.cancel("key"));
        is(Some(State::Queued), (1, 0, 0));
        let item = queue.get().unwrap();
        is(Some(State::Processing), (0, 0, 1));
        queue.entry_ref("key").add();
        is(Some(State::Dirty), (0, 0, 1));
        item.done();
        is(Some(State::Queued), (1, 0, 0));
        queue.add_after("key".into(), HOUR);
        assert_eq!(queue.shut_down().delayed, 1);
        is(Some(State::Queued), (1, 0, 0)); // the delay was dropped
        drop(queue.get());
        is(None, (0, 0, 0));
        drop(other);
        let counts = queue.counts();
        assert_eq!((counts.queued, counts.delayed), (0, 0));
        assert_eq!((counts.processing, counts.retrying), (0, 0));
    });
}

#[test] // C2 C4 C6
fn an_add_by_anything_that_hashes_alike_makes_the_key_only_if_it_is_unknown() {
    with_queues(|config| {
        let queue: Queue<(String, Arc<str>)> = config.queue();
        let made = Cell::new(0);
        let add = |namespace: &str, name: &str| {
            let eq = |known: &(String, Arc<str>)| known.0 == namespace && *known.1 == *name;
            let make = || {
                made.set(made.get() + 1);
                (namespace.into(), name.into())
            };
            queue.entry_with(&(namespace, name), eq, make).add()
        };
        assert_eq!(add("a", "b"), Added::Queued);
        assert_eq!(add("a", "c"), Added::Queued, "another key");
        assert_eq!(add("a", "b"), Added::Merged);
        assert_eq!(made.get(), 2);
        let item = queue.get().unwrap();
        assert_eq!(add("a", "b"), Added::Deferred);
        assert_eq!(queue.add(("a".into(), "b".into())), Added::Merged);
        item.done();
        assert_eq!(take_all(&queue).len(), 2);
        assert_eq!(add("a", "b"), Added::Queued, "idle, and known");
        assert_eq!(made.get(), 2);
        queue.shut_down();
        let unused = |_: &_| unreachable!("the queue is shut down");
        let entry = queue.entry_with(&0, unused, || unreachable!("the queue is shut down"));
        assert_eq!(entry.add(), Added::ShutDown);
    });
}

#[test] // C2
fn an_add_by_something_that_does_not_match_adds_what_it_makes() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        let add = |key: u64, made| queue.entry_with(&key, |known| *known == key, || made).add();
        assert_eq!(add(1, 2), Added::Queued);
        assert_eq!(add(1, 2), Added::Merged, "2 is found by its own hash");
        assert_eq!(add(1, 1), Added::Queued);
        assert_eq!(add(1, 3), Added::Merged, "1 is known, so 3 is not made");
        // What makes a key may use the queue: no lock is held.
        let make = || {
            queue.add(4);
            4
        };
        let entry = queue.entry_with(&4_u64, |known| *known == 4, make);
        assert_eq!(entry.add(), Added::Merged);
        assert_eq!(take_all(&queue), [2, 1, 4]);
    });
}

#[test] // The shard is unlocked by then.
fn what_an_add_compares_by_may_shut_the_queue_down_when_dropped() {
    let _watchdog = watchdog(60);
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        queue.add(1);
        let end = queue.shut_down_on_drop();
        let eq = move |known: &u64| {
            let _ = &end;
            *known == 1
        };
        assert_eq!(queue.entry_with(&1_u64, eq, || 1).add(), Added::Merged);
        assert!(queue.is_shutting_down());
    });
}

#[test]
fn a_panic_of_what_makes_or_compares_a_key_adds_nothing() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        queue.add(1);
        drop(queue.get());
        let panics = |_: &u64| panic!("not comparable");
        let add = || _ = queue.entry_with(&1_u64, panics, || 1).add();
        assert!(catch_unwind(AssertUnwindSafe(add)).is_err());
        let add = || {
            let entry = queue.entry_with(&2_u64, |_| false, || panic!("not to be made"));
            entry.add();
        };
        assert!(catch_unwind(AssertUnwindSafe(add)).is_err());
        assert_nothing_queued(&queue);
        assert_eq!(queue.add(1), Added::Queued);
    });
}

#[test]
fn a_queue_is_cleared_of_what_is_queued_and_nothing_else() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        assert_eq!(queue.clear(), 0);
        queue.add_all(0..9);
        let processing = queue.get();
        let dirty = queue.get();
        queue.add(1);
        queue.add_after(2, HOUR);
        queue.add_after(9, HOUR);
        assert_eq!(queue.clear(), 7);
        assert_nothing_queued(&queue);
        assert_eq!(queue.state(&2), Some(State::Idle));
        assert!(queue.cancel(&2) && queue.cancel(&9));
        drop((processing, dirty));
        assert_eq!(queue.add(3), Added::Queued);
        assert_eq!(take_all(&queue), [1, 3], "the dirty key is delivered again");
    });
}

#[test] // S3
fn clearing_a_queue_that_is_shut_down_ends_its_drains() {
    with_queues(|config| {
        let queue: Queue<u64> = config.queue();
        queue.add_all(0..5);
        assert_eq!(queue.shut_down().queued, 5);
        assert_eq!(queue.clear(), 5);
        assert!(queue.get().is_none());
        assert!(queue.shut_down_with_drain().is_finished());
    });
}
