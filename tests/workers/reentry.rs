//! Limiters, worker functions and hooks that call the queue (S15, W2, W7).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use crate::common::calls::everything;
use crate::common::timed::MS;
use crate::common::{there, watchdog};
use keyqueue::limiter::RateLimiter;
use keyqueue::worker::{Outcome, Verdict, Workers};
use keyqueue::{Added, Builder, WorkQueue};

type Queue = WorkQueue<u64>;

/// What calls the queue, but not from within a call that it makes.
#[derive(Default)]
struct Calling {
    queue: OnceLock<Weak<Queue>>,
    is_calling: AtomicBool,
    calls: AtomicUsize,
}

impl Calling {
    fn call(&self) {
        let queue = self.queue.get().and_then(Weak::upgrade);
        if let Some(queue) = queue
            && !self.is_calling.swap(true, Ordering::SeqCst)
        {
            everything(&queue, |n| n);
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.is_calling.store(false, Ordering::SeqCst);
        }
    }

    /// How many calls were made since this was called before.
    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

impl RateLimiter<u64> for Calling {
    fn when(&self, _: &u64) -> Duration {
        self.call();
        MS
    }

    fn forget(&self, _: &u64) {
        self.call();
    }

    fn num_requeues(&self, _: &u64) -> u32 {
        self.call();
        0
    }
}

type Set = fn(Builder<u64>) -> Builder<u64>;

const SETS: [Set; 4] = [
    |builder| builder,
    |builder| builder.levels(2).capacity(1000),
    |builder| {
        builder
            .group_by(|key| key % 3)
            .group_limit(50)
            .supersede_delays(true)
    },
    |builder| {
        builder
            .min_interval(MS)
            .dispatch_rate(1e9, 1000)
            .timing(true)
    },
];

fn queue(set: Set) -> (Arc<Queue>, Arc<Calling>) {
    let calling = Arc::new(Calling::default());
    let builder = WorkQueue::builder().rate_limiter(Arc::clone(&calling));
    let queue = Arc::new(set(builder).build().unwrap());
    calling.queue.set(Arc::downgrade(&queue)).unwrap();
    (queue, calling)
}

#[test] // S15 L1 L2
fn a_limiter_may_call_the_queue() {
    let _watchdog = watchdog(30);
    for set in SETS {
        let (queue, calling) = queue(set);
        assert_eq!(queue.add_rate_limited(1), Added::Delayed);
        assert_eq!(calling.calls(), 1);
        queue.add(2);
        let mut items = there(&queue).filter(|item| **item == 2);
        let item = items.next().unwrap();
        drop(items);
        assert!(item.retry().is_accepted());
        assert_eq!(calling.calls(), 1);
        queue.forget(&1);
        assert_eq!((queue.num_requeues(&1), calling.calls()), (0, 2));
        assert!(!queue.snapshot().is_empty());
        assert!(calling.calls() > 0);
        thread::scope(|scope| _ = scope.spawn(|| queue.shut_down()));
    }
}

#[test] // S15 W2 W5 W7
fn workers_and_their_hooks_may_call_the_queue() {
    let _watchdog = watchdog(30);
    for set in SETS {
        let (queue, calling) = queue(set);
        queue.add_all(0..4);
        let runs = AtomicUsize::new(0);
        Workers::new(&queue)
            .concurrency(1)
            .max_retries(0)
            .on_error(|_, _| calling.call())
            .on_give_up(|_, _| calling.call())
            .run(|job| {
                // Adds more keys.
                calling.call();
                if runs.fetch_add(1, Ordering::SeqCst) == 40 {
                    queue.shut_down();
                }
                match *job % 4 {
                    0 => Verdict::Retry("fails"),
                    1 => Verdict::GiveUp("fails"),
                    2 => Verdict::Ok(Outcome::HoldGroup(MS)),
                    _ => Verdict::Ok(Outcome::Done),
                }
            })
            .unwrap();
        // The function for each key, both hooks for half of them, and the limiter.
        assert!(calling.calls() >= 80);
    }
}
