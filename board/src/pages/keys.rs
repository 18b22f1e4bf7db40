//! The keys of a queue, a page at a time, and one of them.

use keyqueue::Listed;
use maud::{Markup, html};

use super::{
    Problem, View, button, foreign, found, heading, json, maybe, named, number, pager, path,
};
use crate::policy::Action;
use crate::rows::Row;
use crate::source::{KeyId, Refused};
use crate::text;
use crate::web::{self, Context, LOOK, ROWS};

const LISTED: [(&str, &str, Listed); 4] = [
    ("all", "all", Listed::All),
    ("queued", "queued", Listed::Queued),
    ("processing", "in hand", Listed::Processing),
    ("delayed", "delayed", Listed::Delayed),
];

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let queue = found(at, at.board.queue(name), name)?;
    let state = match &*at.params.state {
        "" => "all",
        state => state,
    };
    let listed = LISTED.iter().find(|(known, ..)| *known == state);
    let Some((_, called, listed)) = listed else {
        let state = text::cut(state, 60);
        return Err(Problem::bad(format!(
            "`state` must be all, queued, processing or delayed, but is {state:?}"
        )));
    };
    let wanted = at.wanted(*listed)?;
    let keys = queue.source.keys(&wanted).ok_or(Refused::Gone)?;
    let with = match &*wanted.search {
        "" => String::new(),
        _ => format!(" with this text; {} were looked at", keys.looked),
    };
    let order = match (wanted.sort, keys.is_partial) {
        (None, _) => "in no particular order".to_owned(),
        (Some(_), false) => "sorted".into(),
        (Some(_), true) => format!("sorted, of the {} that there was time for", keys.looked),
    };
    let live = html! {
        @if keys.rows.is_empty() {
            p { "There is no such key" @if keys.next.is_some() || keys.is_partial { " among the " (keys.looked) " that there was time for" } "." }
        } @else {
            (table(at, name, &keys.rows, &format!("Keys ({called}){with}, {order}"), true))
        }
        (pager(at, keys.next, if keys.rows.len() < ROWS { "Look further" } else { "Next page" }))
    };
    Ok(View {
        still: super::search(
            at,
            "Text in the key",
            &html! {
                div {
                    label for="state" { "State" }
                    select #state name="state" {
                        @for (value, called, _) in LISTED {
                            option value=(value) selected[value == state] { (called) }
                        }
                    }
                }
            },
        ),
        live,
        json: json(&keys),
        ..View::of(at, format!("Keys of {name}"))
    })
}

/// A table of keys. `has_actions` says whether it is a list, which can be sorted, with what can be done.
pub(crate) fn table(
    at: &Context,
    name: &str,
    rows: &[Row],
    caption: &str,
    has_actions: bool,
) -> Markup {
    let has_levels = rows.iter().any(|row| row.level.is_some());
    let has_values = rows.iter().any(|row| row.value.is_some());
    let acts = has_actions && (at.may(name, Action::RunNow) || at.may(name, Action::DropKey));
    let sorts = |sort, title| match has_actions {
        true => heading(at, sort, title),
        false => html! { th.n[sort != "error"] scope="col" { (title) } },
    };
    html! {
        div.scroll { table {
            caption { (caption) }
            thead { tr {
                th scope="col" { "Key" }
                th scope="col" { "State" }
                @if has_levels { th.n scope="col" { "Level" } }
                (sorts("age", "For"))
                @if has_actions {
                    (sorts("due", "Due in"))
                    (sorts("attempts", "Failures"))
                }
                (sorts("error", "Last error"))
                @if has_values { th scope="col" { "Value" } }
                @if acts { th scope="col" { "Actions" } }
            } }
            tbody {
                @for row in rows {
                    tr {
                        td data-label="Key" { a href={ (at.root) "q/" (path(name)) "/key?id=" (row.id) "&at=" (row.at) } { (foreign(&row.key)) } }
                        td data-label="State" { (state_of(row)) }
                        @if has_levels { td.n data-label="Level" { @if let Some(level) = row.level { (level) } } }
                        td.n data-label="For" { (maybe(row.held.or(row.age))) }
                        @if has_actions {
                            td.n data-label="Due in" { (maybe(row.due_in)) }
                            td.n data-label="Failures" { (failures(row)) }
                        }
                        td data-label="Last error" { @if let Some(error) = &row.error { (foreign(error)) } }
                        @if has_values { td data-label="Value" { @if let Some(value) = &row.value { (foreign(value)) } } }
                        @if acts { td { (actions(at, name, row)) } }
                    }
                }
            }
        } }
    }
}

fn state_of(row: &Row) -> &'static str {
    match (row.state, row.due_in) {
        ("idle", Some(_)) => "delayed",
        (state, _) => state,
    }
}

/// The number of the last try that failed, or what the limiter counts.
fn failures(row: &Row) -> u32 {
    row.attempt.unwrap_or(row.requeues)
}

fn actions(at: &Context, name: &str, row: &Row) -> Markup {
    let place = row.at.to_string();
    let fields = [("id", &*row.id), ("at", &place)];
    let can_drop = row.due_in.is_some() || row.value.is_some();
    html! {
        @if row.due_in.is_some() {
            (button(at, name, Action::RunNow, "Run now", &named(&row.key), &fields))
        }
        @if can_drop {
            (button(at, name, Action::DropKey, "Drop", &named(&row.key), &fields))
        }
    }
}

/// The page of one key.
pub(crate) fn one(at: &Context, name: &str) -> Result<View, Problem> {
    let queue = found(at, at.board.queue(name), name)?;
    let id = KeyId {
        id: at.params.id.clone(),
        at: web::number("at", &at.params.at)?,
    };
    if queue.source.summary().is_none() {
        return Err(Refused::Gone.into());
    }
    let row = queue.source.key(&id, LOOK).ok_or(Refused::NoKey)?;
    let live = html! {
        h2 { "Key" }
        pre { (foreign(&row.key)) }
        dl.numbers {
            (number("state", state_of(&row)))
            @if let Some(level) = row.level { (number("level", level)) }
            @if let Some(age) = row.held.or(row.age) { (number("for", super::time(age))) }
            @if let Some(due) = row.due_in { (number("due in", super::time(due))) }
            (number("failures", failures(&row)))
        }
        @if let Some(error) = &row.error {
            h2 { "Last error" }
            pre { (foreign(error)) }
        }
        @if let Some(value) = &row.value {
            h2 { "Value" }
            pre { (foreign(value)) }
        }
        div { (actions(at, name, &row)) }
    };
    Ok(View {
        live,
        json: json(&row),
        ..View::of(at, format!("A key of {name}"))
    })
}
