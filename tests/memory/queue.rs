//! What a queue holds (C10).
//!
//! Each shard keeps up to [`RESIDENTS`] idle keys, and as many more until the next sweep: [`CACHE`]
//! bytes a shard. An idle queue may hold that much more than twice what an empty one does.

use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::common::{alone, eventually, poll, waiting, watchdog};
use crate::million;
use keyqueue::limiter::NoLimit;
use keyqueue::{Builder, Clock, MockClock, WorkQueue};
use rig::heap::held;

// ---- the measured queue ---------------------------------------------------------------------

const SHARDS: usize = 16;
/// The queue's own fixed cache is 8192 nodes, an equal part in each shard.
const RESIDENTS: usize = 8192 / SHARDS;
/// A shard sweeps when half as many keys have come as it holds, so it may keep its residents twice:
/// nodes in pages that are not full, a table with up to four places of 5 bytes for each, the
/// memory of swept keys, and two pages.
const CACHE: usize = 2 * RESIDENTS * (56 + 4 * 5 * 8 / 7) + 8192 + 2 * 4096;

/// A queue, and what it held when it was empty.
struct Measured {
    queue: WorkQueue<u64>,
    /// The queue's clock, unless it is the real one.
    time: MockClock,
    before: isize,
    empty: isize,
}

impl Measured {
    fn new() -> Self {
        let (clock, time) = Clock::mock();
        Self::with(clock, time)
    }

    /// A queue whose waiting threads look by themselves when time has passed.
    fn by_real_time() -> Self {
        Self::with(Clock::new(), Clock::mock().1)
    }

    fn with(clock: Clock, time: MockClock) -> Self {
        let before = held();
        let builder = WorkQueue::builder().shards(SHARDS).clock(clock);
        let queue = builder.build().unwrap();
        queue.add(0);
        queue.try_get().unwrap().done();
        queue.shrink();
        let empty = held() - before;
        Measured {
            queue,
            time,
            before,
            empty,
        }
    }

    fn held(&self) -> isize {
        held() - self.before
    }

    /// The most that an idle queue may hold.
    fn most(&self) -> isize {
        2 * self.empty + (SHARDS * CACHE).cast_signed()
    }

    fn is_back_to_the_cache(&self) -> bool {
        self.held() <= self.most()
    }

    #[track_caller]
    fn assert_back_to_the_cache(&self, after: &str) {
        let (held, most) = (self.held(), self.most());
        println!(
            "{after}: {held} bytes held, empty {}, at most {most}",
            self.empty
        );
        assert!(held <= most, "{after}: {held} bytes held, not {most}");
    }

    #[track_caller]
    fn assert_back_to_empty_by_shrink(&self) {
        self.queue.shrink();
        let (held, empty) = (self.held(), self.empty);
        println!("after shrink: {held} bytes held, empty {empty}");
        assert!(held <= 2 * empty, "{held} bytes held, empty {empty}");
    }

    /// Delivers exactly `keys` keys, and never calls an empty queue.
    fn deliver(&self, keys: u64) {
        for _ in 0..keys {
            self.queue.try_get().unwrap().done();
        }
    }
}

// ---- after a burst --------------------------------------------------------------------------

#[test] // C10
fn a_burst_of_a_million_keys_is_forgotten_by_normal_use() {
    alone(|| {
        type Look = fn(&WorkQueue<u64>);
        let looks: [(&str, Look); 3] = [
            ("try_get", |queue| assert!(queue.try_get().is_err())),
            ("get_timeout", |queue| {
                assert!(queue.get_timeout(Duration::ZERO).is_err());
            }),
            ("get_async", |queue| {
                assert!(poll(&mut queue.get_async(), Waker::noop()).is_pending());
            }),
        ];
        for (way, look) in looks {
            let measured = Measured::new();
            assert_eq!(measured.queue.add_all(0..million()), million() as usize);
            let each = (measured.held() - measured.empty) / million().cast_signed() as isize;
            println!("{each} bytes a queued u64 key");
            assert!(each <= 96, "{each} bytes a queued u64 key");
            measured.deliver(million());
            // A worker that looks for more work: nothing but what it does anyway.
            look(&measured.queue);
            measured.assert_back_to_the_cache(way);
            measured.assert_back_to_empty_by_shrink();
        }
    });
}

