//! Dead letters, a page at a time, and one of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use keyqueue::Listed;
use maud::{Markup, html};

use super::{
    Problem, View, ago, button, clock, counted, foreign, form_of, found, heading, json, link,
    named, pager, path,
};
use crate::act;
use crate::board::lock;
use crate::bulk::Job;
use crate::letters::{self, Verb};
use crate::place::Kind;
use crate::policy::Action;
use crate::rows::{Errors, Letter, Letters, Sort, Summary};
use crate::source::Refused;
use crate::web::{Context, ROWS};

/// How long the end of an action on all of them is told.
const TOLD: Duration = Duration::from_secs(600);

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let place = found(at, at.board.place(at.kind, name), name)?;
    let search = &*at.params.search;
    let wanted = at.wanted(Listed::All)?;
    let (live, json) = match place.letters() {
        Err(why) => (html! { p { (why) } }, serde_json::Value::Null),
        Ok(store) if at.params.group == "error" => {
            let (errors, count, is_partial) = letters::errors(store, &wanted)?;
            (
                grouped(at, &errors, count, is_partial),
                serde_json::json!({ "rows": json(&errors), "count": count, "is_partial": is_partial }),
            )
        }
        Ok(store) => {
            let letters = letters::page(store, &wanted)?;
            let job = lock(place.last_job()).job.clone();
            let mut json = json(&letters);
            json["action"] = job.as_deref().map(Job::json).into();
            (live(at, name, search, &letters, job.as_deref()), json)
        }
    };
    Ok(View {
        still: html! {
            (super::search(at, "Text in key, value or error", &html! {}))
            @let list = at.query(&["group", "from", "before"]);
            @match &*at.params.group {
                "error" => p { a href=(list) { "Letter by letter" } },
                _ => p { a href={ (list) "group=error" } { "By error" } },
            }
        },
        live: html! {
            (refuses(at, name))
            (live)
        },
        json,
        ..View::of(at, format!("Dead letters of {name}"))
    })
}

/// Says so if the queue takes nothing back any more.
fn refuses(at: &Context, name: &str) -> Markup {
    let queue = at.board.queue(name).filter(|_| at.kind == Kind::Queue);
    let state = queue.map(|queue| queue.summary().map_or(Summary::GONE, |it| it.state));
    html! {
        @if let Some(state @ (Summary::GONE | Summary::SHUT_DOWN | Summary::DRAINING)) = state {
            p.note { "The queue is " (state) ": it refuses what is put back." }
        }
    }
}

fn live(at: &Context, name: &str, search: &str, letters: &Letters, job: Option<&Job>) -> Markup {
    let ticks = VERBS.iter().any(|(_, action, ..)| at.may(name, *action));
    let has_values = letters.rows.iter().any(|letter| letter.value.is_some());
    let ticked: Vec<&str> = at.params.ticked.split('~').collect();
    html! {
        @if let Some(job) = job { (bar(at, name, job)) }
        p {
            @match letters.capacity {
                Some(capacity) => { (letters.len) " of at most " (counted(capacity, "letter")) },
                None => (counted(letters.len, "letter")),
            }
            @if letters.lost > 0 { "; " (letters.lost) " more were not kept" }
        }
        @if letters.rows.is_empty() {
            p.soft {
                "There is none" @if !search.is_empty() { " with this text" } @if !at.params.from.is_empty() { " from here on" }
                @if letters.next.is_some() || letters.is_partial { ", of those that there was time for" }
                "."
            }
        } @else {
            (many(at, name, search))
            div.scroll { table {
                caption {
                    "Dead letters, "
                    @if Sort::of(&at.params.sort).is_none() { "the oldest first" } @else { "sorted" }
                    @if letters.is_partial { ", of those that there was time for" }
                }
                thead { tr {
                    @if ticks { th scope="col" { "Tick" } }
                    th scope="col" { "Key" }
                    (heading(at, "error", "Error"))
                    (heading(at, "attempts", "Attempts"))
                    (heading(at, "age", "Last"))
                    @if has_values { th scope="col" { "Value" } }
                    @if ticks { th scope="col" { "Actions" } }
                } }
                tbody {
                    @for letter in &letters.rows {
                        @let id = letter.id.to_string();
                        tr {
                            @if ticks {
                                td data-label="Tick" { input type="checkbox" name="letter" value=(id) form="ticked" checked[ticked.contains(&&*id)] aria-label={ "Tick " (named(&letter.key)) }; }
                            }
                            td data-label="Key" { a href={ (link(at, name)) "/dead/" (id) } { (foreign(&letter.key)) } }
                            td data-label="Error" { (foreign(&letter.error)) }
                            td.n data-label="Attempts" { (letter.attempts) }
                            td.n data-label="Last" { (ago(letter.last)) }
                            @if has_values { td data-label="Value" { @if let Some(value) = &letter.value { (foreign(value)) } } }
                            @if ticks { td { (actions(at, name, letter)) } }
                        }
                    }
                }
            } }
        }
        (pager(at, letters.next, if letters.rows.len() < ROWS { "Look further" } else { "Next page" }))
    }
}

