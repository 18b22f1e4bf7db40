//! All queues and fleets.

use maud::{Markup, html};
use serde::Serialize;

use super::{Problem, View, foreign, json, path};
use crate::rows::Summary;
use crate::text;
use crate::web::Context;

/// A fleet, without a request to its server.
#[derive(Serialize)]
struct Fleet<'a> {
    name: &'a str,
    stream: &'a str,
    server: &'static str,
}

pub(crate) fn view(at: &Context) -> Result<View, Problem> {
    let queues = at.board.queues();
    let summaries: Vec<Summary> = (queues.iter())
        .map(|queue| {
            let name = queue.name.clone();
            match queue.source.summary() {
                Some(summary) => Summary { name, ..summary },
                None => Summary {
                    name,
                    state: Summary::GONE,
                    ..Summary::default()
                },
            }
        })
        .collect();
    #[cfg(feature = "nats")]
    let fleets = at.board.fleets();
    #[cfg(feature = "nats")]
    let fleets: Vec<_> = (fleets.iter())
        .map(|fleet| Fleet {
            name: &fleet.name,
            stream: fleet.stream(),
            server: fleet.connection(),
        })
        .collect();
    #[cfg(not(feature = "nats"))]
    let fleets: Vec<Fleet<'_>> = Vec::new();
    let live = html! {
        @if summaries.is_empty() && fleets.is_empty() {
            p { "No queue was added to the board." }
        }
        @if !summaries.is_empty() {
            div.scroll {
                table {
                    caption { "Queues of this process" }
                    thead { tr {
                        th scope="col" { "Queue" }
                        th.n scope="col" { "Queued" }
                        th.n scope="col" { "Dead letters" }
                        th scope="col" { "State" }
                    } }
                    tbody {
                        @for queue in &summaries {
                            tr {
                                td data-label="Queue" { a href={ (at.root) "q/" (path(&queue.name)) } { (foreign(&text::cut(&queue.name, text::IN_TABLE))) } }
                                td.n data-label="Queued" { (queue.queued) }
                                td.n data-label="Dead letters" { @if let Some(count) = queue.dead_letters { (count) } }
                                td data-label="State" { span.state { (queue.state) } }
                            }
                        }
                    }
                }
            }
        }
        @if !fleets.is_empty() { (table(at, &fleets)) }
    };
    Ok(View {
        title: "Queues".into(),
        queue: None,
        still: html! {},
        live,
        json: serde_json::json!({ "queues": json(&summaries), "fleets": json(&fleets) }),
    })
}

fn table(at: &Context, fleets: &[Fleet<'_>]) -> Markup {
    html! {
        div.scroll { table {
            caption { "Fleets of replicas" }
            thead { tr {
                th scope="col" { "Fleet" }
                th scope="col" { "Streams" }
                th scope="col" { "Server" }
            } }
            tbody {
                @for fleet in fleets {
                    tr {
                        td data-label="Fleet" { a href={ (at.root) "f/" (path(fleet.name)) } { (foreign(&text::cut(fleet.name, text::IN_TABLE))) } }
                        td data-label="Streams" { (fleet.stream) }
                        td data-label="Server" { span.state { (fleet.server) } }
                    }
                }
            }
        } }
    }
}
