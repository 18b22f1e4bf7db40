//! What the figures say: tables in Markdown, which reads well in a terminal, too.

use comfy_table::{CellAlignment, Table, presets};

use super::{OURS, Report, Row};
use crate::catalogue::{self, Figure, Target, Workload};

/// The contenders with a column of their own; the others share one.
const COLUMNS: [&str; 4] = [OURS, "client-go", "priorityqueue", "single-lock"];
/// The contenders to which ratios are given.
const RIVALS: [&str; 2] = ["client-go", "single-lock"];
/// Bare queues without keys: limits, not rivals.
const LIMITS: [&str; 2] = ["array-queue", "seg-queue"];

/// A Markdown table; a column is aligned to the right if its title begins with `>`.
pub(super) fn table<R>(header: &str, rows: &[R]) -> String
where
    R: AsRef<[String]>,
{
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let titles = header.split('|');
    table.set_header(titles.map(|title| title.trim_start_matches('>')));
    for (column, title) in table.column_iter_mut().zip(header.split('|')) {
        if title.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows.iter().map(AsRef::as_ref));
    table.to_string()
}

/// The medians, and the ratios to keyqueue's.
pub(super) fn results(report: &Report) -> String {
    let header = "workload|unit|>keyqueue|>client-go|>priorityqueue|>single-lock|>to client-go\
                  |>to single-lock|others";
    let cells = |row: &Row| {
        let names = row.figures.keys().map(String::as_str);
        let others = names.filter(|name| !COLUMNS.contains(name));
        let others = others.map(|name| format!("{name} {}", median(row, name)));
        let mut cells = vec![row.id.clone(), row.unit.clone()];
        cells.extend(COLUMNS.map(|name| median(row, name)));
        cells.extend(RIVALS.map(|name| ratio(row, name)));
        cells.push(others.collect::<Vec<_>>().join(", "));
        cells
    };
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    table(header, &rows)
}

/// Least and most, which tell how far a median can be trusted.
pub(super) fn extremes(report: &Report) -> String {
    let range = |row: &Row, name| {
        let (least, most) = row.extremes(name)?;
        Some(format!("{} .. {}", number(least), number(most)))
    };
    let cells = |row: &Row| {
        let ranges = [OURS, "client-go", "single-lock"].map(|name| range(row, name));
        let mut cells = vec![row.id.clone()];
        cells.extend(ranges.map(Option::unwrap_or_default));
        cells
    };
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    table("workload|>keyqueue|>client-go|>single-lock", &rows)
}

/// The columns of [`verdicts`].
pub(super) const TARGETS: &str = "workload|target|>measured|verdict";
pub(super) const SHORT: &str = "**short**";

/// A row for every target whose workload was run.
pub(super) fn verdicts(report: &Report) -> Vec<[String; 4]> {
    let mut verdicts = Vec::new();
    for (row, Figure(_, _, _, targets)) in figures(report) {
        verdicts.extend(targets.iter().map(|target| judge(row, *target)));
    }
    verdicts
}

/// The rows that were run, as the catalogue has them.
fn figures(report: &Report) -> Vec<(&Row, &'static Figure)> {
    let mut rows = Vec::new();
    for Workload(id, _, figures) in catalogue::all() {
        for figure in *figures {
            let row = Row::new(id, figure.0, figure.1);
            rows.extend(report.row(&row.id).map(|row| (row, figure)));
        }
    }
    rows
}

fn judge(row: &Row, target: Target) -> [String; 4] {
    let (wanted, measured, limit) = match target {
        Target::Less(times, than) => {
            let wanted = format!("{times}x less than {than}");
            (wanted, row.ratio_to(than), times)
        }
        Target::Within(times, than) => {
            let ratio = row.ratio_to(than).map(f64::recip);
            (format!("at most {times}x {than}"), ratio, times)
        }
        Target::AtMost(most) => {
            let wanted = format!("at most {most} {}", row.unit);
            (wanted, row.median(OURS), most)
        }
    };
    let verdict = match (target, measured) {
        (_, None) => "not run",
        (Target::Less(..), Some(ratio)) if ratio < limit => SHORT,
        (Target::Within(..) | Target::AtMost(_), Some(figure)) if figure > limit => SHORT,
        _ => "met",
    };
    let measured = measured.map(number).unwrap_or_default();
    [row.id.clone(), wanted, measured, verdict.to_owned()]
}

