//! The pages: their frame, and what several of them show.

#[cfg(feature = "nats")]
pub(crate) mod fleet;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod letters;
mod problem;
pub(crate) mod queue;

use std::time::{Duration, SystemTime};

use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub(crate) use problem::Problem;

use crate::place::Kind;
use crate::policy::Action;
use crate::web::Context;

/// A page, or what is on it.
pub(crate) struct View {
    pub(crate) title: String,
    /// The queue or the fleet that it is about, and its tab.
    pub(crate) queue: Option<(String, Tab)>,
    /// What does not change while somebody looks, such as a form that is filled in.
    pub(crate) still: Markup,
    pub(crate) live: Markup,
    pub(crate) json: serde_json::Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Queue,
    Keys,
    Letters,
}

/// Encodes a text for a path or a query.
pub(crate) fn path(text: &str) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');
    utf8_percent_encode(text, KEPT).to_string()
}

pub(crate) fn json(of: &impl serde::Serialize) -> serde_json::Value {
    // All of it is text and numbers, which can be written.
    serde_json::to_value(of).unwrap_or_default()
}

/// Returns the path of the page of a queue, or of the fleet that the page is about.
fn link(at: &Context, name: &str) -> String {
    format!("{}{}/{}", at.root, at.kind.segment(), path(name))
}

/// Returns the pages of a queue or a fleet, with their texts and the ends of their paths.
fn tabs(kind: Kind) -> &'static [(Tab, &'static str, &'static str)] {
    match kind {
        Kind::Queue => &[
            (Tab::Queue, "Overview", ""),
            (Tab::Keys, "Keys", "/keys"),
            (Tab::Letters, "Dead letters", "/dead"),
        ],
        #[cfg(feature = "nats")]
        Kind::Fleet => &[
            (Tab::Queue, "Partitions", ""),
            (Tab::Letters, "Dead letters", "/dead"),
        ],
    }
}

/// The whole page around a view.
pub(crate) fn page(at: &Context, view: &View) -> Markup {
    let root = &at.root;
    let refresh = at
        .params
        .refresh
        .parse::<u32>()
        .ok()
        .filter(|seconds| (1..=3600).contains(seconds));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (view.title) " · queues" }
                link rel="stylesheet" href={ (root) "board.css" };
                script src={ (root) "board.js" } defer {}
                @if let Some(seconds) = refresh {
                    meta http-equiv="refresh" content=(seconds);
                }
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    nav aria-label="Pages" {
                        ul {
                            li { a href=(at.home) aria-current=[view.queue.is_none().then_some("page")] { "All queues" } }
                            @if let Some((name, tab)) = &view.queue {
                                @for (to, text, end) in tabs(at.kind) {
                                    li {
                                        a href={ (link(at, name)) (end) } aria-current=[(to == tab).then_some("page")] { (text) }
                                    }
                                }
                            }
                        }
                    }
                }
                main #main {
                    h1 { (view.title) }
                    (said(at))
                    (view.still)
                    div #live { (view.live) }
                    p.soft {
                        span #updates role="status" { "as of when the page was loaded" }
                        " · " a href={ (query(at)) "format=json" } { "JSON" }
                        noscript { " · " a href={ (query(at)) "refresh=5" } { "load again every 5 seconds" } }
                    }
                }
            }
        }
    }
}

/// Returns the beginning of a query for what this page is about, to be continued.
fn query(at: &Context) -> String {
    let params = &at.params;
    let mut query = String::from("?");
    for (name, value) in [
        ("state", &params.state),
        ("search", &params.search),
        ("from", &params.from),
        ("id", &params.id),
        ("at", &params.at),
    ] {
        if !value.is_empty() {
            query.extend([name, "=", &path(value), "&"]);
        }
    }
    query
}

/// What was done, after an action.
fn said(at: &Context) -> Markup {
    let Ok(action) = at.params.said.parse::<Action>() else {
        return html! {};
    };
    let count = at.params.count.parse::<u64>().unwrap_or(0);
    let what = match action {
        Action::PutBack => format!("{count} put back into the queue."),
        Action::DropLetter => format!("{count} dropped."),
        Action::RunNow => "The key is queued now.".into(),
        Action::DropKey => "The key was taken out.".into(),
        Action::HoldGroup => "The group is held.".into(),
        Action::ReleaseGroup => "The group is released.".into(),
        Action::Pause => "The queue is paused.".into(),
        Action::Resume => "The queue goes on.".into(),
        Action::Drain => {
            "The queue is draining: it refuses adds, and ends once what is queued is done.".into()
        }
    };
    html! {
        p.note role="status" {
            (what)
            @if at.params.partial == "1" { " That was not all: some are left, so ask again." }
        }
    }
}

/// A form with one button, if the action is allowed.
pub(crate) fn button(
    at: &Context,
    queue: &str,
    action: Action,
    text: &str,
    ask: Option<&str>,
    fields: &[(&str, &str)],
) -> Markup {
    if !at.may(queue, action) {
        return html! {};
    }
    html! {
        (form(at, queue, action, fields, html! {
            button.bad[ask.is_some()] type="submit" data-ask=[ask] { (text) }
        }))
    }
}

/// A form of an action, with what it shows.
pub(crate) fn form(
    at: &Context,
    queue: &str,
    action: Action,
    fields: &[(&str, &str)],
    inside: Markup,
) -> Markup {
    html! {
        form method="post" action={ (link(at, queue)) "/do" } {
            input type="hidden" name="token" value=(at.token.text);
            input type="hidden" name="action" value=(action.name());
            @for (name, value) in fields {
                input type="hidden" name=(name) value=(value);
            }
            (inside)
        }
    }
}

/// One of the numbers at the head of a page.
fn number(what: &str, number: &str) -> Markup {
    html! { div { dt { (what) } dd { (number) } } }
}

/// Writes a time as a person would: `3.2 s`, `5 min 20 s`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_millis() < 1 => "0 s".into(),
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

pub(crate) fn maybe(of: Option<Duration>) -> String {
    of.map(time).unwrap_or_default()
}

/// Writes how long ago a time of the system's clock was.
pub(crate) fn ago(at: SystemTime) -> String {
    format!("{} ago", time(at.elapsed().unwrap_or_default()))
}

/// A text from elsewhere, which may be of any direction.
pub(crate) fn foreign(text: &str) -> Markup {
    html! { bdi { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_two_units_at_most() {
        for (millis, text) in [
            (0, "0 s"),
            (7, "7 ms"),
            (1_500, "1.5 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(
            path("a/b?c&d=é\"'<>.."),
            "a%2Fb%3Fc%26d%3D%C3%A9%22%27%3C%3E%2E%2E"
        );
    }
}
