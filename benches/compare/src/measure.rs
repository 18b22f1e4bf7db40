//! Rounds: every contender once in each, one after the other, and the other way round in the next.
//!
//! What a contender leaves behind (memory that the kernel takes back, a collector that is not through
//! yet) falls to whoever comes next; so that is not always the same one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::contenders::Field;
use crate::report::Row;
use crate::workloads::{Kind, Round, Scale, Workload};

/// All rounds of all workloads: a row for each metric of each.
pub(crate) fn all(workloads: &[Workload], field: &Field, scale: &Scale, rounds: u32) -> Vec<Row> {
    let steps = workloads.len() as u64 * u64::from(rounds + 1);
    // Drawn between rounds alone: a thread that draws would be one more on the machine.
    let target = ProgressDrawTarget::stderr_with_hz(5);
    let progress = ProgressBar::with_draw_target(Some(steps), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    progress.set_style(style.expect("the template is well-formed"));
    let mut rows = Vec::new();
    for workload in workloads {
        rows.extend(one(workload, field, scale, rounds, &progress));
    }
    progress.finish_and_clear();
    rows
}

fn one(
    workload: &Workload,
    field: &Field,
    scale: &Scale,
    rounds: u32,
    progress: &ProgressBar,
) -> Vec<Row> {
    let mut rows: Vec<Row> = workload
        .metrics
        .iter()
        .map(|metric| Row::new(&workload.id, metric))
        .collect();
    for round in 0..=rounds {
        progress.set_message(workload.id.clone());
        let shared = Round::start(scale);
        for contender in turns(&field.contenders, round) {
            let Some(figures) = contender.run(workload.kind, scale, &shared) else {
                continue;
            };
            let warming_up = round == 0;
            if !warming_up {
                for (row, figure) in rows.iter_mut().zip(figures) {
                    row.record(contender.name(), figure);
                }
            }
        }
        progress.inc(1);
    }
    rows
}

/// Who comes after whom in a round.
fn turns<T>(contenders: &[T], round: u32) -> Vec<&T> {
    let mut turns: Vec<&T> = contenders.iter().collect();
    if !round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

/// The pace of `latency`: twice the time that client-go takes for a key if it gets them as fast as
/// it can, or, where there is no Go, the queue with one lock. The least of three.
pub(crate) fn common_interval(field: &Field, scale: &Scale) -> f64 {
    let reference = ["client-go", "single-lock"]
        .into_iter()
        .find_map(|name| field.find(name))
        .expect("the queue with one lock is always there");
    let saturated = |_| {
        let round = Round::start(scale);
        let figures = reference.run(Kind::SATURATED, scale, &round);
        figures.expect("every queue runs it")[0]
    };
    2.0 * (0..3).map(saturated).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_goes_backwards() {
        let turns = |round| {
            turns(&['a', 'b', 'c'], round)
                .into_iter()
                .collect::<String>()
        };
        assert_eq!([0, 1, 2].map(turns), ["abc", "cba", "abc"]);
    }
}
