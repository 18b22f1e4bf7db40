//! Draws what groups and levels do, for the pages about them.
//!
//! `cargo run --release -p compare --example pictures`
//!
//! Writes `tenants.svg` and `priorities.svg` into `src/docs/how_to`.

use std::fs;
use std::iter;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use keyqueue::{Builder, WorkQueue};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// What is drawn of one queue: its label and its points.
type Line = (&'static str, Vec<(f64, f64)>);

const FONT: (&str, u32) = ("sans-serif", 15);
const COLOURS: [RGBColor; 2] = [RGBColor(214, 39, 40), RGBColor(31, 119, 180)];

fn main() -> Result<()> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/docs/how_to");
    fs::write(pages.join("tenants.svg"), tenants()?)?;
    fs::write(pages.join("priorities.svg"), priorities()?)?;
    Ok(())
}

/// A tenant and a key of it.
type Tenanted = (u32, u32);

/// One tenant has 5000 keys queued when 99 others add ten keys each.
fn tenants() -> Result<String> {
    const NOISY: Tenanted = (0, 5000);
    let delivered_to_others = |builder: Builder<Tenanted>| -> Result<Vec<(f64, f64)>> {
        let queue = builder.build()?;
        queue.add_all((0..NOISY.1).map(|key| (NOISY.0, key)));
        queue.add_all((1..100).flat_map(|tenant| (0..10).map(move |key| (tenant, key))));
        let mut others = 0.0;
        let deliveries = iter::from_fn(|| queue.try_get().ok())
            .enumerate()
            .map(|(at, item)| {
                others += f64::from(u8::from(item.0 != NOISY.0));
                (at as f64 + 1.0, others)
            });
        // Every tenth point is enough.
        Ok(deliveries.step_by(10).collect())
    };
    let lines = [
        ("without groups", delivered_to_others(WorkQueue::builder())?),
        (
            "with group_by",
            delivered_to_others(WorkQueue::builder().group_by(|key: &Tenanted| key.0))?,
        ),
    ];
    draw(
        "99 tenants add 10 keys each behind 5000 keys of another one",
        0.0..6000.0,
        ("deliveries", |n| n.to_string()),
        0.0..1000.0,
        ("deliveries to the 99", |n| n.to_string()),
        &lines,
        SeriesLabelPosition::MiddleMiddle,
    )
}

/// Medians of the microseconds from the add of an urgent key to its delivery, by the number of keys queued before.
fn priorities() -> Result<String> {
    const URGENT: u64 = u64::MAX;
    const ROUNDS: usize = 7;
    let wait = |has_levels: bool| -> Result<Vec<(f64, f64)>> {
        let backlogs = (0..=12).map(|half| 10_f64.powf(f64::from(half) / 2.0));
        let points = backlogs.map(|backlog| {
            let rounds = (0..ROUNDS).map(|_| {
                let builder = WorkQueue::builder().levels(if has_levels { 3 } else { 1 });
                let queue = builder.build()?;
                queue.add_all(0..backlog as u64);
                let start = Instant::now();
                queue.entry(URGENT).level(0).add();
                while *queue.try_get()? != URGENT {}
                Ok(start.elapsed().as_secs_f64() * 1e6)
            });
            let mut rounds = rounds.collect::<Result<Vec<f64>>>()?;
            rounds.sort_by(f64::total_cmp);
            Ok((backlog, rounds[ROUNDS / 2]))
        });
        points.collect()
    };
    draw(
        "an urgent key and a backlog, with one worker whose work takes no time",
        (1.0..1e6).log_scale(),
        ("keys queued before it", |n| format!("{n:.0}")),
        (0.01..1e5).log_scale(),
        ("microseconds to its delivery", |n| n.to_string()),
        &[
            ("without levels", wait(false)?),
            ("with levels(3)", wait(true)?),
        ],
        SeriesLabelPosition::UpperLeft,
    )
}

/// What an axis is labelled with: its name, and the text of a number.
type Label = (&'static str, fn(&f64) -> String);

fn draw<X, Y>(
    title: &str,
    across: impl AsRangedCoord<CoordDescType = X, Value = f64>,
    across_label: Label,
    up: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
    up_label: Label,
    lines: &[Line],
    labels: SeriesLabelPosition,
) -> Result<String>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (640, 320)).into_drawing_area();
        area.fill(&WHITE)?;
        // Not the chart's caption, which would touch the topmost label.
        let area = area.titled(title, (FONT.0, 17))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .label_style(FONT)
            .axis_desc_style(FONT)
            .x_desc(across_label.0)
            .x_label_formatter(&across_label.1)
            .y_desc(up_label.0)
            .y_label_formatter(&up_label.1)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for ((label, points), colour) in lines.iter().zip(COLOURS) {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            let key = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2));
            chart.draw_series(line)?.label(*label).legend(key);
        }
        chart
            .configure_series_labels()
            .label_font(FONT)
            .position(labels)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
