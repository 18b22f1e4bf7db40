//! What the figures say about the targets, and where others are ahead.

use super::{OURS, Report, Row};
use crate::workloads::{self, Target};

/// Bare queues without keys, and what is no queue at all: to know where we stand, not to beat.
pub(super) const LIMITS: [&str; 2] = ["array-queue", "seg-queue"];

/// A target, and what became of it.
pub(super) struct Verdict {
    pub(super) row: String,
    pub(super) wanted: String,
    pub(super) got: String,
    /// None if the one it speaks of did not run.
    pub(super) met: Option<bool>,
}

/// Of every target whose workload was run.
pub(super) fn verdicts(report: &Report) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for workload in workloads::all() {
        for metric in &workload.metrics {
            let Some(row) = report.row(&workload.id, metric.name) else {
                continue;
            };
            verdicts.extend(metric.targets.iter().map(|target| judge(row, *target)));
        }
    }
    verdicts
}

fn judge(row: &Row, target: Target) -> Verdict {
    let (wanted, got, met) = match target {
        Target::Faster(times, than) => {
            let ratio = row.faster_than(than);
            let wanted = format!("{times}x less than {than}");
            (
                wanted,
                ratio.map(times_of),
                ratio.map(|ratio| ratio >= times),
            )
        }
        Target::Within(times, limit) => {
            let ratio = row.faster_than(limit).map(|ratio| 1.0 / ratio);
            let wanted = format!("within {times}x of {limit}");
            (
                wanted,
                ratio.map(times_of),
                ratio.map(|ratio| ratio <= times),
            )
        }
        Target::AtMost(most) => {
            let ours = row.median(OURS);
            let got = ours.map(|ours| format!("{ours:.0}"));
            let wanted = format!("at most {most} {}", row.unit);
            (wanted, got, ours.map(|ours| ours <= most))
        }
    };
    Verdict {
        row: row.title(),
        wanted,
        got: got.unwrap_or_default(),
        met,
    }
}

pub(super) fn times_of(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// A row in which somebody does better than we do.
pub(super) struct Behind {
    pub(super) row: String,
    pub(super) unit: String,
    pub(super) ours: f64,
    pub(super) contender: String,
    pub(super) theirs: f64,
    /// Whether the rounds of the two overlap, so that it may be chance.
    pub(super) may_be_noise: bool,
}

/// Every one of them, the limits apart.
pub(super) fn behind(report: &Report) -> Vec<Behind> {
    let mut behind = Vec::new();
    for row in &report.rows {
        // The pace is set, not reached; a shorter one is a heavier load.
        if row.metric == "interval" {
            continue;
        }
        let Some(ours) = row.of(OURS) else { continue };
        for theirs in &row.results {
            let ahead = theirs.median() < ours.median();
            if ahead && !LIMITS.contains(&theirs.contender.as_str()) {
                behind.push(Behind {
                    row: row.title(),
                    unit: row.unit.clone(),
                    ours: ours.median(),
                    contender: theirs.contender.clone(),
                    theirs: theirs.median(),
                    may_be_noise: theirs.extremes().1 >= ours.extremes().0,
                });
            }
        }
    }
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figures: [(&str, &[f64]); 2]) -> Row {
        let workloads = workloads::all();
        let mut row = Row::new("cycle-u64", &workloads[0].metrics[0]);
        for (contender, figures) in figures {
            figures
                .iter()
                .for_each(|figure| row.record(contender, *figure));
        }
        row
    }

    #[test]
    fn a_target_is_met_by_the_median() {
        let row = row([
            (OURS, &[12.0, 9.0, 10.0]),
            ("client-go", &[500.0, 60.0, 1.0]),
        ]);
        let met = |target| judge(&row, target).met;
        assert_eq!(met(Target::Faster(6.0, "client-go")), Some(true));
        assert_eq!(met(Target::Faster(6.1, "client-go")), Some(false));
        assert_eq!(met(Target::Within(0.1, "client-go")), Some(false));
        assert_eq!(met(Target::AtMost(10.0)), Some(true));
        assert_eq!(met(Target::AtMost(9.9)), Some(false));
        // Who did not run is not beaten.
        assert_eq!(met(Target::Faster(1.0, "single-lock")), None);
    }

    #[test]
    fn a_median_of_two_lies_between_them() {
        let row = row([(OURS, &[1.0, 2.0]), ("client-go", &[f64::NAN, 6.0])]);
        assert_eq!(row.median(OURS), Some(1.5));
        assert_eq!(row.faster_than("client-go"), Some(4.0));
    }
}
