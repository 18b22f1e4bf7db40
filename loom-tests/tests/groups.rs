//! Groups and levels: a key is delivered once, and no getter sleeps while one may be delivered (G1, G2, G4, G6, P3, T1, C2, C3,
//! C5, C9). Both are behind one lock, and a queue with levels or a pace has one group.
//!
//! A lost wake-up shows as a deadlock, which loom reports.
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use keyqueue::{Added, Cursor, GetError, Listed, State, WorkQueue};
use keyqueue_loom_tests::{FixedHasher, Settings, check, queue_of, spawn_with};
use loom::sync::Arc;

type Queue = Arc<WorkQueue<u8, (), FixedHasher>>;

/// Keys below 10 are in one group, the others in another.
fn grouped(set: impl FnOnce(Settings) -> Settings) -> Queue {
    queue_of(|builder| set(builder.group_by(|key| key / 10)))
}

/// G1, C9. Interleaving: a getter has taken a key of the group; the other one looks, and registers, before the first
/// has said whether there are more.
#[test]
fn two_getters_of_a_group_get_a_key_each() {
    check("group_two_getters", 2, || {
        let queue = grouped(|builder| builder);
        queue.add(1);
        queue.add(2);
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        let other = queue.get().map(|item| *item);
        let mut got = [getter.join().unwrap(), other];
        got.sort_unstable();
        assert_eq!(got, [Some(1), Some(2)]);
    });
}

/// G1, C2. Interleaving: a key is pushed to a group whose last key a popper takes.
#[test]
fn a_key_that_comes_as_its_group_becomes_empty_is_delivered() {
    check("group_push_beside_pop", 2, || {
        let queue = grouped(|builder| builder);
        queue.add(1);
        let adder = spawn_with(&queue, |queue| queue.add(2));
        assert!(queue.get().is_some());
        assert!(queue.get().is_some());
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert!(queue.is_empty());
    });
}

/// C9. Interleaving: a getter takes the last key; another key comes; a second getter registers; the first one
/// says that nothing is ready, and the second one looks.
#[test]
fn a_getter_that_registers_as_another_takes_the_last_key_is_not_told_that_nothing_is_ready() {
    check("group_flag", 2, || {
        let queue = grouped(|builder| builder);
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.get().is_some());
        let adder = spawn_with(&queue, |queue| queue.add(2));
        assert!(queue.get().is_some());
        assert!(getter.join().unwrap());
        adder.join().unwrap();
    });
}

/// G1. Two threads queue the first key of a group, and the same key, at the same time.
#[test]
fn two_threads_find_the_same_group() {
    check("group_found_twice", 2, || {
        let queue = grouped(|builder| builder);
        let adder = spawn_with(&queue, |queue| queue.add(1));
        queue.add(2);
        adder.join().unwrap();
        let counts = queue.groups::<u8>();
        assert_eq!((counts.len(), counts[0].queued), (1, 2));
    });
}

/// G2, C9. Interleaving: the getter finds the group at its limit; the key is done; the getter goes to sleep.
#[test]
fn a_getter_is_woken_when_a_key_of_a_full_group_is_done() {
    check("group_limit", 3, || {
        let queue = grouped(|builder| builder.group_limit(1));
        queue.add(1);
        queue.add(2);
        let item = queue.try_get().unwrap();
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        item.done();
        assert_eq!(getter.join().unwrap(), Some(2));
    });
}

/// G2. A limit holds for two getters.
#[test]
fn two_getters_do_not_exceed_a_limit() {
    check("group_limit_two", 3, || {
        let queue = grouped(|builder| builder.group_limit(1));
        queue.add(1);
        queue.add(2);
        let getter = spawn_with(&queue, |queue| {
            let item = queue.try_get().ok();
            let got = item.is_some();
            std::mem::forget(item);
            got
        });
        let item = queue.try_get().ok();
        assert!(!(getter.join().unwrap() && item.is_some()));
        std::mem::forget(item);
    });
}

