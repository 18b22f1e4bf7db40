//! What one thread did before a call is visible to the threads that the contract names.
//!
//! | done before | visible to | promises |
//! | --- | --- | --- |
//! | an accepted add, of whatever kind | the delivery that serves it | C4, C5, C11, D3, D4 |
//! | `done` | the key's next delivery, whichever thread adds the key again | C3, C5 |
//! | `add_after` | the thread whose `cancel` returns true | D6 |
//! | `done` | every thread whose drain returns | S3 |
//! | `done`, or the drop of a handle | the drop of the key | C10 |
//! | a put | the delivery that has its value, and the drop of the key | V2, C10 |
//!
//! The threads of a test share the queue and nothing else that orders memory. Two kinds of data
//! show whether the queue does:
//!
//! * A [`Plain`] cell is not atomic. If a read is not ordered after the write, Miri reports a data
//!   race, whatever value was read.
//! * A [`Number`] is read and written relaxed. An add that is merged and a delay that is kept write
//!   nothing: a pair of full fences decides whether such an add, or the delivery, comes first.
//!   Fences alone order atomics, not plain cells, so what they promise is that the delivery does
//!   not read an old number. Miri returns old numbers where the orderings allow it.
//!
//! What would order the threads besides the queue's promises is avoided: all are started before
//! any begins; one that has to wait for another polls the queue, or a relaxed [`Flag`]; the queue is
//! built and its key interned before.
//!
//! Natively the rounds find little, least on x86. Miri finds missing orderings and fences:
//!
//! ```text
//! MIRIFLAGS="-Zmiri-many-seeds=0..20 -Zmiri-preemption-rate=0.05 \
//!     -Zmiri-address-reuse-cross-thread-rate=0" \
//!     cargo +nightly miri test -p keyqueue --test visibility
//! ```
//!
//! The last flag is needed: a thread that gets memory that another has freed is ordered after it.
//!
//! Miri orders a `SeqCst` fence after all earlier ones, which C++ does not. So a fence can hide a
//! missing Acquire from Miri, as in loom, and the threads here avoid fences between the write and
//! the read. One is unavoidable: an add ends with a fence, in the notification of getters. The unit
//! tests of the state check what comes before it, without a queue. Nor does Miri find a missing
//! fence at the end of a delay: a delivery has one, too.

#[path = "../common/mod.rs"]
mod common;
mod delays;
mod race;
mod values;

use std::hash::{Hash, Hasher};
use std::thread;
use std::time::Duration;

use common::timed::{MS, built};
use keyqueue::{Added, Item, KeyHandle, MockClock, WorkQueue};
use race::{Flag, Number, Plain, race, rounds};

type Queue = WorkQueue<u64>;

const KEY: u64 = 7;

// ---- queues ---------------------------------------------------------------------------------

/// A queue with manual timers, and its clock.
fn queue() -> (Queue, MockClock) {
    built(|builder| builder.shards(2).ring(2))
}

/// The next delivery, without sleeping: a thread that sleeps is woken with more synchronisation
/// than a delivery needs.
fn next<K>(queue: &WorkQueue<K>) -> Item<'_, K> {
    loop {
        match queue.try_get() {
            Ok(item) => return item,
            Err(_) => thread::yield_now(),
        }
    }
}

/// The ways to add a key without a handle to it; under Miri one, which stands for both: they differ
/// in how they find the key.
const BY_KEY: &[fn(&Queue)] = if cfg!(miri) {
    &[|queue| assert!(queue.add(KEY).is_accepted())]
} else {
    &[
        |queue| assert!(queue.add(KEY).is_accepted()),
        |queue| assert!(queue.entry_ref(&KEY).add().is_accepted()),
    ]
};

/// Reads the data in the next delivery.
fn read_in_next(queue: &Queue, data: &Plain) {
    let item = next(queue);
    assert_eq!(data.read(), 1);
    item.done();
}

/// Ends the delay that is pending, or is about to be.
fn fire(queue: &Queue, time: &MockClock) {
    while queue.fire_due() == 0 {
        time.advance(MS);
        thread::yield_now();
    }
}

