//! The rate limiters: client-go's own tests under their names, then the further promises.

mod memory;

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::timed::{NS, ms, secs};
use keyqueue::limiter::{
    Bucket, ItemExponentialFailure, ItemFastSlow, Jitter, Jittered, MaxOf, NoLimit, RateLimiter,
    WithMaxWait, default_controller_with_clock,
};
use keyqueue::{Clock, MockClock};

/// By a clock that stands still: nothing is forgotten when a test is held up.
fn exponential<K: ?Sized>(base: Duration, max: Duration) -> ItemExponentialFailure<K> {
    let limiter = ItemExponentialFailure::new(base, max).unwrap();
    limiter.with_clock(Clock::mock().0)
}

/// As [`exponential`].
fn fast_slow<K: ?Sized>(fast: Duration, slow: Duration, max_fast: u32) -> ItemFastSlow<K> {
    let limiter = ItemFastSlow::new(fast, slow, max_fast).unwrap();
    limiter.with_clock(Clock::mock().0)
}

fn mocked_exponential(max: Duration) -> (ItemExponentialFailure<u64>, MockClock) {
    let (clock, mock) = Clock::mock();
    (exponential(NS, max).with_clock(clock), mock)
}

pub(crate) fn mocked_bucket(per_second: f64, burst: u32) -> (Bucket, MockClock) {
    let (clock, mock) = Clock::mock();
    let bucket = Bucket::new(per_second, burst).unwrap().with_clock(clock);
    (bucket, mock)
}

/// The next `n` delays of `key`.
pub(crate) fn delays(limiter: &impl RateLimiter<str>, key: &str, n: usize) -> Vec<Duration> {
    (0..n).map(|_| limiter.when(key)).collect()
}

/// The delays of a key that fails five times, of one that fails twice, and of the first once it is
/// forgotten.
fn check_two_keys(limiter: &impl RateLimiter<str>, expected: [Duration; 5]) {
    assert_eq!(delays(limiter, "one", 5), expected);
    assert_eq!(limiter.num_requeues("one"), 5);

    assert_eq!(delays(limiter, "two", 2), expected[..2]);
    assert_eq!(limiter.num_requeues("two"), 2);

    limiter.forget("one");
    assert_eq!(limiter.num_requeues("one"), 0);
    assert_eq!(limiter.num_requeues("two"), 2);
    assert_eq!(limiter.when("one"), expected[0]);
}

#[test] // L2 L3
fn test_item_exponential_failure_rate_limiter() {
    check_two_keys(&exponential(ms(1), secs(1)), [1, 2, 4, 8, 16].map(ms));
}

#[test] // L3
fn test_item_exponential_failure_rate_limiter_over_flow() {
    let limiter = exponential(ms(1), secs(1000));
    delays(&limiter, "one", 5);
    assert_eq!(limiter.when("one"), ms(32));
    delays(&limiter, "overflow1", 1000);
    assert_eq!(limiter.when("overflow1"), secs(1000));

    let limiter = exponential(secs(60), secs(1000 * 3600));
    delays(&limiter, "two", 2);
    assert_eq!(limiter.when("two"), secs(4 * 60));
    delays(&limiter, "overflow2", 1000);
    assert_eq!(limiter.when("overflow2"), secs(1000 * 3600));
}

#[test] // L2 L4
fn test_item_fast_slow_rate_limiter() {
    let expected = [ms(5), ms(5), ms(5), secs(10), secs(10)];
    check_two_keys(&fast_slow(ms(5), secs(10), 3), expected);
}

#[test] // L2 L6
fn test_max_of_rate_limiter() {
    let limiter = MaxOf::<str>::new([
        Box::new(fast_slow(ms(5), secs(3), 3)) as Box<dyn RateLimiter<str>>,
        Box::new(exponential(ms(1), secs(1000))),
    ]);
    check_two_keys(&limiter, [ms(5), ms(5), ms(5), secs(3), secs(3)]);
}

#[test] // L7
fn test_with_max_wait_rate_limiter() {
    let limiter = WithMaxWait::new(fast_slow(ms(5), secs(1000), 3), secs(500));
    check_two_keys(&limiter, [ms(5), ms(5), ms(5), secs(500), secs(500)]);
}

#[test] // L2 L3
fn failures_of_one_key_on_many_threads_all_count_once() {
    const EACH: usize = 500;
    let limiter = exponential(NS, Duration::from_nanos(1 << 50));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| delays(&limiter, "key", EACH));
        }
    });
    assert_eq!(limiter.num_requeues("key"), 4 * EACH as u32);
}

