//! Dead letters, a page at a time, and one of them.

use maud::{Markup, html};

use super::{Problem, Tab, View, ago, button, foreign, form, json, path};
use crate::policy::Action;
use crate::rows::{Letter, Letters};
use crate::source::Refused;
use crate::web::{Context, LOOK, number};

/// The letters on a page.
const ROWS: usize = 50;

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let queue = at
        .board
        .queue(name)
        .ok_or_else(|| Problem::no_queue(name))?;
    let search = &*at.params.search;
    let from = number("from", &at.params.from)?;
    let letters = queue.source.letters(from, ROWS, search, LOOK);
    let live = match &letters {
        None => html! { p { "The board does not know the dead letters of this queue." } },
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
            (letters.len) " of at most " (letters.capacity) " letters"
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
                            td data-label="Key" { a href={ (at.root) "q/" (path(name)) "/dead/" (letter.id) } { (foreign(&letter.key)) } }
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

/// The page of one letter.
pub(crate) fn one(at: &Context, name: &str, id: &str) -> Result<View, Problem> {
    let queue = at
        .board
        .queue(name)
        .ok_or_else(|| Problem::no_queue(name))?;
    let id = number("id", id)?;
    let letter = queue.source.letter(id).ok_or(Refused::NoLetter(id))?;
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
            li { "given up for the first time " (ago(letter.first)) }
            li { "given up the last time " (ago(letter.last)) ": " (letter.reason) }
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
