//! All queues and fleets.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use maud::{Markup, html};
use serde::Serialize;
use tokio::runtime::Handle;

use super::queue::is_old;
use super::{Problem, View, clock, foreign, heading, json, path, time};
use crate::board::Entry;
use crate::fleet::{self, Partitions};
use crate::history::Rate;
use crate::picture::short;
use crate::rows::{Census, Summary};
use crate::source::Refused;
use crate::text;
use crate::web::{Context, LOOK};

/// The most keys in hand of a queue in the JSON of the list.
const HELD: usize = 20;

/// A queue, with what a look at its keys has found, if there was time for one at all of them.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    summary: Summary,
    in_hand: Option<usize>,
    delayed: Option<usize>,
    /// For how long the key is held that is held for the longest time, in seconds.
    held_for: Option<f64>,
    /// The first keys in hand, each with for how long it is held.
    held: Vec<(String, Option<f64>)>,
    /// When these four were seen, and how old they are, in seconds.
    #[serde(skip)]
    at: Option<SystemTime>,
    age: Option<f64>,
    /// Per second.
    ended: Option<f64>,
    failed: Option<f64>,
}

/// What a column is called in the address, and on the page.
type Column<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const QUEUES: [Column<Line>; 7] = [
    ("queued", "Queued", |line| Some(line.summary.queued as f64)),
    ("in_hand", "In hand", |line| Some(line.in_hand? as f64)),
    ("held", "Held for", |line| line.held_for),
    ("delayed", "Delayed", |line| Some(line.delayed? as f64)),
    ("dead", "Dead letters", |line| {
        Some(line.summary.dead_letters? as f64)
    }),
    ("ended", "Ended/s", |line| line.ended),
    ("failed", "Failed/s", |line| line.failed),
];

/// A fleet, without a look at it if its server is away.
#[derive(Serialize)]
struct Fleet<'a> {
    name: &'a str,
    about: String,
    server: String,
    partitions: Option<u64>,
    unowned: Option<u64>,
    messages: Option<u64>,
    dead_letters: Option<u64>,
}

fn line(queue: &Entry, has_time: bool) -> Line {
    // A function of the user, such as a limiter, may panic in one of them.
    let look = || catch_unwind(AssertUnwindSafe(|| queue.look()));
    let seen = has_time.then(look);
    let panics = matches!(seen, Some(Err(_)));
    let (summary, census) = seen.and_then(Result::ok).flatten().unzip();
    let summary = summary.or_else(|| queue.summary());
    // Without time, what was seen before. A queue that is gone has nothing.
    let before = || queue.last().1.filter(|_| !has_time && summary.is_some());
    let census = census.or_else(before);
    let rate = queue.with_history(|history| history.rate(Instant::now()));
    let rate = rate.filter(|_| census.is_some());
    let summary = summary.unwrap_or(Summary {
        name: queue.name.clone(),
        state: Summary::GONE,
        ..Summary::default()
    });
    let summary = match panics {
        true => Summary {
            state: Summary::PANICS,
            ..summary
        },
        false => summary,
    };
    line_of(summary, census.as_deref(), rate)
}

/// Numbers of some of the keys would look like those of all.
fn line_of(summary: Summary, census: Option<&Census>, rate: Option<Rate>) -> Line {
    let census = census.filter(|census| !census.is_partial);
    let at = census.and_then(|census| census.at);
    let age = at.and_then(|at| at.elapsed().ok());
    let held = census.into_iter().flat_map(|census| &census.in_hand);
    let held = held.map(|row| (row.key.clone(), row.held.map(|held| held.as_secs_f64())));
    let held: Vec<_> = held.take(HELD).collect();
    Line {
        in_hand: census.map(|census| census.processing),
        delayed: census.map(|census| census.delayed),
        held_for: held.first().and_then(|(_, held)| *held),
        held,
        at,
        age: age.map(|age| age.as_secs_f64()),
        ended: rate.map(|rate| rate.ended),
        failed: rate.map(|rate| rate.failed),
        summary,
    }
}

