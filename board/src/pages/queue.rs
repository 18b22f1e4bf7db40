//! One queue: its numbers, pictures, keys in hand and groups, and what can be done with all of it.

use std::time::{Duration, Instant, SystemTime};

use maud::{Markup, html};

use super::{Problem, View, button, clock, foreign, form, found, json, keys, maybe, named, number};
use crate::picture::pictures;
use crate::policy::Action;
use crate::rows::{Census, Group, Summary};
use crate::source::Refused;
use crate::web::Context;

/// A page says of a look that is older than this how old it is.
const OLD: Duration = Duration::from_secs(1);

pub(super) fn is_old(at: &SystemTime) -> bool {
    at.elapsed().is_ok_and(|age| age >= OLD)
}

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let queue = found(at, at.board.queue(name), name)?;
    let (summary, census) = queue.look().ok_or(Refused::Gone)?;
    let now = Instant::now();
    let (pictures, rates) =
        queue.with_history(|history| (pictures(history, now), history.rates(now)));
    let live = html! {
        div {
            "State: " span.state { (summary.state) }
            @if summary.paused && summary.state != Summary::PAUSED { " " span.state { (Summary::PAUSED) } }
            " " (actions(at, name, &summary))
        }
        (numbers(&summary, &census))
        @if let Some(at) = census.at.filter(is_old) {
            p.soft { "Keys in hand, delayed keys, levels and groups are those of " (clock(at)) "." }
        }
        @if census.is_partial {
            p.note {
                "There are too many keys to look at all of them. Only the number of queued keys is of all; the others are of "
                (census.queued + census.processing + census.delayed) "."
            }
        }
        (pictures)
        h2 { "Keys in hand, those held for the longest time first" }
        @match census.in_hand.is_empty() {
            true => p.soft { "Workers hold no key." },
            false => (keys::table(at, name, &census.in_hand, "Keys that workers hold now", false)),
        }
        @if census.group_count > 0 {
            h2 { "Groups" }
            (groups(at, name, &census))
        }
    };
    Ok(View {
        live,
        json: serde_json::json!({
            "queue": json(&summary),
            "keys": json(&*census),
            "rates": json(&rates),
            "totals": json(&queue.source.totals()),
        }),
        ..View::of(at, name.to_owned())
    })
}

fn numbers(summary: &Summary, census: &Census) -> Markup {
    html! {
        dl.numbers {
            (number("queued", summary.queued))
            (number("in hand", census.processing))
            (number("delayed", census.delayed))
            @if let Some(letters) = summary.dead_letters { (number("dead letters", letters)) }
            @for (level, count) in census.levels.iter().enumerate() {
                (number(&format!("level {level}"), count))
            }
        }
    }
}

fn groups(at: &Context, name: &str, census: &Census) -> Markup {
    let acts = at.may(name, Action::HoldGroup) || at.may(name, Action::ReleaseGroup);
    html! {
        div.scroll { table {
            caption {
                (super::counted(census.group_count, "group")) ", those with the most keys first"
                @if census.group_count > census.groups.len() { "; the first " (census.groups.len()) }
            }
            thead { tr {
                th scope="col" { "Group" }
                th.n scope="col" { "Queued" }
                th.n scope="col" { "In flight" }
                th scope="col" { "Held for" }
                @if acts { th scope="col" { "Actions" } }
            } }
            tbody {
                @for group in &census.groups {
                    tr {
                        td data-label="Group" { (foreign(&group.name)) }
                        td.n data-label="Queued" { (group.queued) }
                        td.n data-label="In flight" { (group.in_flight) }
                        td data-label="Held for" { (maybe(group.held_for)) }
                        @if acts { td { (group_actions(at, name, group)) } }
                    }
                }
            }
        } }
    }
}

fn group_actions(at: &Context, name: &str, group: &Group) -> Markup {
    let fields = [("id", &*group.id)];
    html! {
        @if at.may(name, Action::HoldGroup) {
            (form(at, name, Action::HoldGroup, &fields, html! {
                input type="number" name="seconds" min="1" max="86400" value="60" required
                    aria-label={ "Seconds to hold " (named(&group.name)) };
                " " button type="submit" aria-label={ "Hold " (named(&group.name)) } { "Hold" }
            }))
        }
        @if group.held_for.is_some() {
            (button(at, name, Action::ReleaseGroup, "Release", &named(&group.name), &fields))
        }
    }
}

/// What can be done with the whole queue: at the top, above what changes its length.
fn actions(at: &Context, name: &str, summary: &Summary) -> Markup {
    let is_open = !matches!(summary.state, Summary::SHUT_DOWN | Summary::DRAINING);
    html! {
        @if summary.pausable && is_open {
            // Both, so that neither takes the place of the other under a pointer or a finger.
            @for (action, text) in [(Action::Pause, "Pause"), (Action::Resume, "Resume")] {
                @if at.may(name, action) {
                    @let is_off = summary.paused == (action == Action::Pause);
                    (form(at, name, action, &[], html! { button type="submit" disabled[is_off] { (text) } }))
                }
            }
        } @else if summary.paused {
            (button(at, name, Action::Resume, "Resume", "", &[]))
        }
        @if is_open {
            (button(at, name, Action::Drain, "Drain", "", &[]))
        }
    }
}
