//! Workers whose keys fail while more is put for them, which waits for the retries (V7).

use std::sync::Mutex;
use std::time::Duration;

use crate::common::poll_until_idle;
use crate::common::timed::{HOUR, secs};
use keyqueue::limiter::{ItemExponentialFailure, NoLimit};
use keyqueue::worker::{Job, Reason, Workers};
use keyqueue::{Added, Clock, WorkQueue, merge};

/// What has happened: the value of each try, in how many seconds the next one is, and how often the key was given up.
type Seen = (Vec<Vec<u32>>, Vec<Option<Duration>>, Vec<Reason>);

#[test] // V7 W2
fn a_key_with_steady_traffic_is_tried_no_more_often_than_its_back_off_says() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(secs(1), HOUR).unwrap();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.rate_limiter(limiter).merge(merge::append);
    let queue = builder.adds_wait_for_retries(true).build().unwrap();
    let seen = Mutex::new(Seen::default());
    let puts = Mutex::new(1..);
    let put = || queue.put("a", vec![puts.lock().unwrap().next().unwrap()]);
    let workers = Workers::new(&queue).concurrency(1).max_retries(2);
    let workers = workers.on_error(|_, failed| {
        seen.lock().unwrap().1.push(failed.next);
        let Some(delay) = failed.next else { return };
        // Traffic, until the retry is due.
        for _ in 0..delay.as_secs() {
            assert_eq!(put(), Added::Delayed);
            assert_eq!(queue.len(), 0);
            time.advance(secs(1));
            queue.fire_due();
        }
    });
    let workers = workers.on_give_up(|_, given_up| {
        seen.lock().unwrap().2.push(given_up.reason);
        queue.shut_down();
    });
    put();
    workers
        .run(|job| {
            seen.lock().unwrap().0.push(job.value().clone());
            // While it is processed.
            put();
            Err::<(), _>("no route")
        })
        .unwrap();
    let (values, delays, given_up) = seen.into_inner().unwrap();
    // The last one has been put while the key was given up, and no other after that.
    let tries = [vec![1], vec![1, 2, 3], vec![1, 2, 3, 4, 5, 6], vec![7]];
    assert_eq!(values, tries);
    assert_eq!(delays, [Some(secs(1)), Some(secs(2)), None, None]);
    assert_eq!(given_up, [Reason::MaxRetries, Reason::ShutDown]);
}

#[test] // V7 S5 S13
fn a_retry_that_a_later_add_has_made_urgent_is_reported_if_a_shut_down_drops_it() {
    for waits in [false, true] {
        let (clock, _time) = Clock::mock();
        let builder = WorkQueue::builder()
            .rate_limiter(NoLimit)
            .clock(clock)
            .manual_timers();
        let builder = builder.levels(3).merge(merge::append);
        let queue = builder.adds_wait_for_retries(waits).build().unwrap();
        queue.entry("a").level(2).put(vec![1]);
        let seen = Mutex::new(Vec::new());
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.on_give_up(|_, given_up| {
            let seen = &mut *seen.lock().unwrap();
            seen.push((given_up.reason, given_up.value));
        });
        let mut run = Box::pin(
            workers.run_async(async |job: Job<'static, &str, Vec<u32>>| {
                job.retry_after::<(), _>("no route", HOUR)
            }),
        );
        assert!(poll_until_idle(&mut run).is_pending());
        for level in [1, 0] {
            let entry = queue.entry("a").level(level);
            let added = match waits {
                true => entry.put(vec![2]),
                false => entry.after(2 * HOUR).put(vec![2]),
            };
            assert_eq!(added, Added::Delayed);
        }
        assert_eq!(queue.shut_down().delayed, 1);
        pollster::block_on(run).unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen, [(Reason::Dropped, Some(vec![1, 2, 2]))]);
        assert_eq!(queue.take_left(), []);
    }
}
