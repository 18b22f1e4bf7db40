//! The plots of the pages, as SVG: groups of bars, in each a bar for each contender; or of dots, on a logarithmic axis.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Report;
use super::tables::number;

/// The contenders that are drawn, and their colours.
const DRAWN: [(&str, &str); 4] = [
    ("keyqueue", "#1F77B4"),
    ("client-go", "#2CA02C"),
    ("priorityqueue", "#9467BD"),
    ("single-lock", "#D62728"),
];

/// A row that makes a group, and the group's name.
type Group = (&'static str, &'static str);

/// A file, relative to the results; a title; the groups; the number that is shown for a figure; and whether the axis
/// is logarithmic.
type Plot = (
    &'static str,
    &'static str,
    &'static [Group],
    fn(f64) -> f64,
    bool,
);

/// The picture of README.md.
pub(super) const THROUGHPUT: [Group; 3] = [
    ("unique-1x1", "1 producer, 1 consumer"),
    ("unique-2x2", "2 and 2"),
    ("unique-8x8", "8 and 8"),
];

const PLOTS: [Plot; 3] = [
    (
        "../../../src/docs/throughput.svg",
        "Million distinct keys a second between threads: higher is better",
        &THROUGHPUT,
        |ns| 1000.0 / ns,
        false,
    ),
    (
        "latency.svg",
        "From add to get in an open loop, microseconds on a logarithmic axis: lower is better",
        &[
            ("latency p50", "p50"),
            ("latency p99", "p99"),
            ("latency p99.9", "p99.9"),
        ],
        |ns| ns / 1000.0,
        true,
    ),
    (
        "memory.svg",
        "Bytes for each of a million keys: lower is better",
        &[("memory queued", "queued"), ("delay-memory", "delayed")],
        |bytes| bytes,
        false,
    ),
];

pub(super) fn draw(report: &Report, into: &Path) -> Result<()> {
    for plot in PLOTS {
        fs::write(into.join(plot.0), svg(plot, report)).context(plot.0)?;
    }
    Ok(())
}

fn svg((_, title, groups, shown, is_logarithmic): Plot, report: &Report) -> String {
    const HEAD: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 760 420' width='760' height='420' \
                        font-family='sans-serif' font-size='13'>";
    /// Of the bars: the lower end, and the most that one is high.
    const FLOOR: f64 = 350.0;
    const HIGH: f64 = 280.0;
    /// The left edge of the first group, right of the numbers of an axis.
    const LEFT: f64 = 60.0;
    let width = (740.0 - LEFT) / groups.len() as f64;

    let mut lines = vec![
        HEAD.to_owned(),
        rectangle(0.0, 0.0, 760.0, 420.0, "#FFFFFF"),
        text(20.0, 28.0, title),
    ];
    // For each figure: the middle of its bar, its colour and the number.
    let mut figures = Vec::new();
    for (group, (id, name)) in groups.iter().enumerate() {
        let left = LEFT + width * group as f64;
        lines.push(text(left, FLOOR + 18.0, name));
        for (at, (contender, colour)) in DRAWN.into_iter().enumerate() {
            let median = report.row(id).and_then(|row| row.median(contender));
            let middle = left + width / 5.0 * (at as f64 + 0.5);
            figures.extend(median.map(|median| (middle, colour, shown(median))));
        }
    }
    let most = figures.iter().map(|figure| figure.2).fold(0.0, f64::max);
    if is_logarithmic {
        let least = figures.iter().map(|figure| figure.2).fold(most, f64::min);
        let (low, high) = (least.log10().floor(), most.log10().ceil());
        let height = |shown: f64| HIGH * (shown.log10() - low) / (high - low);
        for power in low as i32..=high as i32 {
            let y = FLOOR - height(10_f64.powi(power));
            lines.push(rectangle(LEFT, y, 740.0 - LEFT, 1.0, "#DDDDDD"));
            lines.push(text(6.0, y + 4.0, &10_f64.powi(power).to_string()));
        }
        for (middle, colour, shown) in figures {
            let y = FLOOR - height(shown);
            lines.push(format!(
                "<circle cx='{middle:.0}' cy='{y:.0}' r='6' fill='{colour}'/>"
            ));
            lines.push(text(middle - 12.0, y - 10.0, &number(shown)));
        }
    } else {
        for (middle, colour, shown) in figures {
            let (height, left) = (HIGH * shown / most, middle - width / 11.0);
            lines.push(rectangle(left, FLOOR - height, width / 5.5, height, colour));
            lines.push(text(left, FLOOR - height - 6.0, &number(shown)));
        }
    }
    for (at, (contender, colour)) in DRAWN.into_iter().enumerate() {
        let left = LEFT + 165.0 * at as f64;
        lines.push(rectangle(left, 394.0, 12.0, 12.0, colour));
        lines.push(text(left + 18.0, 405.0, contender));
    }
    lines.join("") + "</svg>\n"
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, fill: &str) -> String {
    format!("<rect x='{x:.0}' y='{y:.0}' width='{width:.0}' height='{height:.0}' fill='{fill}'/>")
}

fn text(x: f64, y: f64, text: &str) -> String {
    format!("<text x='{x:.0}' y='{y:.0}'>{text}</text>\n")
}