/// P3, P4, G4, C3, C5. Interleaving: a getter has taken the key from the list of its old level, and not yet begun its delivery,
/// when the key is raised; or it has begun it.
#[test]
fn a_key_that_is_raised_beside_a_getter_is_delivered_once() {
    check("raise_beside_get", 3, || {
        let queue = grouped(|builder| builder.levels(2));
        queue.add(1);
        let getter = spawn_with(&queue, |queue| {
            queue.try_get().map(|item| (*item, item.level()))
        });
        let added = queue.entry(1).level(0).add();
        let got = getter.join().unwrap();
        let rest = queue.try_get().map(|item| (*item, item.level()));
        match added {
            // The getter may have looked at level 0 before and at level 1 after the raise.
            Added::Merged => assert!(
                matches!((got, rest), (Ok((1, 0)), Err(_)) | (Err(_), Ok((1, 0)))),
                "{got:?}, {rest:?}"
            ),
            Added::Deferred | Added::Queued => assert_eq!((got, rest), (Ok((1, 1)), Ok((1, 0)))),
            added => panic!("{added:?}"),
        }
        assert_eq!(queue.try_get().err(), Some(GetError::Empty));
        assert_eq!(queue.counts().by_level, [0, 0]);
        // Nothing is counted that is not there.
        for level in [1, 0] {
            assert_eq!(queue.entry(1).level(level).add(), Added::Queued);
            assert_eq!(queue.try_get().map(|item| item.level()), Ok(level));
        }
    });
}

/// P4. The same beside a shut-down: the delivery begins when the key is closed.
#[test]
fn a_key_that_is_raised_and_closed_beside_a_getter_has_its_level() {
    check("raise_closed_beside_get", 3, || {
        let queue = queue_of::<u8>(|builder| builder.levels(2));
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.try_get().map(|item| item.level()));
        let added = queue.entry(1).level(0).add();
        queue.shut_down();
        let got = getter.join().unwrap();
        let rest = queue.try_get().map(|item| item.level());
        if added == Added::Merged {
            assert!(matches!((got, rest), (Ok(0), Err(_)) | (Err(_), Ok(0))));
        }
    });
}

/// P3. Interleaving: the key is raised before the thread that has queued it has pushed its entry, or while another add
/// raises it further.
#[test]
fn a_key_raised_twice_has_the_more_urgent_level() {
    check("raise_twice", 3, || {
        let queue = queue_of::<u8>(|builder| builder.levels(3));
        let first = spawn_with(&queue, |queue| queue.entry(1).level(2).add());
        let second = spawn_with(&queue, |queue| queue.entry(1).level(1).add());
        queue.entry(1).level(0).add();
        let added = [first.join().unwrap(), second.join().unwrap()];
        assert!(
            added
                .iter()
                .all(|added| matches!(added, Added::Queued | Added::Merged))
        );
        assert_eq!(queue.counts().by_level, [1, 0, 0]);
        assert_eq!(
            queue.try_get().map(|item| (*item, item.level())),
            Ok((1, 0))
        );
        assert_eq!(queue.try_get().err(), Some(GetError::Empty));
    });
}

/// C9. Interleaving: one getter takes the key, and another one goes to sleep, while the key moves to another level.
#[test]
fn a_getter_of_a_key_that_is_raised_is_woken() {
    check("raise_wakes", 3, || {
        let queue = queue_of::<u8>(|builder| builder.levels(2));
        queue.add(1);
        let raiser = spawn_with(&queue, |queue| queue.entry(1).level(0).add());
        // A getter that keeps nothing, and one that waits.
        let other = spawn_with(&queue, |queue| drop(queue.try_get()));
        let woken = std::sync::Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let mut getter = Box::pin(queue.get_async());
        let polled = getter.as_mut().poll(&mut Context::from_waker(&waker));
        raiser.join().unwrap();
        other.join().unwrap();
        assert!(polled.is_ready() || woken.0.load(Ordering::Relaxed) || queue.is_empty());
    });
}

/// G6, C9. Interleaving: the getter finds the group held, and goes to sleep; the group is released.
#[test]
fn a_getter_is_woken_when_a_group_is_released() {
    check("group_release", 3, || {
        let (clock, _time) = keyqueue::Clock::mock();
        let queue = grouped(|builder| builder.clock(clock).manual_timers());
        assert!(queue.hold_group(&0_u8, Duration::from_secs(1)));
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        assert!(queue.hold_group(&0_u8, Duration::ZERO));
        assert_eq!(getter.join().unwrap(), Some(1));
    });
}

/// G7. Interleaving: a getter finds that a key is ready; the queue is paused; the getter takes the key.
#[test]
fn no_delivery_begins_after_a_pause() {
    check("group_pause", 3, || {
        let queue: Queue = queue_of(keyqueue::Builder::pausable);
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.try_get().is_ok());
        queue.pause().unwrap();
        let is_queued = queue.len() == 1;
        let is_delivered = getter.join().unwrap();
        assert!(!(is_queued && is_delivered));
    });
}

/// G7. Interleaving: two threads find the queue paused, and end the pause.
#[test]
fn a_pause_is_ended_once() {
    check("group_resume_twice", 3, || {
        let queue: Queue = queue_of(keyqueue::Builder::pausable);
        queue.pause().unwrap();
        let other = spawn_with(&queue, WorkQueue::resume);
        assert!(queue.resume() != other.join().unwrap());
    });
}