/// The number of targets met, and the mean of the ratios of speed.
pub(super) fn summary(report: &Report) -> String {
    let verdicts = verdicts(report);
    let count = |verdict| verdicts.iter().filter(|it| it[3] == verdict).count();
    let (met, short, not_run) = (count("met"), count(SHORT), count("not run"));
    let all = verdicts.len();
    let mut summary = format!(
        "Of {all} targets {met} are met, {short} are short, {not_run} could not be judged."
    );
    // Time for each key, add or event; an interval is set from outside.
    let is_of_speed = |row: &&Row| row.unit.starts_with("ns/") && !row.id.ends_with("interval");
    for rival in RIVALS {
        let rows = report.rows.iter().filter(is_of_speed);
        let ratios: Vec<f64> = rows.filter_map(|row| row.ratio_to(rival)).collect();
        let logarithm: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let mean = times_of((logarithm / ratios.len() as f64).exp());
        let ratios = ratios.len();
        if ratios > 0 {
            summary += &format!(" Geometric mean of {ratios} ratios to {rival}: {mean}.");
        }
    }
    summary
}

/// keyqueue's rows of one thread, as multiples of the time of their read-modify-writes.
pub(super) fn rmws(report: &Report) -> String {
    let Some(each) = report.machine.rmw_ns else {
        return "This run did not measure a read-modify-write.".to_owned();
    };
    let all = figures(report).into_iter();
    let one_thread = all.filter(|(_, Figure(_, _, rmws, _))| *rmws > 0);
    let rows = one_thread.filter_map(|(row, Figure(_, _, rmws, _))| {
        let multiple = times_of(row.median(OURS)? / (f64::from(*rmws) * each));
        Some([
            row.id.clone(),
            median(row, OURS),
            rmws.to_string(),
            multiple,
        ])
    });
    let header = "workload|>ns|>read-modify-writes|>multiple of their time";
    let table = table(header, &rows.collect::<Vec<_>>());
    format!("An uncontended atomic read-modify-write took {each:.1} ns in this run.\n\n{table}")
}

/// Every row in which a contender that is no limit is ahead of keyqueue.
pub(super) fn behind(report: &Report) -> String {
    let mut rows = Vec::new();
    for row in &report.rows {
        let (Some(ours), Some((least, _))) = (row.median(OURS), row.extremes(OURS)) else {
            continue;
        };
        for name in row.figures.keys().map(String::as_str) {
            // A shorter interval is a heavier load.
            let counts = !LIMITS.contains(&name) && !row.id.ends_with("interval");
            if counts && row.median(name) < Some(ours) {
                let overlap = row.extremes(name).is_some_and(|(_, most)| most >= least);
                rows.push([
                    row.id.clone(),
                    row.unit.clone(),
                    number(ours),
                    name.to_owned(),
                    median(row, name),
                    ratio(row, name),
                    if overlap { "yes" } else { "no" }.to_owned(),
                ]);
            }
        }
    }
    let header = "workload|unit|>keyqueue|ahead of it|>theirs|>theirs / ours|rounds overlap";
    table(header, &rows)
}

/// The model, a row for each number of processors.
pub(super) fn model(report: &Report) -> String {
    let mut header = ">processors".to_owned();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for curve in &report.model {
        let name = &curve.contender;
        header += &format!("|>{name}: lines moved/key|>{name}: M keys/s");
        for (at, point) in curve.points.iter().enumerate() {
            if at == rows.len() {
                rows.push(vec![point.threads.to_string()]);
            }
            rows[at].extend([number(point.transfers), number(point.throughput)]);
        }
    }
    table(&header, &rows)
}

pub(super) fn median(row: &Row, contender: &str) -> String {
    row.median(contender).map(number).unwrap_or_default()
}

pub(super) fn ratio(row: &Row, contender: &str) -> String {
    row.ratio_to(contender).map(times_of).unwrap_or_default()
}

fn times_of(ratio: f64) -> String {
    format!("{ratio:.2}x")
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

    #[test]
    fn a_target_is_met_by_the_median() {
        let mut row = Row::new("cycle-u64", "", "ns/key");
        for (ours, go) in [(12.0, 500.0), (9.0, 60.0), (10.0, 1.0)] {
            row.record(OURS, ours);
            row.record("client-go", go);
        }
        row.record("client-go", f64::NAN);
        let verdict = |target| judge(&row, target)[3].clone();
        assert_eq!(verdict(Target::Less(6.0, "client-go")), "met");
        assert_eq!(verdict(Target::Less(6.1, "client-go")), SHORT);
        assert_eq!(verdict(Target::Within(0.1, "client-go")), SHORT);
        assert_eq!(verdict(Target::AtMost(10.0)), "met");
        assert_eq!(verdict(Target::AtMost(9.9)), SHORT);
        // A contender that did not run is not beaten.
        assert_eq!(verdict(Target::Less(1.0, "single-lock")), "not run");
    }

    #[test]
    fn numbers_have_three_digits_or_groups_of_them() {
        let numbers = [0.25, 33.33, 999.0, 1234.0, 1_234_567.0].map(number);
        assert_eq!(numbers, ["0.25", "33.3", "999", "1 234", "1 234 567"]);
    }
}
