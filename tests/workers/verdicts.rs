//! Verdicts: what a function that failed, or that is throttled, can ask for (W5).

use crate::common::timed::ms;
use crate::outcomes::bench;
use keyqueue::worker::{Failure, Outcome, Reason, Verdict};

#[test] // W5; c-r: "should not requeue a Request if there is a terminal error"
fn a_key_that_the_function_gives_up_is_forgotten_reported_and_not_retried() {
    // With and without a limit, and with none left: the function's word counts.
    for max_retries in [None, Some(5), Some(1)] {
        let mut bench = bench(max_retries);
        bench.queue.add(1);
        bench.pass(0);
        assert_eq!(bench.queue.num_requeues(&1), 1);
        bench.verdict(Verdict::GiveUp("gone"));
        bench.pass(1000);
        assert_eq!(bench.deliveries(), [0, 5]);
        let (key, end) = bench.given_up().pop().unwrap();
        assert_eq!((key, end.reason, end.retries), (1, Reason::GiveUp, 1));
        assert_eq!(end.failure, Failure::Error("gone"));
        assert_eq!(end.to_string(), "gone (retries: 1, as the worker decided)");
        assert_eq!(bench.queue.num_requeues(&1), 0);
        assert_eq!(bench.given_up(), []);
    }
}

#[test] // W5
fn a_retry_after_a_given_delay_is_charged_and_counts_and_ignores_the_limiters_delay() {
    let mut bench = bench(Some(3));
    bench.queue.add(1);
    // Longer than the limiter's 5 ms, and shorter than its 10 ms.
    bench.verdict(Verdict::RetryAfter("429", ms(100)));
    bench.pass(0);
    assert_eq!(bench.queue.num_requeues(&1), 1);
    bench.verdict(Verdict::RetryAfter("429", ms(2)));
    bench.pass(100);
    assert_eq!(bench.queue.num_requeues(&1), 2);
    bench.next(Err("not yet"));
    bench.pass(2 + 20);
    assert_eq!(bench.deliveries(), [0, 100, 102, 122]);
    // The fourth failure is one too many, also for a retry after a given delay.
    let (_, end) = bench.given_up().pop().unwrap();
    assert_eq!((end.reason, end.retries), (Reason::MaxRetries, 3));

    bench.verdict(Verdict::RetryAfter("429", ms(1)));
    bench.queue.add(1);
    bench.pass(10);
    assert_eq!(bench.deliveries(), [122, 123, 124, 125]);
    assert_eq!(bench.given_up().len(), 1);
}

#[test] // W5, with the key of a program that is throttled each time before it fails
fn later_neither_forgets_nor_counts() {
    let mut bench = bench(Some(2));
    bench.queue.add(1);
    for _ in 0..3 {
        bench.next(Ok(Outcome::Later(ms(1))));
        let failures = bench.queue.num_requeues(&1);
        bench.pass(100);
        assert!(bench.deliveries().len() > 50);
        assert_eq!(bench.queue.num_requeues(&1), failures);
        assert_eq!(bench.given_up(), []);
        bench.next(Err("not yet"));
        bench.pass(1);
    }
    let (_, end) = bench.given_up().pop().unwrap();
    assert_eq!((end.reason, end.retries), (Reason::MaxRetries, 2));

    // Its delay is no failure's: the back-off begins with the first failure.
    bench.deliveries();
    bench.next(Ok(Outcome::Later(ms(50))));
    bench.queue.add(2);
    bench.pass(1);
    bench.next(Err("not yet"));
    bench.pass(49 + 5);
    let deliveries = bench.deliveries();
    assert_eq!(deliveries[1] - deliveries[0], 50);
    assert_eq!(deliveries[2] - deliveries[1], 5);
}

#[test] // W3; c-r: "should requeue a Request rate limited if the Result sets Requeue: true"
fn requeue_rate_limited_backs_off_counts_and_never_gives_the_key_up() {
    let mut bench = bench(Some(2));
    bench.queue.add(1);
    bench.next(Ok(Outcome::RequeueRateLimited));
    bench.pass(5 + 10 + 20 + 40);
    assert_eq!(bench.deliveries(), [0, 5, 15, 35, 75]);
    assert_eq!(bench.queue.num_requeues(&1), 5);
    assert_eq!(bench.given_up(), []);
    // The limiter has counted them, so a failure is one too many.
    bench.next(Err("failed"));
    bench.pass(80);
    let (_, end) = bench.given_up().pop().unwrap();
    assert_eq!((end.reason, end.retries), (Reason::MaxRetries, 5));
    assert_eq!(bench.queue.num_requeues(&1), 0);

    // And a success forgets them.
    bench.deliveries();
    bench.next(Ok(Outcome::RequeueRateLimited));
    bench.queue.add(2);
    bench.pass(4);
    bench.next(Ok(Outcome::Done));
    bench.pass(1);
    let deliveries = bench.deliveries();
    assert_eq!(deliveries[1] - deliveries[0], 5);
    assert_eq!(bench.queue.num_requeues(&2), 0);
}
