//! The pages: their frame, and what several of them show.

pub(crate) mod fleet;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod letters;
mod problem;
pub(crate) mod queue;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, Render, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub(crate) use problem::Problem;

use crate::board::lock;
use crate::place::{Kind, Place};
use crate::policy::Action;
use crate::source::Done;
use crate::text;
use crate::web::Context;

/// A page, or what is on it.
pub(crate) struct View {
    pub(crate) title: String,
    /// Whether it has links to the pages of the queue or the fleet that it is about.
    pub(crate) has_tabs: bool,
    /// What does not change while somebody looks, such as a form that is filled in.
    pub(crate) still: Markup,
    pub(crate) live: Markup,
    pub(crate) json: serde_json::Value,
}

impl View {
    /// Returns what is on a page of a queue, of a fleet, or of all, before anything is.
    fn of(at: &Context, title: String) -> Self {
        View {
            title: text::cut(&title, text::WHOLE),
            has_tabs: !at.name().is_empty(),
            still: html! {},
            live: html! {},
            json: serde_json::Value::Null,
        }
    }
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

/// Returns what has a name on the board, or the page that says that there is no such thing.
fn found<P>(at: &Context, place: Option<Arc<P>>, name: &str) -> Result<Arc<P>, Problem>
where
    P: Place + ?Sized,
{
    let place = place.ok_or_else(|| Problem::not_on_board(at.kind, name))?;
    place.mark().clone_into(&mut lock(&at.of));
    Ok(place)
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
        Kind::Fleet => &[
            (Tab::Queue, "Partitions", ""),
            (Tab::Letters, "Dead letters", "/dead"),
        ],
    }
}

/// The whole page around a view.
pub(crate) fn page(at: &Context, view: &View) -> Markup {
    let (root, is_live) = (&at.root, !view.live.0.is_empty());
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
                link rel="icon" href={ (root) "board.svg" };
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
                            li { a href=(at.home) aria-current=[(!view.has_tabs).then_some("page")] { "All queues" } }
                            @if view.has_tabs {
                                @for (to, text, end) in tabs(at.kind) {
                                    li {
                                        a href={ (link(at, &at.name())) (end) } aria-current=[(*to == at.tab()).then_some("page")] { (text) }
                                    }
                                }
                            }
                        }
                    }
                }
                main #main {
                    h1 tabindex="-1" { (view.title) }
                    @if is_live {
                        p #bar {
                            span #updates role="status" { "not updated, as of" }
                            " " time { (clock(SystemTime::now())) }
                            " " button type="button" hidden {}
                            " " button type="button" aria-pressed="false" hidden {}
                        }
                    }
                    @for what in at.board.told(&at.token.text) { p.note role="status" { (what) } }
                    (view.still)
                    @if is_live { div #live { (view.live) } }
                    // Not of what answers a form, whose address is no page.
                    @if is_live { p.soft {
                        a href={ (at.query(&[])) "format=json" } { "JSON" }
                        noscript { " · " a href={ (at.query(&[])) "refresh=5" } { "load again every 5 seconds" } }
                    } }
                }
            }
        }
    }
}

/// A search in a list, which keeps the order of the list.
fn search(at: &Context, label: &str, more: &Markup) -> Markup {
    let params = &at.params;
    html! {
        form.search method="get" role="search" {
            div {
                label for="search" { (label) }
                input #search type="search" name="search" value=(params.search);
            }
            (more)
            @for (name, value) in [("sort", &params.sort), ("group", &params.group)] {
                @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
            }
            button type="submit" { "Search" }
        }
    }
}

/// The heading of a column by which a list is sorted, or can be.
fn heading(at: &Context, sort: &str, title: &str) -> Markup {
    let order = match sort {
        "due" | "error" => "ascending",
        _ => "descending",
    };
    let (is_sorted, but_for) = (at.params.sort == sort, ["sort", "from", "before"]);
    html! {
        th.n[sort != "error"] scope="col" aria-sort=[is_sorted.then_some(order)] {
            a href={ (at.query(&but_for)) @if !is_sorted { "sort=" (sort) } } { (title) }
        }
    }
}

/// Links to the page before and to the next one. A list has no way back, so the address has where the pages before this one begin.
fn pager(at: &Context, next: Option<u64>, text: &str) -> Markup {
    let (from, before) = (&at.params.from, &*at.params.before);
    let list = at.query(&["from", "before"]);
    let (rest, last) = before.rsplit_once('-').unwrap_or(("", before));
    let came = match before.is_empty() {
        true => from.clone(),
        // An address has an end.
        false if before.len() > 1000 => from.clone(),
        false => format!("{before}-{from}"),
    };
    html! {
        p {
            @if !matches!(&**from, "" | "0") {
                @let text = if before.is_empty() { "First page" } else { "Page before" };
                a rel="prev" href={ (list) "from=" (last) "&before=" (path(rest)) } { (text) } " "
            }
            @if let Some(next) = next {
                a rel="next" href={ (list) "from=" (next) "&before=" @if came.is_empty() { "0" } (path(&came)) } { (text) }
            }
        }
    }
}