/// The errors of the letters, each with a link to the letters that have its longest part.
fn grouped(at: &Context, errors: &[Errors], count: usize, is_partial: bool) -> Markup {
    let list = at.query(&["search", "sort", "group", "from", "before"]);
    let part = |error: &str| {
        let parts = error.split('…').map(str::trim);
        parts
            .max_by_key(|part| part.len())
            .unwrap_or_default()
            .to_owned()
    };
    html! {
        div.scroll { table {
            caption {
                "Errors of dead letters, but for numbers and keys in them, the most frequent first"
                @if count > errors.len() { "; the first " (errors.len()) " of " (count) }
                @if is_partial { ", of those that there was time for" }
            }
            thead { tr {
                th scope="col" { "Error" }
                th.n scope="col" { "Letters" }
                th.n scope="col" { "Last" }
            } }
            tbody { @for of in errors {
                tr {
                    @let part = part(&of.error);
                    td data-label="Error" {
                        // All letters have no text at all.
                        @if part.is_empty() { (foreign(&of.error)) }
                        @else { a href={ (list) "search=" (path(&part)) } { (foreign(&of.error)) } }
                    }
                    td.n data-label="Letters" { (of.count) }
                    td.n data-label="Last" { (ago(of.last)) }
                }
            } }
        } }
    }
}

/// What can be done with all letters that match, and with those that are ticked.
fn many(at: &Context, name: &str, search: &str) -> Markup {
    let which = match search {
        "" => "all",
        _ => "all with this text",
    };
    let fields = [("all", "1"), ("search", search)];
    let is_allowed = VERBS.iter().filter(|(_, action, ..)| at.may(name, *action));
    let ticked = html! {
        @for (_, action, verb, _) in is_allowed.clone() {
            button.bad[*action == Action::DropLetter] type="submit" name="action" value=(action.name()) { (verb) " ticked" }
            " "
        }
    };
    html! {
        div {
            @for (_, action, verb, _) in is_allowed.clone() {
                (button(at, name, *action, &format!("{verb} {which}"), "", &fields))
            }
            @if is_allowed.count() > 0 { (form_of(at, name, Some("ticked"), &[("ticked", "1")], ticked)) }
        }
    }
}

/// What can be done to letters: the actions, and what they are called.
const VERBS: [(Verb, Action, &str, &str); 2] = [
    (Verb::PutBack, Action::PutBack, "Put back", "put back"),
    (Verb::Drop, Action::DropLetter, "Drop", "dropped"),
];

fn actions(at: &Context, name: &str, letter: &Letter) -> Markup {
    let id = letter.id.to_string();
    html! {
        @for (_, action, verb, _) in VERBS {
            (button(at, name, action, verb, &named(&letter.key), &[("letter", &id)]))
        }
    }
}

