//! Adds that wait for the retry of their key (V7), without values; `tests/values/held.rs` has those with values. The test
//! advances the clock, and does not sleep.

use std::time::Duration;

use crate::common::counted::Alive;
use crate::common::take_all;
use crate::common::timed::{HOUR, MS, after, built, secs};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Outcome, Verdict, Workers};
use keyqueue::{Added, Builder, DelayPolicy, Full, MockClock, State, WorkQueue};

type Queue = WorkQueue<u64>;

fn holds(set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> (Queue, MockClock) {
    built(|builder| set(builder.adds_wait_for_retries(true)))
}

/// The same, where key 1 fails, and is retried in an hour.
fn failed(set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> (Queue, MockClock) {
    let (queue, time) = holds(set);
    fail(&queue, HOUR);
    (queue, time)
}

/// Key 1 fails.
fn fail(queue: &Queue, delay: Duration) {
    queue.add(1);
    let item = queue.get().unwrap();
    assert_eq!(item.retry_after(delay), Added::Delayed);
}

#[track_caller]
fn assert_waits(queue: &Queue, time: &MockClock) {
    assert_eq!((queue.len(), queue.state(&1)), (0, Some(State::Idle)));
    assert_eq!(queue.counts().retrying, 1);
    assert!(after(queue, time, HOUR - MS).is_empty());
    assert_eq!(after(queue, time, MS), [1]);
    assert_eq!(queue.counts().delayed, 0);
    assert!(after(queue, time, HOUR).is_empty());
}

#[test] // V7 C6
fn an_add_of_any_form_waits_for_the_retry_of_its_key() {
    type Add = fn(&Queue) -> Added;
    let adds: [Add; 9] = [
        |queue| queue.add(1),
        |queue| queue.entry_ref(&1).add(),
        |queue| queue.handle(1).add(),
        |queue| queue.entry(1).add(),
        |queue| queue.entry_ref(&1).wait().add(),
        |queue| queue.handle(1).entry().try_add().unwrap(),
        |queue| queue.put(1, ()),
        |queue| queue.add_after(1, Duration::ZERO),
        |queue| queue.add_rate_limited(1),
    ];
    for (nth, add) in adds.into_iter().enumerate() {
        for supersede in [false, true] {
            let (queue, time) = failed(|builder| builder.capacity(1).supersede_delays(supersede));
            assert_eq!(add(&queue), Added::Delayed, "{nth}");
            assert_eq!(add(&queue), Added::Delayed, "{nth}");
            assert_waits(&queue, &time);
            assert_eq!(add(&queue), Added::Queued, "{nth}: it is no retry any more");
        }
    }
    let (queue, time) = failed(|builder| builder);
    assert_eq!(queue.add_all([1, 1, 2]), 1);
    assert_eq!(take_all(&queue), [2]);
    assert_waits(&queue, &time);
}

#[test] // V7
fn what_makes_a_key_dirty_that_fails_waits_for_its_retry() {
    for supersede in [false, true] {
        let (queue, time) = holds(|builder| builder.supersede_delays(supersede).timing(true));
        queue.add(1);
        let item = queue.get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        assert_eq!(item.retry_after(HOUR), Added::Delayed);
        assert_waits(&queue, &time);
    }
}

#[test] // V7 D2
fn a_retry_without_a_delay_is_an_add() {
    let (queue, time) = holds(|builder| builder);
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add(1);
    assert_eq!(item.retry_after(Duration::ZERO), Added::Merged);
    assert_eq!(queue.add(1), Added::Merged);
    assert_eq!(after(&queue, &time, HOUR), [1]);
}

#[test] // V7
fn only_a_retry_is_waited_for() {
    let (queue, time) = holds(|builder| builder);
    queue.add_after(1, HOUR);
    assert_eq!(queue.add(1), Added::Queued);
    let item = queue.get().unwrap();
    assert_eq!(queue.add(1), Added::Deferred);
    item.done();
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(after(&queue, &time, HOUR), [1]);

    // Superseded as without the setting.
    let (queue, time) = holds(|builder| builder.supersede_delays(true));
    queue.add_after(1, HOUR);
    assert_eq!(queue.add(1), Added::Queued);
    assert_eq!(take_all(&queue), [1]);
    assert!(after(&queue, &time, HOUR).is_empty());
}

#[test] // V7 C4 C5
fn a_delay_that_is_no_retry_leaves_a_dirty_key_dirty() {
    for supersede in [false, true] {
        let (queue, time) = holds(|builder| builder.supersede_delays(supersede));
        queue.add(1);
        let item = queue.get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        assert!(queue.add_after(1, HOUR).is_accepted());
        item.done();
        assert_eq!(take_all(&queue), [1]);
        let again = after(&queue, &time, HOUR).len();
        assert_eq!(again, usize::from(!supersede));
    }
}

#[test] // V7 C10
fn adds_that_wait_for_a_retry_keep_no_key() {
    let alive = Alive::default();
    let (queue, time) = built(|builder| builder.levels(4).adds_wait_for_retries(true));
    queue.entry(alive.of(1)).level(3).add();
    assert_eq!(queue.get().unwrap().retry_after(HOUR), Added::Delayed);
    for level in [3, 2, 2, 1] {
        let add = queue.entry(alive.of(1)).level(level).add();
        assert_eq!(add, Added::Delayed);
        assert_eq!(queue.handle(alive.of(1)).add(), Added::Delayed);
    }
    time.advance(HOUR);
    assert_eq!(queue.fire_due(), 1);
    queue.get().unwrap().done();
    queue.shrink();
    assert_eq!(alive.count(), 0);
}

#[test] // V7 D3
fn no_delay_of_a_key_adds_it_before_its_retry_is_due() {
    use DelayPolicy::{Earliest, KeepFirst, Latest, Replace};
    // A delay that comes later, and is due before or after the retry in an hour; and the hour in which the key comes.
    for (policy, hours, comes) in [
        (Earliest, 0, 1),
        (Earliest, 2, 1),
        (Latest, 0, 1),
        (Latest, 2, 2),
        (Replace, 0, 1),
        (Replace, 2, 2),
        (KeepFirst, 0, 1),
        (KeepFirst, 2, 1),
    ] {
        for retry_is_first in [true, false] {
            let (queue, time) = holds(|builder| builder.delay_policy(policy).capacity(4));
            let delay = hours * HOUR + secs(1);
            queue.add(1);
            let item = queue.get().unwrap();
            let comes = match retry_is_first {
                true => {
                    assert_eq!(item.retry_after(HOUR), Added::Delayed);
                    assert_eq!(queue.add_after(1, delay), Added::Delayed);
                    comes
                }
                // The other way round, the policies have it the other way round.
                false => {
                    assert_eq!(queue.add_after(1, delay), Added::Delayed);
                    assert_eq!(item.retry_after(HOUR), Added::Delayed);
                    match (policy, hours) {
                        (Latest | KeepFirst, 2) => 2,
                        _ => 1,
                    }
                }
            };
            let case = format!("{policy:?} {hours} {retry_is_first}");
            assert_eq!(queue.counts().retrying, 1, "{case}");
            assert_eq!(queue.add(1), Added::Delayed, "{case}");
            for hour in 0..3 {
                assert_eq!(
                    queue.fire_due(),
                    usize::from(hour == 1 && comes == 1),
                    "{case}"
                );
                time.advance(secs(2));
                assert_eq!(
                    queue.fire_due(),
                    usize::from(hour == 2 && comes == 2),
                    "{case}"
                );
                time.advance(HOUR - secs(2));
            }
            assert_eq!(take_all(&queue), [1], "{case}");
            // Its room is free again, and that of what it was before.
            let fits = (10..).take_while(|key| queue.entry(*key).try_add().is_ok());
            assert_eq!(fits.count(), 4, "{case}");
        }
    }
}

#[test] // V7 T4
fn a_debounced_add_waits_for_the_retry_as_well() {
    let (queue, time) = failed(|builder| builder);
    assert_eq!(queue.entry(1).debounce(MS, secs(1)).add(), Added::Delayed);
    assert_waits(&queue, &time);
    // And a retry that finds a burst is later than that.
    queue.entry(1).debounce(MS, secs(1)).add();
    fail_burst(&queue);
    assert_eq!(queue.entry(1).debounce(MS, secs(1)).add(), Added::Delayed);
    assert_waits(&queue, &time);
}

/// Key 1, which is debounced, is run and fails, while it is debounced once more.
fn fail_burst(queue: &Queue) {
    assert_eq!(queue.run_now(&1), Some(Added::Queued));
    let item = queue.get().unwrap();
    queue.entry(1).debounce(MS, secs(1)).add();
    assert_eq!(item.retry_after(HOUR), Added::Delayed);
}

#[test] // V7 P3
fn an_urgent_add_makes_the_retry_urgent() {
    let (queue, time) = holds(|builder| builder.levels(3));
    for key in [1, 2, 3] {
        queue.entry(key).level(2).add();
        let item = queue.get().unwrap();
        // That of a key that becomes dirty counts, too.
        if key == 3 {
            queue.entry(3).level(0).add();
        }
        assert_eq!(item.retry_after(HOUR), Added::Delayed);
    }
    assert_eq!(queue.entry(2).level(1).add(), Added::Delayed);
    assert_eq!(queue.entry(2).level(2).add(), Added::Delayed);
    time.advance(HOUR);
    assert_eq!(queue.fire_due(), 3);
    assert_eq!(queue.counts().by_level, [1, 1, 1]);
    assert_eq!(take_all(&queue), [3, 2, 1]);
}

#[test] // V7 X3 D6
fn what_ends_a_retry_ends_the_wait_for_it() {
    let (queue, _time) = failed(|builder| builder);
    assert_eq!(queue.add(1), Added::Delayed);
    assert_eq!(queue.run_now(&1), Some(Added::Queued));
    assert_eq!(queue.add(1), Added::Merged);
    let item = queue.get().unwrap();
    assert_eq!(queue.add(1), Added::Deferred);
    item.done();
    assert_eq!(take_all(&queue), [1]);

    fail(&queue, HOUR);
    assert_eq!(queue.add(1), Added::Delayed);
    assert!(queue.cancel(&1));
    assert_eq!(queue.add(1), Added::Queued);
}

#[test] // V7 D4
fn a_retry_that_is_over_while_its_worker_holds_the_key_delivers_it_at_once() {
    let (queue, time) = holds(|builder| builder);
    queue.add(1);
    let (mut tries, fails) = (0, std::sync::Mutex::new(Vec::new()));
    let workers = Workers::new(&queue).concurrency(1).on_error(|key, failed| {
        // The retry is set.
        fails
            .lock()
            .unwrap()
            .push((queue.add(*key), failed.attempt));
        time.advance(secs(1));
        assert_eq!(queue.fire_due(), 1);
        fails
            .lock()
            .unwrap()
            .push((queue.add(*key), failed.attempt));
        queue.shut_down();
    });
    let work = std::cell::RefCell::new(|| {
        tries += 1;
        tries
    });
    let work = async |_: Job<'_, u64>| match (work.borrow_mut())() {
        1 => Verdict::RetryAfter("no", secs(1)),
        _ => Verdict::Ok(Outcome::Done),
    };
    pollster::block_on(workers.run_async(work)).unwrap();
    assert_eq!(tries, 2);
    let fails = fails.into_inner().unwrap();
    assert_eq!(fails, [(Added::Delayed, 1), (Added::Merged, 1)]);
}

#[test] // V7 B1 B2 B5
fn an_add_that_waits_for_a_retry_needs_no_room() {
    let (queue, _time) = failed(|builder| builder.capacity(2));
    queue.add(2);
    assert_eq!(queue.entry(3).try_add(), Err(Full(3)));
    assert_eq!(queue.entry(1).try_add(), Ok(Added::Delayed));
    assert_eq!((queue.counts().delayed, queue.counts().retrying), (1, 1));
    assert!(queue.cancel(&1));
    assert_eq!(queue.entry(3).try_add(), Ok(Added::Queued));
    assert_eq!(queue.entry(4).try_add(), Err(Full(4)));
}

#[test] // V7 L14
fn a_limiters_delay_that_waits_for_a_retry_is_given_back() {
    let limiter = ItemExponentialFailure::new(secs(1), HOUR).unwrap();
    let (queue, time) = holds(|builder| builder.rate_limiter(limiter));
    queue.add(1);
    assert_eq!(queue.get().unwrap().retry(), Added::Delayed);
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    assert_eq!(after(&queue, &time, secs(1)), [1]);
}

#[test] // V7 S5 S12
fn adds_that_wait_for_a_retry_end_with_it() {
    for deliver in [false, true] {
        for dirty in [false, true] {
            let (queue, _time) = holds(|builder| builder.drain_delays(deliver));
            queue.add(1);
            let item = queue.get().unwrap();
            if dirty {
                queue.add(1);
            }
            assert_eq!(item.retry_after(HOUR), Added::Delayed);
            assert_eq!(queue.add(1), Added::Delayed);
            let drained = queue.drain_timeout(Duration::ZERO);
            assert_eq!(queue.add(1), Added::ShutDown);
            assert_eq!(drained.delayed, usize::from(!deliver));
            assert_eq!(take_all(&queue).len(), usize::from(deliver));
            assert_eq!(queue.take_left().len(), usize::from(!deliver));
        }
    }
}

#[test] // V7 S2 S11
fn a_dirty_key_that_fails_after_a_shut_down_is_delivered_again() {
    let (queue, _time) = holds(|builder| builder);
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add(1);
    queue.shut_down();
    assert_eq!(item.retry_after(HOUR), Added::Merged);
    assert_eq!(take_all(&queue), [1]);
}
