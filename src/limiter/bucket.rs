//! A token bucket over all keys, in one atomic: [`crate::time::rate`] with reservations. Converting the time
//! and the returned delay rounds by less than 2 ns per call.
//!
//! # Giving back
//!
//! A reservation takes `full` to `max(full, now) + token`, and that is its *name*. If its delay is not used,
//! it is given back, and its name is free again:
//!
//! * The last one is *removed*: an exchange of `full`, if that is still the name, for `name - token`.
//! * If others were made since, its name is stored in `unused`. The next reservation takes it from there by
//!   an exchange, if `now` is at most `name - token`. Otherwise its token is lost.
//!
//! The rate and the burst hold for those that are used, in any order of calls, because of two facts:
//!
//! 1. *All names, in use or free, are at most `full`, and a token or more apart.* A new one is a token or more
//!    above `full`. The one that is removed is `full`, so the others are at most `name - token`, which is
//!    `full` then. A free one is taken once.
//! 2. *A reservation is due from `name - burst` to `name - token`*: it is due at
//!    `max(name - burst, now)`, and `now` is at most `name - token`.
//!
//! So the names of those that are due in a window of length `w` are in a window of `w + burst - token`: they are
//! at most `w / token` and a burst.
//!
//! `unused` has few places. If all are taken, a name replaces the lowest one, whose token is lost. Only as many
//! are free as threads are between a reservation and its return, for a new name is made only if none is free.

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::RateLimiter;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::time::rate::Rate;
use crate::{Clock, ConfigError};

/// A token bucket for all keys together: at most `burst` calls at once, `per_second` in the long
/// run.
///
/// Each call reserves a token, and returns how long it takes until that token is available. So
/// reservations queue up: with 10 a second and a burst of 100, the 10 000th call at the same moment
/// waits 990 s. [`WithMaxWait`](super::WithMaxWait) limits the delay.
///
/// It counts nothing per key: [`num_requeues`](RateLimiter::num_requeues) is zero.
///
/// A token whose delay is [not used](RateLimiter::reserve) is given back, and the next call gets it. Those
/// that are used never exceed the rate and the burst.
///
/// Delays are exact to 2 ns and do not drift. Rates above one token per nanosecond count as that,
/// rates below one token in 584 years as that.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::limiter::{Bucket, RateLimiter};
/// use std::time::Duration;
///
/// let (clock, mock) = Clock::mock();
/// let bucket = Bucket::new(10.0, 2)?.with_clock(clock);
/// let delays = ["a", "b", "c", "d"].map(|key| bucket.when(key).as_millis());
/// assert_eq!(delays, [0, 0, 100, 200]);
///
/// mock.advance(Duration::from_millis(300));
/// assert_eq!(bucket.when("e"), Duration::ZERO);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub struct Bucket {
    per_second: f64,
    burst: u32,
    rate: Rate,
    clock: Clock,
    /// When the bucket is full again, in units since the clock's start. Every call writes it, so it
    /// has a cache line to itself.
    full: CachePadded<AtomicU64>,
    /// Whether there may be names in `unused`.
    any_unused: AtomicBool,
    /// Names that are free; 0 is none.
    unused: [AtomicU64; UNUSED],
}

/// The number of places for names that are free.
const UNUSED: usize = 8;

