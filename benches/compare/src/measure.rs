//! Rounds: every contender once in each, one after the other, in reverse order in the next.
//!
//! What a contender leaves behind (memory that the kernel takes back, a collector that has not
//! finished) falls to the next one; reversing the order shares it out.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::catalogue::{Figure, Workload};
use crate::contenders::Field;
use crate::report::Row;
use crate::spec::{Kind, Round, Scale};

/// All rounds of all workloads: a row for each figure of each.
pub(crate) fn all(workloads: &[&Workload], field: &Field, scale: &Scale, rounds: u32) -> Vec<Row> {
    let steps = workloads.len() as u64 * u64::from(rounds + 1);
    // Drawn between rounds only: a thread that draws would be one more on the machine.
    let target = ProgressDrawTarget::stderr_with_hz(5);
    let progress = ProgressBar::with_draw_target(Some(steps), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    progress.set_style(style.expect("the template is well-formed"));
    let mut all = Vec::new();
    for Workload(id, kind, figures) in workloads {
        progress.set_message(*id);
        let mut rows: Vec<Row> = figures
            .iter()
            .map(|Figure(name, unit, ..)| Row::new(id, name, unit))
            .collect();
        for round in 0..=rounds {
            let shared = Round::start(scale);
            for contender in turns(&field.contenders, round) {
                let figures = contender.run(*kind, scale, &shared).unwrap_or_default();
                let warming_up = round == 0;
                for (row, figure) in rows.iter_mut().zip(figures) {
                    if !warming_up {
                        row.record(contender.name(), figure);
                    }
                }
            }
            progress.inc(1);
        }
        all.extend(rows);
    }
    progress.finish_and_clear();
    all
}

/// The contenders in the order of a round.
fn turns<T>(contenders: &[T], round: u32) -> Vec<&T> {
    let mut turns: Vec<&T> = contenders.iter().collect();
    if !round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

/// The pace of `latency`: twice the time that client-go, or the queue with one lock where there is
/// no Go, takes for a key at its highest rate. The least of three.
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
    fn every_second_round_is_reversed() {
        let turns = |round| {
            turns(&['a', 'b', 'c'], round)
                .into_iter()
                .collect::<String>()
        };
        assert_eq!([0, 1, 2].map(turns), ["abc", "cba", "abc"]);
    }
}
