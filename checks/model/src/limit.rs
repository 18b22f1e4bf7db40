//! The limiters, by their formulae (L1 to L8, L12, L14), in whole numbers and one at a time.

use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: u128 = 1_000_000_000;

/// A length of time: `times * 2^shift` nanoseconds, so that all magnitudes are as likely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Span {
    pub times: u8,
    /// Taken modulo 96.
    pub shift: u8,
}

impl Span {
    /// The nanoseconds, at most those of the longest `Duration`.
    pub fn nanos(self) -> u128 {
        (u128::from(self.times) << (self.shift % 96)).min(Duration::MAX.as_nanos())
    }

    /// The length as the standard library has it.
    pub fn duration(self) -> Duration {
        duration(self.nanos())
    }

    /// The shorter and the longer of two, in nanoseconds.
    pub fn sorted(self, other: Span) -> (u128, u128) {
        let (one, other) = (self.nanos(), other.nanos());
        (one.min(other), one.max(other))
    }
}

/// So many nanoseconds, or the longest `Duration`.
pub fn duration(nanos: u128) -> Duration {
    let nanos = nanos.min(Duration::MAX.as_nanos());
    Duration::new((nanos / SECOND) as u64, (nanos % SECOND) as u32)
}

/// The settings of one limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Exponential per key from one delay, in nanoseconds, to a longer one.
    Exponential(u128, u128),
    /// Fast this many times per key, then slow; two delays in either order.
    FastSlow(Span, Span, u8),
    /// Tokens, in how many seconds, and the size of the bucket: each is one more than its number.
    Bucket(u16, u16, u16),
}

/// The settings of a limiter made of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest of these counts.
    pub of: Vec<Limit>,
    /// The longest delay of all.
    pub max_wait: Option<Span>,
}

impl Limits {
    /// How a queue backs off for which no limiter is set (L15): from 5 ms to 1000 s.
    pub fn unset() -> Self {
        Limits {
            of: vec![Limit::Exponential(SECOND / 200, 1000 * SECOND)],
            max_wait: None,
        }
    }
}

/// A delay, and how many nanoseconds a limiter may be off by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// The delay in nanoseconds.
    pub nanos: u128,
    /// Nothing unless a bucket has a say.
    pub off: u128,
}

impl Wait {
    /// Whether `delay` is this wait.
    pub fn is(&self, delay: Duration) -> bool {
        delay.as_nanos().abs_diff(self.nanos) <= self.off
    }
}

/// Limiters with what they remember. Times are nanoseconds of one clock.
#[derive(Clone, Debug, Default)]
pub struct NaiveLimits<K> {
    settings: Limits,
    /// For each limiter: how often each key failed, and when last.
    failures: Vec<BTreeMap<K, (u32, u128)>>,
    /// For each limiter: when all tokens will have been filled in again.
    arrivals: Vec<u128>,
}

impl<K: Ord + Copy> NaiveLimits<K> {
    /// Limiters that know of no failure.
    pub fn new(settings: Limits) -> Self {
        let count = settings.of.len();
        NaiveLimits {
            settings,
            failures: vec![BTreeMap::new(); count],
            arrivals: vec![0; count],
        }
    }

    /// Charges a key, and says how long it waits.
    pub fn when(&mut self, key: K, now: u128) -> Wait {
        let mut longest = Wait::default();
        for (at, limit) in self.settings.of.clone().iter().enumerate() {
            let wait = match *limit {
                Limit::Bucket(tokens, seconds, burst) => {
                    self.reserve(at, tokens, seconds, burst, now)
                }
                limit => self.fail(at, limit, key, now),
            };
            let off = longest.off.max(wait.off);
            longest = longest.max(wait);
            longest.off = off;
        }
        if let Some(most) = self.settings.max_wait {
            longest.nanos = longest.nanos.min(most.nanos());
        }
        longest
    }

    fn fail(&mut self, at: usize, limit: Limit, key: K, now: u128) -> Wait {
        let failed = self.count(at, limit, key, now);
        self.failures[at].insert(key, (failed.saturating_add(1), now));
        let nanos = match limit {
            Limit::Exponential(base, max) => (0..failed)
                .try_fold(base, |delay, _| {
                    (delay * 2 < max && delay > 0).then_some(delay * 2)
                })
                .unwrap_or(if base == 0 { 0 } else { max }),
            Limit::FastSlow(one, other, fast) if failed < u32::from(fast) => one.sorted(other).0,
            Limit::FastSlow(one, other, _) => one.sorted(other).1,
            Limit::Bucket(..) => unreachable!("a bucket counts no failures"),
        };
        Wait { nanos, off: 0 }
    }

    /// How often a key failed, unless that is too long ago.
    fn count(&self, at: usize, limit: Limit, key: K, now: u128) -> u32 {
        let longest = match limit {
            Limit::Exponential(_, longest) => longest,
            Limit::FastSlow(one, other, _) => one.sorted(other).1,
            Limit::Bucket(..) => return 0,
        };
        let memory = match longest {
            0 => 60 * SECOND,
            _ => longest * 2,
        };
        match self.failures[at].get(&key) {
            Some((count, last)) if now - last <= memory.min(u64::MAX.into()) => *count,
            _ => 0,
        }
    }

    /// Takes back the tokens of the last charge, whose delay is not used (L14).
    pub fn give_back(&mut self) {
        for (limit, arrival) in self.settings.of.iter().zip(&mut self.arrivals) {
            if let Limit::Bucket(_, seconds, _) = limit {
                *arrival -= (u128::from(*seconds) + 1) * SECOND;
            }
        }
    }

    /// Everything times the number of tokens, so that a token takes a whole number.
    fn reserve(&mut self, at: usize, tokens: u16, seconds: u16, burst: u16, now: u128) -> Wait {
        let scale = u128::from(tokens) + 1;
        let token = (u128::from(seconds) + 1) * SECOND;
        let arrival = self.arrivals[at].max(now * scale) + token;
        self.arrivals[at] = arrival;
        let full = (u128::from(burst) + 1) * token;
        let nanos = arrival.saturating_sub(full + now * scale) / scale;
        // Two nanoseconds of rounding, and a rate kept to one part in 2^52, halved for care.
        let off = 2 + ((arrival / scale) >> 51);
        Wait { nanos, off }
    }

    /// The largest number of failures of a key that any limiter has.
    pub fn num_requeues(&self, key: K, now: u128) -> u32 {
        let limits = self.settings.of.iter().enumerate();
        let counts = limits.map(|(at, limit)| self.count(at, *limit, key, now));
        counts.max().unwrap_or(0)
    }

    pub fn forget(&mut self, key: K) {
        for failures in &mut self.failures {
            failures.remove(&key);
        }
    }
}
