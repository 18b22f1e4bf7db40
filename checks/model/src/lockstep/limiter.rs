//! The crate's limiters from the model's settings.

use std::hash::Hash;

use crate::limit::{Limit, Limits, duration};
use keyqueue::Clock;
use keyqueue::limiter::{
    Bucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, WithMaxWait,
};

pub type Limiter<K> = Box<dyn RateLimiter<K>>;

/// The longest of them, cut if the settings say so.
pub fn build<K: Hash + 'static>(settings: &Limits, clock: &Clock) -> Limiter<K> {
    let limiters = settings.of.iter().map(|limit| one(*limit, clock));
    let all = MaxOf::new(limiters);
    match settings.max_wait {
        None => Box::new(all),
        Some(most) => Box::new(WithMaxWait::new(all, most.duration())),
    }
}

fn one<K: Hash + 'static>(limit: Limit, clock: &Clock) -> Limiter<K> {
    let clock = clock.clone();
    match limit {
        Limit::Exponential(base, max) => {
            let limiter = ItemExponentialFailure::new(duration(base), duration(max));
            Box::new(limiter.expect("in order").with_clock(clock))
        }
        Limit::FastSlow(one, other, fast) => {
            let (one, other) = (one.duration(), other.duration());
            let limiter = ItemFastSlow::new(one.min(other), one.max(other), fast.into());
            Box::new(limiter.expect("in order").with_clock(clock))
        }
        Limit::Bucket(tokens, seconds, burst) => {
            let rate = (f64::from(tokens) + 1.0) / (f64::from(seconds) + 1.0);
            let bucket = Bucket::new(rate, u32::from(burst) + 1);
            Box::new(bucket.expect("above 0").with_clock(clock))
        }
    }
}
