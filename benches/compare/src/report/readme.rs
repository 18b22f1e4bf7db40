//! The figures in README.md: a few rows, between two marks.

use anyhow::{Context, Result};

use super::table::{self, number};
use super::verdict::times_of;
use super::{OURS, Report};

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->";

/// Those that say most, by workload and metric.
const ROWS: [(&str, &str); 17] = [
    ("cycle-u64", ""),
    ("cycle-string", ""),
    ("cycle-handle", ""),
    ("duplicate-1", ""),
    ("duplicate-4", ""),
    ("unique-1x1", ""),
    ("unique-8x8", ""),
    ("string-8x8", ""),
    ("replay", ""),
    ("backlog", ""),
    ("latency", "p99"),
    ("wake", "p50"),
    ("delay-insert", ""),
    ("limiter-controller-4", ""),
    ("memory", "queued"),
    ("start", ""),
    ("start", "used"),
];

/// The text with the figures of this run.
pub(super) fn update(readme: &str, report: &Report) -> Result<String> {
    let (before, rest) = readme
        .split_once(BEGIN)
        .context("no mark before the figures")?;
    let (_, after) = rest.split_once(END).context("no mark after the figures")?;
    let header = [
        "workload",
        "unit",
        OURS,
        "client-go",
        "single lock",
        "to client-go",
        "to single lock",
    ];
    let mut figures = table::table(&header, 2..7);
    for (workload, metric) in ROWS {
        let Some(row) = report.row(workload, metric) else {
            continue;
        };
        let median = |name| row.median(name).map_or_else(String::new, number);
        let ratio = |name| row.faster_than(name).map_or_else(String::new, times_of);
        figures.add_row([
            row.title(),
            row.unit.clone(),
            median(OURS),
            median("client-go"),
            median("single-lock"),
            ratio("client-go"),
            ratio("single-lock"),
        ]);
    }
    let machine = &report.machine;
    let run = if report.quick {
        "a quick run"
    } else {
        "a full run"
    };
    Ok(format!(
        "{before}{BEGIN}Medians of {} interleaved rounds, {run}, on {} cores of {}, with a load average of {} as it \
         began; less is better, and in the ratios more.\n\n{figures}\n{END}{after}",
        report.rounds, machine.cores, machine.processor, machine.load,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_both_marks() {
        let readme = include_str!("../../../../README.md");
        let begin = readme.find(BEGIN).expect("the first mark");
        assert!(readme[begin..].contains(END));
    }
}
