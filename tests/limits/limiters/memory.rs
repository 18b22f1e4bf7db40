//! For how long a limiter remembers a key, and what it keeps meanwhile.

use super::*;

#[test] // L12
fn a_key_is_remembered_for_twice_the_maximum_and_no_longer() {
    let (limiter, mock) = mocked_exponential(secs(1));
    for n in 0..5 {
        assert_eq!(limiter.num_requeues(&1), n);
        assert_eq!(limiter.when(&1), Duration::from_nanos(1 << n));
        mock.advance(secs(2));
    }
    assert_eq!(limiter.num_requeues(&1), 5);
    mock.advance(NS);
    assert_eq!(limiter.num_requeues(&1), 0);
    assert_eq!(limiter.when(&1), NS);
    assert_eq!(limiter.num_requeues(&1), 1);
}

#[test] // L12
fn the_slow_delay_decides_how_long_a_fast_slow_remembers() {
    let (clock, mock) = Clock::mock();
    let limiter = fast_slow::<u8>(ms(1), secs(1), 1).with_clock(clock);
    limiter.when(&1);
    mock.advance(secs(2));
    assert_eq!(limiter.when(&1), secs(1));
    mock.advance(secs(2) + NS);
    assert_eq!(limiter.when(&1), ms(1));
}

#[test] // L12
fn a_longer_memory_can_be_asked_for_and_a_shorter_cannot() {
    let (longer, mock) = mocked_exponential(ms(10));
    let longer = longer.remember_for(secs(60)).remember_for(NS);
    longer.when(&1);
    mock.advance(secs(60));
    assert_eq!(longer.num_requeues(&1), 1);
    mock.advance(NS);
    assert_eq!(longer.num_requeues(&1), 0);
}

#[test] // L2 L12: twice nothing would forget between any two calls.
fn a_limiter_without_delays_still_counts() {
    let (clock, mock) = Clock::mock();
    let limiter = exponential::<u8>(Duration::ZERO, Duration::ZERO).with_clock(clock);
    limiter.when(&1);
    mock.advance(secs(60));
    limiter.when(&1);
    assert_eq!(limiter.num_requeues(&1), 2);
}

// L12: idle keys are forgotten at once, and the next calls, of whatever kind, release their memory.
#[test]
#[cfg_attr(miri, ignore = "no unsafe, and memory counted in keys")]
fn the_memory_of_a_million_failing_keys_is_back_after_twice_the_maximum() {
    const KEYS: u64 = 1_000_000;
    type Calls = fn(&ItemExponentialFailure<u64>, u64);
    let when_of_one_key: Calls = |limiter, _| assert!(limiter.when(&KEYS) >= NS);
    let forget_of_one_key: Calls = |limiter, _| limiter.forget(&KEYS);
    let forget_of_many: Calls = |limiter, n| limiter.forget(&(KEYS + n));
    for (calls, left) in [
        (when_of_one_key, 1),
        (forget_of_one_key, 0),
        (forget_of_many, 0),
    ] {
        let max = secs(1000);
        let (limiter, mock) = mocked_exponential(max);
        for key in 0..KEYS {
            limiter.when(&key);
        }
        mock.advance(max * 2);
        for key in (0..KEYS).step_by(997) {
            assert_eq!(limiter.num_requeues(&key), 1);
        }
        mock.advance(NS);
        for key in (0..KEYS).step_by(997) {
            assert_eq!(limiter.num_requeues(&key), 0);
        }
        for n in 0..10_000 {
            calls(&limiter, n);
        }
        assert!(limiter.tracked() <= left, "{} keys", limiter.tracked());
    }
}

#[test] // L12
#[cfg_attr(miri, ignore = "no unsafe, and memory counted in keys")]
fn a_stream_of_new_keys_is_tracked_for_two_spans_at_most() {
    const PER_SPAN: u64 = 10_000;
    let max = secs(1);
    let (limiter, mock) = mocked_exponential(max);
    for key in 0..20 * PER_SPAN {
        limiter.when(&key);
        mock.advance(max * 2 / PER_SPAN as u32);
        let bound = 2 * PER_SPAN as usize + 2000;
        assert!(
            key % 1000 != 0 || limiter.tracked() <= bound,
            "{} keys after {key}",
            limiter.tracked()
        );
    }
}
