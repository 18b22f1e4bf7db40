//! Saturating conversions between `Duration` and integer nanoseconds: none panics, not even for
//! `Duration::MAX`.

use std::time::Duration;

const PER_SECOND: u128 = 1_000_000_000;

/// Returns the nanoseconds of `d`, at most `u64::MAX` (584 years).
pub(crate) fn saturating(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the `Duration` of `nanos` nanoseconds, at most `Duration::MAX`.
pub(crate) fn duration(nanos: u128) -> Duration {
    // Nearly every duration fits in a u64, for which the division is ten times cheaper.
    if let Ok(nanos) = u64::try_from(nanos) {
        return Duration::from_nanos(nanos);
    }
    u64::try_from(nanos / PER_SECOND).map_or(Duration::MAX, |seconds| {
        let below_a_second = (nanos % PER_SECOND) as u32;
        Duration::new(seconds, below_a_second)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_survives_the_round_trip() {
        for d in [
            Duration::ZERO,
            Duration::from_nanos(u64::MAX),
            Duration::from_nanos(u64::MAX) + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            assert_eq!(duration(d.as_nanos()), d);
        }
    }

    #[test]
    fn what_is_too_long_saturates() {
        assert_eq!(duration(Duration::MAX.as_nanos() + 1), Duration::MAX);
        assert_eq!(duration(u128::MAX), Duration::MAX);
        assert_eq!(saturating(Duration::MAX), u64::MAX);
    }
}