// A forget may leave a shard alone that has no key, and must not miss one that is coming.
#[test] // L2
fn every_failure_is_forgotten_while_other_keys_fail_and_are_forgotten() {
    const ROUNDS: u32 = if cfg!(miri) { 5 } else { 2000 };
    // More keys than shards, so that some of them share one.
    const KEYS: u32 = 40;
    let limiter = exponential::<u32>(NS, secs(1));
    thread::scope(|scope| {
        for thread in 0..4 {
            let limiter = &limiter;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    for key in thread * KEYS..(thread + 1) * KEYS {
                        assert_eq!(limiter.when(&key), NS);
                        assert_eq!(limiter.when(&key), NS * 2);
                        limiter.forget(&key);
                        assert_eq!(limiter.num_requeues(&key), 0);
                    }
                }
            });
        }
    });
    assert_eq!(limiter.tracked(), 0);
}

#[test] // L4
fn without_fast_retries_a_key_is_slow_from_the_first() {
    assert_eq!(fast_slow(ms(1), secs(1), 0).when("key"), secs(1));
}

#[test] // L6
fn every_child_of_a_max_of_is_asked_and_forgotten() {
    let slow = Arc::new(exponential::<str>(ms(1), secs(1000)));
    let fast = Arc::new(exponential::<str>(NS, secs(1000)));
    let limiter = MaxOf::<str>::new([
        Box::new(Arc::clone(&slow)) as Box<dyn RateLimiter<str>>,
        Box::new(Arc::clone(&fast)),
    ]);
    fast.when("key");
    assert_eq!(delays(&limiter, "key", 2), [ms(1), ms(2)]);
    assert_eq!(slow.num_requeues("key"), 2);
    assert_eq!(fast.num_requeues("key"), 3);
    assert_eq!(limiter.num_requeues("key"), 3);
    limiter.forget("key");
    assert_eq!(slow.num_requeues("key") + fast.num_requeues("key"), 0);
}

#[test] // L6
fn a_max_of_nothing_does_not_delay() {
    let limiter = MaxOf::<str>::new([]);
    assert_eq!(limiter.when("key"), Duration::ZERO);
    assert_eq!(limiter.num_requeues("key"), 0);
    limiter.forget("key");
}

#[test] // L7
fn a_max_wait_still_charges_the_limiter_inside() {
    let (bucket, mock) = mocked_bucket(10.0, 1);
    let limiter = WithMaxWait::new(&bucket, ms(50));
    assert_eq!(delays(&limiter, "key", 3), [ms(0), ms(50), ms(50)]);
    mock.advance(ms(100));
    assert_eq!(bucket.when("key"), ms(200));
}

#[test] // L8
fn the_default_controller_limiter_is_exponential_and_a_bucket() {
    let (clock, mock) = Clock::mock();
    let limiter = default_controller_with_clock::<str>(clock);
    for n in 0..18 {
        assert_eq!(limiter.when("key"), ms(5 << n));
    }
    assert_eq!(delays(&limiter, "key", 2), [secs(1000); 2]);
    assert_eq!(limiter.num_requeues("key"), 20);
    for key in 0..80 {
        assert_eq!(limiter.when(&key.to_string()), ms(5));
    }
    assert_eq!(limiter.when("101st"), ms(100));
    assert_eq!(limiter.when("102nd"), ms(200));
    mock.advance(secs(24 * 3600));
    assert_eq!(limiter.num_requeues("key"), 20);
    mock.advance(secs(1));
    assert_eq!(limiter.when("key"), ms(5));
}

#[test] // L8
fn the_default_controller_limiter_keeps_the_failures_of_an_outage() {
    let (clock, mock) = Clock::mock();
    let limiter = default_controller_with_clock::<u32>(clock);
    let last = (0..25_000).map(|key| limiter.when(&key)).max();
    assert_eq!(last, Some(secs(2490)));
    mock.advance(secs(2490));
    assert_eq!(limiter.num_requeues(&24_999), 1);
}

/// Refused, naming the field and the value, and with both in the message.
fn assert_refused<L: std::fmt::Debug>(
    built: Result<L, keyqueue::ConfigError>,
    field: &str,
    value: &str,
) {
    let refused = built.unwrap_err();
    assert_eq!((refused.field(), refused.value()), (field, value));
    let message = refused.to_string();
    assert!(message.contains(&format!("`{field}`")), "{message}");
    assert!(message.ends_with(&format!("but is {value}")), "{message}");
}

#[test] // L13
fn a_limiter_with_invalid_settings_is_refused_by_name() {
    for (rate, value) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (-1.0, "-1.0"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        assert_refused(Bucket::new(rate, 1), "per_second", value);
    }
    assert_refused(Bucket::new(1.0, 0), "burst", "0");
    assert_refused(
        ItemExponentialFailure::<str>::new(ms(5), ms(4)),
        "max",
        "4ms",
    );
    assert_refused(ItemFastSlow::<str>::new(ms(5), ms(4), 3), "slow", "4ms");
}

