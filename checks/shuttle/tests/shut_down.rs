//! A shut-down of any kind, at any moment, amid adds, delays, handles and deliveries.
#![cfg(keyqueue_shuttle)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keyqueue::{Added, Clock, GetError};
use keyqueue_shuttle_tests::{
    Crew, Delivery, Ledger, MS, Queue, below, check, check_end, dawdle, once_in, queue, work,
};
use shuttle::sync::Arc;

/// Keys that all add.
const SHARED: u64 = 3;
const PRODUCERS: u64 = 3;
/// Each producer adds this many own keys once, and as many others after a delay.
const OWN: u64 = 3;
/// The first that is delayed.
const DELAYED: u64 = SHARED + PRODUCERS * OWN;
const DRAINERS: usize = 3;
const KEYS: u64 = DELAYED + PRODUCERS * OWN;

fn produce(queue: &Queue, ledger: &Ledger, producer: u64) {
    let shared = below(SHARED);
    let handle = queue.handle(ledger.key(shared));
    for own in producer * OWN..(producer + 1) * OWN {
        let (once, delayed, number) = (SHARED + own, DELAYED + own, below(SHARED));
        ledger.count(delayed, queue.add_after(ledger.key(delayed), MS));
        ledger.add(once, || queue.add(ledger.key(once)));
        ledger.add(number, || queue.add(ledger.key(number)));
        ledger.add(shared, || handle.add());
    }
    if queue.is_shutting_down() {
        assert_eq!(handle.add(), Added::ShutDown, "C11");
        assert_eq!(queue.add(ledger.key(shared)), Added::ShutDown, "S1");
    }
}

/// Works on a key. One that is shared is made dirty now and then (S2).
fn work_and_add(item: Delivery<'_>, queue: &Queue, ledger: &Ledger, over: bool) {
    assert!(!over, "S1: a key after the end");
    let number = item.number;
    if number >= SHARED || once_in(2) {
        return work(item, ledger);
    }
    ledger.begin(number);
    ledger.add(number, || queue.add(ledger.key(number)));
    ledger.end(number);
}

/// Ends the queue in one of several ways; returns how many delays that dropped, where it is known.
fn close(queue: &Arc<Queue>, ledger: &StdArc<Ledger>) -> Option<u64> {
    if once_in(3) {
        return Some(queue.shut_down().delayed as u64);
    }
    // A thread that holds a key until all drainers have returned has to release them.
    let release = once_in(2);
    let held = if release { queue.try_get().ok() } else { None };
    if let Some(item) = &held {
        ledger.begin(item.number);
    }
    let waiting = StdArc::new(AtomicUsize::new(DRAINERS));
    let mut drainers = Crew::default();
    for drainer in 0..DRAINERS {
        let (queue, ledger) = (Arc::clone(queue), StdArc::clone(ledger));
        let waiting = StdArc::clone(&waiting);
        let returned = move || _ = waiting.fetch_sub(1, Ordering::Relaxed);
        if drainer == 0 {
            drainers.task(async move {
                queue.drain_async().await;
                returned();
            });
        } else {
            drainers.thread("drainer", move || {
                if queue.drain_timeout(Duration::MAX).is_finished() {
                    ledger.drained();
                }
                returned();
            });
        }
    }
    dawdle(20);
    // S4: each releases those who drain by then.
    while release && waiting.load(Ordering::Relaxed) > 0 {
        queue.shut_down();
        dawdle(20);
    }
    drainers.join();
    if let Some(item) = held {
        ledger.end(item.number);
        item.done();
    }
    None
}

/// C3, C5, C11, S1 to S6: what was accepted is delivered, what comes later is refused, every
/// getter and drainer that waits for the end returns, and nothing comes after it.
#[test]
fn a_shut_down_ends_anything() {
    check("shut_down", || {
        let (clock, time) = Clock::mock();
        let ledger = StdArc::new(Ledger::new(KEYS, true));
        // A getter has received `None`.
        let over = StdArc::new(AtomicBool::new(false));
        let queue = queue(2, |builder| builder.clock(clock));
        let share = || (Arc::clone(&queue), StdArc::clone(&ledger));

        let mut crew = Crew::default();
        for producer in 0..PRODUCERS {
            let (queue, ledger) = share();
            crew.thread("producer", move || produce(&queue, &ledger, producer));
        }
        crew.thread("clock", move || {
            dawdle(20);
            time.advance(MS);
        });
        for _ in 0..2 {
            let (queue, ledger) = share();
            let over = StdArc::clone(&over);
            crew.thread("getter", move || {
                loop {
                    let was_over = over.load(Ordering::Relaxed);
                    match queue.get() {
                        Some(item) => work_and_add(item, &queue, &ledger, was_over),
                        None => return over.store(true, Ordering::Relaxed),
                    }
                }
            });
        }
        let (getter, books) = share();
        crew.task(async move {
            loop {
                let was_over = over.load(Ordering::Relaxed);
                match getter.get_async().await {
                    Some(item) => work_and_add(item, &getter, &books, was_over),
                    None => return over.store(true, Ordering::Relaxed),
                }
            }
        });

        dawdle(60);
        let dropped = close(&queue, &ledger);
        crew.join();
        if let Some(dropped) = dropped {
            let of_all = |count: fn(&Ledger, u64) -> u64| -> u64 {
                (DELAYED..KEYS).map(|number| count(&ledger, number)).sum()
            };
            let (delays, delivered) = (of_all(Ledger::delays), of_all(Ledger::deliveries));
            assert_eq!(delivered + dropped, delays, "S5: {dropped} were reported");
        }
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
        check_end(&queue, &ledger);
    });
}
