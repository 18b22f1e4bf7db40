//! Rounds: every contender once in each, one after the other, in reverse order in the next.
//!
//! What a contender leaves behind (memory that the kernel takes back, a collector that has not
//! finished) falls to the next one; reversing the order shares it out.

use std::time::Duration;

use crate::contenders::Contender;
use crate::report::Row;
use crate::work::Work;
use crate::workload::{Kind, Round, Workload};

/// How much is run.
pub(crate) struct Run {
    pub(crate) contenders: Vec<Contender>,
    /// Rounds that count.
    pub(crate) rounds: u32,
    /// The numbers of keys are divided by it.
    pub(crate) divisor: usize,
    /// The keys of the events of `replay`.
    pub(crate) events: Vec<String>,
}

impl Run {
    /// All rounds of all workloads: a row for each figure of each.
    pub(crate) fn all(&self, workloads: &[&'static Workload]) -> Vec<Row> {
        let work = Work::calibrated(Duration::from_nanos(500));
        let mut round = Round {
            kind: Kind::Unique,
            threads: 1,
            count: 1_000_000 / self.divisor,
            interval: 0.0,
            events: &[],
            work,
            work_ns: 0.0,
        };
        round.interval = self.common_interval(&round);
        let mut all = Vec::new();
        for &&Workload(id, kind, threads, count, figures) in workloads {
            eprintln!("{id}");
            let mut rows: Vec<Row> = figures.iter().map(|figure| Row::new(id, figure)).collect();
            (round.kind, round.threads, round.count) = (kind, threads, count / self.divisor);
            round.events = if kind == Kind::Replay {
                &self.events
            } else {
                &[]
            };
            // The first one warms up.
            for at in 0..=self.rounds {
                round.work_ns = work.measure(5_000);
                for contender in turns(&self.contenders, at) {
                    let figures = contender.run(&round).unwrap_or_default();
                    for (row, figure) in rows.iter_mut().zip(figures).filter(|_| at > 0) {
                        row.record(contender.name, figure);
                    }
                }
            }
            all.extend(rows);
        }
        all
    }

    /// The pace of `latency`: twice the time that client-go, or the queue with one lock where there is
    /// no Go, takes for a key at its highest rate. The least of three.
    fn common_interval(&self, saturated: &Round<'_>) -> f64 {
        let run = |name| {
            let reference = self.contenders.iter().find(|it| it.name == name)?;
            reference.run(saturated)
        };
        let run = |_| {
            run("client-go")
                .or_else(|| run("single-lock"))
                .expect("it runs everywhere")
        };
        2.0 * (0..3).map(|at| run(at)[0]).fold(f64::INFINITY, f64::min)
    }
}

/// The contenders in the order of a round.
fn turns<T>(contenders: &[T], round: u32) -> Vec<&T> {
    let mut turns: Vec<&T> = contenders.iter().collect();
    if !round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
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
