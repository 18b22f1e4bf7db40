//! The plots of the page, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Report, table};
use crate::model::Curve;

const SIZE: (u32, u32) = (760, 420);
/// Those that are drawn.
const DRAWN: [(&str, RGBColor); 4] = [
    ("keyqueue", RGBColor(31, 119, 180)),
    ("client-go", RGBColor(44, 160, 44)),
    ("priorityqueue", RGBColor(148, 103, 189)),
    ("single-lock", RGBColor(214, 39, 40)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Bars side by side: a group for each name, a bar in it for each contender that has a figure.
struct Bars<'a> {
    title: &'a str,
    unit: &'a str,
    groups: Vec<(String, Vec<Option<f64>>)>,
    contenders: &'a [&'a str],
    /// Whether a step on the axis multiplies.
    logarithmic: bool,
}

pub(super) fn draw(report: &Report, into: &Path) -> Result<()> {
    let contenders = DRAWN.map(|(name, _)| name);
    let groups = |rows: &[(&str, &str, &str)], show: fn(f64) -> f64| {
        let group = |&(workload, metric, title): &(&str, &str, &str)| {
            let row = report.row(workload, metric)?;
            let bars = contenders.map(|name| row.median(name).map(show));
            Some((title.to_owned(), bars.to_vec()))
        };
        rows.iter().filter_map(group).collect::<Vec<_>>()
    };
    let plots = [
        (
            "throughput.svg",
            Bars {
                title: "1M distinct u64 keys through the queue: the more the better",
                unit: "million keys a second",
                groups: groups(
                    &[
                        ("unique-1x1", "", "1 producer, 1 consumer"),
                        ("unique-2x2", "", "2 and 2"),
                        ("unique-8x8", "", "8 and 8"),
                    ],
                    |ns| 1000.0 / ns,
                ),
                contenders: &contenders,
                logarithmic: false,
            },
        ),
        (
            "latency.svg",
            Bars {
                title: "From add to get in an open loop: the less the better",
                unit: "microseconds",
                groups: groups(
                    &[
                        ("latency", "p50", "p50"),
                        ("latency", "p99", "p99"),
                        ("latency", "p99.9", "p99.9"),
                    ],
                    |ns| ns / 1000.0,
                ),
                contenders: &contenders,
                logarithmic: true,
            },
        ),
        (
            "memory.svg",
            Bars {
                title: "Memory for a key, one million of them: the less the better",
                unit: "bytes",
                groups: groups(
                    &[
                        ("memory", "queued", "queued"),
                        ("delay-memory", "", "delayed"),
                    ],
                    |bytes| bytes,
                ),
                contenders: &contenders,
                logarithmic: false,
            },
        ),
    ];
    for (file, bars) in plots {
        if !bars.groups.is_empty() {
            let path = into.join(file);
            let area = SVGBackend::new(&path, SIZE).into_drawing_area();
            bars.draw(&area)
                .map_err(|error| anyhow!("cannot draw {file}: {error}"))?;
        }
    }
    if !report.model.is_empty() {
        let path = into.join("model.svg");
        let area = SVGBackend::new(&path, SIZE).into_drawing_area();
        lines(&area, &report.model).map_err(|error| anyhow!("cannot draw model.svg: {error}"))?;
    }
    Ok(())
}

impl Bars<'_> {
    fn draw(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let scale = |value: f64| {
            if self.logarithmic {
                value.log10()
            } else {
                value
            }
        };
        let figures = || self.groups.iter().flat_map(|(_, bars)| bars).flatten();
        let most = figures().copied().fold(0.0, f64::max);
        let least = figures().copied().fold(f64::INFINITY, f64::min);
        let (bottom, top) = if self.logarithmic {
            (least.log10().floor(), most.log10() + 0.2)
        } else {
            (0.0, most * 1.12)
        };
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(58)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.groups.len() as f64, bottom..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc(self.unit)
            .y_label_formatter(&|y| {
                table::number(if self.logarithmic {
                    10_f64.powf(*y)
                } else {
                    *y
                })
            })
            .draw()?;
        let width = 0.8 / self.contenders.len() as f64;
        for (group, (name, bars)) in self.groups.iter().enumerate() {
            for (at, figure) in bars.iter().enumerate() {
                let Some(figure) = figure else { continue };
                let left = group as f64 + 0.1 + width * at as f64;
                let bar = [(left, bottom), (left + width * 0.92, scale(*figure))];
                let colour = colour(self.contenders[at]);
                chart.draw_series([Rectangle::new(bar, colour.filled())])?;
                let above = (left, scale(*figure) + (top - bottom) * 0.045);
                let label = Text::new(table::number(*figure), above, ("sans-serif", 12));
                chart.draw_series([label])?;
            }
            let (x, y) = chart.backend_coord(&(group as f64 + 0.1, bottom));
            area.draw(&Text::new(name.clone(), (x, y + 6), ("sans-serif", 14)))?;
        }
        legend(area, self.contenders)?;
        area.present()?;
        Ok(())
    }
}

/// Curves over the number of processors.
fn lines(area: &Area<'_>, curves: &[Curve]) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let most = points().map(|point| point.throughput).fold(0.0, f64::max);
    let threads = points().map(|point| point.threads).max().unwrap_or(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(
            "A MODEL, not a measurement: recurring keys by processors",
            ("sans-serif", 18),
        )
        .margin(12)
        .x_label_area_size(58)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..threads.log2(), 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .y_desc("million keys a second, all together")
        .x_desc("processors")
        .x_label_formatter(&|x| format!("{:.0}", 2_f64.powf(*x)))
        .draw()?;
    for curve in curves {
        let points = curve
            .points
            .iter()
            .map(|point| ((point.threads as f64).log2(), point.throughput));
        chart.draw_series(LineSeries::new(
            points,
            colour(&curve.contender).stroke_width(2),
        ))?;
    }
    let names: Vec<&str> = curves.iter().map(|curve| &*curve.contender).collect();
    legend(area, &names)?;
    area.present()?;
    Ok(())
}

fn colour(contender: &str) -> RGBColor {
    let drawn = DRAWN.iter().find(|(name, _)| *name == contender);
    drawn.map_or(BLACK, |(_, colour)| *colour)
}

/// Along the lower edge.
fn legend(area: &Area<'_>, names: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let y = SIZE.1 as i32 - 22;
    for (at, name) in names.iter().enumerate() {
        let x = 76 + 165 * at as i32;
        let patch = [(x, y), (x + 12, y + 12)];
        area.draw(&Rectangle::new(patch, colour(name).filled()))?;
        area.draw(&Text::new(
            (*name).to_owned(),
            (x + 18, y),
            ("sans-serif", 13),
        ))?;
    }
    Ok(())
}
