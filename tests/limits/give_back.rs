//! Delays of a limiter that are not used (L14): a bucket gets its tokens back, and delivers at its rate
//! however often keys are added. The test advances the clock, and does not sleep.

use crate::common::there;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, NS, built, ms, secs};
use crate::limiters::mocked_bucket;
use keyqueue::limiter::{
    Bucket, ItemExponentialFailure, Jitter, Jittered, MaxOf, RateLimiter, WithMaxWait,
    default_controller_with_clock,
};
use keyqueue::{Added, Clock, Cursor, DelayPolicy, Listed, MockClock, WorkQueue};

type Limiter = Box<dyn RateLimiter<u32>>;

fn queue_with(limiter: impl FnOnce(Clock) -> Limiter) -> (WorkQueue<u32>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().rate_limiter(limiter(clock.clone()));
    let queue = builder.clock(clock).manual_timers().build();
    (queue.unwrap(), time)
}

fn five_a_second(clock: Clock) -> Limiter {
    Box::new(Bucket::new(5.0, 1).unwrap().with_clock(clock))
}

/// As `default_controller` composes it.
fn composed(clock: Clock) -> Limiter {
    let exponential = ItemExponentialFailure::new(ms(5), secs(1000)).unwrap();
    let exponential: Limiter = Box::new(exponential.with_clock(clock.clone()));
    Box::new(MaxOf::new([exponential, five_a_second(clock)]))
}

/// The deliveries in a minute, of keys that are added this often each, and forgotten when they are done.
fn deliveries((queue, time): (WorkQueue<u32>, MockClock), every: Duration, keys: u32) -> usize {
    let mut delivered = 0;
    for _ in 0..secs(60).as_nanos() / every.as_nanos() {
        for key in 0..keys {
            assert!(queue.add_rate_limited(key).is_accepted());
        }
        queue.fire_due();
        for item in there(&queue) {
            delivered += 1;
            queue.forget(&item);
        }
        time.advance(every);
    }
    delivered
}

fn assert_within_a_hundredth(delivered: usize, expected: usize) {
    let (least, most) = (expected * 99 / 100, expected * 101 / 100);
    assert!((least..=most).contains(&delivered), "{delivered}");
}

#[test] // L14
fn a_bucket_delivers_at_its_rate_however_often_keys_are_added() {
    for every in [ms(200), ms(100), ms(20), ms(1)] {
        for keys in [1, 3] {
            assert_within_a_hundredth(deliveries(queue_with(five_a_second), every, keys), 300);
        }
    }
}

#[test] // L14
fn a_bucket_beside_a_back_off_delivers_at_its_rate() {
    for every in [ms(100), ms(20)] {
        assert_within_a_hundredth(deliveries(queue_with(composed), every, 1), 300);
        // Ten a second, after a burst of a hundred.
        let queue = queue_with(|clock| Box::new(default_controller_with_clock(clock)));
        assert_within_a_hundredth(deliveries(queue, every / 2, 20), 700);
    }
}

#[test] // L14
fn workers_that_retry_keys_whose_retry_is_pending_do_not_slow_the_bucket_down() {
    let (queue, time) = queue_with(five_a_second);
    for _ in 0..6000 {
        queue.fire_due();
        queue.add(1); // an event, whose work fails, too
        while let Ok(item) = queue.try_get() {
            assert!(item.retry().is_accepted());
        }
        time.advance(ms(10));
    }
    // The next one is due within a token, and not in 1200 s.
    time.advance(ms(200));
    assert_eq!(queue.fire_due(), 1);
}

/// A queue whose bucket has given its only token.
fn empty_bucket(
    set: impl FnOnce(keyqueue::Builder<u32>) -> keyqueue::Builder<u32>,
) -> (WorkQueue<u32>, Arc<Bucket>) {
    let bucket = Arc::new(mocked_bucket(5.0, 1).0);
    let (queue, _) = built(|builder| set(builder).rate_limiter(Arc::clone(&bucket)));
    assert_eq!(queue.add_rate_limited(0), Added::Queued);
    (queue, bucket)
}

/// The delay of the next reservation, which is used.
fn next(limiter: &impl RateLimiter<u32>) -> Duration {
    limiter.when(&7)
}

#[test] // L14
fn a_delay_that_is_not_used_is_given_back() {
    let (queue, bucket) = empty_bucket(|builder| builder);
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    for _ in 0..9 {
        assert_eq!(
            queue.add_rate_limited(1),
            Added::Delayed,
            "an earlier one is pending"
        );
    }
    let item = queue.try_get().unwrap();
    queue.add_after(*item, NS);
    assert_eq!(item.retry(), Added::Delayed, "an earlier one is pending");
    assert_eq!(next(&bucket), ms(400));

    queue.shut_down();
    assert_eq!(queue.add_rate_limited(3), Added::ShutDown);
    assert_eq!(next(&bucket), ms(600));
}

#[test] // L14
fn a_token_that_is_there_is_given_back_if_the_key_is_queued() {
    let bucket = Arc::new(mocked_bucket(5.0, 4).0);
    let (queue, _) = built(|builder| builder.rate_limiter(Arc::clone(&bucket)));
    assert_eq!(queue.add_rate_limited(1), Added::Queued);
    for _ in 0..9 {
        assert_eq!(queue.add_rate_limited(1), Added::Merged);
    }
    let item = queue.try_get().unwrap();
    assert_eq!(queue.add_rate_limited(1), Added::Deferred);
    assert_eq!(queue.add_rate_limited(1), Added::Merged);
    assert_eq!(item.retry(), Added::Merged, "it is dirty");
    let delays = [(); 4].map(|()| next(&bucket).as_millis());
    assert_eq!(delays, [0, 0, 200, 400]);
}