#[test] // L15
fn the_back_off_of_a_queue_without_a_limiter_takes_no_memory_until_a_key_fails() {
    alone(|| {
        let held_by = |builder: Builder<u64>| {
            let before = held();
            let queue = builder.build().unwrap();
            queue.add(0);
            queue.try_get().unwrap().done();
            queue.forget(&0);
            assert_eq!(queue.num_requeues(&0), 0);
            held() - before
        };
        held_by(WorkQueue::builder()); // what is made once a process is there then
        let none = held_by(WorkQueue::builder().rate_limiter(NoLimit));
        let more = held_by(WorkQueue::builder()) - none;
        assert!(more <= 64, "{more} bytes more than {none}");
    });
}

#[test] // C10
fn a_dropped_queue_leaves_nothing_behind() {
    alone(|| {
        let use_and_drop = || {
            let queue = WorkQueue::builder().shards(SHARDS).build().unwrap();
            // More than the ring holds; some are idle, the others queued.
            queue.add_all((0..10_000_u64).map(|key| key.to_string()));
            (0..5000).for_each(|_| queue.try_get().unwrap().done());
            let handle = queue.handle("idle".to_owned());
            queue.add_after("delayed".to_owned(), Duration::from_secs(3600));
            drop((queue, handle));
        };
        // What is made once a process or thread is there then.
        use_and_drop();
        let before = held();
        use_and_drop();
        assert_eq!(held(), before);
    });
}

#[test] // C10
fn a_stream_of_a_million_keys_never_holds_more_than_the_cache() {
    alone(|| {
        let measured = Measured::new();
        let mut most = 0;
        for key in 0..million() {
            measured.queue.add(key);
            measured.deliver(1);
            most = most.max(measured.held());
        }
        println!("at most {most} bytes held");
        measured.assert_back_to_the_cache("stream");
        assert!(most <= measured.most());
        measured.assert_back_to_empty_by_shrink();
    });
}

#[test] // C10
fn a_stream_after_a_burst_clears_it_away_though_no_worker_ever_idles() {
    alone(|| {
        let measured = Measured::new();
        measured.queue.add_all(0..100_000);
        measured.deliver(99_999);
        // One key is always queued: no thread finds the queue empty.
        let more = million();
        for key in more..2 * more {
            measured.queue.add(key);
            measured.deliver(1);
        }
        measured.assert_back_to_the_cache("stream after a burst");
    });
}

#[test] // C10
fn a_burst_between_threads_is_forgotten_by_the_consumer_that_waits() {
    alone(|| {
        let _watchdog = watchdog(60);
        let measured = Measured::by_real_time();
        let queue = &measured.queue;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| queue.iter().count());
            }
            thread::scope(|scope| {
                for n in 0..2 {
                    scope.spawn(move || queue.add_all((n..million()).step_by(2)));
                }
            });
            eventually("all is delivered and the consumers wait", || {
                queue.is_empty() && waiting(queue) == 2
            });
            // Nothing happens any more: the waiting threads look by themselves.
            eventually("the burst is forgotten", || measured.is_back_to_the_cache());
            queue.shut_down();
        });
    });
}

#[test] // C10
fn keys_in_flight_when_a_worker_looked_are_forgotten_when_they_are_done() {
    alone(|| {
        let measured = Measured::new();
        measured.queue.add_all(0..100_000);
        let items = measured.queue.get_batch(100_000);
        // Another worker looks for work, while all of these are busy.
        assert!(measured.queue.try_get().is_err());
        drop(items);
        // The keys were new at the first look: this one waits for its time.
        measured.time.advance(Duration::from_secs(1));
        assert!(measured.queue.try_get().is_err());
        measured.assert_back_to_the_cache("after a batch");
    });
}

#[test] // C10: the first look spares the keys, which recurred, and nothing happens after it
fn keys_that_recurred_are_forgotten_by_a_thread_that_waits() {
    alone(|| {
        let _watchdog = watchdog(120);
        let measured = Measured::by_real_time();
        for _ in 0..2 {
            measured.queue.add_all(0..200_000);
            measured.deliver(200_000);
        }
        thread::scope(|scope| {
            scope.spawn(|| assert!(measured.queue.get().is_none()));
            eventually("the keys are forgotten", || measured.is_back_to_the_cache());
            measured.queue.shut_down();
        });
    });
}

#[test] // C10
fn keys_that_were_delayed_are_forgotten_by_the_timers_thread() {
    alone(|| {
        let _watchdog = watchdog(120);
        let measured = Measured::by_real_time();
        for key in 0..million() / 4 {
            measured.queue.add_after(key, Duration::from_millis(1));
        }
        // No thread finds the queue empty.
        for _ in 0..million() / 4 {
            eventually("a delay ends", || !measured.queue.is_empty());
            measured.deliver(1);
        }
        eventually("the keys are forgotten", || measured.is_back_to_the_cache());
    });
}
