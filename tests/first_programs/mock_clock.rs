//! Tests of back-off and of a schedule on a clock that the test advances.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Outcome, Workers};
use keyqueue::{Added, Clock, State, WorkQueue};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_key_that_fails_backs_off() -> Result<(), Box<dyn std::error::Error>> {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(MINUTE, 10 * MINUTE)?.with_clock(clock.clone());
    let queue = WorkQueue::builder()
        .rate_limiter(limiter)
        .clock(clock)
        .manual_timers()
        .build()?;
    queue.add("host");
    for minutes in [1, 2, 4, 8, 10, 10] {
        assert_eq!(queue.try_get()?.retry(), Added::Delayed);
        time.advance(minutes * MINUTE - Duration::from_secs(1));
        assert_eq!(queue.fire_due(), 0);
        time.advance(Duration::from_secs(1));
        assert_eq!(queue.fire_due(), 1);
    }
    let item = queue.try_get()?;
    queue.forget(&item);
    assert_eq!(queue.num_requeues(&item), 0);
    Ok(())
}

#[test]
fn a_running_program_checks_every_ten_minutes() -> Result<(), Box<dyn std::error::Error>> {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).build()?;
    let (check, checks) = mpsc::channel();
    let running = Workers::new(&queue)
        .concurrency(1)
        .spawn(move |job: Job<'_, &str>| {
            check.send(job.to_string()).unwrap();
            Outcome::RequeueAfter(10 * MINUTE)
        })?;
    queue.add("host");
    for _ in 0..3 {
        assert_eq!(checks.recv()?, "host");
        while queue.counts().delayed == 0 {
            thread::yield_now(); // The worker is about to say when the next check is.
        }
        time.advance(9 * MINUTE);
        assert!(checks.recv_timeout(Duration::from_millis(5)).is_err());
        time.advance(MINUTE);
    }
    queue.shut_down();
    running.join();
    Ok(())
}

#[test]
fn each_retry_of_a_running_program_ends_when_the_test_says_so()
-> Result<(), Box<dyn std::error::Error>> {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(MINUTE, MINUTE)?;
    let queue = WorkQueue::builder()
        .rate_limiter(limiter)
        .clock(clock)
        .manual_timers()
        .build()?;
    let running = Workers::new(&queue)
        .concurrency(1)
        .spawn(|_: Job<'_, &str>| Err::<(), _>("no route to host"))?;
    queue.add("host");
    for _ in 0..1000 {
        let waits = || {
            let keys = queue.snapshot();
            keys.iter()
                .any(|key| key.state() == State::Idle && key.due_in() == Some(MINUTE))
        };
        while !waits() {
            thread::yield_now();
        }
        time.advance(MINUTE);
        assert_eq!(queue.fire_due(), 1);
    }
    queue.shut_down();
    running.join();
    Ok(())
}
