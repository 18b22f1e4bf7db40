//! Many getters of every kind, some of which give up. What they give up must reach the others.
#![cfg(keyqueue_shuttle)]

use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keyqueue_shuttle_tests::{
    Bell, Crew, Delivery, Ledger, Queue, below, check, check_end, dawdle, once_in, queue, work,
};
use shuttle::sync::Arc;

/// Each round has producers of their own keys,
const PRODUCERS: u64 = 3;
/// two each,
const OWN: u64 = 2;
/// and ends when all of them are done, so that no later key wakes a getter that should have been woken before.
const ROUNDS: u64 = 4;
const KEYS: u64 = PRODUCERS * OWN;

/// What the getters share.
struct Place {
    queue: Arc<Queue>,
    ledger: Ledger,
    /// Rung after each delivery.
    bell: Bell,
}

impl Place {
    fn work(&self, item: Delivery<'_>) {
        work(item, &self.ledger);
        self.bell.ring();
    }
}

fn produce(place: &Place, producer: u64) {
    let Place { queue, ledger, .. } = place;
    for number in producer * OWN..=producer * OWN + below(OWN) {
        ledger.add(number, || queue.add(ledger.key(number)));
        if once_in(3) {
            ledger.add(number, || queue.add(ledger.key(number)));
        }
    }
}

/// A thread's worth of keys at once.
fn produce_in_bulk(place: &Place, producer: u64) {
    let keys: Vec<_> = (producer * OWN..(producer + 1) * OWN).collect();
    place.ledger.add_all(&place.queue, &keys);
}

/// Waits for so short a time that it gives up mostly.
fn try_for_a_while(place: &Place) {
    if let Ok(item) = place.queue.get_timeout(Duration::ZERO) {
        place.work(item);
    }
}

/// Polls a future a few times, with a waker that does nothing, and drops it.
fn drop_a_future(place: &Place) {
    let mut task = pin!(place.queue.get_async());
    for _ in 0..=below(2) {
        match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => return place.work(item.expect("the queue is open")),
            // Long enough for others to come to the list behind it.
            Poll::Pending => dawdle(16),
        }
    }
}

fn get_batches(place: &Place) {
    while let Some(batch) = place.queue.get_batch(2) {
        assert!((1..=2).contains(&batch.len()), "C12: {}", batch.len());
        for item in batch {
            place.work(item);
        }
    }
}

/// C3, C5, C9, C12: no key lies beside a getter that sleeps, whoever has given up before.
#[test]
fn no_key_is_left_beside_a_sleeper() {
    check("waiting", || {
        let ring = if once_in(2) { 1 } else { 4 };
        let place = StdArc::new(Place {
            queue: queue(ring, |builder| builder),
            ledger: Ledger::new(KEYS, true),
            bell: Bell::default(),
        });
        let share = || StdArc::clone(&place);

        let mut patient = Crew::default();
        let work = || {
            let here = share();
            move |item: Delivery<'_>| here.work(item)
        };
        for kind in 0..=below(below(4) + 1) {
            match kind {
                0 => patient.getter(&place.queue, work()),
                1 => patient.blocker(&place.queue, work()),
                2 => patient.waiter(&place.queue, work()),
                _ => {
                    let here = share();
                    patient.thread("batch", move || get_batches(&here));
                }
            }
        }
        for round in 0..ROUNDS {
            let mut hasty = Crew::default();
            for _ in 0..2 {
                // Each may also find what another has left behind.
                if once_in(2) {
                    let here = share();
                    hasty.thread("hasty", move || try_for_a_while(&here));
                }
                let here = share();
                hasty.thread("dropper", move || drop_a_future(&here));
            }
            for producer in 0..PRODUCERS {
                let here = share();
                hasty.thread("producer", move || match producer == round {
                    true => produce_in_bulk(&here, producer),
                    false => produce(&here, producer),
                });
            }
            hasty.join();
            place.bell.wait_until(|| place.ledger.is_served());
        }
        place.queue.shut_down();
        patient.join();
        check_end(&place.queue, &place.ledger);
    });
}