// ---- an add, and the delivery that serves it ------------------------------------------------

#[test] // C5
fn the_delivery_of_a_new_or_an_idle_key_sees_what_was_done_before_its_add() {
    for add in BY_KEY {
        for key in [KEY, KEY + 1] {
            rounds(|| {
                let (queue, data) = (queue().0, Plain::default());
                assert_eq!(queue.add(key), Added::Queued);
                next(&queue).done();
                let read = || read_in_next(&queue, &data);
                race!(|| data.write_then(|| add(&queue)), read);
            });
        }
    }
}

#[test] // C11
fn the_delivery_of_an_idle_key_sees_what_was_done_before_an_add_through_a_handle() {
    rounds(|| {
        let (queue, data) = (queue().0, Plain::default());
        let handle = queue.handle(KEY);
        race!(
            || data.write_then(|| assert_eq!(handle.add(), Added::Queued)),
            || read_in_next(&queue, &data),
        );
    });
}

/// The key is being processed when it is added. Its worker reads that from a flag, which orders
/// nothing, and finishes; then another thread has the delivery.
fn check_deferred(add: impl Fn(&Queue, &KeyHandle<u64>) + Sync) {
    rounds(|| {
        let (queue, time) = queue();
        let (data, deferred) = (Plain::default(), Flag::default());
        let handle = queue.handle(KEY);
        handle.add_after(MS);
        time.advance(MS);
        handle.add();
        let item = next(&queue);
        race!(
            || {
                data.write(1);
                add(&queue, &handle);
                deferred.raise();
            },
            || {
                deferred.wait();
                item.done();
            },
            || read_in_next(&queue, &data),
        );
    });
}

#[test] // C4 C11 D4
fn the_delivery_after_done_sees_what_was_done_before_an_add_of_the_processing_key() {
    for add in BY_KEY {
        check_deferred(|queue, _| add(queue));
    }
    check_deferred(|_, handle| assert_eq!(handle.add(), Added::Deferred));
    check_deferred(|queue, _| assert_eq!(queue.fire_due(), 1));
}

/// Adds the queued key while a delivery of it may begin: either that delivery reads the number,
/// or there is another one.
fn check_merged(dirty: bool, add: impl Fn(&Queue, &KeyHandle<u64>) -> Added + Sync) {
    rounds(|| {
        let queue = queue().0;
        let (number, seen) = (Number::default(), Number::default());
        let handle = queue.handle(KEY);
        handle.add();
        let held = dirty.then(|| {
            let item = next(&queue);
            handle.add();
            item
        });
        race!(
            || number.write_then(|| assert!(add(&queue, &handle).is_accepted())),
            || {
                drop(held);
                let item = next(&queue);
                seen.write(number.read());
                item.done();
            },
        );
        if queue.try_get().is_err() {
            assert_eq!(seen.read(), 1, "no delivery saw the add");
        }
    });
}

#[test] // C2 C5 C11
fn a_delivery_sees_what_was_done_before_an_add_that_was_merged() {
    for dirty in [false, true] {
        check_merged(dirty, |queue, _| queue.add(KEY));
        check_merged(dirty, |_, handle| handle.add());
    }
}

// ---- done, and the next delivery ------------------------------------------------------------

#[test] // C3 C4
fn the_next_delivery_of_a_dirty_key_sees_what_the_worker_before_it_did() {
    rounds(|| {
        let (queue, data) = (queue().0, Plain::default());
        queue.add(KEY);
        let item = next(&queue);
        queue.add(KEY);
        let read = || read_in_next(&queue, &data);
        race!(|| data.write_then(|| item.done()), read);
    });
}

/// One thread works on the key and finishes it, another adds it again, a third has the delivery.
fn check_again(pinned: bool, add: impl Fn(&Queue) + Sync) {
    rounds(|| {
        let (queue, time) = queue();
        let (data, idle) = (Plain::default(), Flag::default());
        let _handle = pinned.then(|| queue.handle(KEY));
        queue.add(KEY);
        let item = next(&queue);
        if pinned {
            queue.add_after(KEY, MS);
            time.advance(MS);
        }
        race!(
            || {
                data.write(1);
                item.done();
                idle.raise();
            },
            || {
                idle.wait();
                add(&queue);
            },
            || read_in_next(&queue, &data),
        );
    });
}