#[test] // L14, D5
fn a_delay_that_a_sooner_delivery_supersedes_is_given_back() {
    let (queue, bucket) = empty_bucket(|builder| builder.supersede_delays(true));
    assert_eq!(queue.add_rate_limited(0), Added::Merged, "it is queued");
    assert_eq!(next(&bucket), ms(200));
}

// Whose delay it was that is replaced or cancelled is not known. If it was the limiter's, later reservations
// keep their times, so its token would be lost.
#[test] // L14
fn what_was_pending_counts_as_used() {
    let (queue, bucket) = empty_bucket(|builder| builder.delay_policy(DelayPolicy::Replace));
    assert_eq!(queue.add_rate_limited(1), Added::Delayed); // 200 ms
    assert_eq!(queue.add_rate_limited(1), Added::Delayed); // 400 ms, instead
    queue.add_after(1, HOUR);
    queue.cancel(&1);
    assert_eq!(next(&bucket), ms(600));
}

#[test] // L14
fn failures_are_counted_whether_their_delays_are_used_or_not() {
    let limiter = Arc::new(composed(Clock::mock().0));
    let (queue, _) = built(|builder| builder.rate_limiter(Arc::clone(&limiter)));
    for failures in 1..=10 {
        assert!(queue.add_rate_limited(1).is_accepted());
        assert_eq!(queue.num_requeues(&1), failures);
    }
    assert_eq!(
        next(&limiter),
        ms(200),
        "the bucket's, beside a back-off of 5 ms"
    );
}

/// Two buckets, below all that passes a call on, and by every pointer.
#[test] // L14, L6
fn each_child_gets_back_what_it_has_reserved_itself() {
    let (clock, time) = Clock::mock();
    let bucket = |rate| Arc::new(Bucket::new(rate, 1).unwrap().with_clock(clock.clone()));
    let (slow, fast) = (bucket(1.0), bucket(4.0));
    let capped = WithMaxWait::new(Arc::clone(&slow), ms(100));
    let jittered = Jittered::new(Arc::clone(&fast), Jitter::Full);
    let children: [Limiter; 2] = [Box::new(capped), Box::new(jittered)];
    let all = MaxOf::new(children);
    let mut most = Duration::ZERO;
    for _ in 0..100 {
        let returned = all.reserve(&1, &mut |delay| {
            most = most.max(delay);
            false
        });
        assert!(!returned);
    }
    assert_eq!(most, Duration::ZERO, "each is given back before the next");
    assert!(all.reserve(&1, &mut |delay| delay.is_zero()));
    for _ in 0..100 {
        all.reserve(&1, &mut |delay| {
            most = most.max(delay);
            false
        });
    }
    assert!(most <= ms(250) && most >= ms(100), "{most:?}");
    let when = |bucket: &Bucket| RateLimiter::<u32>::when(bucket, &1);
    assert_eq!((when(&slow), when(&fast)), (secs(1), ms(250)));
    time.advance(HOUR);
}

// Of 100 000 calls of four threads, one in ten is used. The clock stands still.
#[test] // L14
fn threads_that_give_back_leave_no_gap() {
    let (bucket, _) = mocked_bucket(10.0, 1);
    let used = AtomicUsize::new(0);
    let last = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (bucket, used, last) = (&bucket, &used, &last);
            scope.spawn(move || {
                for n in 0..25_000 {
                    bucket.reserve(&thread, &mut |delay| {
                        let is_used = n % 10 == 0;
                        if is_used {
                            used.fetch_add(1, Ordering::Relaxed);
                            let slot = delay.as_millis() as usize / 100;
                            last.fetch_max(slot, Ordering::Relaxed);
                        }
                        is_used
                    });
                }
            });
        }
    });
    // Those that are used have times of their own, so the last one tells how many are lost.
    let (used, slots) = (used.into_inner(), last.into_inner() + 1);
    assert!(
        slots >= used && slots <= used * 101 / 100,
        "{used} in {slots}"
    );
}

#[test] // L14, D5
fn a_delay_that_only_makes_the_pending_one_more_urgent_is_given_back() {
    for policy in [DelayPolicy::Earliest, DelayPolicy::KeepFirst] {
        let (queue, bucket) =
            empty_bucket(|builder| builder.levels(2).default_level(0).delay_policy(policy));
        queue.try_get().unwrap().done();
        queue.entry(1).level(1).after(ms(20)).add();
        assert_eq!(queue.add_rate_limited(1), Added::Delayed, "{policy:?}");
        let page = queue.page(Cursor::default(), Listed::Delayed, 1);
        assert_eq!(page.keys[0].due_in(), Some(ms(20)), "{policy:?}");
        assert_eq!(next(&*bucket), ms(200), "{policy:?}");
        assert_eq!(queue.run_now(&1), Some(Added::Queued));
        assert_eq!(queue.try_get().unwrap().level(), 0, "{policy:?}");
    }
}
