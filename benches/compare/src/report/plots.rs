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
    unit: &'static str,
    /// A group of bars each.
    rows: &'static [&'static str],
    /// The figure that is shown for one of the row.
    shown: fn(f64) -> f64,
    /// Whether a step on the axis multiplies.
    logarithmic: bool,
}

const PLOTS: [Plot; 3] = [
    Plot {
        file: "throughput.svg",
        title: "1M distinct u64 keys, producers x consumers: higher is better",
        unit: "million keys a second",
        rows: &["unique-1x1", "unique-2x2", "unique-8x8"],
        shown: |ns| 1000.0 / ns,
        logarithmic: false,
    },
    Plot {
        file: "latency.svg",
        title: "From add to get in an open loop: lower is better",
        unit: "microseconds",
        rows: &["latency p50", "latency p99", "latency p99.9"],
        shown: |ns| ns / 1000.0,
        logarithmic: true,
    },
    Plot {
        file: "memory.svg",
        title: "Memory for a key, one million of them: lower is better",
        unit: "bytes",
        rows: &["memory queued", "delay-memory"],
        shown: |bytes| bytes,
        logarithmic: false,
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
        let height = |figure: f64| {
            if self.logarithmic {
                figure.log10()
            } else {
                figure
            }
        };
        // For each bar: its group, its place in that, its colour and its figure.
        let mut bars = Vec::new();
        for (group, id) in self.rows.iter().enumerate() {
            for (at, (contender, colour)) in DRAWN.into_iter().enumerate() {
                let median = report.row(id).and_then(|row| row.median(contender));
                bars.extend(median.map(|median| (group, at, colour, (self.shown)(median))));
            }
        }
        let heights = || bars.iter().map(|bar| height(bar.3));
        let top = heights().fold(0.0, f64::max) * 1.12;
        let bottom = match self.logarithmic {
            true => heights().fold(top, f64::min).floor(),
            false => 0.0,
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(58)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.rows.len() as f64, bottom..top)?;
        // The bars have labels of their own.
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh()
            .x_labels(0)
            .y_labels(0)
            .y_desc(self.unit)
            .draw()?;
        for (group, at, colour, figure) in &bars {
            let left = *group as f64 + 0.1 + 0.2 * *at as f64;
            let bar = [(left, bottom), (left + 0.184, height(*figure))];
            let above = (left, height(*figure) + (top - bottom) * 0.045);
            chart.draw_series([Rectangle::new(bar, colour.filled())])?;
            chart.draw_series([Text::new(number(*figure), above, ("sans-serif", 12))])?;
        }
        for (group, id) in self.rows.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.1, bottom));
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
