//! All queues.

use maud::html;

use super::{Problem, View, json, path};
use crate::rows::Summary;
use crate::web::Context;

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
    let live = html! {
        @if summaries.is_empty() {
            p { "No queue was added to the board." }
        } @else {
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
                                td data-label="Queue" { a href={ (at.root) "q/" (path(&queue.name)) } { bdi { (queue.name) } } }
                                td.n data-label="Queued" { (queue.queued) }
                                td.n data-label="Dead letters" { @if let Some(count) = queue.dead_letters { (count) } }
                                td data-label="State" { span.state { (queue.state) } }
                            }
                        }
                    }
                }
            }
        }
    };
    Ok(View {
        title: "Queues".into(),
        queue: None,
        still: html! {},
        live,
        json: json(&summaries),
    })
}