/// Looks at all of them at the same time, because each may wait for its server; `None` for those that are not connected.
fn looks(fleets: &[Arc<fleet::Fleet>]) -> Vec<Option<Result<Arc<Partitions>, Refused>>> {
    let runtime = Handle::try_current().ok();
    thread::scope(|scope| {
        let look = |fleet: &fleet::Fleet| {
            let _inside = runtime.as_ref().map(Handle::enter);
            fleet.source.is_connected().then(|| fleet.look())
        };
        let threads = fleets.iter().map(|fleet| scope.spawn(move || look(fleet)));
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|look| look.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

pub(crate) fn view(at: &Context, _: &str) -> Result<View, Problem> {
    let (search, sort) = (&at.params.search, &at.params.sort);
    let (queues, began) = (at.board.queues(), Instant::now());
    let meant = |name: &str| text::finds(search, &text::cut(name, text::WHOLE));
    let mut queues: Vec<_> = queues
        .into_iter()
        .filter(|queue| meant(&queue.name))
        .collect();
    // If there is no time for all, those come first that nobody has looked at for the longest time.
    queues.sort_by_cached_key(|queue| queue.last().0);
    let mut lines: Vec<_> = (queues.iter())
        .map(|queue| line(queue, began.elapsed() < LOOK))
        .collect();
    lines.sort_by(|a, b| a.summary.name.cmp(&b.summary.name));
    if let Some((.., value)) = QUEUES.iter().find(|(known, ..)| known == sort) {
        let value = |line: &Line| value(line).unwrap_or(-1.0);
        lines.sort_by(|a, b| value(b).total_cmp(&value(a)));
    }
    let mut fleets = at.board.fleets();
    fleets.retain(|fleet| meant(&fleet.name));
    let fleets: Vec<_> = (fleets.iter().zip(looks(&fleets)))
        .map(|(fleet, look)| {
            let seen = look.as_ref().and_then(|look| look.as_ref().ok());
            Fleet {
                name: &fleet.name,
                about: fleet.source.about(),
                server: match &look {
                    None => "not connected".into(),
                    Some(Ok(seen)) => seen.server.clone(),
                    Some(Err(refused)) => refused.to_string(),
                },
                partitions: seen.map(|seen| seen.rows.len() as u64),
                unowned: seen.and_then(|seen| seen.unowned),
                messages: seen.map(|seen| seen.messages),
                dead_letters: seen.and_then(|seen| seen.dead_letters),
            }
        })
        .collect();
    let none = match &**search {
        "" => "No queue was added to the board.",
        _ => "No queue has this text in its name.",
    };
    let live = html! {
        @if lines.is_empty() && fleets.is_empty() { p { (none) } }
        @if !lines.is_empty() {
            div.scroll { table {
                caption { "Queues of this process" }
                thead { tr {
                    th scope="col" { a href=(at.query(&["sort"])) { "Queue" } }
                    @for (key, title, _) in QUEUES { (heading(at, key, title)) }
                    th scope="col" { "State" }
                } }
                tbody { @for line in &lines {
                    tr {
                        td data-label="Queue" { (link(at, "q", &line.summary.name)) }
                        @for (key, title, value) in QUEUES {
                            td.n data-label=(title) {
                                @match value(line) {
                                    Some(value) if key == "held" => (time(Duration::from_secs_f64(value))),
                                    Some(value) => (short(value)),
                                    None => {},
                                }
                            }
                        }
                        td data-label="State" {
                            span.state { (line.summary.state) }
                            // The time as such, which does not make the page another one each second.
                            @if let Some(at) = line.at.filter(is_old) { span.soft { " keys seen at " (clock(at)) } }
                        }
                    }
                } }
            } }
        }
        @if !fleets.is_empty() { (table(at, &fleets)) }
    };
    Ok(View {
        still: super::search(at, "Text in the name", &html! {}),
        live,
        json: serde_json::json!({ "queues": json(&lines), "fleets": json(&fleets) }),
        ..View::of(at, "Queues".into())
    })
}

fn link(at: &Context, kind: &str, name: &str) -> Markup {
    html! { a href={ (at.root) (kind) "/" (path(name)) } { (foreign(&text::cut(name, text::IN_TABLE))) } }
}

fn table(at: &Context, fleets: &[Fleet<'_>]) -> Markup {
    html! {
        div.scroll { table {
            caption { "Fleets and consumers" }
            thead { tr {
                th scope="col" { "Fleet" }
                th scope="col" { "Of" }
                @for title in ["Partitions", "Unowned", "Messages", "Dead letters"] { th.n scope="col" { (title) } }
                th scope="col" { "Server" }
            } }
            tbody { @for fleet in fleets {
                tr {
                    td data-label="Fleet" { (link(at, "f", fleet.name)) }
                    td data-label="Of" { (foreign(&text::cut(&fleet.about, text::IN_TABLE))) }
                    @for (title, count) in [
                        ("Partitions", fleet.partitions), ("Unowned", fleet.unowned),
                        ("Messages", fleet.messages), ("Dead letters", fleet.dead_letters),
                    ] {
                        td.n.bad[title == "Unowned" && count > Some(0)] data-label=(title) { @if let Some(count) = count { (count) } }
                    }
                    td data-label="Server" {
                        @if !fleet.server.is_empty() { span.bad[fleet.server != "connected"] { (text::cut(&fleet.server, text::IN_TABLE)) } }
                    }
                }
            } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use axum::http::Request;

    use keyqueue::WorkQueue;

    use super::*;
    use crate::fleet::Partitioned;
    use crate::web::Params;
    use crate::{Board, Shown};

    /// A fleet whose server answers when all are asked.
    struct Meets(Arc<Barrier>);

    impl Partitioned for Meets {
        fn about(&self) -> String {
            String::new()
        }

        fn look(&self) -> Result<Partitions, Refused> {
            self.0.wait();
            Ok(Partitions {
                server: "connected".into(),
                ..Partitions::default()
            })
        }

        fn mark(&self) -> &str {
            ""
        }

        fn letters(&self) -> Result<&dyn crate::letters::LetterStore, String> {
            Err(String::new())
        }
    }

    /// A request for the page at this path.
    fn context(board: &Board, path: &str) -> Context {
        let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
        Context::new(board.clone(), parts, Params::default()).unwrap()
    }

    #[test] // X6
    fn a_look_at_some_of_the_keys_is_not_listed_as_one_at_all() {
        let census = |is_partial| Census {
            delayed: 7,
            is_partial,
            ..Census::default()
        };
        for (is_partial, delayed) in [(false, Some(7)), (true, None)] {
            let line = line_of(Summary::default(), Some(&census(is_partial)), None);
            assert_eq!(line.delayed, delayed);
        }
    }

    #[test] // X6
    fn queues_for_which_there_is_no_time_have_their_turn_and_what_was_seen() {
        let board = Board::new();
        let queues = ["a", "b", "c"].map(|name| {
            let queue = WorkQueue::builder().pausable().build().unwrap();
            let queue = Arc::new(queue);
            queue.add(name);
            let held = queue.try_get().unwrap().into_owned();
            // A look takes all the time that there is for a page.
            let slow = |key: &&str, f: &mut std::fmt::Formatter<'_>| {
                thread::sleep(LOOK);
                f.write_str(key)
            };
            board.add(name, Shown::new(&queue, slow)).unwrap();
            (queue, held)
        });
        for seen in 1..=3 {
            // What was seen is of another state, so that it is time for another look at each.
            for (queue, _) in &queues {
                if seen % 2 == 0 {
                    queue.pause().unwrap();
                } else {
                    queue.resume();
                }
            }
            let page = view(&context(&board, "/"), "").unwrap();
            let queues = page.json["queues"].as_array().unwrap();
            let in_hand = queues.iter().filter(|queue| queue["in_hand"] == 1);
            assert_eq!(in_hand.count(), seen);
            assert_eq!(queues[0]["name"], "a");
        }
    }

    #[test] // X2
    fn a_server_that_does_not_answer_holds_up_the_look_at_no_other_fleet() {
        let board = Board::new();
        assert!(!context(&board, "/").asks_servers());
        let all = Arc::new(Barrier::new(3));
        for name in ["a", "b", "c"] {
            board
                .add_partitioned(name.into(), Meets(Arc::clone(&all)))
                .unwrap();
        }
        let seen = view(&context(&board, "/"), "").unwrap();
        assert_eq!(seen.json["fleets"][2]["server"], "connected");
        // Its time says nothing about the work, so that the page is looked at again soon.
        assert!(context(&board, "/").asks_servers() && context(&board, "/f/a").asks_servers());
        assert!(!context(&board, "/q/a").asks_servers());
    }
}
