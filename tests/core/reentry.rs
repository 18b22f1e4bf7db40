//! Keys whose `Drop` calls the queue, wherever the queue drops one (S15).

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use crate::common::calls::everything;
use crate::common::timed::{MS, built};
use crate::common::{eventually, scaled, there, watchdog};
use keyqueue::{Added, Builder, WorkQueue};

type Queue = WorkQueue<Key>;

/// A key whose drop calls its queue, if it has one, and counts that.
struct Key(u64, Option<(Weak<Queue>, Arc<AtomicUsize>)>);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some((queue, calls)) = &self.1
            && let Some(queue) = queue.upgrade()
        {
            everything(&queue, |n| Key(n, None));
            calls.fetch_add(1, Ordering::SeqCst);
        }
    }
}

type Set = fn(Builder<Key>) -> Builder<Key>;

const SETS: [Set; 4] = [
    |builder| builder,
    |builder| builder.ring(1).capacity(1000).levels(2),
    |builder| {
        builder
            .group_by(|key| key.0 % 3)
            .group_limit(100)
            .timing(true)
    },
    |builder| builder.dispatch_rate(2.0, u32::MAX).supersede_delays(true),
];

/// Runs `step` with a queue and a function that makes keys, whose drops have to call the queue `calls` times at least.
fn calls(calls: usize, step: impl Fn(&Queue, &dyn Fn(u64) -> Key)) {
    let _watchdog = watchdog(60);
    for set in SETS {
        let (queue, _time) = built(|builder| set(builder).shards(2));
        let queue = Arc::new(queue);
        let called = Arc::new(AtomicUsize::new(0));
        step(&queue, &|n| {
            Key(n, Some((Arc::downgrade(&queue), Arc::clone(&called))))
        });
        assert!(called.load(Ordering::SeqCst) >= calls, "{called:?} calls");
        // Nothing is locked.
        thread::scope(|scope| _ = scope.spawn(|| queue.shut_down()));
    }
}

#[test] // S15
fn the_drop_of_a_key_may_call_the_queue_in_an_add_of_a_known_key() {
    calls(6, |queue, key| {
        // Keeps the key known, whatever the calls do with it.
        let _handle = queue.handle(Key(1, None));
        assert!(queue.add(key(1)).is_accepted());
        assert!(queue.entry(key(1)).level(1).add().is_accepted());
        assert!(queue.entry(key(1)).try_add().is_ok());
        assert!(queue.add_after(key(1), MS).is_accepted());
        drop(queue.handle(key(1)));
        assert!(queue.entry(key(1)).wait().add().is_accepted());
    });
}

#[test] // S15
fn the_drop_of_a_key_may_call_the_queue_when_the_queue_refuses_it() {
    calls(4, |queue, key| {
        queue.shut_down();
        assert_eq!(queue.add(key(1)), Added::ShutDown);
        assert_eq!(queue.entry(key(1)).wait().add(), Added::ShutDown);
        assert_eq!(queue.add_after(key(1), MS), Added::ShutDown);
        assert_eq!(queue.entry(key(1)).try_add(), Ok(Added::ShutDown));
    });
}

const KEYS: u64 = scaled(20_000) as u64;
/// One key in so many calls the queue.
const CALLING: u64 = 50;

#[test] // S15 C10
fn the_drop_of_a_key_may_call_the_queue_in_every_sweep() {
    // By adders of new keys, by a getter that finds nothing, and by `shrink`.
    calls((KEYS / CALLING) as usize, |queue, key| {
        for n in 0..KEYS {
            queue.add(if n % CALLING == 0 {
                key(n)
            } else {
                Key(n, None)
            });
            if n % 3 > 0 {
                there(queue).take(2).for_each(drop);
            }
        }
        while queue.try_get().is_ok() {}
        // Some are delayed: see `everything`.
        queue.shut_down_now();
        queue.shrink();
    });
}

#[test] // S15 C10
fn the_drop_of_a_key_may_call_the_queue_in_the_timers_thread() {
    let _watchdog = watchdog(60);
    let queue: Arc<Queue> = Arc::new(WorkQueue::builder().shards(2).build().unwrap());
    let called = Arc::new(AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Finds the queue empty at most once in a while, so that the timer's thread sweeps.
            while !is_over.load(Ordering::SeqCst) {
                match queue.is_empty() {
                    true => thread::yield_now(),
                    false => drop(queue.try_get()),
                }
            }
        });
        for n in 0..KEYS {
            let calls = Some((Arc::downgrade(&queue), Arc::clone(&called)));
            let calls = calls.filter(|_| n % CALLING == 0);
            queue.add_after(Key(n, calls), MS);
        }
        eventually("keys are dropped", || called.load(Ordering::SeqCst) >= 20);
        is_over.store(true, Ordering::SeqCst);
    });
    thread::scope(|scope| _ = scope.spawn(|| queue.shut_down()));
}

#[test] // S15 S8 C10
fn the_drop_of_a_key_may_call_the_queue_that_has_discarded_it() {
    calls(100, |queue, key| {
        queue.add_all((0..100).map(key));
        queue.shut_down_now();
        queue.shrink();
    });
}
