//! The end of a producer, and of those who wait for an end: the guard (S9), `closed`, and drains
//! whose time is limited or whose workers are gone (S7, S10).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};

use crate::common::{Config, Queue, Task, figures, scaled, watchdog, with_these_queues};

// ---- the guard ------------------------------------------------------------------------------

#[test] // S9
fn a_scope_that_is_left_by_an_error_or_a_panic_ends_its_workers() {
    let _watchdog = watchdog(60);
    for panics in [false, true] {
        let queue = Config::usual().queue::<u64>();
        let left = catch_unwind(AssertUnwindSafe(|| {
            thread::scope(|scope| {
                let _end = queue.shut_down_on_drop();
                scope.spawn(|| assert_eq!(queue.iter().count(), 1));
                queue.add(1);
                match panics {
                    true => resume_unwind(Box::new("no panic message")),
                    false => Err("fails"),
                }?;
                queue.shut_down_with_drain();
                Ok(())
            })
        }));
        match panics {
            true => assert!(left.is_err()),
            false => assert_eq!(left.unwrap(), Err("fails")),
        }
        assert!(queue.shut_down().is_nothing());
    }
}

#[test] // S4 S9
fn a_guard_releases_drains_like_any_shut_down() {
    let queue = Config::usual().queue::<u64>();
    queue.add(1);
    let end = queue.shut_down_on_drop();
    assert!(!queue.is_shutting_down());
    let mut drain = Task::waiting(Box::pin(queue.drain_async()));
    drop(end);
    assert!(!drain.output().is_finished());
}

// ---- waiting for a shut-down ----------------------------------------------------------------

#[test] // S1
fn every_way_to_end_a_queue_wakes_those_who_wait_for_it() {
    let ends: [fn(&Queue<u64>); 5] = [
        |queue| _ = queue.shut_down(),
        |queue| _ = queue.shut_down_now(),
        |queue| drop(queue.shut_down_on_drop()),
        |queue| _ = queue.drain_timeout(Duration::ZERO),
        |queue| _ = Task::waiting(Box::pin(queue.drain_async())),
    ];
    for end in ends {
        let queue = Config::usual().queue();
        queue.add(1);
        let _item = queue.get();
        let mut tasks = [(); 3].map(|()| Task::waiting(queue.closed()));
        drop(Task::waiting(queue.closed()));
        queue.add(2);
        assert_eq!(tasks.each_ref().map(Task::wakes), [0; 3]);
        end(&queue);
        for task in &mut tasks {
            assert_eq!(task.wakes(), 1);
            task.output();
        }
        pollster::block_on(queue.closed());
    }
}

#[test] // S1
fn a_wait_for_a_shut_down_races_with_it_without_being_lost() {
    with_these_queues(&Config::races(), |config| {
        for _ in 0..scaled(1000) {
            let queue = config.queue::<u64>();
            thread::scope(|scope| {
                scope.spawn(|| pollster::block_on(queue.closed()));
                queue.shut_down();
            });
        }
    });
}

// ---- drains with a deadline -----------------------------------------------------------------

#[test] // S10: each worker panics once, with an item in hand
fn a_drain_whose_workers_are_gone_says_what_nobody_will_get() {
    let queue = Config::usual().queue::<u64>();
    queue.add_all(0..5);
    for _ in 0..2 {
        let work = || {
            let _item = queue.get();
            resume_unwind(Box::new("no panic message"))
        };
        let worked: thread::Result<()> = thread::scope(|scope| scope.spawn(work).join());
        assert!(worked.is_err());
    }
    let in_threads = queue.drain_timeout(Duration::from_millis(1));
    let in_a_task = block_on(poll_once(queue.drain_async()));
    assert!(in_a_task.is_none());
    for left in [in_threads, queue.shut_down()] {
        assert!(!left.is_finished());
        assert_eq!(figures(left), (3, 0, 0));
    }
    // What to do about it.
    assert_eq!(figures(queue.shut_down_now()), (3, 0, 0));
    assert!(queue.shut_down_with_drain().is_finished());
}

#[test]
fn the_futures_and_the_guard_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let queue = Config::usual().queue::<u64>();
    is_send(&queue.closed());
    is_send(&queue.drain_async());
    is_send(&queue.shut_down_on_drop());
}
