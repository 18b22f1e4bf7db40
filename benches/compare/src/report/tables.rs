//! What the figures say: tables in Markdown, which reads well in a terminal, too.

use comfy_table::{CellAlignment, Table, presets};

use super::plots::THROUGHPUT;
use super::{OURS, Report, Row};
use crate::workload::Target;

/// The contenders with their own column; the others share one.
const COLUMNS: [&str; 4] = [OURS, "client-go", "priorityqueue", "single-lock"];
/// The contenders to which ratios are given.
const RIVALS: [&str; 2] = ["client-go", "single-lock"];
/// Bare queues without keys: limits, not rivals.
const LIMITS: [&str; 2] = ["array-queue", "seg-queue"];

/// A page, and the texts between its marks.
type Page = (&'static str, Vec<(&'static str, String)>);

pub(super) fn pages(report: &Report) -> [Page; 2] {
    let (rounds, machine) = (report.rounds, &report.machine);
    let (minutes, seconds) = (report.seconds / 60, report.seconds % 60);
    let run = format!(
        "{rounds} rounds took {minutes} min {seconds} s; {machine}. An uncontended atomic \
         read-modify-write took {:.1} ns.",
        report.rmw_ns,
    );
    let contenders = report.contenders.iter();
    let versions = contenders.map(|(name, version)| vec![(*name).into(), version.clone()]);
    let benchmarks = vec![
        ("run", run),
        ("summary", summary(report)),
        ("contenders", table("name|version", versions)),
        ("results", results(report)),
    ];
    [
        ("BENCHMARKS.md", benchmarks),
        ("README.md", vec![("figures", figures(report))]),
    ]
}

/// Of the rows with a target: the medians with least and most, the ratios to keyqueue's, and the targets. What is bold is
/// faster than keyqueue, or is a target that is short.
pub(super) fn results(report: &Report) -> String {
    let header = "workload|unit|>keyqueue|>client-go|>priorityqueue|>single-lock|>to client-go\
                  |>to single-lock|others|>read-modify-writes|targets";
    let cells = |row: &Row| {
        let others = row.figures.keys().filter(|name| !COLUMNS.contains(name));
        let others = others.map(|name| other(row, name));
        let targets = row.of.3.iter().map(|target| judge(row, *target).0);
        let mut cells = vec![row.id.clone(), row.unit.to_owned()];
        cells.extend(COLUMNS.map(|name| median(row, name) + &range(row, name)));
        cells.extend(RIVALS.map(|name| ratio(row, name)));
        cells.push(joined(others));
        cells.push(rmws(row, report.rmw_ns).unwrap_or_default());
        cells.push(joined(targets));
        cells
    };
    let rows = report.rows.iter().filter(|row| !row.of.3.is_empty());
    table(header, rows.map(cells))
}

/// How often keyqueue's time is that of its read-modify-writes.
fn rmws(row: &Row, each: f64) -> Option<String> {
    let count = f64::from(row.of.2);
    let multiple = row.median(OURS)? / (count * each);
    (count > 0.0).then(|| format!("{count} x {multiple:.2}"))
}

