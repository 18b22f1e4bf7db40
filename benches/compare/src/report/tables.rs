//! What the figures say: tables in Markdown, which reads well in a terminal, too.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};

use super::plots::THROUGHPUT;
use super::{OURS, Report, Row};

/// The contenders with their own column; the others share one.
const COLUMNS: [&str; 4] = [OURS, "client-go", "priorityqueue", "single-lock"];
/// The contenders to which ratios are given.
const RIVALS: [&str; 2] = ["client-go", "single-lock"];
/// Bare queues without keys: limits, not rivals.
const LIMITS: [&str; 2] = ["array-queue", "seg-queue"];
/// Between these ratios the two are as fast.
const AS_FAST: [f64; 2] = [0.95, 1.05];

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

/// Of the rows with a rival: the medians with least and most, and the ratios to keyqueue's. What is bold is faster than keyqueue.
pub(super) fn results(report: &Report) -> String {
    let header = "workload|unit|>keyqueue|>client-go|>priorityqueue|>single-lock|>to client-go\
                  |>to single-lock|others|>read-modify-writes|rival";
    let cells = |row: &Row| {
        let others = row.figures.keys().filter(|name| !COLUMNS.contains(name));
        let others = others.map(|name| other(row, name));
        let mut cells = vec![row.id.clone(), row.unit.to_owned()];
        cells.extend(COLUMNS.map(|name| median(row, name) + &range(row, name)));
        cells.extend(RIVALS.map(|name| ratio(row, name)));
        cells.push(joined(others));
        cells.push(rmws(row, report.rmw_ns).unwrap_or_default());
        cells.push(format!("{} {}", row.of.3, ratio(row, row.of.3)));
        cells
    };
    table(header, shown(report).map(cells))
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

fn shown(report: &Report) -> impl Iterator<Item = &Row> {
    report.rows.iter().filter(|row| !row.of.3.is_empty())
}

/// In which rows keyqueue is ahead of the rival, and in which it is not; and the mean of the ratios of speed.
pub(super) fn summary(report: &Report) -> String {
    let ratios = shown(report).filter_map(|row| Some((row, row.ratio_to(row.of.3)?)));
    let ratios: Vec<(&Row, f64)> = ratios.collect();
    let [slower, faster] = AS_FAST;
    let count = |is_meant: &dyn Fn(f64) -> bool| ratios.iter().filter(|it| is_meant(it.1)).count();
    let mut summary = format!(
        "keyqueue is ahead of the rival in {} of {} rows, and as fast in {}.",
        count(&|ratio| ratio > faster),
        ratios.len(),
        count(&|ratio| (slower..=faster).contains(&ratio)),
    );
    let behind = ratios.iter().filter(|(_, ratio)| *ratio < slower);
    let mut by_rival: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (row, ratio) in behind {
        let of_rival = by_rival.entry(row.of.3).or_default();
        of_rival.push(format!("{} {ratio:.2}x", row.id));
    }
    for (rival, rows) in by_rival {
        summary += &format!("\n\nBehind `{rival}`: {}.", rows.join("; "));
    }
    summary += "\n\n";
    // Time for each key, add or event.
    let is_of_speed = |row: &&Row| row.unit.starts_with("ns/");
    let means = RIVALS.into_iter().filter_map(|rival| {
        let rows = shown(report).filter(is_of_speed);
        let ratios: Vec<f64> = rows.filter_map(|row| row.ratio_to(rival)).collect();
        let logarithm: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let (count, mean) = (ratios.len(), (logarithm / ratios.len() as f64).exp());
        (count > 0).then(|| format!("Geometric mean of {count} ratios to {rival}: {mean:.2}x."))
    });
    summary + &means.collect::<Vec<_>>().join(" ")
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

    static FIGURE: Figure = Figure("", "ns/key", 5, "single-lock");

    fn row(id: &str, figures: &[(&'static str, f64)]) -> Row {
        let mut row = Row::new(id, &FIGURE);
        for (contender, ns) in figures {
            row.record(contender, *ns);
        }
        row
    }

    #[test]
    fn the_summary_names_the_rows_in_which_the_rival_is_ahead() {
        let mut report = Report::new(1, &[]);
        report.rows = vec![
            row("behind", &[(OURS, 10.0), ("single-lock", 9.0)]),
            row("as-fast", &[(OURS, 10.0), ("single-lock", 9.6)]),
            row("ahead", &[(OURS, 10.0), ("single-lock", 20.0)]),
            // A contender that did not run is not beaten.
            row("alone", &[(OURS, 10.0), ("single-lock", f64::NAN)]),
        ];
        let summary = summary(&report);
        assert!(
            summary
                .starts_with("keyqueue is ahead of the rival in 1 of 3 rows, and as fast in 1.\n"),
            "{summary}"
        );
        assert!(
            summary.contains("\nBehind `single-lock`: behind 0.90x.\n"),
            "{summary}"
        );
        assert!(
            summary.ends_with("Geometric mean of 3 ratios to single-lock: 1.20x."),
            "{summary}"
        );
    }

    #[test]
    fn what_is_faster_is_bold() {
        let mut report = Report::new(1, &[]);
        report.rmw_ns = 1.0;
        let figures = [(OURS, 10.0), ("single-lock", 5.0), ("array-queue", 1.0)];
        report.rows = vec![row("cycle-u64", &figures)];
        let results = results(&report);
        let cells = "10.0|**5.00**|0.50x|array-queue 1.00 (0.10x)|5 x 2.00|single-lock 0.50x";
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
