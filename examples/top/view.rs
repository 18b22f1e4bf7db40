//! Draws one frame.

use std::time::Duration;

use keyqueue::State;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use crate::model::Model;

pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model<'_>) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Min(3),
    ];
    let [head, depth, figures, keys] = Layout::vertical(rows).areas(frame.area());
    let halves = Layout::horizontal([Constraint::Percentage(40), Constraint::Percentage(60)]);
    let [rates, times] = halves.areas(figures);

    let [_, queued, processing, dirty] = model.states;
    let title = format!(
        "queue {}: {queued} queued, {processing} processing, {dirty} dirty",
        model.name()
    );
    frame.render_widget(Line::from(title).bold(), head);
    draw_depth(frame, model, depth);
    draw_rates(frame, model, rates);
    draw_times(frame, model, times);
    draw_keys(frame, model, keys);
}

fn draw_depth(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let now = model.depths.back().copied().unwrap_or_default();
    let most = model.depths.iter().copied().max().unwrap_or_default();
    let block = Block::bordered().title(format!("depth {now}, at most {most}"));
    let width = usize::from(block.inner(area).width);
    let skip = model.depths.len().saturating_sub(width);
    let depths: Vec<u64> = model.depths.iter().copied().skip(skip).collect();
    let line = Sparkline::default().block(block).data(&depths);
    frame.render_widget(line.style(Style::new().fg(Color::Cyan)), area);
}

fn draw_rates(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let rate = |what: &str, series: &str| format!("{what:<10} {:>12.1}/s", model.rate(series));
    let lines = [
        rate("adds", "workqueue_adds_total"),
        rate("merged", "workqueue_merged_adds_total"),
        rate("deliveries", "workqueue_queue_duration_seconds_count"),
        rate("done", "workqueue_work_duration_seconds_count"),
    ];
    let lines = lines.map(Line::from).to_vec();
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title("rates")),
        area,
    );
}

fn draw_times(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let row = |what: &str, series: &str| {
        let of = |quantile: &str| {
            let seconds = model.value(&format!("{series}:{quantile}"));
            format!(
                "{:>10}",
                time(Duration::try_from_secs_f64(seconds).unwrap_or_default())
            )
        };
        Row::new([what.to_owned(), of("0.5"), of("0.9"), of("0.99")])
    };
    let oldest = model.value("workqueue_oldest_queued_seconds");
    let oldest = Duration::try_from_secs_f64(oldest).unwrap_or_default();
    let rows = [
        row("in the queue", "workqueue_queue_duration_seconds"),
        row("with a worker", "workqueue_work_duration_seconds"),
        Row::new(["oldest now".to_owned(), format!("{:>10}", time(oldest))]),
    ];
    let head = Row::new(["", "       p50", "       p90", "       p99"]);
    let table = Table::new(rows, [14, 10, 10, 10]).header(head);
    frame.render_widget(table.block(Block::bordered().title("times")), area);
}

fn draw_keys(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let rows = model.oldest.iter().map(|key| {
        let colour = match key.state {
            State::Processing | State::Dirty => Color::Yellow,
            _ => Color::Reset,
        };
        let held = key.held.map(time).unwrap_or_default();
        let row = Row::new([
            key.name.clone(),
            key.state.to_string(),
            format!("{:>10}", time(key.age)),
            format!("{held:>10}"),
            format!("{:>8}", key.requeues),
        ]);
        row.style(Style::new().fg(colour))
    });
    let head = Row::new(["key", "state", "       age", "   in hand", "requeues"]).bold();
    let widths = [
        Constraint::Min(20),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    let table = Table::new(rows, widths).header(head);
    frame.render_widget(
        table.block(Block::bordered().title("the oldest keys")),
        area,
    );
}

/// Three digits or so, and a unit.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 100.0 {
        format!("{seconds:.0} s")
    } else if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{:.1} us", seconds * 1e6)
    }
}
