//! A ring of one, so that the overflow is always at work, among handles, cancels and sweeps.
#![cfg(keyqueue_shuttle)]

use std::sync::Arc as StdArc;

use keyqueue::{Added, Clock, GetError};
use keyqueue_shuttle_tests::{
    Crew, Delivery, History, Ledger, MS, Queue, below, check, check_end, dawdle, once_in, queue,
};
use shuttle::sync::Arc;

/// Keys that all add through handles.
const SHARED: u64 = 2;
/// Each producer adds this many keys once,
const ONCE: u64 = 4;
/// and this many after a delay, which it may cancel.
const DELAYED: u64 = 2;
const PRODUCERS: u64 = 4;
const KEYS: u64 = SHARED + PRODUCERS * (ONCE + DELAYED);

fn is_added_once(number: u64) -> bool {
    number >= SHARED && (number - SHARED) % (ONCE + DELAYED) < ONCE
}

struct Books {
    ledger: Ledger,
    history: History,
}

fn produce(queue: &Queue, books: &Books, producer: u64) {
    let Books { ledger, history } = books;
    let first = SHARED + producer * (ONCE + DELAYED);
    let shared = below(SHARED);
    let handle = queue.handle(ledger.key(shared));
    for number in first..first + ONCE {
        let from = history.now();
        if ledger.add(number, || queue.add(ledger.key(number))) == Added::Queued {
            history.added(number, from);
        }
        if once_in(2) {
            ledger.add(shared, || handle.add());
        }
    }
    for number in first + ONCE..first + ONCE + DELAYED {
        let added = queue.add_after(ledger.key(number), MS);
        ledger.count(number, added);
        dawdle(2);
        // D6: one of the two ends the delay; after a shut-down a third may have dropped it.
        if once_in(2) && queue.cancel(&number) {
            assert_eq!(added, Added::Delayed);
            ledger.cancelled(number);
        }
    }
}

/// Works on a key that was asked for at `from`.
fn work(item: Delivery<'_>, books: &Books, from: u64) {
    // Before anything else: what begins after this does not overlap with the taking.
    if is_added_once(item.number) {
        books.history.taken(item.number, from);
    }
    keyqueue_shuttle_tests::work(item, &books.ledger);
}

fn consume(queue: &Queue, books: &Books) {
    loop {
        // A getter that may wait has asked long before it gets a key, which says little about the order.
        let from = books.history.now();
        match queue.try_get() {
            Ok(item) => {
                work(item, books, from);
                continue;
            }
            Err(GetError::ShutDown) => return,
            Err(_) => books.history.missed(from),
        }
        let from = books.history.now();
        match queue.get() {
            Some(item) => work(item, books, from),
            None => return,
        }
    }
}

/// C1 to C6, C8, C10, C11, D4, D6, S3: what overflows keeps its order, nothing is lost in a refill or
/// a sweep, and a delay is ended once.
#[test]
fn a_drain_ends_what_overflows() {
    check("overflow", || {
        let (clock, time) = Clock::mock();
        let queue = queue(1, |builder| builder.clock(clock).manual_timers());
        let books = StdArc::new(Books {
            ledger: Ledger::new(KEYS, true),
            history: History::default(),
        });
        let share = || (Arc::clone(&queue), StdArc::clone(&books));

        let mut producers = Crew::default();
        for producer in 0..PRODUCERS {
            let (queue, books) = share();
            producers.thread("producer", move || produce(&queue, &books, producer));
        }
        let (driver, _) = share();
        producers.thread("clock", move || {
            for _ in 0..4 {
                dawdle(30);
                time.advance(MS);
                driver.fire_due();
            }
        });
        let (sweeper, _) = share();
        producers.thread("sweeper", move || {
            for _ in 0..3 {
                dawdle(20);
                sweeper.shrink();
                assert!(sweeper.len() <= KEYS as usize, "C8");
            }
        });

        let mut consumers = Crew::default();
        for _ in 0..3 {
            let (queue, books) = share();
            consumers.thread("consumer", move || consume(&queue, &books));
        }
        let (getter, theirs) = share();
        consumers.task(async move {
            loop {
                let from = theirs.history.now();
                match getter.get_async().await {
                    Some(item) => work(item, &theirs, from),
                    None => return,
                }
            }
        });
        let (drained, other) = share();
        let mut drainers = Crew::default();
        if once_in(2) {
            producers.join();
            producers = Crew::default();
        } else {
            dawdle(60);
        }
        drainers.task(async move {
            drained.drain_async().await;
            other.ledger.drained();
        });
        queue.shut_down_with_drain();
        books.ledger.drained();
        drainers.join();
        producers.join();
        consumers.join();
        books.history.check();
        check_end(&queue, &books.ledger);
    });
}
