//! Tables: in Markdown, which reads well in a terminal, too.

use comfy_table::{CellAlignment, Table, presets};

use super::verdict::{self, times_of};
use super::{OURS, Report, Rounds, Row};

/// The contenders with a column of their own; the others share one.
const COLUMNS: [&str; 4] = [OURS, "client-go", "priorityqueue", "single-lock"];
/// Ratios are given to these.
const RIVALS: [&str; 2] = ["client-go", "single-lock"];

/// The medians, and how many times less ours is.
pub(super) fn results(report: &Report) -> Table {
    let mut header = vec!["workload", "unit"];
    header.extend(COLUMNS);
    header.extend(["to client-go", "to single-lock", "others"]);
    let mut table = table(&header, 2..8);
    for row in &report.rows {
        let mut cells = vec![row.title(), row.unit.clone()];
        cells.extend(COLUMNS.map(|name| {
            let median = row.median(name).map(number);
            median.unwrap_or_else(|| missing(report, name))
        }));
        cells.extend(RIVALS.map(|name| row.faster_than(name).map_or_else(String::new, times_of)));
        cells.push(others(row));
        table.add_row(cells);
    }
    table
}

/// The extremes, so that one sees how much a median may be trusted.
pub(super) fn spread(report: &Report) -> Table {
    let mut header = vec!["workload", "unit"];
    header.extend(COLUMNS);
    let mut table = table(&header, 2..6);
    for row in &report.rows {
        let mut cells = vec![row.title(), row.unit.clone()];
        cells.extend(COLUMNS.map(|name| row.of(name).map_or_else(String::new, range)));
        table.add_row(cells);
    }
    table
}

pub(super) fn targets(report: &Report) -> Table {
    let mut table = table(&["workload", "target", "measured", "verdict"], 2..3);
    for verdict in verdict::verdicts(report) {
        let met = match verdict.met {
            Some(true) => "met",
            Some(false) => "**short**",
            None => "not run",
        };
        table.add_row([verdict.row, verdict.wanted, verdict.got, met.to_owned()]);
    }
    table
}

/// Where somebody is ahead of us.
pub(super) fn behind(report: &Report) -> Table {
    let header = [
        "workload",
        "unit",
        "keyqueue",
        "ahead of it",
        "theirs",
        "theirs / ours",
        "rounds overlap",
    ];
    let mut table = table(&header, 4..6);
    for behind in verdict::behind(report) {
        table.add_row([
            behind.row,
            behind.unit,
            number(behind.ours),
            behind.contender,
            number(behind.theirs),
            if behind.ours > 0.0 {
                times_of(behind.theirs / behind.ours)
            } else {
                String::new()
            },
            if behind.may_be_noise { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

/// What the model says, a row for each number of processors.
pub(super) fn model(report: &Report) -> Table {
    let mut header = vec!["processors".to_owned()];
    for curve in &report.model {
        header.push(format!("{}: lines moved/key", curve.contender));
        header.push(format!("{}: M keys/s", curve.contender));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = table(&header, 0..header.len());
    for at in 0..report.model.first().map_or(0, |curve| curve.points.len()) {
        let points = report.model.iter().map(|curve| &curve.points[at]);
        let mut cells = vec![report.model[0].points[at].threads.to_string()];
        cells.extend(points.flat_map(|point| [number(point.transfers), number(point.throughput)]));
        table.add_row(cells);
    }
    table
}

/// An empty table whose columns of that range are numbers.
pub(super) fn table(header: &[&str], numbers: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for column in table
        .column_iter_mut()
        .skip(numbers.start)
        .take(numbers.len())
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn missing(report: &Report, name: &str) -> String {
    let entrant = report
        .contenders
        .iter()
        .find(|entrant| entrant.name == name);
    match entrant {
        Some(entrant) if entrant.not_run.is_some() => "not run".to_owned(),
        _ => String::new(),
    }
}

fn others(row: &Row) -> String {
    let others = row
        .results
        .iter()
        .filter(|rounds| !COLUMNS.contains(&rounds.contender.as_str()));
    let cells: Vec<String> = others
        .map(|rounds| format!("{} {}", rounds.contender, number(rounds.median())))
        .collect();
    cells.join(", ")
}

fn range(rounds: &Rounds) -> String {
    let (least, most) = rounds.extremes();
    format!("{} .. {}", number(least), number(most))
}

/// Three digits, or all there are before the point, in groups of three.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size < 10.0 {
        return format!("{value:.2}");
    }
    if size < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{size:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    if value < 0.0 {
        format!("-{grouped}")
    } else {
        grouped
    }
}
