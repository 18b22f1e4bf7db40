//! Groups with a limit, and levels, among getters of every kind, holds and sweeps.
#![cfg(keyqueue_shuttle)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keyqueue_shuttle_tests::{
    Crew, Delivery, Key, Ledger, Queue, below, check, check_end, dawdle, once_in, queue,
};
use shuttle::sync::Arc;

const KEYS: u64 = 6;
const GROUPS: u64 = 2;
const ADDS: u64 = 6;
/// The most keys of a group in flight.
const LIMIT: usize = 1;

struct Books {
    ledger: Ledger,
    in_flight: [AtomicUsize; GROUPS as usize],
}

fn group(key: &Key) -> u64 {
    key.number % GROUPS
}

fn produce(queue: &Queue, books: &Books) {
    for _ in 0..ADDS {
        let number = below(KEYS);
        let level = below(2) as usize;
        let ledger = &books.ledger;
        ledger.add(number, || {
            queue.entry(ledger.key(number)).level(level).add()
        });
    }
}

fn work(item: Delivery<'_>, books: &Books) {
    let in_flight = &books.in_flight[group(&item) as usize];
    // Ordering: Relaxed; counts, and one thread runs all.
    let before = in_flight.fetch_add(1, Ordering::Relaxed);
    assert!(
        before < LIMIT,
        "G2: {before} keys of a group were in flight already"
    );
    books.ledger.begin(item.number);
    dawdle(2);
    books.ledger.end(item.number);
    // Ordering: Relaxed; as above.
    in_flight.fetch_sub(1, Ordering::Relaxed);
    item.done();
}

/// C2 to C6, C9, G1 to G4, G6, P3: every accepted add is delivered, no group exceeds its limit, and no getter
/// sleeps while a group may deliver a key.
#[test]
fn groups_keep_their_limits() {
    check("turns", || {
        let queue = queue(1, |builder| {
            builder.levels(2).group_by(group).group_limit(LIMIT)
        });
        let books = StdArc::new(Books {
            ledger: Ledger::new(KEYS, true),
            in_flight: Default::default(),
        });
        let share = || (Arc::clone(&queue), StdArc::clone(&books));

        let mut producers = Crew::default();
        for _ in 0..3 {
            let (queue, books) = share();
            producers.thread("producer", move || produce(&queue, &books));
        }
        let (sweeper, _) = share();
        producers.thread("sweeper", move || {
            for _ in 0..4 {
                dawdle(20);
                sweeper.shrink();
            }
        });
        let (holder, _) = share();
        producers.thread("holder", move || {
            for _ in 0..2 {
                let group = below(GROUPS);
                assert!(holder.hold_group(&group, Duration::MAX));
                dawdle(20);
                assert!(holder.hold_group(&group, Duration::ZERO));
            }
        });
        let mut getters = Crew::default();
        let works = || {
            let books = StdArc::clone(&books);
            move |item: Delivery<'_>| work(item, &books)
        };
        getters.getter(&queue, works());
        getters.getter(&queue, works());
        getters.blocker(&queue, works());
        getters.waiter(&queue, works());

        if once_in(2) {
            producers.join();
            producers = Crew::default();
        }
        queue.shut_down_with_drain();
        producers.join();
        getters.join();
        check_end(&queue, &books.ledger);
    });
}

/// C10, G3: a group whose keys are taken back while it has its turn is not freed before that.
#[test]
fn groups_may_be_cleared() {
    check("cleared turns", || {
        let queue = queue(1, |builder| builder.group_by(group));
        let books = StdArc::new(Ledger::new(KEYS, true));
        let mut crew = Crew::default();
        for _ in 0..2 {
            let (adds, ledger) = (Arc::clone(&queue), StdArc::clone(&books));
            crew.thread("producer", move || {
                for _ in 0..ADDS {
                    adds.add(ledger.key(below(KEYS)));
                    dawdle(2);
                }
            });
            let queue = Arc::clone(&queue);
            crew.thread("clearer", move || {
                for _ in 0..4 {
                    queue.clear();
                    queue.shrink();
                    dawdle(4);
                    drop(queue.try_get());
                }
            });
        }
        crew.join();
        queue.clear();
        assert_eq!(queue.len(), 0);
        queue.shrink();
        assert_eq!(books.alive(), 0, "C10: keys that are not needed");
    });
}
