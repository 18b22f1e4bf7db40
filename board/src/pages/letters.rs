//! Dead letters, a page at a time, and one of them.

use std::sync::Arc;

use maud::{Markup, html};

use super::{Problem, Tab, View, ago, button, foreign, form, json, link, path};
use crate::letters;
use crate::place::Place;
use crate::policy::Action;
use crate::rows::{Letter, Letters};
use crate::source::Refused;
use crate::web::{Context, LOOK, number};

/// The letters on a page.
const ROWS: usize = 50;

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let place = place(at, name)?;
    let search = &*at.params.search;
    let from = number("from", &at.params.from)?;
    let store = place.letter_store();
    let letters = store.map(|store| letters::page(store, from, ROWS, search, LOOK));
    let letters = letters.transpose()?;
    let live = match &letters {
        None => {
            html! { p { "The board does not know the dead letters of this " (at.kind.name()) "." } }
        }
        Some(letters) => live(at, name, search, letters),
    };
    Ok(View {
        title: format!("Dead letters of {name}"),
        queue: Some((name.to_owned(), Tab::Letters)),
        still: html! {
            form.search method="get" role="search" {
                div {
                    label for="search" { "Text in key, value or error" }
                    input #search type="search" name="search" value=(search);
                }
                button type="submit" { "Search" }
            }
        },
        live,
        json: json(&letters),
    })
}

fn live(at: &Context, name: &str, search: &str, letters: &Letters) -> Markup {
    html! {
        p {
            (letters.len)
            @if let Some(capacity) = letters.capacity { " of at most " (capacity) }
            " letters"
            @if letters.lost > 0 { "; " (letters.lost) " more were not kept" }
        }
        @if letters.rows.is_empty() {
            p.soft { "There is none " @if !search.is_empty() { "with this text" } "." }
        } @else {
            (all(at, name, search))
            div.scroll { table {
                caption { "Dead letters, the oldest first" }
                thead { tr {
                    th scope="col" { "Key" }
                    th scope="col" { "Error" }
                    th.n scope="col" { "Attempts" }
                    th.n scope="col" { "Last" }
                    th scope="col" { "Value" }
                    th scope="col" { "Actions" }
                } }
                tbody {
                    @for letter in &letters.rows {
                        tr {
                            td data-label="Key" { a href={ (link(at, name)) "/dead/" (letter.id) } { (foreign(&letter.key)) } }
                            td data-label="Error" { (foreign(&letter.error)) }
                            td.n data-label="Attempts" { (letter.attempts) }
                            td.n data-label="Last" { (ago(letter.last)) }
                            td data-label="Value" { @if let Some(value) = &letter.value { (foreign(value)) } }
                            td { (actions(at, name, letter)) }
                        }
                    }
                }
            } }
        }
        @if let Some(next) = letters.next {
            p { a rel="next" href={ "?search=" (path(search)) "&from=" (next) } { "Next page" } }
        }
    }
}

/// What can be done with all letters that match.
fn all(at: &Context, name: &str, search: &str) -> Markup {
    let fields = [("all", "1"), ("search", search), ("back", "dead")];
    let which = if search.is_empty() {
        "all"
    } else {
        "all with this text"
    };
    let ask = "Drop these letters? Their keys and values are lost.";
    html! {
        p {
            @if at.may(name, Action::PutBack) {
                (form(at, name, Action::PutBack, &fields, html! { button type="submit" { "Put back " (which) } }))
            }
            @if at.may(name, Action::DropLetter) {
                (form(at, name, Action::DropLetter, &fields, html! {
                    button.bad type="submit" data-ask=(ask) { "Drop " (which) }
                }))
            }
        }
    }
}

fn actions(at: &Context, name: &str, letter: &Letter) -> Markup {
    let id = letter.id.to_string();
    let fields = [("letter", &*id), ("back", "dead")];
    html! {
        (button(at, name, Action::PutBack, "Put back", None, &fields))
        (button(at, name, Action::DropLetter, "Drop", Some("Drop this letter? Its key and value are lost."), &fields))
    }
}

fn place(at: &Context, name: &str) -> Result<Arc<dyn Place>, Problem> {
    let place = at.board.place(at.kind, name);
    place.ok_or_else(|| Problem::not_on_board(at.kind, name))
}

/// The page of one letter.
pub(crate) fn one(at: &Context, name: &str, id: &str) -> Result<View, Problem> {
    let place = place(at, name)?;
    let id = number("id", id)?;
    let store = place.letter_store().ok_or(Refused::NoLetters)?;
    let letter = letters::one(store, id)?;
    let live = html! {
        h2 { "Key" }
        pre { (foreign(&letter.key)) }
        h2 { "Error" }
        pre { (foreign(&letter.error)) }
        @if let Some(value) = &letter.value {
            h2 { "Value" }
            pre { (foreign(value)) }
        }
        h2 { "History" }
        ul {
            li { (letter.attempts) " attempts" }
            @if let Some(first) = letter.first { li { "given up for the first time " (ago(first)) } }
            li {
                "given up the last time " (ago(letter.last))
                @if let Some(reason) = &letter.reason { ": " (reason) }
            }
        }
        p { (actions(at, name, &letter)) }
    };
    Ok(View {
        title: format!("Dead letter {id} of {name}"),
        queue: Some((name.to_owned(), Tab::Letters)),
        still: html! {},
        live,
        json: json(&letter),
    })
}
