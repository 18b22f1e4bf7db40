//! Values' `Drop`, and wakers of receipts and of puts that wait, each calling the queue (S15).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use super::{Lists, tracked};
use crate::common::calls::{Calls, everything};
use crate::common::timed::HOUR;
use crate::common::{poll, watchdog};
use keyqueue::limiter::NoLimit;
use keyqueue::{Added, Builder, Clock, Ended, Entry, Receipt, WorkQueue, merge};

/// A value whose drop calls the queue, unless that is gone.
struct Calling {
    queue: Weak<Queue>,
    calls: Arc<AtomicUsize>,
}

type Queue = WorkQueue<u64, Vec<Calling>>;

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade() {
            self.calls.fetch_add(1, Ordering::SeqCst);
            everything(&queue, |n| n);
            queue.remove(&7);
            queue.put(1, vec![Calling::quiet()]);
        }
    }
}

impl Calling {
    /// One that calls nothing.
    fn quiet() -> Self {
        let (queue, calls) = (Weak::new(), Arc::default());
        Calling { queue, calls }
    }
}

type Set = fn(Builder<u64, Vec<Calling>>) -> Builder<u64, Vec<Calling>>;

const SETS: [Set; 4] = [
    |builder| builder,
    |builder| builder.capacity(100).levels(2),
    |builder| {
        builder
            .group_by(|key| *key % 3)
            .group_limit(50)
            .capacity(1000)
    },
    |builder| builder.dispatch_rate(2.0, u32::MAX).supersede_delays(true),
];

#[test] // S15 V2
fn the_drop_of_a_value_may_call_the_queue() {
    let _watchdog = watchdog(30);
    type Step = (&'static str, fn(&Queue, Vec<Calling>));
    let steps: [Step; 7] = [
        ("done", |queue, value| {
            queue.put(1, value);
            queue.get().unwrap().done();
        }),
        ("retried", |queue, value| {
            queue.put(1, value);
            let _ = queue.get().unwrap().retry();
            queue.get().unwrap().done();
        }),
        ("cancelled", |queue, value| {
            queue.entry(1).after(HOUR).put(value);
            assert!(queue.cancel(&1));
        }),
        ("cleared", |queue, value| {
            queue.put(1, value);
            queue.clear();
        }),
        ("removed", |queue, value| {
            queue.put(1, value);
            drop(queue.remove(&1));
        }),
        ("refused", |queue, value| {
            queue.shut_down();
            assert_eq!(queue.put(1, value), Added::ShutDown);
        }),
        ("abandoned", |queue, value| {
            queue.put(1, value);
            queue.shut_down_now();
            queue.shrink();
        }),
    ];
    for set in SETS {
        for (name, step) in steps {
            let (clock, _time) = Clock::mock();
            let builder = WorkQueue::builder()
                .rate_limiter(NoLimit)
                .clock(clock)
                .manual_timers();
            let queue = Arc::new(set(builder.merge(merge::append)).build().unwrap());
            let calls = Arc::new(AtomicUsize::new(0));
            let value = Calling {
                queue: Arc::downgrade(&queue),
                calls: Arc::clone(&calls),
            };
            step(&queue, vec![value]);
            assert_eq!(calls.load(Ordering::SeqCst), 1, "{name}");
        }
    }
}

/// A value whose drop makes a call.
#[derive(Default)]
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|call| call());
    }
}

type OnDrops = WorkQueue<u64, OnDrop>;

/// Returns what calls the queue, also for key 1, and counts that.
fn calling(queue: &Arc<OnDrops>, calls: &Arc<AtomicUsize>) -> Box<dyn FnOnce() + Send> {
    let (queue, calls) = (Arc::downgrade(queue), Arc::clone(calls));
    Box::new(move || {
        if let Some(queue) = queue.upgrade() {
            everything(&queue, |n| n);
            queue.remove(&7);
            queue.put(1, OnDrop(None));
            calls.fetch_add(1, Ordering::SeqCst);
        }
    })
}

