//! Small pictures of the last minutes, as SVG without styles: the style sheet has the colours.

use std::fmt::Write;
use std::time::Instant;

use maud::{Markup, html};

use crate::history::{GAP, History, SPAN};

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 60.0;

/// A line: its class, what it is, and its points as seconds ago and value.
struct Line<'a> {
    class: &'static str,
    what: &'a str,
    points: Vec<(f64, f64)>,
}

/// Returns the pictures of a queue's last minutes.
pub(crate) fn pictures(history: &History, now: Instant) -> Markup {
    let ago = |at: Instant| now.saturating_duration_since(at).as_secs_f64();
    let depth = |class, what, value: fn(&crate::history::Sample) -> Option<usize>| Line {
        class,
        what,
        points: (history.samples())
            .filter_map(|sample| Some((ago(sample.at), value(sample)? as f64)))
            .collect(),
    };
    let rates = history.rates(now);
    let rate = |class, what, value: fn(&crate::history::Rate) -> Option<f64>| Line {
        class,
        what,
        points: (rates.iter())
            .filter_map(|rate| Some((rate.ago, value(rate)?)))
            .collect(),
    };
    html! {
        div.pictures {
            (picture("Keys", "", &[
                depth("a", "queued", |sample| Some(sample.queued)),
                depth("b", "in hand", |sample| sample.processing),
                depth("c", "delayed", |sample| sample.delayed),
            ]))
            @if !rates.is_empty() {
                (picture("Per second", "", &[
                    rate("a", "ended", |rate| Some(rate.ended)),
                    rate("d", "failed", |rate| Some(rate.failed)),
                ]))
                (picture("Mean time", " s", &[
                    rate("a", "in the queue", |rate| rate.queued_for),
                    rate("b", "in hand", |rate| rate.worked_for),
                ]))
            }
        }
    }
}

fn picture(title: &str, unit: &str, lines: &[Line<'_>]) -> Markup {
    let values = lines.iter().flat_map(|line| &line.points);
    let most = values.fold(0.0_f64, |most, (_, value)| most.max(*value));
    let mut says = format!(
        "{title} over the last five minutes, at most {}{unit}.",
        short(most)
    );
    for line in lines {
        if let Some((ago, last)) = line.points.last()
            && *ago < GAP
        {
            let _ = write!(says, " {}: {}{unit} now.", line.what, short(*last));
        }
    }
    html! {
        figure {
            figcaption {
                (title) " "
                @for line in lines {
                    span.key.(line.class) { (line.what) }
                    " "
                }
                span.most { "up to " (short(most)) (unit) }
            }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(says) preserveAspectRatio="none" {
                @for line in lines {
                    path.(line.class) d=(path(&line.points, most)) {}
                }
            }
        }
    }
}

/// Returns the path of a line, with gaps where samples are missing.
fn path(points: &[(f64, f64)], most: f64) -> String {
    let span = SPAN.as_secs_f64();
    let mut path = String::new();
    let mut before: Option<f64> = None;
    for (ago, value) in points {
        let x = WIDTH * (1.0 - ago / span);
        let y = HEIGHT - 1.0 - (HEIGHT - 2.0) * value / most.max(1e-9);
        let continues = before.is_some_and(|before| before - ago < GAP);
        let _ = write!(path, "{}{x:.1} {y:.1}", if continues { 'L' } else { 'M' });
        if !continues {
            path.push_str("h.1");
        }
        before = Some(*ago);
    }
    path
}

/// Writes a number with at most three digits after the point.
pub(crate) fn short(value: f64) -> String {
    if value == value.trunc() || value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::Sample;
    use crate::source::Totals;

    #[test] // X4
    fn a_picture_has_the_scale_of_its_five_minutes_and_no_rate_of_a_time_without_samples() {
        let (start, mut history) = (Instant::now(), History::default());
        let mut push = |after: u64, queued, ended| {
            let totals = Totals {
                ended,
                ..Totals::default()
            };
            let at = start + Duration::from_secs(after);
            history.push(Sample {
                at,
                queued,
                processing: Some(0),
                delayed: None,
                totals: Some(totals),
            });
            pictures(&history, at).into_string()
        };
        push(0, 1000, 0);
        let first = push(1, 8, 50);
        assert!(first.contains("ended: 50 now.") && first.contains("queued: 8 now."));
        // There was no time to look at all of them.
        assert!(!first.contains("delayed: "), "{first}");
        // Looks at millions of keys are this far apart.
        let line = |shown: &str| shown.matches('L').count();
        let before = line(&first);
        assert!(line(&push(32, 8, 80)) > before);
        let shown = push(100, 8, 149);
        assert!(shown.contains("up to 1000<") && shown.contains("up to 50<"));
        assert!(!shown.contains("ended:"), "{shown}");
        let shown = push(301, 8, 149);
        assert!(shown.contains("up to 8<") && !shown.contains("up to 50<"));
    }
}
