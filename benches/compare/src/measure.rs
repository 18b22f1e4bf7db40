//! Rounds: every contender once in each, one after the other, in reverse order in the next.
//!
//! What a contender leaves behind (memory that the kernel takes back, a collector that has not
//! finished) falls to the next one; reversing the order shares it out.

use crate::contenders::Contender;
use crate::report::Row;
use crate::work::Work;
use crate::workload::{Kind, Round, Workload};

/// What is run, and how much of it.
pub(crate) struct Run {
    /// In the order of the next round.
    contenders: Vec<Contender>,
    /// Rounds that count.
    rounds: u32,
    /// The numbers of keys are divided by it.
    divisor: usize,
    /// The keys of the events of `replay`.
    events: Vec<String>,
    work: Work,
    /// The pace of `latency`: twice the time that client-go, or the queue with one lock where there is
    /// no Go, takes for a key at its highest rate. The least of three.
    interval: f64,
}

impl Run {
    pub(crate) fn new(
        contenders: Vec<Contender>,
        rounds: u32,
        divisor: usize,
        events: Vec<String>,
    ) -> Self {
        let mut run = Self {
            contenders,
            rounds,
            divisor,
            events,
            work: Work::calibrated(500.0),
            interval: f64::INFINITY,
        };
        for _ in 0..3 {
            let saturated = run.round(Kind::Unique, 1, 1_000_000);
            let by = |name| {
                let mut contenders = run.contenders.iter();
                (contenders.find(|it| it.name == name)?.run)(&saturated)
            };
            let figures = by("client-go").or_else(|| by("single-lock"));
            let interval = 2.0 * figures.expect("both run it")[0];
            run.interval = run.interval.min(interval);
        }
        run
    }

    fn round(&self, kind: Kind, threads: usize, count: usize) -> Round<'_> {
        Round {
            kind,
            threads,
            count: count / self.divisor,
            interval: self.interval,
            events: match kind {
                Kind::Replay => &self.events,
                _ => &[],
            },
            work: self.work,
            work_ns: self.work.measure(5_000),
        }
    }

    /// All rounds of a workload: a row for each figure.
    pub(crate) fn rows(&mut self, workload: &Workload) -> Vec<Row> {
        let &Workload(id, kind, threads, count, figures) = workload;
        eprintln!("{id}");
        let mut rows: Vec<Row> = figures.iter().map(|figure| Row::new(id, figure)).collect();
        // The first one warms up.
        for at in 0..=self.rounds {
            let round = self.round(kind, threads, count);
            for contender in &self.contenders {
                let figures = (contender.run)(&round).unwrap_or_default();
                for (row, figure) in rows.iter_mut().zip(figures).filter(|_| at > 0) {
                    row.record(contender.name, figure);
                }
            }
            self.contenders.reverse();
        }
        rows
    }
}
