//! What has partitions: a fleet of replicas, or a consumer of Kafka.

use maud::{Markup, html};

use super::{Problem, View, foreign, maybe};
use crate::fleet::{Cell, Partitions};
use crate::text;
use crate::web::Context;

pub(crate) fn view(at: &Context, name: &str) -> Result<View, Problem> {
    let fleet = super::found(at, at.board.fleet(name), name)?;
    let found = fleet.look()?;
    let mut json = found.json();
    json["name"] = name.into();
    json["about"] = fleet.source.about().into();
    Ok(View {
        live: live(&found),
        json,
        ..View::of(at, name.to_owned())
    })
}

fn live(found: &Partitions) -> Markup {
    html! {
        @for note in &found.notes { p { (note) } }
        dl.numbers {
            @for (what, number, is_bad) in &found.numbers { div.bad[*is_bad] { dt { (what) } dd { (number) } } }
        }
        div.scroll { table {
            caption { (found.caption) }
            thead { tr {
                @for (column, (_, title)) in found.columns.iter().enumerate() {
                    th.n[found.rows.first().is_some_and(|row| is_number(&row[column]))] scope="col" { (title) }
                }
            } }
            tbody { @for row in &found.rows {
                tr {
                    @for ((_, title), cell) in found.columns.iter().zip(row) {
                        td.n[is_number(cell)] data-label=(title) {
                            @match cell {
                                Cell::Number(number) => { @if let Some(number) = number { (number) } },
                                Cell::Text(text) => { @if let Some(text) = text { (foreign(&text::cut(text, text::IN_TABLE))) } },
                                Cell::Time(time) => (maybe(*time)),
                                Cell::State(state, is_bad) => span.state.bad[*is_bad] { (state) },
                            }
                        }
                    }
                }
            } }
        } }
    }
}

fn is_number(cell: &Cell) -> bool {
    matches!(cell, Cell::Number(_) | Cell::Time(_))
}