impl Bucket {
    /// Creates a full bucket of `burst` tokens that is refilled at `per_second` tokens a second.
    ///
    /// # Errors
    ///
    /// Refuses a `per_second` that is not above zero and finite, and a `burst` of zero.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, ConfigError> {
        let part = "rate limiter";
        if !(per_second > 0.0 && per_second.is_finite()) {
            let rule = "must be above 0 and finite";
            return Err(ConfigError::new(part, "per_second", rule, per_second));
        }
        if burst == 0 {
            return Err(ConfigError::new(part, "burst", "must be above 0", burst));
        }
        Ok(Self {
            per_second,
            burst,
            rate: Rate::new(per_second, burst),
            clock: Clock::new(),
            full: CachePadded::new(AtomicU64::new(0)),
            any_unused: AtomicBool::new(false),
            unused: [(); UNUSED].map(|()| AtomicU64::new(0)),
        })
    }

    /// Reads the time from `clock`. Call it only on a new bucket.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Reserves one token. Returns how long it takes until it is available, and the name of the reservation.
    #[inline]
    fn take(&self) -> (Duration, u64) {
        let rate = self.rate;
        let now = rate.units(self.clock.nanos());
        // Ordering: Relaxed; a hint.
        if self.any_unused.load(Ordering::Relaxed)
            && let Some(name) = self.take_unused(now)
        {
            return (self.delay(rate.put_back(name), now), name);
        }
        let reserve = |full| Some(rate.take(full, now));
        // Ordering: Relaxed, both; read-modify-writes of one atomic are totally ordered, and it
        // publishes only its own value.
        let (Ok(full) | Err(full)) =
            self.full
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        (self.delay(full, now), rate.take(full, now))
    }

    #[inline]
    fn delay(&self, full: u64, now: u64) -> Duration {
        let rate = self.rate;
        Duration::from_nanos(rate.nearest_nanos(rate.next(full).saturating_sub(now)))
    }

    /// Takes the lowest name that is free and not too old.
    #[cold]
    fn take_unused(&self, now: u64) -> Option<u64> {
        // Ordering: Acquire; pairs with the Release in `give_back`: the name is seen, too.
        if !self.any_unused.swap(false, Ordering::Acquire) {
            return None;
        }
        loop {
            let names = self.unused.iter().map(|place| {
                // Ordering: Relaxed; ordered by the swap. The exchange below confirms it.
                (place.load(Ordering::Relaxed), place)
            });
            let free = names.filter(|&(name, _)| name != 0 && self.rate.put_back(name) >= now);
            let (name, place) = free.min_by_key(|&(name, _)| name)?;
            // Ordering: Relaxed, both; the name is all that it hands over.
            let taken = place.compare_exchange(name, 0, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                // There may be more.
                // Ordering: Release; as in `give_back`.
                self.any_unused.store(true, Ordering::Release);
                return Some(name);
            }
        }
    }

    /// Gives a reservation back.
    fn give_back(&self, name: u64) {
        if name == u64::MAX {
            return; // at the end of time, names are not apart
        }
        let before = self.rate.put_back(name);
        // Ordering: Relaxed, both; as in `take`.
        let removed =
            self.full
                .compare_exchange(name, before, Ordering::Relaxed, Ordering::Relaxed);
        if removed.is_err() {
            self.keep_unused(name);
        }
    }

    #[cold]
    fn keep_unused(&self, name: u64) {
        loop {
            let names = self.unused.iter().map(|place| {
                // Ordering: Relaxed; a guess, which the exchange below confirms.
                (place.load(Ordering::Relaxed), place)
            });
            let Some((lowest, place)) = names.min_by_key(|&(name, _)| name) else {
                break;
            };
            // An exchange: another thread may give a name back at the same time, which is not to be replaced.
            // Ordering: Relaxed, both; the Release below publishes it.
            let kept = place.compare_exchange(lowest, name, Ordering::Relaxed, Ordering::Relaxed);
            if kept.is_ok() {
                break;
            }
        }
        // Ordering: Release; pairs with the Acquire in `take_unused`.
        self.any_unused.store(true, Ordering::Release);
    }
}

impl<K: ?Sized> RateLimiter<K> for Bucket {
    fn when(&self, _: &K) -> Duration {
        self.take().0
    }

    fn reserve(&self, _: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        let (delay, name) = self.take();
        let is_used = used(delay);
        if !is_used {
            self.give_back(name);
        }
        is_used
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("per_second", &self.per_second)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // L5, L13
    #[test]
    fn the_slowest_bucket_does_not_wrap_around() {
        let (clock, _mock) = Clock::mock();
        let slowest = Bucket::new(f64::MIN_POSITIVE, 1).unwrap().with_clock(clock);
        slowest.take();
        for _ in 0..10 {
            assert!(slowest.take().0 > Duration::from_secs(500 * 365 * 86_400));
        }
    }

    /// Reservations that are made, given back in any order, or used, and what their delays are.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Reserve,
        GiveBack(usize),
        Use(usize),
        Wait(u64),
    }

