//! Draws one frame, of 60 columns or more.

use std::time::Duration;

use keyqueue::State;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use shared::label;

use super::model::Model;

pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model<'_>) {
    // A tall terminal has room for all groups.
    let high = if frame.area().height < 40 { 7 } else { 13 };
    let rows = [
        Constraint::Length(1),
        Constraint::Length(high),
        Constraint::Length(7),
        Constraint::Min(3),
    ];
    let [head, top, figures, keys] = Layout::vertical(rows).areas(frame.area());
    let [rates, times] = halves(24).areas(figures);
    let [groups, depth] = halves(24).areas(top);

    let [_, queued, processing, dirty] = model.states;
    let delayed = model.value("workqueue_delayed");
    let name = model.queue.name().unwrap_or("-");
    let title = format!(
        "{name}: {queued} queued, {processing} processing, {dirty} dirty, {delayed} delayed"
    );
    frame.render_widget(Line::from(title).bold(), head);
    draw_depth(frame, model, depth);
    draw_groups(frame, model, groups);
    draw_rates(frame, model, rates);
    draw_times(frame, model, times);
    draw_keys(frame, model, keys);
}

fn halves(left: u16) -> Layout {
    Layout::horizontal([Constraint::Length(left), Constraint::Min(36)])
}

fn draw_depth(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let now = model.depths.back().copied().unwrap_or_default();
    let most = model.depths.iter().copied().max().unwrap_or_default();
    let levels: Vec<String> = model.levels.iter().map(usize::to_string).collect();
    let levels = levels.join(" + ");
    let block = Block::bordered()
        .title(format!("depth {now}, at most {most}"))
        .title_bottom(format!("queued by level: {levels}"));
    let width = usize::from(block.inner(area).width);
    let skip = model.depths.len().saturating_sub(width);
    let depths: Vec<u64> = model.depths.iter().copied().skip(skip).collect();
    let line = Sparkline::default().block(block).data(&depths);
    frame.render_widget(line.style(Style::new().fg(Color::Cyan)), area);
}

fn draw_groups(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let rows = model.groups.iter().map(|group| {
        let numbers = [group.queued, group.in_flight].map(|number| format!("{number:>7}"));
        let [queued, in_flight] = numbers;
        Row::new([group.group.to_string(), queued, in_flight])
    });
    let head = Row::new(["", " queued", "in hand"]);
    let table = Table::new(rows, [6, 7, 7]).header(head);
    frame.render_widget(table.block(Block::bordered().title("groups")), area);
}

fn draw_rates(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let rate = |what: &str, series: &str| format!("{what:<10} {:>9.1}/s", model.rate(series));
    let lines = [
        rate("adds", "workqueue_adds_total"),
        rate("merged", "workqueue_merged_adds_total"),
        rate("deliveries", "workqueue_queue_duration_seconds_count"),
        rate("done", "workqueue_work_duration_seconds_count"),
        rate("retries", "workqueue_retries_total"),
    ];
    let lines = Paragraph::new(lines.map(Line::from).to_vec());
    frame.render_widget(lines.block(Block::bordered().title("rates")), area);
}

fn draw_times(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let of = |series: &str| {
        let seconds = model.value(series);
        time(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    };
    let row = |what: &str, series: &str| {
        let [p50, p90, p99] = ["0.5", "0.9", "0.99"].map(|at| of(&format!("{series}:{at}")));
        Row::new([what.to_owned(), p50, p90, p99])
    };
    let rows = [
        row("queued", "workqueue_queue_duration_seconds"),
        row("worker", "workqueue_work_duration_seconds"),
        Row::new(["oldest".to_owned(), of("workqueue_oldest_queued_seconds")]),
    ];
    let head = Row::new(["", "     p50", "     p90", "     p99"]);
    let table = Table::new(rows, [7, 8, 8, 8]).header(head);
    frame.render_widget(table.block(Block::bordered().title("times")), area);
}

fn draw_keys(frame: &mut Frame<'_>, model: &Model<'_>, area: Rect) {
    let rows = model.oldest.iter().map(|key| {
        let colour = match key.state() {
            State::Processing | State::Dirty => Color::Yellow,
            _ => Color::Reset,
        };
        let row = Row::new([
            label(key.key()),
            key.level()
                .map_or_else(String::new, |level| level.to_string()),
            key.state().to_string(),
            key.age().map(time).unwrap_or_default(),
            key.held().map(time).unwrap_or_default(),
            format!("{:>8}", key.requeues()),
        ]);
        row.style(Style::new().fg(colour))
    });
    let head = Row::new(["key", "level", "state", "     age", " in hand", "failures"]).bold();
    let numbers = [5, 10, 8, 8, 8].map(Constraint::Length);
    let widths = [Constraint::Min(14)].into_iter().chain(numbers);
    let table = Table::new(rows, widths).header(head);
    let block = Block::bordered()
        .title("the oldest keys")
        .title_bottom("q ends");
    frame.render_widget(table.block(block), area);
}

/// At most eight characters wide, up to a year.
fn time(time: Duration) -> String {
    match time.as_secs() {
        0..1000 => format!("{time:>8.1?}"),
        seconds => format!("{seconds:>7}s"),
    }
}