/// The last action on all letters: how far it is, or how it ended.
fn bar(at: &Context, name: &str, job: &Job) -> Markup {
    let (_, action, verb, past) = VERBS[job.verb as usize];
    // Ordering: Relaxed; counts that nothing else depends on.
    let [done, total] = [&job.done, &job.total].map(|count| count.load(Ordering::Relaxed));
    let with = match &*job.search {
        "" => String::new(),
        search => format!(" with the text “{search}”"),
    };
    let ended = job.ended.get();
    html! {
        @match ended {
            None => div.note {
                p { label { (verb) " all" (with) ": " (done) " of " (total) " " progress max=(total.max(1)) value=(done) {} } }
                (button(at, name, action, "Stop", "", &[("stop", &job.number.to_string())]))
            },
            Some((at, why)) if at.elapsed() < TOLD => p.note.bad[why.is_some()] {
                (done) " of " (total) (with) " " (past)
                @match why { None => ": done.", Some(why) => { ". The rest: " (why) "." } }
            },
            Some(_) => {},
        }
    }
}

/// The page of one letter.
pub(crate) fn one(at: &Context, name: &str) -> Result<View, Problem> {
    let place = found(at, at.board.place(at.kind, name), name)?;
    let id = act::letter("id", &at.segment(4))?;
    let store = place.letters().map_err(|_| Refused::NoLetters)?;
    let letter = letters::one(store, id)?;
    let live = html! {
        (refuses(at, name))
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
            li { (counted(usize::try_from(letter.attempts).unwrap_or(usize::MAX), "attempt")) }
            @if let Some(first) = letter.first { li { "given up for the first time at " (clock(first)) ", " (ago(first)) } }
            li {
                "given up the last time at " (clock(letter.last)) ", " (ago(letter.last))
                @if let Some(reason) = &letter.reason { ": " (reason) }
            }
        }
        div { (actions(at, name, &letter)) }
    };
    Ok(View {
        live,
        json: json(&letter),
        ..View::of(at, format!("Dead letter {} of {name}", id.number))
    })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::UNIX_EPOCH;

    use axum::http::Request;

    use super::*;
    use crate::Board;
    use crate::fleet::{Partitioned, Partitions};
    use crate::letters::LetterStore;
    use crate::place::Kind;
    use crate::source::{LetterId, Task, Which};
    use crate::web::Params;

    /// A fleet with a letter of each number, at a slow server.
    struct Slow;

    impl Partitioned for Slow {
        fn about(&self) -> String {
            String::new()
        }

        fn look(&self) -> Result<Partitions, Refused> {
            Ok(Partitions::default())
        }

        fn mark(&self) -> &str {
            ""
        }

        fn letters(&self) -> Result<&dyn LetterStore, String> {
            Ok(self)
        }
    }

    impl LetterStore for Slow {
        fn page(&self, from: u64, max: usize, _: usize) -> Result<Vec<Letter>, Refused> {
            thread::sleep(Duration::from_millis(200));
            let letter = |number| Letter {
                id: LetterId { number, mark: 0 },
                key: number.to_string(),
                value: None,
                error: String::new(),
                reason: None,
                attempts: 1,
                first: None,
                last: UNIX_EPOCH,
            };
            Ok((from..).take(max).map(letter).collect())
        }

        fn act(&self, _: Verb, _: &[LetterId]) -> Vec<Result<(), Refused>> {
            Vec::new()
        }

        fn len(&self) -> Result<usize, Refused> {
            Ok(usize::MAX)
        }
    }

    #[test] // X2 X5
    fn a_search_that_is_out_of_time_says_that_it_has_not_looked_at_all_letters() {
        let board = Board::new();
        board.add_partitioned("slow".into(), Slow).unwrap();
        for sort in ["", "age"] {
            let request = Request::get("/f/slow/dead").body(()).unwrap();
            let params = Params {
                search: "x".into(),
                sort: sort.into(),
                ..Params::default()
            };
            let at = Context::new(board.clone(), request.into_parts().0, params).unwrap();
            let page = view(&at, "slow").unwrap().live.0;
            let none = "There is none with this text, of those that there was time for.";
            assert!(page.contains(none), "{page}");
            assert_eq!(page.contains("Look further"), sort.is_empty(), "{page}");
        }
        let (search, upto, said) = ("x".into(), (0, 0), None);
        let mut all = Task::Letters(Verb::Drop, Which::All { search, upto, said });
        let slow = board.place(Kind::Fleet, "slow").unwrap();
        let question = slow.question("slow", &mut all).unwrap().unwrap();
        assert!(
            question.contains("? There was no time to look at all letters"),
            "{question}"
        );
    }
}
