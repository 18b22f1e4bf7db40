//! Debounced adds (T4): after a quiet time, and no later than a limit after the first change. The test
//! advances the clock, and does not sleep.

use std::time::Duration;

use crate::common::take_all;
use crate::common::timed::{HOUR, after, built, ms, secs, timed};
use keyqueue::{Added, Cursor, DelayPolicy, Full, KeySnapshot, Listed, WorkQueue, merge};

const QUIET: Duration = ms(100);
const LIMIT: Duration = ms(250);

fn change(queue: &WorkQueue<u64>, key: u64) -> Added {
    queue.entry(key).debounce(QUIET, LIMIT).add()
}

/// The time until the delay of the only key ends.
fn due_in(queue: &WorkQueue<u64>) -> Option<Duration> {
    let page = queue.page(Cursor::default(), Listed::Delayed, 10);
    page.keys.first().and_then(KeySnapshot::due_in)
}

/// The milliseconds at which the key comes out that changes at each of `changes`.
fn deliveries(changes: &[u64]) -> Vec<u64> {
    let (queue, time) = timed::<u64>();
    let mut at = Vec::new();
    for now in 0..1000 {
        if changes.contains(&now) {
            assert_eq!(change(&queue, 1), Added::Delayed);
        }
        at.extend(after(&queue, &time, ms(1)).iter().map(|_| now + 1));
    }
    at
}

#[test] // T4
fn a_key_comes_once_it_is_quiet_or_at_the_limit() {
    assert_eq!(deliveries(&[0]), [100]);
    assert_eq!(deliveries(&[0, 99]), [199]);
    assert_eq!(deliveries(&[0, 50, 100, 149]), [249]);
    assert_eq!(deliveries(&[0, 50, 100, 150, 200]), [250]);
    // What changes after the limit has a limit of its own.
    let all: Vec<u64> = (0..600).collect();
    assert_eq!(deliveries(&all), [250, 500, 699]);
    // A quiet time beyond the limit.
    let (queue, time) = timed::<u64>();
    queue.entry(1).debounce(LIMIT, QUIET).add();
    assert_eq!(after(&queue, &time, QUIET), [1]);
    // A time of zero is a plain add (D2).
    for (quiet, limit) in [(QUIET, ms(0)), (ms(0), LIMIT)] {
        assert_eq!(queue.entry(1).debounce(quiet, limit).add(), Added::Queued);
        assert_eq!(take_all(&queue), [1]);
    }
}

#[test] // T4: the first change decides about the limit, the last one about the quiet time
fn changes_with_other_times_are_of_the_same_burst() {
    let (queue, time) = timed::<u64>();
    change(&queue, 1);
    queue.entry(1).debounce(secs(9), HOUR).add();
    assert_eq!(due_in(&queue), Some(LIMIT));
    queue.entry(1).debounce(ms(20), HOUR).add();
    assert_eq!(due_in(&queue), Some(ms(20)));
    assert_eq!(after(&queue, &time, ms(20)), [1]);
    assert_eq!(after(&queue, &time, HOUR), []);
}

#[test] // T4, D3
fn of_a_burst_and_another_delay_the_earlier_one_counts() {
    use DelayPolicy::{Earliest, KeepFirst, Latest, Replace};
    for policy in [Earliest, KeepFirst, Latest, Replace] {
        let (queue, time) = built::<u64>(|builder| builder.delay_policy(policy));
        queue.add_after(1, HOUR);
        queue.entry(1).debounce(QUIET, LIMIT).add();
        assert_eq!(after(&queue, &time, QUIET), [1], "{policy:?}");
        for changes in [1, 2] {
            queue.add_after(1, ms(60));
            for _ in 0..changes {
                queue.entry(1).debounce(QUIET, LIMIT).add();
            }
            assert_eq!(after(&queue, &time, ms(60)), [1], "{policy:?}");
        }
        assert_eq!(after(&queue, &time, HOUR), [], "{policy:?}");
    }
}

#[test] // T4, D1, D3: whichever comes first, and however often the key changes after that
fn a_key_that_is_never_quiet_comes_when_another_delay_of_it_ends() {
    use DelayPolicy::{Earliest, KeepFirst, Latest, Replace};
    let delay: fn(&WorkQueue<u64>) =
        |queue| assert_eq!(queue.add_after(1, ms(150)), Added::Delayed);
    let retry: fn(&WorkQueue<u64>) = |queue| {
        queue.add(1);
        let item = queue.try_get().unwrap();
        assert_eq!(item.retry_after(ms(150)), Added::Delayed);
    };
    let burst: fn(&WorkQueue<u64>) = |queue| assert_eq!(change(queue, 1), Added::Delayed);
    let cases = [
        (Earliest, [delay, burst], 150),
        (Earliest, [retry, burst], 150),
        (Earliest, [burst, delay], 150),
        (Earliest, [burst, retry], 150),
        (Latest, [delay, burst], 150),
        (KeepFirst, [delay, burst], 150),
        (Replace, [delay, burst], 150),
        // The policy decides about a later call of another delay.
        (Latest, [burst, delay], 150),
        (KeepFirst, [burst, delay], 250),
        (Replace, [burst, delay], 150),
    ];
    for (nth, (policy, calls, comes)) in cases.into_iter().enumerate() {
        let (queue, time) = built::<u64>(|builder| builder.delay_policy(policy));
        for call in calls {
            call(&queue);
        }
        let mut at = Vec::new();
        for now in (0..comes).step_by(50) {
            burst(&queue);
            at.extend(after(&queue, &time, ms(50)).iter().map(|_| now + 50));
        }
        assert_eq!(at, [comes], "{nth}, {policy:?}");
        assert_eq!(after(&queue, &time, HOUR), [], "{nth}, {policy:?}");
    }
}

