//! The plots of the page, as SVG: groups of bars, in each a bar for each contender.

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

/// A file; a title; the rows that make a group of bars each; the number that is shown for a figure;
/// and whether bars are as high as its logarithm.
type Plot = (
    &'static str,
    &'static str,
    &'static [&'static str],
    fn(f64) -> f64,
    bool,
);

const PLOTS: [Plot; 3] = [
    (
        "throughput.svg",
        "Million distinct u64 keys a second, producers x consumers: higher is better",
        &["unique-1x1", "unique-2x2", "unique-8x8"],
        |ns| 1000.0 / ns,
        false,
    ),
    (
        "latency.svg",
        "From add to get in an open loop, microseconds, logarithmic: lower is better",
        &["latency p50", "latency p99", "latency p99.9"],
        |ns| ns / 1000.0,
        true,
    ),
    (
        "memory.svg",
        "Bytes for each of a million keys: lower is better",
        &["memory queued", "delay-memory"],
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

fn svg((_, title, rows, shown, is_logarithmic): Plot, report: &Report) -> String {
    const HEAD: &str = "<svg xmlns='http://www.w3.org/2000/svg' width='760' height='420' \
                        font-family='sans-serif' font-size='13'>";
    /// Of the bars: the lower end, and the most that one is high.
    const FLOOR: f64 = 350.0;
    const HIGH: f64 = 280.0;
    let width = 740.0 / rows.len() as f64;

    let mut lines = vec![
        HEAD.to_owned(),
        bar(0.0, 0.0, 760.0, 420.0, "#FFFFFF"),
        text(20.0, 28.0, title),
    ];
    // For each bar: its left edge, its colour and the number.
    let mut bars = Vec::new();
    for (group, id) in rows.iter().enumerate() {
        let left = 20.0 + width * group as f64;
        lines.push(text(left, FLOOR + 18.0, id));
        for (at, (contender, colour)) in DRAWN.into_iter().enumerate() {
            let median = report.row(id).and_then(|row| row.median(contender));
            let left = left + width / 5.0 * at as f64;
            bars.extend(median.map(|median| (left, colour, shown(median))));
        }
    }
    let height = |shown: f64| match is_logarithmic {
        true => (shown * 10.0).log10(),
        false => shown,
    };
    let most = bars.iter().map(|bar| height(bar.2)).fold(0.0, f64::max);
    for (left, colour, shown) in bars {
        let height = HIGH * height(shown) / most;
        lines.push(bar(left, FLOOR - height, width / 5.5, height, colour));
        lines.push(text(left, FLOOR - height - 6.0, &number(shown)));
    }
    for (at, (contender, colour)) in DRAWN.into_iter().enumerate() {
        let left = 20.0 + 165.0 * at as f64;
        lines.push(bar(left, 394.0, 12.0, 12.0, colour));
        lines.push(text(left + 18.0, 405.0, contender));
    }
    lines.join("") + "</svg>\n"
}

fn bar(x: f64, y: f64, width: f64, height: f64, fill: &str) -> String {
    format!("<rect x='{x:.0}' y='{y:.0}' width='{width:.0}' height='{height:.0}' fill='{fill}'/>")
}

fn text(x: f64, y: f64, text: &str) -> String {
    format!("<text x='{x:.0}' y='{y:.0}'>{text}</text>\n")
}
