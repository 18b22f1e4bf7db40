//! Four producers and four consumers of a few keys, with delays, ended by a drain.
#![cfg(keyqueue_shuttle)]

use std::sync::Arc as StdArc;

use keyqueue::{Clock, MockClock};
use keyqueue_shuttle_tests::{
    Bell, Crew, Delivery, Ledger, MS, Queue, below, check, check_end, dawdle, once_in, queue,
};
use shuttle::sync::Arc;

/// No delay is longer.
const LONGEST: u64 = 3;

/// Keys that all add; the next four are one producer's each, and only delayed.
const SHARED: u64 = 4;
const KEYS: u64 = SHARED + 4;

struct Place {
    queue: Arc<Queue>,
    ledger: Ledger,
    clock: Clock,
    time: MockClock,
    /// Whether delays end by `fire_due` and not by the timer's own thread.
    manual: bool,
    /// Rung after each delivery.
    bell: Bell,
}

impl Place {
    fn new() -> Self {
        let manual = once_in(2);
        let (clock, time) = Clock::mock();
        let queue = queue(4, |builder| {
            let builder = builder.clock(clock.clone()).drain_delays(true);
            match manual {
                true => builder.manual_timers(),
                false => builder,
            }
        });
        Place {
            queue,
            ledger: Ledger::new(KEYS, true),
            clock,
            time,
            manual,
            bell: Bell::default(),
        }
    }

    fn produce(&self, own: u64) {
        let Place { queue, ledger, .. } = self;
        // Half-way through a tick: it ends with the tick, no earlier.
        let delay = MS * (1 + below(LONGEST)) as u32 - MS / 2;
        ledger.not_before(own, self.clock.now() + delay);
        ledger.add(own, || queue.add_after(ledger.key(own), delay));
        for _ in 0..4 {
            let number = below(SHARED);
            if once_in(4) {
                let delay = MS * below(LONGEST) as u32;
                ledger.add(number, || queue.add_after(ledger.key(number), delay));
            } else {
                ledger.add(number, || queue.add(ledger.key(number)));
            }
        }
    }

    fn work(&self, item: Delivery<'_>) {
        let Place { queue, ledger, .. } = self;
        let number = item.number;
        ledger.check_time(number, self.clock.now());
        ledger.begin(number);
        if number < SHARED && once_in(6) {
            ledger.add(number, || queue.add(ledger.key(number)));
        }
        dawdle(2);
        ledger.end(number);
        item.done();
        self.bell.ring();
    }

    /// Moves the clock past every delay that was set before, a tick at a time.
    fn pass_time(&self) {
        for _ in 0..LONGEST {
            self.time.advance(MS);
            if self.manual {
                self.queue.fire_due();
            }
        }
    }

    /// C5, D1, D4: waits for every delay to end by itself, and its key to be delivered.
    fn wait(&self) {
        self.pass_time();
        self.bell.wait_until(|| self.ledger.is_served());
    }

    fn drain(&self) {
        self.ledger.allow_early();
        self.queue.shut_down_with_drain();
        self.ledger.drained();
    }
}

/// C2 to C6, C10, D1, D3, D4, S3, S5: everything that was accepted is delivered, by one worker at a
/// time, and the drain returns when that is so and not before.
#[test]
fn a_drain_ends_a_crowd() {
    check("crowd", || {
        let place = StdArc::new(Place::new());
        let share = || StdArc::clone(&place);

        let mut producers = Crew::default();
        for own in SHARED..KEYS {
            let here = share();
            producers.thread("producer", move || here.produce(own));
        }
        let here = share();
        producers.thread("clock", move || here.pass_time());

        let mut workers = Crew::default();
        let work = || {
            let here = share();
            move |item: Delivery<'_>| here.work(item)
        };
        workers.getter(&place.queue, work());
        workers.getter(&place.queue, work());
        workers.blocker(&place.queue, work());
        workers.waiter(&place.queue, work());

        match below(3) {
            // Amid the adds, some of which it refuses,
            0 => {
                dawdle(30);
                place.drain();
                producers.join();
            }
            // amid the delays,
            1 => {
                producers.join();
                place.drain();
            }
            // or when nothing is left to be done.
            _ => {
                producers.join();
                place.wait();
                place.drain();
            }
        }
        workers.join();
        check_end(&place.queue, &place.ledger);
    });
}
