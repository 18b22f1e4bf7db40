//! The kernel's coarse clock: read from memory that the kernel keeps up to date, without a look at the
//! cycle counter. Monotonic, and moved on with each timer interrupt, every 1 to 10 ms.

/// Whether this system has one.
pub(crate) const IS_THERE: bool = cfg!(target_os = "linux");

/// Nanoseconds since some moment; never 0.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn nanos() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of ours. The call cannot fail for a clock that Linux has had
    // since 2.6.32; if it did, time would stand at 0.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    let whole = (now.tv_sec as u64).wrapping_mul(1_000_000_000);
    whole.wrapping_add(now.tv_nsec as u64).max(1)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn nanos() -> u64 {
    unreachable!("asked for although it is not there")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::nanos;
    use std::time::{Duration, Instant};

    #[test]
    fn the_coarse_clock_moves() {
        let (began, start) = (nanos(), Instant::now());
        while nanos() == began {
            assert!(start.elapsed() < Duration::from_secs(10), "it stands still");
            std::hint::spin_loop();
        }
        assert!(nanos() > began);
    }

    /// What it reads lies between two readings of the clock that it approximates, but for the lag that the
    /// limiters' margin allows (`limiter::per_key::idle`).
    #[test]
    fn the_coarse_clock_is_never_ahead_and_never_far_behind() {
        const FAR: u64 = 100_000_000;
        let exact = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            let (before, coarse, after) = (exact(), nanos(), exact());
            assert!(coarse <= after, "{coarse} read before {after}");
            assert!(coarse + FAR >= before, "{coarse} read after {before}");
        }
    }
}