/// The picture of README.md, with its figures in words.
fn figures(report: &Report) -> String {
    let group = |(id, what): (&str, &str)| {
        let row = report.row(id)?;
        let speed = |name| Some(format!("{name} {}", number(1000.0 / row.median(name)?)));
        let speeds = COLUMNS.into_iter().filter_map(speed);
        Some(format!("{what}: {}", joined(speeds)))
    };
    let groups: Vec<String> = THROUGHPUT.into_iter().filter_map(group).collect();
    format!(
        "![Million keys a second. {}](src/docs/throughput.svg)\n\nMedians of {} interleaved rounds; {}.",
        groups.join("; "),
        report.rounds,
        report
            .machine
            .split(", ")
            .take(3)
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// A target, and whether it is met if that can be judged.
fn judge(row: &Row, target: Target) -> (String, Option<bool>) {
    let (wanted, is_met) = match target {
        Target::Less(times, than) => {
            let is_met = row.ratio_to(than).map(|ratio| ratio >= times);
            (format!("{than} {}x", number(times)), is_met)
        }
        Target::AtMost(most) => {
            let is_met = row.median(OURS).map(|ours| ours <= most);
            (format!("at most {}", number(most)), is_met)
        }
    };
    (bold(wanted, is_met == Some(false)), is_met)
}

/// The number of targets met, and the mean of the ratios of speed.
pub(super) fn summary(report: &Report) -> String {
    let targets = report
        .rows
        .iter()
        .flat_map(|row| row.of.3.iter().map(move |it| (row, *it)));
    let verdicts: Vec<Option<bool>> = targets.map(|(row, target)| judge(row, target).1).collect();
    let count = |verdict| verdicts.iter().filter(|it| **it == verdict).count();
    let mut summary = format!(
        "Of {} targets {} are met, {} are short, {} could not be judged.",
        verdicts.len(),
        count(Some(true)),
        count(Some(false)),
        count(None),
    );
    // Time for each key, add or event.
    let is_of_speed = |row: &&Row| row.unit.starts_with("ns/") && !row.of.3.is_empty();
    for rival in RIVALS {
        let rows = report.rows.iter().filter(is_of_speed);
        let ratios: Vec<f64> = rows.filter_map(|row| row.ratio_to(rival)).collect();
        let logarithm: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let (count, mean) = (ratios.len(), (logarithm / ratios.len() as f64).exp());
        if count > 0 {
            summary += &format!(" Geometric mean of {count} ratios to {rival}: {mean:.2}x.");
        }
    }
    summary
}

/// A Markdown table; a column is aligned to the right if its title begins with `>`.
fn table(header: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let titles = header.split('|');
    table.set_header(titles.map(|title| title.trim_start_matches('>')));
    for (column, title) in table.column_iter_mut().zip(header.split('|')) {
        if title.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    table.to_string()
}

/// The median of a contender, bold if it is below keyqueue's and the contender is a rival.
fn median(row: &Row, contender: &str) -> String {
    let (ours, median) = (row.median(OURS), row.median(contender));
    let is_ahead = !LIMITS.contains(&contender) && median < ours;
    median.map_or(String::new(), |median| bold(number(median), is_ahead))
}

/// Least and most, which tell how far a median can be trusted.
fn range(row: &Row, contender: &str) -> String {
    let [least, _, most] = row.range(contender).unwrap_or_default();
    if least < most {
        format!(" ({} .. {})", number(least), number(most))
    } else {
        String::new()
    }
}

/// A contender without a column.
fn other(row: &Row, contender: &str) -> String {
    let ratio = row.ratio_to(contender);
    let ratio = ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2}x)"));
    format!("{contender} {}{ratio}", median(row, contender))
}

fn ratio(row: &Row, contender: &str) -> String {
    let ratio = row.ratio_to(contender);
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"))
}

fn bold(text: String, is_bold: bool) -> String {
    if is_bold { format!("**{text}**") } else { text }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Three digits, or all those before the point, in groups of three.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size < 100.0 {
        return format!("{value:.*}", if size < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{value:.0}");
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b' ')).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Figure;

    static FIGURE: Figure = Figure("", "ns/key", 0, &[]);

    #[test]
    fn a_target_is_met_by_the_median() {
        let mut row = Row::new("cycle-u64", &FIGURE);
        for (ours, go) in [(12.0, 500.0), (9.0, 60.0), (10.0, 1.0)] {
            row.record(OURS, ours);
            row.record("client-go", go);
        }
        row.record("client-go", f64::NAN);
        let verdict = |target| judge(&row, target).1;
        assert_eq!(verdict(Target::Less(6.0, "client-go")), Some(true));
        assert_eq!(verdict(Target::Less(6.1, "client-go")), Some(false));
        assert_eq!(verdict(Target::AtMost(10.0)), Some(true));
        assert_eq!(verdict(Target::AtMost(9.9)), Some(false));
        // A contender that did not run is not beaten.
        assert_eq!(verdict(Target::Less(1.0, "single-lock")), None);
    }

    #[test]
    fn what_is_faster_and_what_is_short_is_bold() {
        static FIGURE: Figure = Figure("", "ns/key", 5, &[Target::Less(1.7, "single-lock")]);
        let mut row = Row::new("cycle-u64", &FIGURE);
        for (contender, ns) in [(OURS, 10.0), ("single-lock", 5.0), ("array-queue", 1.0)] {
            row.record(contender, ns);
        }
        let mut report = Report::new(1, &[]);
        report.rmw_ns = 1.0;
        report.rows = vec![row];
        let results = results(&report);
        let cells = "10.0|**5.00**|0.50x|array-queue 1.00 (0.10x)|5 x 2.00|**single-lock 1.70x**";
        for cell in cells.split('|') {
            let cell = format!(" {cell} |");
            assert!(results.contains(&cell), "no {cell} in\n{results}");
        }
    }

    #[test]
    fn numbers_have_three_digits_or_groups_of_them() {
        let numbers = [0.25, 33.33, 999.0, 1234.0, 1_234_567.0].map(number);
        assert_eq!(numbers, ["0.25", "33.3", "999", "1 234", "1 234 567"]);
    }
}