#[test] // S15
fn the_drop_of_a_value_that_a_newer_one_replaces_may_call_the_queue() {
    let _watchdog = watchdog(30);
    let none = || OnDrop(None);
    type Step = (&'static str, fn(&OnDrops, OnDrop));
    let replace: [Step; 8] = [
        ("put", |queue, newer| _ = queue.put(1, newer)),
        ("entry", |queue, newer| _ = queue.entry(1).put(newer)),
        ("by_reference", |queue, newer| {
            queue.entry_ref(&1).put(newer);
        }),
        ("handle", |queue, newer| {
            queue.handle(1).put(newer);
        }),
        ("handles_entry", |queue, newer| {
            queue.handle(1).entry().put(newer);
        }),
        ("delayed", |queue, newer| {
            queue.entry(1).after(HOUR).put(newer);
        }),
        ("refused", |queue, newer| {
            assert!(queue.entry(1).try_put(newer).is_ok());
        }),
        ("tracked", |queue, newer| {
            drop(tracked(queue, 1, newer));
        }),
    ];
    for capacity in [usize::MAX, 1] {
        for (name, replace) in replace {
            let builder = WorkQueue::builder()
                .rate_limiter(NoLimit)
                .merge(merge::latest);
            let queue = Arc::new(builder.capacity(capacity).build().unwrap());
            let calls = Arc::default();
            queue.put(1, OnDrop(Some(calling(&queue, &calls))));
            replace(&queue, none());
            assert_eq!(calls.load(Ordering::SeqCst), 1, "{name} {capacity}");
        }
    }
    // A retry, whose value is the older one.
    let queue = Arc::new(
        WorkQueue::builder()
            .rate_limiter(NoLimit)
            .merge(merge::latest)
            .build()
            .unwrap(),
    );
    let calls = Arc::default();
    queue.put(1, OnDrop(Some(calling(&queue, &calls))));
    let item = queue.get().unwrap();
    queue.put(1, none());
    assert!(item.retry().is_accepted());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

thread_local! {
    /// What the drop of the next default value calls.
    static DEFAULT: Cell<Option<Box<dyn FnOnce() + Send>>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Defaults;

impl Drop for Defaults {
    fn drop(&mut self) {
        DEFAULT.take().into_iter().for_each(|call| call());
    }
}

#[test] // S15 V4
fn the_drop_of_a_default_value_may_call_the_queue_when_its_update_panics() {
    let _watchdog = watchdog(30);
    type Queue = WorkQueue<u64, Defaults>;
    let bad = |_: &mut Defaults| resume_unwind(Box::new("a bad update"));
    type Update = fn(&Queue, fn(&mut Defaults));
    let updates: [Update; 3] = [
        |queue, bad| _ = queue.entry(1).update(bad),
        |queue, bad| _ = queue.entry(1).update(bad),
        |queue, bad| _ = queue.entry(1).after(HOUR).update(bad),
    ];
    for update in updates {
        let queue: Arc<Queue> =
            Arc::new(WorkQueue::builder().merge(merge::latest).build().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let (called, calls) = (Arc::clone(&calls), (Arc::downgrade(&queue), calls));
        DEFAULT.set(Some(Box::new(move || {
            let queue = calls.0.upgrade().unwrap();
            everything(&queue, |n| n);
            queue.remove(&1);
            calls.1.fetch_add(1, Ordering::SeqCst);
        })));
        assert!(catch_unwind(AssertUnwindSafe(|| update(&queue, bad))).is_err());
        assert_eq!(called.load(Ordering::SeqCst), 1);
    }
}

#[test] // S15 V4
fn the_drop_of_a_panic_of_the_merge_function_may_call_the_queue() {
    let _watchdog = watchdog(30);
    // The first merge panics, and what the value would have called its panic calls.
    let merge = |older: &mut OnDrop, _| {
        if let Some(call) = older.0.take() {
            resume_unwind(Box::new(OnDrop(Some(call))));
        }
    };
    let queue = Arc::new(
        WorkQueue::builder()
            .rate_limiter(NoLimit)
            .merge(merge)
            .build()
            .unwrap(),
    );
    let calls = Arc::default();
    queue.put(1, OnDrop(Some(calling(&queue, &calls))));
    let item = queue.get().unwrap();
    queue.put(1, OnDrop(None));
    assert!(item.retry().is_accepted());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A waker that puts a value for the key of the delivery that has ended.
struct Puts(Weak<Lists<u32>>);

impl Wake for Puts {
    fn wake(self: Arc<Self>) {
        if let Some(queue) = self.0.upgrade() {
            everything(&queue, |n| n as u32);
            queue.put(1, vec![5]);
        }
    }
}

#[test] // S15 V4
fn the_waker_of_a_receipt_may_put_a_value_for_its_key() {
    let _watchdog = watchdog(30);
    const BAD: u32 = 99;
    // A merge that panics in a retry ends the receipts of the newer value.
    let merge = |older: &mut Vec<u32>, newer| {
        if newer == [BAD] {
            std::panic::resume_unwind(Box::new("a bad value"));
        }
        *older = newer;
    };
    type End = (&'static str, fn(&Lists<u32>), Ended);
    let ends: [End; 4] = [
        ("done", |queue| queue.get().unwrap().done(), Ended::Done),
        ("cleared", |queue| _ = queue.clear(), Ended::Dropped),
        ("removed", |queue| _ = queue.remove(&1), Ended::Dropped),
        (
            "abandoned",
            |queue| _ = queue.shut_down_now(),
            Ended::Dropped,
        ),
    ];
    let builder = || WorkQueue::builder().rate_limiter(NoLimit);
    let new = || Arc::new(builder().merge(merge).build().unwrap());
    for (name, end, ended) in ends {
        let queue = new();
        let waker = Waker::from(Arc::new(Puts(Arc::downgrade(&queue))));
        let mut receipt = tracked(&queue, 1, vec![1]);
        assert!(poll(&mut receipt, &waker).is_pending());
        end(&queue);
        assert_eq!(receipt.ended(), Some(ended), "{name}");
    }
    let queue = new();
    let waker = Waker::from(Arc::new(Puts(Arc::downgrade(&queue))));
    queue.put(1, vec![1]);
    let item = queue.get().unwrap();
    let mut newer = tracked(&queue, 1, vec![BAD]);
    assert!(poll(&mut newer, &waker).is_pending());
    assert_eq!(item.retry(), Added::Merged);
    assert_eq!(newer.ended(), Some(Ended::Dropped));
}

#[test] // S15 V4
fn the_waker_of_a_receipt_may_put_a_value_when_its_own_put_panics() {
    fn check<X>(
        queue: &Arc<Lists<u32>>,
        (entry, mut receipt): (Entry<'_, u32, Vec<u32>, X>, Receipt),
        verb: impl FnOnce(Entry<'_, u32, Vec<u32>, X>),
    ) {
        let waker = Waker::from(Arc::new(Puts(Arc::downgrade(queue))));
        queue.put(1, vec![1]);
        assert!(poll(&mut receipt, &waker).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| verb(entry))).is_err());
        assert_eq!(receipt.ended(), Some(Ended::Dropped));
    }
    let _watchdog = watchdog(30);
    let merge = |_: &mut Vec<u32>, newer: Vec<u32>| {
        if newer == [99] {
            resume_unwind(Box::new("a bad value"));
        }
    };
    let bad = |_: &mut Vec<u32>| resume_unwind(Box::new("a bad update"));
    let new = || {
        Arc::new(
            WorkQueue::builder()
                .merge(merge)
                .capacity(1)
                .build()
                .unwrap(),
        )
    };
    let queue = new();
    check(&queue, queue.entry(1).tracked(), |entry| {
        _ = entry.put(vec![99]);
    });
    let queue = new();
    check(&queue, queue.entry(1).tracked(), |entry| {
        _ = entry.update(bad);
    });
    let queue = new();
    check(&queue, queue.entry(1).after(HOUR).tracked(), |entry| {
        _ = entry.put(vec![99]);
    });
    // Merges into what takes all the room.
    let queue = new();
    check(&queue, queue.entry(1).tracked(), |entry| {
        _ = entry.try_put(vec![99]);
    });
}

#[test] // S15 B2
fn the_waker_of_a_put_that_waits_may_call_the_queue() {
    let _watchdog = watchdog(30);
    type MakeRoom = (&'static str, fn(&Lists<u32>));
    let makers: [MakeRoom; 7] = [
        ("get", |queue| drop(queue.get())),
        ("merge", |queue| _ = queue.put(1, vec![])),
        ("update", |queue| _ = queue.entry(1).update(Vec::clear)),
        ("remove", |queue| _ = queue.remove(&1)),
        ("clear", |queue| _ = queue.clear()),
        ("shut_down", |queue| _ = queue.shut_down()),
        ("shut_down_now", |queue| _ = queue.shut_down_now()),
    ];
    for (name, make_room) in makers {
        let builder = WorkQueue::builder().merge(merge::latest);
        let builder = builder.capacity(10).weight(Vec::len);
        let queue: Arc<Lists<u32>> = Arc::new(builder.build().unwrap());
        queue.put(1, vec![0; 10]);
        let (calls, waker) = Calls::new(&queue, |queue| {
            everything(queue, |n| n as u32);
            queue.remove(&1);
            queue.clear();
        });
        let mut put = Box::pin(queue.entry(2).put_async(vec![0; 10]));
        assert!(poll(&mut put, &waker).is_pending(), "{name}");
        make_room(&queue);
        assert_eq!(calls.returned(), 1, "{name}");
    }
}