    fn steps(waits: u64) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Reserve),
            3 => any::<usize>().prop_map(Step::GiveBack),
            1 => any::<usize>().prop_map(Step::Use),
            1 => (0..=waits).prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 1..200)
    }

    const TOKEN: u64 = 100_000_000;

    fn mocked(burst: u32) -> (Bucket, crate::MockClock) {
        let (clock, mock) = Clock::mock();
        let bucket = Bucket::new(10.0, burst).unwrap().with_clock(clock);
        (bucket, mock)
    }

    proptest! {
        // L14: while the clock stands still, each reservation gets the first time that is free.
        #[test]
        fn what_is_given_back_is_given_out_next(burst in 1..5_u32, steps in steps(0)) {
            let (bucket, _mock) = mocked(burst);
            let mut open = Vec::new();
            let mut taken = std::collections::BTreeSet::new();
            for step in steps {
                match step {
                    Step::Reserve if open.len() <= UNUSED => {
                        let (delay, name) = bucket.take();
                        let free = (1..).find(|n| !taken.contains(&(n * TOKEN))).unwrap();
                        prop_assert_eq!(name, free * TOKEN);
                        let late = TOKEN * free.saturating_sub(burst.into());
                        prop_assert_eq!(delay, Duration::from_nanos(late));
                        taken.insert(name);
                        open.push(name);
                    }
                    Step::GiveBack(which) if !open.is_empty() => {
                        let name = open.swap_remove(which % open.len());
                        taken.remove(&name);
                        bucket.give_back(name);
                    }
                    Step::Use(which) if !open.is_empty() => {
                        open.swap_remove(which % open.len());
                    }
                    _ => {}
                }
            }
        }

        // L14
        #[test]
        fn what_is_used_keeps_to_the_rate_whatever_is_given_back(
            burst in 1..5_u32,
            steps in steps(5 * TOKEN / 2),
        ) {
            let (bucket, mock) = mocked(burst);
            let (mut open, mut now, mut used) = (Vec::new(), 0, Vec::new());
            for step in steps {
                match step {
                    Step::Reserve => {
                        let (delay, name) = bucket.take();
                        open.push((now + delay.as_nanos() as u64, name));
                    }
                    Step::GiveBack(which) if !open.is_empty() => {
                        let (_, name) = open.swap_remove(which % open.len());
                        bucket.give_back(name);
                    }
                    Step::Use(which) if !open.is_empty() => {
                        used.push(open.swap_remove(which % open.len()).0);
                    }
                    Step::Wait(time) => {
                        mock.advance(Duration::from_nanos(time));
                        now += time;
                    }
                    _ => {}
                }
            }
            used.extend(open.iter().map(|&(due, _)| due));
            used.sort_unstable();
            for (n, from) in used.iter().enumerate() {
                for (others, to) in (1..).zip(&used[n..]) {
                    let most = (to - from) / TOKEN + u64::from(burst);
                    prop_assert!(others <= most, "{} from {} to {}", others, from, to);
                }
            }
        }

        // L5
        #[test]
        fn every_setting_is_sound_and_gives_its_burst_at_once(
            bits in any::<u64>(),
            burst in 1..=u32::MAX,
        ) {
            let rate = f64::from_bits(bits >> 1);
            prop_assume!(rate > 0.0 && rate.is_finite());
            let (clock, _mock) = Clock::mock();
            let bucket = Bucket::new(rate, burst).unwrap().with_clock(clock);
            // As if all but one token of the burst had been taken.
            let others = u64::MAX - bucket.rate.next(u64::MAX);
            // Ordering: Relaxed; one thread.
            bucket.full.store(others, Ordering::Relaxed);
            prop_assert_eq!(bucket.take().0, Duration::ZERO);
            prop_assert!(bucket.take().0 > Duration::ZERO);
        }
    }
}
