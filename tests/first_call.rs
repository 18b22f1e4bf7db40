//! The first call of a queue: until then it holds nothing, and it may be made by several threads at once.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::heap::{CountingHeap, allocations_of, held};
use common::timed::{after, ms, timed};
use common::{alone, scaled, watchdog};
use keyqueue::{Added, TryGetError, WorkQueue};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

#[test] // C10 S6
fn a_queue_that_is_never_used_allocates_nothing() {
    alone("a_queue_that_is_never_used_allocates_nothing", || {
        // What is asked once in a process.
        drop(WorkQueue::<u64>::new());
        let before = held();
        let count = allocations_of(|| {
            let queue = WorkQueue::<u64>::new();
            assert_eq!((queue.len(), queue.is_empty()), (0, true));
            assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
            assert!(!queue.cancel(&1));
            assert_eq!(queue.fire_due(), 0);
            assert!(queue.snapshot().is_empty());
            assert!(!queue.is_shutting_down());
            queue.shrink();
            drop(queue);

            let builder = WorkQueue::<String>::builder().shards(64).ring(1 << 20);
            drop(builder.build().unwrap());
        });
        assert_eq!((count, held()), (0, before));
    });
}

#[test] // D1 D9
fn the_time_before_the_first_call_is_no_part_of_a_delay() {
    let (queue, time) = timed();
    time.advance(Duration::from_secs(3600));
    assert_eq!(queue.add_after(1, ms(5)), Added::Delayed);
    assert_eq!(after(&queue, &time, ms(4)), []);
    assert_eq!(after(&queue, &time, ms(1)), [1]);
}

/// A queue that takes long to build, so that threads meet in it.
fn slow_to_build() -> WorkQueue<usize> {
    let builder = WorkQueue::builder().ring(1 << 14).shards(64);
    builder.build().unwrap()
}

type Call<'a> = dyn Fn(&WorkQueue<usize>) + Sync + 'a;

/// Runs the calls at once, each in a thread of its own, as the first that a queue gets.
fn race(queue: &WorkQueue<usize>, calls: &[&Call<'_>]) {
    let missing = AtomicUsize::new(calls.len());
    thread::scope(|scope| {
        for call in calls {
            scope.spawn(|| {
                missing.fetch_sub(1, Ordering::SeqCst);
                while missing.load(Ordering::SeqCst) > 0 {
                    thread::yield_now();
                }
                call(queue);
            });
        }
    });
}

#[test] // C5 C9 C11
fn no_add_of_several_first_calls_is_lost() {
    let _watchdog = watchdog(60);
    for _ in 0..scaled(1000) {
        let queue = slow_to_build();
        race(
            &queue,
            &[
                &|queue| assert_eq!(queue.add(1), Added::Queued),
                &|queue| assert_eq!(queue.handle(2).add(), Added::Queued),
                // Waits in the very queue that the others add to.
                &|queue| {
                    let mut keys = [0; 2].map(|_| *queue.get().expect("nobody shuts it down"));
                    keys.sort_unstable();
                    assert_eq!(keys, [1, 2]);
                },
            ],
        );
        assert!(queue.is_empty());
        assert!(queue.snapshot().is_empty());
    }
}

#[test] // C5 S1
fn a_shut_down_that_races_with_the_first_add_holds() {
    let _watchdog = watchdog(60);
    for _ in 0..scaled(1000) {
        let queue = slow_to_build();
        let accepted = AtomicUsize::new(0);
        race(
            &queue,
            &[
                &|queue| {
                    let added = queue.add(1);
                    accepted.fetch_add(usize::from(added.is_accepted()), Ordering::SeqCst);
                },
                &|queue| {
                    queue.shut_down();
                    assert!(queue.is_shutting_down());
                },
            ],
        );
        assert_eq!(queue.add(2), Added::ShutDown);
        assert_eq!(queue.len(), accepted.into_inner());
        while queue.get().is_some() {}
    }
}