#[test] // L13
fn settings_on_the_edge_are_accepted() {
    assert!(ItemExponentialFailure::<str>::new(ms(5), ms(5)).is_ok());
    assert!(ItemFastSlow::<str>::new(ms(5), ms(5), 0).is_ok());
    assert!(Bucket::new(f64::MIN_POSITIVE, u32::MAX).is_ok());
    assert!(Bucket::new(f64::MAX, 1).is_ok());
}

fn jittered(jitter: Jitter, seed: u64) -> Jittered<ItemFastSlow<str>> {
    let inner = fast_slow(secs(1), secs(1), 0);
    Jittered::new(inner, jitter).with_seed(seed)
}

#[test]
fn jitter_spreads_over_its_whole_range_and_not_beyond() {
    for (jitter, shortest) in [(Jitter::Full, ms(0)), (Jitter::Equal, ms(500))] {
        let delays = delays(&jittered(jitter, 1), "key", 10_000);
        let range = secs(1) - shortest;
        let (least, most) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
        assert!(shortest <= least && most <= secs(1), "{least:?} {most:?}");
        assert!(least < shortest + range / 100, "{jitter:?}: {least:?}");
        assert!(most > secs(1) - range / 100, "{jitter:?}: {most:?}");
        let mean = delays.iter().sum::<Duration>() / 10_000;
        let off = mean.abs_diff(shortest + range / 2);
        assert!(off < range / 50, "{jitter:?}: mean {mean:?}");
    }
}

#[test]
fn one_seed_gives_one_sequence() {
    let of = |seed| delays(&jittered(Jitter::Full, seed), "key", 100);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    let limiter = jittered(Jitter::Full, 7);
    delays(&limiter, "key", 3);
    assert_eq!(limiter.num_requeues("key"), 3);
    limiter.forget("key");
    assert_eq!(limiter.num_requeues("key"), 0);
}

#[test]
fn jitter_of_the_shortest_and_longest_delays_is_sound() {
    for jitter in [Jitter::Full, Jitter::Equal] {
        let longest = exponential::<str>(Duration::MAX, Duration::MAX);
        let limiter = Jittered::new(longest, jitter);
        let distinct: HashSet<_> = delays(&limiter, "key", 10).into_iter().collect();
        assert_eq!(distinct.len(), 10);
        let limiter = Jittered::new(NoLimit, jitter);
        assert_eq!(delays(&limiter, "key", 10), [Duration::ZERO; 10]);
    }
}

/// A key without `Clone`, whose hash can do anything.
struct Odd<'a>(&'a dyn Fn());

impl Hash for Odd<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0)();
        state.write_u8(1);
    }
}

#[test]
fn a_panic_in_the_hash_of_a_key_leaves_the_limiter_usable() {
    let limiter = exponential::<Odd<'_>>(ms(1), secs(1));
    let bad = Odd(&|| panic!("from the user's Hash"));
    let good = Odd(&|| ());
    limiter.when(&good);
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.when(&bad))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.forget(&bad))).is_err());
    assert_eq!(limiter.num_requeues(&good), 1);
    assert_eq!(limiter.when(&good), ms(2));
}

// It would hang if a lock were held.
#[test]
fn the_hash_of_a_key_may_call_the_limiter() {
    let limiter = exponential::<Odd<'_>>(ms(1), secs(1));
    let calls_back = || {
        limiter.when(&Odd(&|| ()));
        limiter.forget(&Odd(&|| ()));
    };
    assert_eq!(limiter.when(&Odd(&calls_back)), ms(1));
}

#[test]
fn limiters_work_through_any_pointer_and_across_threads() {
    fn assert_limiter<L: RateLimiter<str> + 'static>(_: &L) {}
    let boxed: Box<dyn RateLimiter<str>> = Box::new(exponential::<str>(ms(1), secs(1)));
    assert_limiter(&boxed);
    let shared: Arc<dyn RateLimiter<str>> = Arc::from(boxed);
    assert_limiter(&shared);
    let limiter = WithMaxWait::new(&*shared, ms(3));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(delays(&limiter, "key", 3), [ms(1), ms(2), ms(3)]));
    });
    assert_eq!(shared.num_requeues("key"), 3);
}

#[test]
fn limiters_show_their_settings() {
    let bucket = Bucket::new(2.5, 7).unwrap();
    assert_eq!(
        format!("{bucket:?}"),
        "Bucket { per_second: 2.5, burst: 7, .. }"
    );
    let exponential = exponential::<str>(ms(3), secs(4));
    exponential.when("key");
    assert_eq!(
        format!("{exponential:?}"),
        "PerKeyLimiter { policy: Exponential { base: 3ms, max: 4s }, tracked: 1, memory: 8s, .. }"
    );
    let max = MaxOf::<str>::new([Box::new(bucket) as Box<dyn RateLimiter<str>>]);
    assert_eq!(format!("{max:?}"), "MaxOf { limiters: 1 }");
}
