//! When a key has been idle for too long, and by which clock.
//!
//! Two clocks will do. The exact one reads the cycle counter, which takes 5 ns beside all the rest of a
//! call; the kernel's coarse one takes 2 ns, and is behind by some milliseconds. A memory of
//! [`COARSE_FROM`] or more, as long as there is a coarse clock and time is not mocked, goes by that.
//!
//! # Not early, and how late
//!
//! A key fails at the time `t` and is stamped `c`, which is behind by `lag = t - c >= 0`. It is looked at
//! at the time `u`, when the clock reads `d <= u`. It is forgotten if `d - c > span`, so
//!
//! * if it is, it has been idle for `u - t >= d - c - lag > span - lag`: for longer than `memory`, as long
//!   as `lag` is within `span - memory`, the margin. The exact clock has no lag and no margin. The coarse one
//!   is behind by a tick, 10 ms where it is longest; and by some ticks, 50 ms, if a virtual machine does not
//!   run the processor that keeps it. The least margin is 156 ms, for a memory of ten seconds;
//! * if it is not, it has been idle for `u - t <= d - c + (u - d) <= span + (u - d)`: it is forgotten late
//!   by the margin and a lag at most, that is by a 64th of its memory and some milliseconds.

use std::time::Duration;

use crate::Clock;
use crate::clock::coarse;

/// From this memory on, in nanoseconds, the coarse clock is exact enough.
const COARSE_FROM: u64 = 10_000_000_000;

/// The part of its memory for which a key is remembered longer by the coarse clock.
const MARGIN: u64 = 64;

/// Tells how long keys have been idle.
pub(super) struct Idle {
    clock: Clock,
    /// How long a key may be idle before it is forgotten, in nanoseconds.
    memory: u64,
    /// By how much two readings must differ at least until that time has passed.
    span: u64,
    coarse: bool,
}

impl Idle {
    pub(super) fn new(clock: Clock, memory: u64) -> Self {
        let coarse = coarse::IS_THERE && !clock.is_mocked() && memory >= COARSE_FROM;
        let margin = if coarse { memory / MARGIN } else { 0 };
        Self {
            clock,
            memory,
            span: memory.saturating_add(margin),
            coarse,
        }
    }

    pub(super) fn with_clock(self, clock: Clock) -> Self {
        Self::new(clock, self.memory)
    }

    /// With a memory of at least so many nanoseconds.
    pub(super) fn at_least(self, memory: u64) -> Self {
        let memory = self.memory.max(memory);
        Self::new(self.clock, memory)
    }

    pub(super) fn memory(&self) -> Duration {
        Duration::from_nanos(self.memory)
    }

    /// A reading, in nanoseconds of the clock that is used.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        if self.coarse {
            coarse::nanos()
        } else {
            self.clock.nanos_of_this_core()
        }
    }

    /// By how much a later reading exceeds that of a key's last failure when the key is forgotten.
    #[inline]
    pub(super) fn span(&self) -> u64 {
        self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    fn real(memory: u64) -> Idle {
        Idle::new(Clock::new(), memory)
    }

    // D9, L12
    #[test]
    fn mocked_time_and_a_short_memory_are_exact() {
        let mocked = |memory| Idle::new(Clock::mock().0, memory);
        for memory in [0, SECOND, 10 * SECOND, 2000 * SECOND, u64::MAX] {
            let idle = mocked(memory);
            assert_eq!((idle.coarse, idle.span()), (false, memory));
            let idle = real(memory).with_clock(Clock::mock().0);
            assert_eq!((idle.coarse, idle.span()), (false, memory));
        }
        for memory in [0, SECOND, 10 * SECOND - 1] {
            let idle = real(memory);
            assert_eq!((idle.coarse, idle.span()), (false, memory));
        }
    }

    // L12: a reading that is ten ticks of 10 ms behind forgets nothing early.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_long_memory_is_coarse_with_a_margin_for_the_lag() {
        for idle in [
            real(10 * SECOND),
            real(2000 * SECOND),
            real(SECOND).at_least(10 * SECOND),
            mocked_first().with_clock(Clock::new()),
        ] {
            assert!(idle.coarse);
            let margin = idle.span() - idle.memory;
            assert!(margin >= 150 * MS, "{margin} of {}", idle.memory);
            assert!(margin <= idle.memory / 64, "{margin} of {}", idle.memory);
        }
        assert_eq!(real(u64::MAX).span(), u64::MAX);
    }

    #[cfg(target_os = "linux")]
    fn mocked_first() -> Idle {
        Idle::new(Clock::mock().0, 60 * SECOND)
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "reads the cycle counter")]
    fn readings_are_of_the_clock_that_was_chosen() {
        let coarse = real(10 * SECOND);
        let (before, now, after) = (coarse::nanos(), coarse.now(), coarse::nanos());
        assert!((before..=after).contains(&now), "{before} {now} {after}");

        let clock = Clock::new();
        let exact = Idle::new(clock.clone(), SECOND);
        let (now, after) = (exact.now(), clock.nanos());
        assert!(
            now <= after,
            "{now} is not since the clock was made, {after}"
        );
    }
}