/// What was done by an action.
pub(crate) fn said(action: Action, done: &Done) -> String {
    let count = match (done.is_partial, done.count) {
        // Only what stops an action has a subject then.
        (true, 0) if !done.subject.is_empty() => return "It is being stopped.".into(),
        (true, 0) => {
            return "It goes on; the bar below says how far it is, if it is about all.".into();
        }
        (true, count) => format!("Not all: {count}"),
        (false, count) => count.to_string(),
    };
    let rest = done.why.as_ref().map(|why| format!(" The rest: {why}."));
    let rest = rest.unwrap_or_default();
    match action {
        _ if done.count == 0 && matches!(action, Action::PutBack | Action::DropLetter) => {
            "There was none.".into()
        }
        Action::PutBack => format!("{count} put back into the queue.{rest}"),
        Action::DropLetter => format!("{count} dropped.{rest}"),
        Action::RunNow => format!("The key {} is queued now.", done.subject),
        Action::DropKey => format!("The key {} was taken out.", done.subject),
        Action::HoldGroup => format!("The group {} is held.", done.subject),
        Action::ReleaseGroup => format!("The group {} is released.", done.subject),
        Action::Pause => "The queue is paused.".into(),
        Action::Resume => "The queue goes on.".into(),
        Action::Drain => {
            "The queue is draining: it refuses adds, and ends once what is queued is done.".into()
        }
    }
}

/// A page that asks whether something is meant that cannot be undone, or concerns many.
pub(crate) fn asks(
    at: &Context,
    name: &str,
    action: Action,
    question: String,
    fields: &[(&str, String)],
    back: &str,
) -> View {
    let fields = fields.iter().map(|(name, value)| (*name, &**value));
    let fields: Vec<_> = fields
        .chain([("action", action.name()), ("sure", "1")])
        .collect();
    View {
        has_tabs: false,
        still: html! {
            p #question tabindex="-1" { (question) }
            (plain_form(at, name, None, &fields, html! {
                button.bad type="submit" { "Yes" }
            }))
            a href=(back) { "No, go back" }
        },
        ..View::of(at, name.to_owned())
    }
}

/// A form with one button, if the action is allowed. `about` names for a screen reader what it acts on.
pub(crate) fn button(
    at: &Context,
    queue: &str,
    action: Action,
    text: &str,
    about: &str,
    fields: &[(&str, &str)],
) -> Markup {
    if !at.may(queue, action) {
        return html! {};
    }
    let is_bad = matches!(action, Action::DropKey | Action::DropLetter | Action::Drain);
    let label = (!about.is_empty()).then(|| format!("{text} {about}"));
    form(
        at,
        queue,
        action,
        fields,
        html! {
            button.bad[is_bad] type="submit" aria-label=[label] { (text) }
        },
    )
}

/// A form of an action, with what it shows.
pub(crate) fn form(
    at: &Context,
    queue: &str,
    action: Action,
    fields: &[(&str, &str)],
    inside: Markup,
) -> Markup {
    let fields = [&[("action", action.name())], fields].concat();
    form_of(at, queue, None, &fields, inside)
}

/// A form that says of which process it is, and where it leads back to.
pub(crate) fn form_of(
    at: &Context,
    queue: &str,
    id: Option<&str>,
    fields: &[(&str, &str)],
    inside: Markup,
) -> Markup {
    let (back, of) = (at.back(), lock(&at.of).clone());
    let fields = [&[("of", &*of), ("back", &*back)], fields].concat();
    plain_form(at, queue, id, &fields, inside)
}

fn plain_form(
    at: &Context,
    queue: &str,
    id: Option<&str>,
    fields: &[(&str, &str)],
    inside: Markup,
) -> Markup {
    html! {
        form id=[id] method="post" action={ (link(at, queue)) "/do" } {
            input type="hidden" name="token" value=(at.token.text);
            @for (name, value) in fields {
                input type="hidden" name=(name) value=(value);
            }
            (inside)
        }
    }
}

/// One of the numbers at the head of a page.
fn number(what: &str, number: impl Render) -> Markup {
    html! { div { dt { (what) } dd { (number) } } }
}

/// Writes a number with what it counts: `1 letter`, `2 letters`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
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

/// Writes how long ago a time of the system's clock was, with that time.
pub(crate) fn ago(at: SystemTime) -> Markup {
    let absolute = clock(at);
    html! {
        time datetime=(absolute.replace(" UTC", "Z")) title=(absolute) { (time(at.elapsed().unwrap_or_default())) " ago" }
    }
}

/// Writes a time of the system's clock: `2026-11-28 05:51:45 UTC`.
pub(crate) fn clock(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // The civil calendar, by years that begin in March: the leap day is the last one.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Returns a text from elsewhere, or what it is if there is nothing to see of it.
pub(crate) fn named(text: &str) -> String {
    match (text.trim(), text.chars().count()) {
        ("", 0) => "(empty)".into(),
        ("", count) => format!("({})", counted(count, "space")),
        _ => text.to_owned(),
    }
}

/// A text from elsewhere, which may be of any direction.
pub(crate) fn foreign(text: &str) -> Markup {
    html! { bdi.soft[text.trim().is_empty()] { (named(text)) } }
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

    #[test] // X6
    fn a_clock_knows_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_796_083_199, "2026-11-30 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(clock(UNIX_EPOCH + Duration::from_secs(seconds)), text);
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
