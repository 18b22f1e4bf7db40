//! The figures of all rounds, what they say about the targets, and how both are shown.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::workloads::{self, Metric, Target};

/// Whose figures are judged, and the one they are set against.
const OURS: &str = "keyqueue";
const BASELINE: &str = "single-lock";

/// A whole run.
#[derive(Serialize)]
pub(crate) struct Report {
    cores: usize,
    rounds: u32,
    /// In the order of the columns.
    contenders: Vec<&'static str>,
    pub(crate) rows: Vec<Row>,
}

/// One metric of one workload.
#[derive(Serialize)]
pub(crate) struct Row {
    workload: String,
    metric: &'static str,
    unit: &'static str,
    results: Vec<Rounds>,
    #[serde(skip)]
    targets: Vec<Target>,
}

/// One contender's figures, in the order of the rounds.
#[derive(Serialize)]
struct Rounds {
    contender: &'static str,
    figures: Vec<f64>,
}

impl Report {
    pub(crate) fn new(rounds: u32, contenders: impl Iterator<Item = &'static str>) -> Self {
        Self {
            cores: workloads::cores(),
            rounds,
            contenders: contenders.collect(),
            rows: Vec::new(),
        }
    }
}

impl Row {
    pub(crate) fn new(workload: &str, metric: &Metric) -> Self {
        Self {
            workload: workload.into(),
            metric: metric.name,
            unit: metric.unit,
            results: Vec::new(),
            targets: metric.targets.clone(),
        }
    }

    pub(crate) fn record(&mut self, contender: &'static str, figure: f64) {
        match self.of(contender) {
            Some(at) => self.results[at].figures.push(figure),
            None => self.results.push(Rounds {
                contender,
                figures: vec![figure],
            }),
        }
    }

    fn of(&self, contender: &str) -> Option<usize> {
        self.results
            .iter()
            .position(|rounds| rounds.contender == contender)
    }

    fn median(&self, contender: &str) -> Option<f64> {
        Some(self.results[self.of(contender)?].median())
    }

    /// How many times less ours is than another's.
    fn faster_than(&self, contender: &str) -> Option<f64> {
        Some(self.median(contender)? / self.median(OURS)?)
    }

    /// The target and whether it is met, in two cells.
    fn judge(&self, target: Target) -> Option<[String; 2]> {
        let (wanted, met, got) = match target {
            Target::Faster(times) => {
                let ratio = self.faster_than(BASELINE)?;
                (format!("{times}x"), ratio >= times, String::new())
            }
            Target::Within(times, limit) => {
                let ratio = 1.0 / self.faster_than(limit)?;
                (
                    format!("within {times}x of {limit}"),
                    ratio <= times,
                    format!(" ({ratio:.2}x)"),
                )
            }
            Target::AtMost(most) => {
                let ours = self.median(OURS)?;
                (format!("at most {most}"), ours <= most, String::new())
            }
        };
        Some([
            wanted,
            format!("{}{got}", if met { "met" } else { "short" }),
        ])
    }

    fn cells(&self, contenders: &[&'static str]) -> Vec<String> {
        let mut cells = vec![
            format!("{} {}", self.workload, self.metric)
                .trim_end()
                .to_owned(),
            self.unit.to_owned(),
        ];
        cells.extend(contenders.iter().map(|contender| match self.of(contender) {
            Some(at) => self.results[at].to_string(),
            None => String::new(),
        }));
        let ratio = self.faster_than(BASELINE);
        cells.push(ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}x")));
        let judged: Vec<_> = self
            .targets
            .iter()
            .filter_map(|target| self.judge(*target))
            .collect();
        for column in 0..2 {
            let cell: Vec<&str> = judged.iter().map(|cells| &*cells[column]).collect();
            cells.push(cell.join("; "));
        }
        cells
    }
}

impl Rounds {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.figures.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        }
    }
}

/// The median, and the extremes in brackets.
impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sorted = self.sorted();
        let digits = usize::from(self.median() < 1000.0);
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        write!(
            f,
            "{:.digits$} ({least:.digits$}..{most:.digits$})",
            self.median()
        )
    }
}

/// A table in Markdown.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Medians of {} interleaved rounds (least..most) on {} cores; less is better. \
             The ratio is {BASELINE} / {OURS}.\n",
            self.rounds, self.cores,
        )?;
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let mut header = vec!["workload", "unit"];
        header.extend(&self.contenders);
        header.extend(["ratio", "target", "verdict"]);
        table.set_header(header);
        for row in &self.rows {
            table.add_row(row.cells(&self.contenders));
        }
        for column in table
            .column_iter_mut()
            .skip(2)
            .take(self.contenders.len() + 1)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")
    }
}
