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
    title: &'static str,
    unit: &'static str,
    /// A name, and the figures of those that are drawn.
    groups: Vec<(String, [Option<f64>; 4])>,
    /// Whether a step on the axis multiplies.
    logarithmic: bool,
}

pub(super) fn draw(report: &Report, into: &Path) -> Result<()> {
    let plot = |title, unit, ids: &[&str], show: fn(f64) -> f64| {
        let group = |id: &&str| {
            let row = report.row(id);
            let figure = |(name, _)| Some(show(row?.median(name)?));
            ((*id).to_owned(), DRAWN.map(figure))
        };
        Plot {
            title,
            unit,
            groups: ids.iter().map(group).collect(),
            logarithmic: false,
        }
    };
    let throughput = plot(
        "1M distinct u64 keys, producers x consumers: higher is better",
        "million keys a second",
        &["unique-1x1", "unique-2x2", "unique-8x8"],
        |ns| 1000.0 / ns,
    );
    let mut latency = plot(
        "From add to get in an open loop: lower is better",
        "microseconds",
        &["latency p50", "latency p99", "latency p99.9"],
        |ns| ns / 1000.0,
    );
    latency.logarithmic = true;
    let memory = plot(
        "Memory for a key, one million of them: lower is better",
        "bytes",
        &["memory queued", "delay-memory"],
        |bytes| bytes,
    );
    let mut model = plot(
        "A MODEL, not a measurement: recurring keys by number of processors",
        "million keys a second, all processors",
        &[],
        |throughput| throughput,
    );
    let points = report.model.first().map_or(0, |curve| curve.points.len());
    model.groups.extend((0..points).map(|at| {
        let point = |(name, _)| {
            let curve = report.model.iter().find(|curve| curve.contender == name);
            Some(curve?.points[at].throughput)
        };
        (
            report.model[0].points[at].threads.to_string(),
            DRAWN.map(point),
        )
    }));
    for (file, plot) in [
        ("throughput.svg", throughput),
        ("latency.svg", latency),
        ("memory.svg", memory),
        ("model.svg", model),
    ] {
        let drawn = plot.draw(&into.join(file));
        drawn.map_err(|error| anyhow!("cannot draw {file}: {error}"))?;
    }
    Ok(())
}

impl Plot {
    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let height = |figure: f64| {
            if self.logarithmic {
                figure.log10()
            } else {
                figure
            }
        };
        let figures = || {
            self.groups
                .iter()
                .flat_map(|(_, bars)| bars.iter().flatten())
        };
        let heights: Vec<f64> = figures().map(|figure| height(*figure)).collect();
        let top = heights.iter().copied().fold(0.0, f64::max) * 1.12;
        let bottom = match self.logarithmic {
            true => heights.iter().copied().fold(top, f64::min).floor(),
            false => 0.0,
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(58)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.groups.len() as f64, bottom..top)?;
        let label = |y: &f64| {
            number(if self.logarithmic {
                10_f64.powf(*y)
            } else {
                *y
            })
        };
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).y_desc(self.unit);
        mesh.y_label_formatter(&label).draw()?;
        for (group, (name, bars)) in self.groups.iter().enumerate() {
            let drawn = DRAWN.iter().zip(bars).enumerate();
            for (at, ((_, colour), figure)) in drawn {
                let Some(figure) = figure else { continue };
                let left = group as f64 + 0.1 + 0.2 * at as f64;
                let bar = [(left, bottom), (left + 0.184, height(*figure))];
                let above = (left, height(*figure) + (top - bottom) * 0.045);
                chart.draw_series([Rectangle::new(bar, colour.filled())])?;
                chart.draw_series([Text::new(number(*figure), above, ("sans-serif", 12))])?;
            }
            let (x, y) = chart.backend_coord(&(group as f64 + 0.1, bottom));
            area.draw(&Text::new(&**name, (x, y + 6), ("sans-serif", 14)))?;
        }
        let y = SIZE.1 as i32 - 22;
        for (at, (name, colour)) in DRAWN.into_iter().enumerate() {
            if self.groups.iter().any(|(_, bars)| bars[at].is_some()) {
                let x = 76 + 165 * at as i32;
                area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour.filled()))?;
                area.draw(&Text::new(name, (x + 18, y), ("sans-serif", 13)))?;
            }
        }
        area.present()?;
        Ok(())
    }
}
