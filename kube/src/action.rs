//! Reads the delay of kube's [`Action`], which has no method for it.
//!
//! The only public view of the field is the derived `Debug`: `Action { requeue_after: Some(1.5s)
//! }`. `Debug` of a [`Duration`] is exact to the nanosecond, so nothing is lost by this. The tests
//! of this file fail if a version of kube-runtime or of Rust writes something else.

use std::time::Duration;

use kube_runtime::controller::Action;

/// What an action asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until the object changes.
    Change,
    /// Another reconciliation after this time.
    After(Duration),
}

/// The delay if an action cannot be read: too early is harmless, never is not.
const UNREADABLE: Duration = Duration::from_secs(60);

/// Returns what the action asks for.
pub(crate) fn next(action: &Action) -> Next {
    if *action == Action::await_change() {
        return Next::Change;
    }
    let text = format!("{action:?}");
    let delay = text
        .strip_prefix("Action { requeue_after: Some(")
        .and_then(|rest| rest.strip_suffix(") }"))
        .and_then(parse);
    Next::After(delay.unwrap_or_else(|| {
        tracing::error!(action = text, "the delay cannot be read");
        UNREADABLE
    }))
}

/// Parses the `Debug` form of a duration: a decimal number and a unit.
fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let digits = match unit {
        "s" => 9,
        "ms" => 6,
        "µs" => 3,
        "ns" => 0,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > digits {
        return None;
    }
    let fraction = format!("{fraction:0<digits$}");
    let fraction: u64 = if digits == 0 {
        0
    } else {
        fraction.parse().ok()?
    };
    let whole: u64 = whole.parse().ok()?;
    let nanos_per_unit = 10_u64.pow(u32::try_from(digits).ok()?);
    match digits {
        9 => Some(Duration::new(whole, u32::try_from(fraction).ok()?)),
        _ => Some(Duration::from_nanos(
            whole.checked_mul(nanos_per_unit)?.checked_add(fraction)?,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_read_to_the_nanosecond() {
        assert_eq!(next(&Action::await_change()), Next::Change);
        let mut random = fastrand::Rng::with_seed(7);
        let edges = [
            Duration::ZERO,
            Duration::MAX,
            Duration::from_nanos(999_999_999),
        ];
        let some = (0..20_000).map(|_| {
            let nanos = random.u64(..) >> random.u32(0..64);
            Duration::from_nanos(nanos) * random.u32(1..100)
        });
        for delay in edges.into_iter().chain(some) {
            assert_eq!(
                next(&Action::requeue(delay)),
                Next::After(delay),
                "{delay:?}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "1",
            "1h",
            "1.5",
            "s",
            "1.2.3s",
            "1.1234567890s",
            "1.5ns",
            "-1s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
