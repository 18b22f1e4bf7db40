//! What was seen as lines of text, which are printed or drawn.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::poll::{Fleet, Look, Queue};

/// The most keys in hand that are shown.
const KEYS: usize = 20;
/// The most places of a name, the fewest, and the most of a key.
const NAME: usize = 24;
const SHORTEST: usize = 8;
const KEY: usize = 80;
/// What was seen is said to be old after this time, in seconds.
const OLD: f64 = 1.0;
/// The width of lines that are printed: all columns have room.
pub(crate) const PRINTED: usize = 200;

pub(crate) struct Row {
    pub(crate) text: String,
    is_head: bool,
}

fn head(text: String) -> Row {
    let is_head = true;
    Row { text, is_head }
}

fn row(text: String) -> Row {
    let is_head = false;
    Row { text, is_head }
}

/// A column behind the name: what it is called, how wide it is, and its cell.
type Column<T> = (&'static str, usize, fn(&T) -> String);

/// In the order in which they find room.
const QUEUES: [Column<Queue>; 8] = [
    ("QUEUED", 8, |queue| queue.queued.to_string()),
    ("IN HAND", 8, |queue| number(queue.in_hand)),
    ("DELAYED", 8, |queue| number(queue.delayed)),
    ("DEAD", 6, |queue| number(queue.dead_letters)),
    ("HELD FOR", 9, |queue| seconds(queue.held_for)),
    ("STATE", 10, |queue| printable(&queue.state, 9)),
    ("ENDED/S", 8, |queue| rate(queue.ended)),
    ("FAILED/S", 9, |queue| rate(queue.failed)),
];

const FLEETS: [Column<Fleet>; 4] = [
    ("UNOWNED", 8, |fleet| number(fleet.unowned)),
    ("MESSAGES", 9, |fleet| number(fleet.messages)),
    ("DEAD", 6, |fleet| number(fleet.dead_letters)),
    ("PARTITIONS", 11, |fleet| number(fleet.partitions)),
];

/// Returns the lines of a terminal of this width.
pub(crate) fn lines(address: &str, look: &Look, width: usize) -> Vec<Row> {
    let oldest = look.queues.iter().filter_map(|queue| queue.age);
    let oldest = oldest.fold(0.0, f64::max);
    let note = match oldest >= OLD {
        true => format!("Keys in hand and delayed: seen up to {oldest:.0} s ago"),
        false => String::new(),
    };
    let mut lines = vec![row(printable(address, KEY)), row(note)];
    table(
        "QUEUE",
        &QUEUES,
        &look.queues,
        |queue| &queue.name,
        width,
        &mut lines,
    );
    if look.queues.is_empty() {
        lines.push(row("There is no queue on the board.".into()));
    }
    if !look.fleets.is_empty() {
        lines.push(row(String::new()));
        table(
            "FLEET",
            &FLEETS,
            &look.fleets,
            |fleet| &fleet.name,
            width,
            &mut lines,
        );
    }
    let mut held: Vec<_> = (look.queues.iter())
        .flat_map(|queue| {
            let held = queue.held.iter();
            held.map(|(key, held)| (&*queue.name, key, *held))
        })
        .collect();
    held.sort_by(|(.., a), (.., b)| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0)));
    let name = NAME.min((width / 3).max(SHORTEST));
    lines.push(row(String::new()));
    lines.push(head(format!(
        "{:>8} {:<name$} KEY IN HAND",
        "HELD FOR", "QUEUE"
    )));
    lines.extend(held.iter().take(KEYS).map(|(queue, key, held)| {
        let (queue, key) = (padded(queue, name), printable(key, KEY));
        row(format!("{:>8} {queue} {key}", seconds(*held)))
    }));
    lines
}

/// Adds a table with as many columns as there is room for.
fn table<T>(
    title: &str,
    columns: &[Column<T>],
    of: &[T],
    name_of: impl Fn(&T) -> &String,
    width: usize,
    to: &mut Vec<Row>,
) {
    // A number that is longer takes room from other columns.
    let longest = |(title, width, cell): &Column<T>| {
        let cells = of.iter().map(|it| cell(it).chars().count() + 1);
        (*title, cells.max().unwrap_or(0).max(*width), *cell)
    };
    let columns: Vec<Column<T>> = columns.iter().map(longest).collect();
    let mut room = width.saturating_sub(SHORTEST);
    let fits = |(_, width, _): &&Column<T>| {
        let fits = *width <= room;
        room = room.saturating_sub(*width);
        fits
    };
    let columns: Vec<_> = columns.iter().take_while(fits).collect();
    let used: usize = columns.iter().map(|(_, width, _)| width).sum();
    let name = width.saturating_sub(used).clamp(SHORTEST, NAME);
    let line = |first: &str, cell: &dyn Fn(&Column<T>) -> String| {
        let cells = columns
            .iter()
            .map(|column| format!("{:>1$}", cell(column), column.1));
        first.to_owned() + &cells.collect::<String>()
    };
    let titles = line(&format!("{title:<name$}"), &|(title, ..)| {
        (*title).to_owned()
    });
    to.push(head(titles));
    to.extend(of.iter().map(|it| {
        let cell = |(_, _, cell): &Column<T>| cell(it);
        row(line(&(padded(name_of(it), name - 1) + " "), &cell))
    }));
}

fn number(number: Option<u64>) -> String {
    number.map_or("-".into(), |number| number.to_string())
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| format!("{rate:.1}"))
}

fn seconds(time: Option<f64>) -> String {
    time.map_or("-".into(), |seconds| format!("{seconds:.1} s"))
}

