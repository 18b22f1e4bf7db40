//! Levels: a key that becomes more urgent beside getters is delivered once (P3, C2, C3, C5).
#![cfg(keyqueue_loom)]

use keyqueue::{Added, TryGetError};
use keyqueue_loom_tests::{check, queue_of, spawn_with};

/// Interleaving: a getter has popped the entry of the old level, and not yet claimed the key, when the key is
/// raised; or it has claimed it. The key is delivered once, and what is left behind is nothing.
#[test]
fn a_key_raised_beside_a_getter_is_delivered_once() {
    check("raise_beside_get", 3, || raise_beside_get(false));
}

/// The same in a timed queue, whose popper claims the key first and begins the delivery then.
#[test]
fn a_key_raised_beside_a_getter_that_has_claimed_it_is_delivered_once() {
    check("raise_beside_claim", 3, || raise_beside_get(true));
}

fn raise_beside_get(timed: bool) {
    let queue = queue_of::<u8>(|builder| builder.levels(2).timing(timed));
    queue.add(1);
    let getter = spawn_with(&queue, |queue| {
        queue.try_get().map(|item| (*item, item.level()))
    });
    let added = queue.add_at(0, 1);
    let got = getter.join().unwrap();
    let rest = queue.try_get().map(|item| (*item, item.level()));
    match added {
        // The getter may have looked at level 0 before and at level 1 after the raise.
        Added::Merged => assert!(
            matches!((got, rest), (Ok((1, _)), Err(_)) | (Err(_), Ok((1, 0)))),
            "{got:?}, {rest:?}"
        ),
        Added::Deferred | Added::Queued => assert_eq!((got, rest), (Ok((1, 1)), Ok((1, 0)))),
        added => panic!("{added:?}"),
    }
    assert_eq!(queue.try_get().err(), Some(TryGetError::Empty));
    assert_eq!(queue.len_by_level(), [0, 0]);
    // Nothing is counted that is not there.
    for level in [1, 0] {
        assert_eq!(queue.add_at(level, 1), Added::Queued);
        assert_eq!(queue.try_get().map(|item| item.level()), Ok(level));
    }
}

/// Interleaving: the key is raised before the thread that has queued it has pushed its entry, or while
/// another add raises it further.
#[test]
fn a_key_raised_twice_has_the_more_urgent_level() {
    check("raise_twice", 3, || {
        let queue = queue_of::<u8>(|builder| builder.levels(3));
        let first = spawn_with(&queue, |queue| queue.add_at(2, 1));
        let second = spawn_with(&queue, |queue| queue.add_at(1, 1));
        queue.add_at(0, 1);
        let added = [first.join().unwrap(), second.join().unwrap()];
        assert!(
            added
                .iter()
                .all(|added| matches!(added, Added::Queued | Added::Merged))
        );
        assert_eq!(queue.len_by_level(), [1, 0, 0]);
        assert_eq!(
            queue.try_get().map(|item| (*item, item.level())),
            Ok((1, 0))
        );
        assert_eq!(queue.try_get().err(), Some(TryGetError::Empty));
    });
}

/// C9. Interleaving: a getter has looked at the urgent level, and has not yet looked at the other one, when the
/// key moves past it.
#[test]
fn a_getter_that_a_key_moves_past_is_woken() {
    check("raise_wakes", 3, || {
        let queue = queue_of::<u8>(|builder| builder.levels(2));
        queue.add(1);
        let raiser = spawn_with(&queue, |queue| queue.add_at(0, 1));
        // A getter that keeps nothing, and one that waits.
        let other = spawn_with(&queue, |queue| queue.try_get().map(|item| *item));
        if other.join().unwrap().is_err() {
            assert_eq!(queue.get().map(|item| *item), Some(1));
        }
        raiser.join().unwrap();
    });
}

/// P1, C5: a key that is raised, delivered, and queued again at its old level, beside a getter that drops what
/// it left behind.
#[test]
fn a_key_that_comes_back_beside_its_stale_entry_is_delivered_once() {
    check("raise_and_come_back", 3, || {
        let queue = queue_of::<u8>(|builder| builder.levels(2));
        queue.add(1);
        queue.add_at(0, 1);
        queue.try_get().expect("it was added").done();
        // Its entry of level 1 is stale.
        let adder = spawn_with(&queue, |queue| queue.add(1));
        let got = queue.try_get().map(|item| *item);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        let rest = queue.try_get().map(|item| *item);
        assert!(
            matches!((got, rest), (Ok(1), Err(_)) | (Err(_), Ok(1))),
            "{got:?}, {rest:?}"
        );
        assert_eq!(queue.try_get().err(), Some(TryGetError::Empty));
        assert_eq!(queue.len(), 0);
    });
}