#[test] // C3 C5 C11
fn the_next_delivery_sees_what_the_worker_before_it_did_whoever_adds_the_idle_key() {
    for add in BY_KEY {
        check_again(false, add);
    }
    check_again(true, |queue| assert!(queue.handle(KEY).add().is_accepted()));
    check_again(true, |queue| assert_eq!(queue.fire_due(), 1));
}

#[test] // C3 D4
fn a_retry_sees_what_the_worker_before_it_did() {
    rounds(|| {
        let (queue, time) = queue();
        let data = Plain::default();
        queue.add(KEY);
        let item = next(&queue);
        race!(
            || data.write_then(|| assert_eq!(item.retry_after(MS), Added::Delayed)),
            || fire(&queue, &time),
            || read_in_next(&queue, &data),
        );
    });
}

// ---- done, and the end ----------------------------------------------------------------------

/// Two threads drain, and read what two workers did before they finished: perhaps before the
/// shut-down or, if `late`, after it has begun, mostly when it has counted the keys.
fn check_drained(late: bool, drain: impl Fn(&Queue) + Sync) {
    rounds(|| {
        let queue = queue().0;
        let data: [Plain; 2] = Default::default();
        queue.add_all([1, 2]);
        let (first, second) = (next(&queue), next(&queue));
        let work = |data: &Plain, item: Item<'_, u64>| {
            if late {
                while !queue.is_shutting_down() {
                    thread::yield_now();
                }
                (0..20).for_each(|_| thread::yield_now());
            }
            data.write_then(|| item.done());
        };
        let drain = || {
            drain(&queue);
            assert_eq!([data[0].read(), data[1].read()], [1, 1]);
        };
        race!(
            || work(&data[0], first),
            || work(&data[1], second),
            drain,
            drain,
        );
    });
}

#[test] // S3 S7
fn who_drains_sees_what_the_workers_did() {
    for late in [false, true] {
        check_drained(late, |queue| _ = queue.shut_down_with_drain());
    }
    check_drained(true, |queue| {
        pollster::block_on(queue.drain_async());
    });
    check_drained(true, |queue| {
        while !queue.drain_timeout(Duration::ZERO).is_finished() {
            thread::yield_now();
        }
    });
}

// ---- done, and the drop of the key ----------------------------------------------------------

/// A key with data in it, which its drop reads.
struct Noted(&'static Flag, Plain);

impl Hash for Noted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KEY.hash(state);
    }
}

impl PartialEq for Noted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Noted {}

impl Drop for Noted {
    fn drop(&mut self) {
        assert_eq!(self.1.read(), 1);
        self.0.raise();
    }
}

/// Shrinks the queue until the key is dropped.
fn shrink(queue: &WorkQueue<Noted>, dropped: &Flag) {
    while !dropped.is_raised() {
        queue.shrink();
        thread::yield_now();
    }
}

#[test] // C10
fn the_drop_of_a_key_sees_what_its_last_worker_did() {
    static DROPPED: Flag = Flag::new();
    rounds(|| {
        DROPPED.lower();
        let queue = WorkQueue::new();
        queue.add(Noted(&DROPPED, Plain::default()));
        let item = next(&queue);
        race!(
            || {
                item.1.write(1);
                item.done();
            },
            || shrink(&queue, &DROPPED),
        );
    });
}

#[test] // C10 C11
fn the_drop_of_a_key_sees_what_was_done_through_its_last_handle() {
    static DROPPED: Flag = Flag::new();
    rounds(|| {
        DROPPED.lower();
        let queue = WorkQueue::new();
        let handle = queue.handle(Noted(&DROPPED, Plain::default()));
        race!(
            || {
                handle.key().1.write(1);
                drop(handle);
            },
            || shrink(&queue, &DROPPED),
        );
    });
}
