//! What a thread did before it set a delay is visible to the delivery or the `cancel` that ends it.

use std::thread;
use std::time::Duration;

use keyqueue::Added;

use crate::common::timed::{MS, built};
use crate::race::{Number, Plain, race, rounds};
use crate::{KEY, Queue, fire, next, queue, read_in_next};

#[test] // D1 D4
fn the_delivery_sees_what_was_done_before_its_delay_was_set() {
    rounds(|| {
        let (queue, time) = queue();
        let data = Plain::default();
        let handle = queue.handle(KEY);
        race!(
            || data.write_then(|| assert_eq!(handle.add_after(MS), Added::Delayed)),
            || fire(&queue, &time),
            || read_in_next(&queue, &data),
        );
    });
}

#[test] // S5
fn the_delivery_sees_what_was_done_before_a_delay_that_a_drain_ends() {
    rounds(|| {
        let (queue, _time) = built(|builder| builder.drain_delays(true).shards(2));
        let data = Plain::default();
        let handle = queue.handle(KEY);
        race!(|| data.write_then(|| handle.add_after(MS)), || {
            // A delay that comes too late is refused, and nothing is delivered.
            let _ = queue.drain_timeout(Duration::ZERO);
            if let Ok(_item) = queue.try_get() {
                assert_eq!(data.read(), 1);
            }
        },);
    });
}

/// Delays the key again, to a later time, while `end` ends the delay that is pending and reads the
/// number if it did: either it reads the new number, or another delay is pending.
fn check_kept(end: impl Fn(&Queue, &Number) -> u64 + Sync) {
    rounds(|| {
        let (queue, time) = queue();
        let (number, seen) = (Number::default(), Number::default());
        let handle = queue.handle(KEY);
        handle.add_after(MS);
        time.advance(MS);
        race!(
            || number.write_then(|| assert_eq!(handle.add_after(MS), Added::Delayed)),
            || seen.write(end(&queue, &number)),
        );
        if !queue.cancel(&KEY) {
            assert_eq!(seen.read(), 1, "the delay that was kept was not seen");
        }
    });
}

#[test] // D3 D4
fn a_delivery_sees_what_was_done_before_a_delay_that_was_not_earlier() {
    check_kept(|queue, number| {
        assert_eq!(queue.fire_due(), 1);
        let item = next(queue);
        let seen = number.read();
        item.done();
        seen
    });
}

#[test] // D3 D6
fn a_canceller_sees_what_was_done_before_a_delay_that_was_not_earlier() {
    check_kept(|queue, number| {
        assert!(queue.cancel(&KEY));
        number.read()
    });
}

#[test] // D6
fn a_canceller_sees_what_was_done_before_the_delay_that_it_cancels() {
    rounds(|| {
        let (queue, data) = (queue().0, Plain::default());
        let handle = queue.handle(KEY);
        race!(
            || data.write_then(|| assert_eq!(handle.add_after(MS), Added::Delayed)),
            || {
                while !queue.cancel(&KEY) {
                    thread::yield_now();
                }
                assert_eq!(data.read(), 1);
            },
        );
    });
}
