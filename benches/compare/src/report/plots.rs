//! The plots of the page, as SVG: groups of bars, in each a bar for each contender.

use std::error::Error;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::Report;
use super::tables::number;

const SIZE: (u32, u32) = (760, 420);
/// The contenders that are drawn.
const DRAWN: [(&str, RGBColor); 4] = [
    ("keyqueue", RGBColor(31, 119, 180)),
    ("client-go", RGBColor(44, 160, 44)),
    ("priorityqueue", RGBColor(148, 103, 189)),
    ("single-lock", RGBColor(214, 39, 40)),
];

struct Plot {
    file: &'static str,
    title: &'static str,
    /// A group of bars each.
    rows: &'static [&'static str],
    /// The number that is shown for a figure of a row.
    shown: fn(f64) -> f64,
    /// The height of a bar with that number.
    height: fn(f64) -> f64,
}

const PLOTS: [Plot; 3] = [
    Plot {
        file: "throughput.svg",
        title: "Million distinct u64 keys a second, producers x consumers: higher is better",
        rows: &["unique-1x1", "unique-2x2", "unique-8x8"],
        shown: |ns| 1000.0 / ns,
        height: |shown| shown,
    },
    Plot {
        file: "latency.svg",
        title: "From add to get in an open loop, microseconds, logarithmic: lower is better",
        rows: &["latency p50", "latency p99", "latency p99.9"],
        shown: |ns| ns / 1000.0,
        height: |shown| (shown * 10.0).log10(),
    },
    Plot {
        file: "memory.svg",
        title: "Bytes for each of a million keys: lower is better",
        rows: &["memory queued", "delay-memory"],
        shown: |bytes| bytes,
        height: |shown| shown,
    },
];

pub(super) fn draw(report: &Report, into: &Path) -> Result<()> {
    for plot in PLOTS {
        let drawn = plot.draw(report, &into.join(plot.file));
        drawn.map_err(|error| anyhow!("cannot draw {}: {error}", plot.file))?;
    }
    Ok(())
}

impl Plot {
    fn draw(&self, report: &Report, path: &Path) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        // For each bar: its left edge, its colour and the number.
        let mut bars = Vec::new();
        for (group, id) in self.rows.iter().enumerate() {
            for (at, (contender, colour)) in DRAWN.into_iter().enumerate() {
                let left = group as f64 + 0.1 + 0.2 * at as f64;
                let median = report.row(id).and_then(|row| row.median(contender));
                bars.extend(median.map(|median| (left, colour, (self.shown)(median))));
            }
        }
        let heights = bars.iter().map(|bar| (self.height)(bar.2));
        let top = heights.fold(0.0, f64::max) * 1.12;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .margin_bottom(70)
            .build_cartesian_2d(0.0..self.rows.len() as f64, 0.0..top)?;
        for (left, colour, shown) in bars {
            let height = (self.height)(shown);
            let bar = [(left, 0.0), (left + 0.184, height)];
            let label = (left, height + top * 0.045);
            chart.draw_series([Rectangle::new(bar, colour.filled())])?;
            chart.draw_series([Text::new(number(shown), label, ("sans-serif", 12))])?;
        }
        for (group, id) in self.rows.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.1, 0.0));
            area.draw(&Text::new(*id, (x, y + 6), ("sans-serif", 14)))?;
        }
        for (at, (name, colour)) in DRAWN.into_iter().enumerate() {
            let (x, y) = (76 + 165 * at as i32, SIZE.1 as i32 - 22);
            area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour.filled()))?;
            area.draw(&Text::new(name, (x + 18, y), ("sans-serif", 13)))?;
        }
        area.present()?;
        Ok(())
    }
}