#[test] // T4, D3
fn a_delay_at_the_end_of_the_quiet_time_counts_if_the_key_changes_again() {
    for policy in [DelayPolicy::Earliest, DelayPolicy::Replace] {
        let (queue, time) = built::<u64>(|builder| builder.delay_policy(policy));
        change(&queue, 1);
        queue.add_after(1, QUIET);
        time.advance(ms(50));
        change(&queue, 1);
        assert_eq!(after(&queue, &time, ms(50)), [1], "{policy:?}");
    }
}

#[test] // T4: the limit of a change that another delay serves counts as well
fn a_change_with_a_shorter_quiet_time_extends_no_limit() {
    let (queue, time) = timed::<u64>();
    queue.add_after(1, ms(150));
    queue.entry(1).debounce(secs(9), ms(200)).add();
    let mut at = Vec::new();
    for now in 0..150 {
        queue.entry(1).debounce(ms(20), HOUR).add();
        at.extend(after(&queue, &time, ms(1)).iter().map(|_| now + 1));
    }
    assert_eq!(at, [150]);
}

#[test] // T4: a retry that is pending is no obstacle, and one that comes is merged
fn a_burst_meets_retries_of_its_key() {
    let (queue, time) = timed::<u64>();
    queue.add(1);
    let item = queue.try_get().unwrap();
    assert_eq!(change(&queue, 1), Added::Delayed);
    assert_eq!(item.retry_after(secs(9)), Added::Delayed);
    assert_eq!(due_in(&queue), Some(QUIET));
    time.advance(QUIET);
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(
        queue.try_get().unwrap().retry_after(secs(9)),
        Added::Delayed
    );
    change(&queue, 1);
    assert_eq!(after(&queue, &time, QUIET), [1]);
    assert_eq!(after(&queue, &time, HOUR), []);
}

#[test] // T4, D4: the limit is that of the first change that no delivery serves yet
fn a_key_that_is_queued_or_processing_is_debounced_as_well() {
    let (queue, time) = timed::<u64>();
    queue.add(1);
    for now in 0..5 {
        assert_eq!(change(&queue, 1), Added::Delayed, "queued, {now}");
        time.advance(ms(50));
    }
    assert_eq!(queue.fire_due(), 1);
    let item = queue.try_get().unwrap();
    assert!(queue.is_empty(), "it has merged");
    for now in 0..5 {
        assert_eq!(change(&queue, 1), Added::Delayed, "processing, {now}");
        time.advance(ms(50));
    }
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(change(&queue, 1), Added::Delayed, "dirty");
    item.done();
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(after(&queue, &time, QUIET), [1]);
}

#[test] // T4, D5
fn a_debounced_add_of_a_key_that_comes_sooner_merges_if_adds_supersede() {
    let (queue, time) = built::<u64>(|builder| builder.supersede_delays(true));
    change(&queue, 1);
    time.advance(ms(50));
    assert_eq!(queue.add(1), Added::Queued);
    assert_eq!(change(&queue, 1), Added::Merged, "queued");
    let item = queue.try_get().unwrap();
    assert_eq!(change(&queue, 1), Added::Delayed, "processing");
    time.advance(ms(10));
    assert_eq!(due_in(&queue), Some(ms(90)));
    item.done();
    assert_eq!(after(&queue, &time, ms(90)), [1]);
    assert_eq!(after(&queue, &time, HOUR), []);
}

#[test] // T4, B1
fn a_key_that_is_debounced_needs_no_more_room() {
    let (queue, time) = built::<u64>(|builder| builder.capacity(1));
    let full = |key: u64| queue.entry(key).debounce(QUIET, LIMIT).try_add();
    assert_eq!(full(1), Ok(Added::Delayed));
    time.advance(ms(50));
    assert_eq!(full(1), Ok(Added::Delayed));
    assert_eq!(full(2), Err(Full(2)));
    assert_eq!(after(&queue, &time, QUIET), [1]);
    assert_eq!(full(2), Ok(Added::Delayed));
    assert!(queue.cancel(&2));
    assert_eq!(full(3), Ok(Added::Delayed));
}

#[test] // T4, S5
fn a_burst_ends_with_its_queue_as_other_delays_do() {
    let (queue, _) = timed::<u64>();
    change(&queue, 1);
    change(&queue, 1);
    assert_eq!(queue.shut_down().delayed, 1);
    assert_eq!(change(&queue, 2), Added::ShutDown);

    let (queue, _) = built::<u64>(|builder| builder.drain_delays(true));
    change(&queue, 1);
    change(&queue, 1);
    let drained = queue.drain_timeout(ms(0));
    assert_eq!((drained.queued, drained.delayed), (1, 0));
    assert_eq!(take_all(&queue), [1]);
}

#[test] // T4, V1
fn values_of_a_burst_are_merged() {
    let (clock, time) = keyqueue::Clock::mock();
    let builder = WorkQueue::<String>::builder().clock(clock).manual_timers();
    let queue = builder.merge(merge::append::<Vec<_>>).build().unwrap();
    for n in 0..5 {
        let entry = queue.entry_ref("a").debounce(QUIET, LIMIT);
        let added = match n % 2 {
            0 => entry.put(vec![n]),
            _ => entry.update(|values| values.push(n)),
        };
        assert_eq!(added, Added::Delayed);
        assert!(queue.try_get().is_err());
        time.advance(ms(50));
        queue.fire_due();
    }
    assert_eq!(*queue.try_get().unwrap().value(), [0, 1, 2, 3, 4]);
}
