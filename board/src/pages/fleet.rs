//! One fleet: its partitions, who owns them, and what waits in them.

use keyqueue_nats::status::{Owner, Partition, SessionState, Status};
use maud::{Markup, html};
use serde::Serialize;

use super::{Problem, Tab, View, foreign, json, maybe, number, number_that};
use crate::text;
use crate::web::Context;

/// What the JSON of the page has.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    stream: &'a str,
    unowned: usize,
    #[serde(flatten)]
    status: &'a Status,
}

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let fleet = at.board.fleet(name);
    let fleet = fleet.ok_or_else(|| Problem::not_on_board(at.kind, name))?;
    let status = fleet.look()?;
    let shown = Shown {
        name,
        stream: fleet.stream(),
        unowned: status.unowned(),
        status: &status,
    };
    Ok(View {
        title: name.to_owned(),
        queue: Some((name.to_owned(), Tab::Queue)),
        still: html! {},
        live: live(&shown),
        json: json(&shown),
    })
}

fn live(shown: &Shown<'_>) -> Markup {
    let Shown {
        stream,
        unowned,
        status,
        ..
    } = shown;
    let of = &status.partitions;
    let count = |what: &str, count: u64| number(what, &count.to_string());
    let consumers = || of.iter().filter_map(|of| of.consumer.as_ref());
    html! {
        p { "Streams: " (stream) "-" (of.len()) "-0 to " (of.len().saturating_sub(1)) }
        @if let Some(next) = status.changes_to {
            p.note {
                "The number of partitions changes to " (next) ": these take no new messages, and those are not handled before these are empty."
            }
        }
        dl.numbers {
            (count("partitions", of.len() as u64))
            (number_that(*unowned > 0, "unowned", &unowned.to_string()))
            @let missing = of.iter().filter(|of| of.messages.is_none()).count();
            @if missing > 0 { (number_that(true, "without a stream", &missing.to_string())) }
            (count("messages", of.iter().filter_map(|of| of.messages).sum()))
            (count("in hand", consumers().map(|of| of.unacknowledged).sum()))
            (count("not delivered", consumers().map(|of| of.undelivered).sum()))
            (count("failed keys", of.iter().map(|of| of.failed_keys).sum()))
            @if let Some(letters) = status.dead_letters { (count("dead letters", letters)) }
        }
        div.scroll { table {
            caption { "Partitions, those that nobody owns first" }
            thead { tr {
                th.n scope="col" { "Partition" }
                th scope="col" { "Owner" }
                th scope="col" { "Session" }
                th.n scope="col" { "Renewed" }
                th.n scope="col" { "Epoch" }
                th.n scope="col" { "Messages" }
                th.n scope="col" { "In hand" }
                th.n scope="col" { "Not delivered" }
                th.n scope="col" { "Failed keys" }
            } }
            tbody {
                @for partition in of.iter().filter(|of| !of.is_owned()) { (row(partition)) }
                @for partition in of.iter().filter(|of| of.is_owned()) { (row(partition)) }
            }
        } }
    }
}

fn row(partition: &Partition) -> Markup {
    let owner = partition.owner.as_ref();
    let consumer = partition.consumer.as_ref();
    html! {
        tr {
            td.n data-label="Partition" { (partition.partition) }
            td data-label="Owner" { @if let Some(owner) = owner { (foreign(&text::cut(&owner.replica, text::IN_TABLE))) } }
            td data-label="Session" { span.state.bad[!partition.is_owned()] { (session(owner)) } }
            td.n data-label="Renewed" { (maybe(owner.and_then(|owner| owner.renewed_ago))) }
            td.n data-label="Epoch" { @if let Some(epoch) = partition.epoch { (epoch) } }
            td.n data-label="Messages" {
                @match partition.messages {
                    Some(messages) => (messages),
                    None => span.bad { "no stream" },
                }
            }
            td.n data-label="In hand" { @if let Some(of) = consumer { (of.unacknowledged) } }
            td.n data-label="Not delivered" { @if let Some(of) = consumer { (of.undelivered) } }
            td.n data-label="Failed keys" { (partition.failed_keys) }
        }
    }
}

fn session(owner: Option<&Owner>) -> &'static str {
    match owner.map(|owner| owner.session_state) {
        None => "unowned",
        Some(SessionState::Live) => "live",
        Some(SessionState::Leaving) => "leaving",
        Some(SessionState::Silent) => "unowned: silent",
        Some(SessionState::Ended) => "unowned: ended",
        Some(_) => "unknown",
    }
}