/// G7, C9. Interleaving: a getter finds the queue paused; the resume notifies nobody; the getter goes to sleep.
#[test]
fn a_getter_is_woken_by_a_resume() {
    check("group_resume", 3, || {
        let queue: Queue = queue_of(keyqueue::Builder::pausable);
        queue.pause().unwrap();
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        assert!(queue.resume());
        assert_eq!(getter.join().unwrap(), Some(1));
    });
}

/// T1, C9. Interleaving: the getter finds no token; the time comes, and the driver looks; the getter goes to sleep.
#[test]
fn a_getter_is_woken_when_there_is_a_token() {
    check("pace_token", 2, || {
        let (clock, time) = keyqueue::Clock::mock();
        let queue: Queue =
            queue_of(|builder| builder.clock(clock).manual_timers().dispatch_rate(1.0, 1));
        queue.add(1);
        queue.add(2);
        drop(queue.try_get().unwrap());
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        time.advance(Duration::from_secs(1));
        queue.fire_due();
        // The first look may have come before the getter has missed a token.
        queue.fire_due();
        assert_eq!(getter.join().unwrap(), Some(2));
    });
}

/// T1, C9. Interleaving: one getter is about to miss a token, or has missed it, when another one does so and goes to
/// sleep; the time comes, and the driver looks; the first leaves, with the token or without one.
#[test]
fn a_getter_sleeps_beside_one_that_misses_a_token_and_leaves() {
    check("pace_missed", 4, || {
        let (clock, time) = keyqueue::Clock::mock();
        let queue: Queue =
            queue_of(|builder| builder.clock(clock).manual_timers().dispatch_rate(1.0, 1));
        queue.add(1);
        queue.add(2);
        drop(queue.try_get().unwrap());
        let leaves = spawn_with(&queue, |queue| queue.try_get().is_ok());
        let woken = std::sync::Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let mut getter = Box::pin(queue.get_async());
        let polled = getter.as_mut().poll(&mut Context::from_waker(&waker));
        time.advance(Duration::from_secs(1));
        queue.fire_due();
        let is_taken = leaves.join().unwrap();
        // The driver comes once more, as it does if somebody waits for a token.
        queue.fire_due();
        assert!(polled.is_ready() || is_taken || woken.0.load(Ordering::Relaxed));
    });
}

/// G3, C2. Interleaving: a getter has taken a key, and not yet begun its delivery, when the others of its group are
/// cleared and swept.
#[test]
fn a_group_that_is_cleared_beside_a_getter_stays_valid() {
    check("group_clear", 3, || {
        let queue = grouped(|builder| builder);
        queue.add(1);
        queue.add(2);
        let getter = spawn_with(&queue, |queue| usize::from(queue.try_get().is_ok()));
        let cleared = queue.clear();
        queue.shrink();
        assert_eq!(getter.join().unwrap() + cleared, 2);
        queue.add(1);
        assert_eq!(queue.try_get().map(|item| *item).ok(), Some(1));
        queue.shrink();
    });
}

/// Notes that it was woken. Not an atomic of loom's: nothing is synchronised with it.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// P4. A look at a key of level 1 beside its delivery. Interleaving: the look finds that the key is queued; a getter takes the
/// key; the look asks for its level.
#[test]
fn a_key_that_is_looked_at_beside_its_delivery_has_its_level() {
    for (name, timed) in [("level_page", false), ("level_page_timed", true)] {
        with_level(name, timed, |queue| {
            let page = queue.page(Cursor::default(), Listed::All, 10);
            assert_eq!(page.counts.by_level, [0, page.counts.queued]);
            let [key] = &page.keys[..] else {
                return assert!(page.keys.is_empty());
            };
            let level = (key.state() == State::Queued).then_some(1);
            assert_eq!(key.level(), level, "{key:?}");
        });
    }
    with_level("level_counts", false, |queue| {
        let counts = queue.counts();
        assert_eq!(counts.by_level, [0, counts.queued]);
    });
}

fn with_level(name: &str, timed: bool, look: impl Fn(&Queue) + Copy + Send + Sync + 'static) {
    check(name, 3, move || {
        let queue = queue_of(|builder| builder.levels(2).timing(timed));
        assert_eq!(queue.entry(1).level(1).add(), Added::Queued);
        let getter = spawn_with(&queue, |queue| queue.try_get().map(drop));
        look(&queue);
        assert!(getter.join().unwrap().is_ok());
    });
}
