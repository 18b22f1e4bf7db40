//! What was seen as lines of text, which are printed or drawn.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::poll::{Look, Queue};

/// The most keys in hand that are shown.
const KEYS: usize = 20;
/// The most characters of a name, and of a key.
const NAME: usize = 24;
const KEY: usize = 80;

pub(crate) fn lines(address: &str, look: &Look) -> Vec<String> {
    let mut lines = vec![printable(address, KEY), String::new()];
    lines.push(format!(
        "{:<NAME$} {:<9} {:>9} {:>7} {:>8} {:>6} {:>9} {:>9} {:>9}",
        "QUEUE", "STATE", "QUEUED", "IN HAND", "DELAYED", "DEAD", "ENDED/S", "FAILED/S", "HELD FOR"
    ));
    lines.extend(look.queues.iter().map(row));
    if look.queues.is_empty() {
        lines.push("There is no queue on the board.".into());
    }
    let mut held: Vec<_> = (look.queues.iter())
        .flat_map(|queue| {
            let detail = queue.detail.iter();
            let held = detail.flat_map(|detail| &detail.keys.in_hand);
            held.map(|held| (&*queue.summary.name, held))
        })
        .collect();
    held.sort_by(|(_, a), (_, b)| b.held.unwrap_or(0.0).total_cmp(&a.held.unwrap_or(0.0)));
    lines.push(String::new());
    lines.push(format!("{:>9} {:<NAME$} KEY IN HAND", "HELD FOR", "QUEUE"));
    lines.extend(held.iter().take(KEYS).map(|(queue, held)| {
        let (queue, key) = (printable(queue, NAME), printable(&held.key, KEY));
        format!("{:>9} {queue:<NAME$} {key}", seconds(held.held))
    }));
    lines
}

fn row(queue: &Queue) -> String {
    let detail = queue.detail.as_ref();
    // A later look than that of the list.
    let summary = detail.map_or(&queue.summary, |detail| &detail.queue);
    let (name, state) = (printable(&summary.name, NAME), printable(&summary.state, 9));
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    let rate = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.1}"));
    let keys = detail.map(|detail| &detail.keys);
    let longest = keys.and_then(|keys| keys.in_hand.first()?.held);
    format!(
        "{name:<NAME$} {state:<9} {:>9} {:>7} {:>8} {:>6} {:>9} {:>9} {:>9}",
        summary.queued,
        number(keys.map(|keys| keys.processing)),
        number(keys.map(|keys| keys.delayed)),
        number(summary.dead_letters),
        rate(queue.rates.map(|rates| rates.ended)),
        rate(queue.rates.map(|rates| rates.failed)),
        seconds(longest),
    )
}

fn seconds(time: Option<f64>) -> String {
    time.map_or("-".into(), |seconds| format!("{seconds:.1} s"))
}

/// The beginning of a text that another process has sent, without what would move the cursor or turn the direction.
fn printable(text: &str, most: usize) -> String {
    let is_hidden = |char: char| {
        let is_mark = matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
        is_mark || char.is_control()
    };
    let shown = |char: char| if is_hidden(char) { '?' } else { char };
    let mut cut: String = text.chars().take(most).map(shown).collect();
    if text.chars().nth(most).is_some() {
        cut.pop();
        cut.push('…');
    }
    cut
}

pub(crate) fn draw(frame: &mut Frame<'_>, lines: &[String], trouble: Option<&str>) {
    let rows = Layout::vertical([Constraint::Min(3), Constraint::Length(1)]);
    let [all, foot] = rows.areas(frame.area());
    let is_head = |line: &str| line.ends_with("HELD FOR") || line.starts_with(" HELD FOR");
    let lines = lines.iter().map(|line| match is_head(line) {
        true => Line::from(&**line).bold(),
        false => Line::from(&**line),
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), all);
    let foot_line = match trouble {
        Some(trouble) => Line::from(trouble).red(),
        None => Line::from("q ends"),
    };
    frame.render_widget(foot_line, foot);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_and_moves_no_cursor() {
        assert_eq!(printable("a\x1b[2Jb\n", 9), "a?[2Jb?");
        assert_eq!(printable("a\u{202e}gnp\u{200b}", 9), "a?gnp?");
        assert_eq!(printable("abcd", 4), "abcd");
        assert_eq!(printable("abcde", 4), "abc…");
    }
}