/// How many places of a line a text takes: most characters of East Asia, and most emoji, take two.
fn places(text: &str) -> usize {
    Line::from(text).width()
}

/// The beginning of a text, as wide as `width` places.
fn padded(text: &str, width: usize) -> String {
    let text = printable(text, width);
    let rest = width.saturating_sub(places(&text));
    text + &" ".repeat(rest)
}

/// The beginning of a text that another process has sent, up to as many places, without what would move the cursor or turn the direction.
fn printable(text: &str, most: usize) -> String {
    let is_hidden = |char: char| {
        let is_mark = matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
        is_mark || char.is_control()
    };
    let shown = |char: char| if is_hidden(char) { '?' } else { char };
    let mut cut = String::new();
    // Some characters take no place: not as many as somebody likes.
    for char in text.chars().map(shown).take(4 * most) {
        cut.push(char);
        if places(&cut) > most {
            while places(&cut) >= most {
                cut.pop();
            }
            cut.push('…');
            break;
        }
    }
    cut
}

/// Draws the lines from `from` on, which it keeps within what there is. Old ones are dim, under a line that says why.
pub(crate) fn draw(frame: &mut Frame<'_>, lines: &[Row], from: &mut usize, trouble: Option<&str>) {
    let rows = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]);
    let [all, foot] = rows.areas(frame.area());
    let height = usize::from(all.height);
    *from = (*from).min(lines.len().saturating_sub(height));
    let shown = lines.iter().skip(*from).take(height);
    let shown = shown.map(|row| match (trouble.is_some(), row.is_head) {
        (true, _) => Line::from(&*row.text).dim(),
        (false, true) => Line::from(&*row.text).bold(),
        (false, false) => Line::from(&*row.text),
    });
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), all);
    let below = lines.len().saturating_sub(*from + height);
    let foot_line = match trouble {
        Some(trouble) => Line::from(trouble).red(),
        None if below > 0 || *from > 0 => Line::from(format!(
            "q ends, arrows and pages scroll: {below} lines below"
        )),
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

    #[test]
    fn what_takes_two_places_moves_no_number() {
        assert_eq!(printable("订单", 4), "订单");
        assert_eq!(printable("订单处", 5), "订单…");
        let names = ["订单处理订单处理订单处理订", "orders", "🚚 deliveries"];
        let queue = |name: &str| serde_json::json!({"name": name, "state": "open", "queued": 1, "ended": 123.4, "failed": 0.5, "held": [["订单", 1.0]]});
        let queues = names.map(queue);
        let look = serde_json::json!({"queues": queues, "fleets": []});
        let look: Look = serde_json::from_value(look).unwrap();
        for width in [40, 80, 200] {
            let lines = lines("http://localhost", &look, width);
            let lines = lines.iter().map(|row| &*row.text);
            let titles = lines.clone().find(|row| row.starts_with("QUEUE ")).unwrap();
            let rows = lines.filter(|row| !row.starts_with(' ') && row.contains(" 1 "));
            let rows: Vec<_> = rows.collect();
            assert_eq!(rows.len(), 3);
            for row in rows {
                assert_eq!(places(row), titles.len(), "{titles}\n{row}");
            }
        }
    }

    #[test]
    fn a_number_that_is_longer_than_its_column_is_apart_from_others() {
        let look = serde_json::json!({"queues": [
            {"name": "q", "state": "open", "queued": 1, "delayed": 12, "dead_letters": 100_000, "held_for": 10_000.0, "held": []},
        ], "fleets": []});
        let look: Look = serde_json::from_value(look).unwrap();
        for (width, shown) in [(80, " 12 100000 10000.0 s "), (40, " 12")] {
            let lines = lines("http://localhost", &look, width);
            let row = lines.iter().find(|row| row.text.starts_with("q ")).unwrap();
            let cells: Vec<_> = row.text.split_whitespace().collect();
            assert!(
                format!("{} ", cells.join(" ")).contains(shown),
                "{}",
                row.text
            );
            assert!(row.text.chars().count() <= width, "{}", row.text);
        }
    }

    #[test]
    fn columns_that_find_no_room_are_left_out_and_no_number_is_cut() {
        let look = serde_json::json!({"queues": [
            {"name": "QUEUE HELD FOR and more of it", "state": "shut down", "queued": 1_234_567, "dead_letters": 7, "held": [], "age": 13.4},
        ], "fleets": [
            {"name": "jobs", "partitions": 16, "unowned": 3, "messages": 120, "dead_letters": null},
        ]});
        let look: Look = serde_json::from_value(look).unwrap();
        for (width, last) in [(40, "DEAD"), (80, "FAILED/S"), (200, "FAILED/S")] {
            let lines = lines("http://localhost", &look, width);
            let of = |start: &str| {
                lines
                    .iter()
                    .find(|row| row.text.starts_with(start))
                    .unwrap()
            };
            assert!(lines[1].text.ends_with("seen up to 13 s ago"));
            let (titles, queue) = (of("QUEUE  "), of("QUEUE H"));
            assert!(titles.is_head && !queue.is_head);
            assert!(titles.text.ends_with(last), "{width}: {}", titles.text);
            for row in [titles, queue] {
                assert!(row.text.chars().count() <= width, "{width}: {}", row.text);
            }
            assert!(queue.text.contains(" 1234567 "), "{}", queue.text);
            assert!(
                of("jobs").text.contains(" 3      120     -"),
                "{}",
                of("jobs").text
            );
        }
    }
}
