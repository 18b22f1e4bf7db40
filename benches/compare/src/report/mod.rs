//! A run: who took part, on which machine, and the figures of all rounds.
//!
//! | file | what |
//! | --- | --- |
//! | here | the figures, their medians and ratios; kept as JSON |
//! | `machine` | the machine, and the versions of everybody |
//! | `verdict` | targets, and where we are behind |
//! | `table` | tables, for the terminal and for Markdown |
//! | `page` | BENCHMARKS.md |
//! | `plots` | its SVG plots |
//! | `readme` | the few figures in README.md |

mod machine;
mod page;
mod plots;
mod readme;
mod table;
mod verdict;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::contenders::Field;
use crate::model::{self, Curve};
use crate::workloads::Metric;
use machine::Machine;

/// Whose figures are judged.
pub(crate) const OURS: &str = "keyqueue";

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    machine: Machine,
    quick: bool,
    rounds: u32,
    seconds: u64,
    contenders: Vec<Entrant>,
    pub(crate) rows: Vec<Row>,
    /// With more processors than there are; empty if it could not be had.
    #[serde(default)]
    model: Vec<Curve>,
}

/// A column.
#[derive(Serialize, Deserialize)]
struct Entrant {
    name: String,
    version: String,
    /// Why it did not run, if it did not.
    not_run: Option<String>,
}

/// One metric of one workload.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    workload: String,
    metric: String,
    unit: String,
    results: Vec<Rounds>,
}

/// One contender's figures, in the order of the rounds.
#[derive(Serialize, Deserialize)]
struct Rounds {
    contender: String,
    figures: Vec<f64>,
}

impl Report {
    /// A run that is about to begin.
    pub(crate) fn new(quick: bool, rounds: u32) -> Self {
        Self {
            machine: Machine::this(),
            quick,
            rounds,
            seconds: 0,
            contenders: Vec::new(),
            rows: Vec::new(),
            model: Vec::new(),
        }
    }

    /// Makes the columns.
    pub(crate) fn enter(&mut self, field: &Field) {
        let entrant = |name: &str, not_run: Option<&String>| Entrant {
            name: name.to_owned(),
            version: machine::version(name),
            not_run: not_run.cloned(),
        };
        let running = field.contenders.iter();
        self.contenders = running
            .map(|contender| entrant(contender.name(), None))
            .collect();
        // In their places beside ours, so that the table looks the same without them.
        for (at, (name, why)) in field.not_run.iter().enumerate() {
            self.contenders.insert(1 + at, entrant(name, Some(why)));
        }
    }

    /// Adds the model of those whose cycle was measured.
    pub(crate) fn add_model(&mut self) -> Result<()> {
        for contender in model::MODELLED {
            let row = self.row("cycle-u64", "").context("cycle-u64 was not run")?;
            let cycle = row.median(contender).context("it did not run")?;
            self.model.push(model::curve(contender, cycle)?);
        }
        Ok(())
    }

    pub(crate) fn took(&mut self, seconds: u64) {
        self.seconds = seconds;
    }

    /// From the JSON of an earlier run.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let json = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&json).with_context(|| format!("{} is no run", path.display()))
    }

    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string(self)? + "\n";
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes BENCHMARKS.md into the repository, the figures into its README.md, and, into a directory
    /// of their own, the run as JSON and the plots.
    pub(crate) fn publish(&self, repository: &Path, figures: &Path) -> Result<()> {
        fs::create_dir_all(figures)
            .with_context(|| format!("cannot make {}", figures.display()))?;
        self.write_json(&figures.join("results.json"))?;
        plots::draw(self, figures)?;
        let write = |name: &str, text: String| {
            let path = repository.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("BENCHMARKS.md", page::markdown(self))?;
        let readme = fs::read_to_string(repository.join("README.md"))?;
        write("README.md", readme::update(&readme, self)?)
    }

    /// The tables, for a terminal.
    pub(crate) fn print(&self) {
        println!("{}", table::results(self));
        println!("{}", table::targets(self));
        if !self.model.is_empty() {
            println!("A model, not a measurement:\n{}", table::model(self));
        }
        for entrant in &self.contenders {
            if let Some(why) = &entrant.not_run {
                println!("{}: not run; {why}", entrant.name);
            }
        }
    }

    fn row(&self, workload: &str, metric: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.workload == workload && row.metric == metric)
    }
}

impl Row {
    pub(crate) fn new(workload: &str, metric: &Metric) -> Self {
        Self {
            workload: workload.into(),
            metric: metric.name.into(),
            unit: metric.unit.into(),
            results: Vec::new(),
        }
    }

    /// Notes a figure; one that is not a number stands for something a contender cannot do.
    pub(crate) fn record(&mut self, contender: &str, figure: f64) {
        if figure.is_nan() {
            return;
        }
        match self
            .results
            .iter_mut()
            .find(|rounds| rounds.contender == contender)
        {
            Some(rounds) => rounds.figures.push(figure),
            None => self.results.push(Rounds {
                contender: contender.to_owned(),
                figures: vec![figure],
            }),
        }
    }

    fn of(&self, contender: &str) -> Option<&Rounds> {
        self.results
            .iter()
            .find(|rounds| rounds.contender == contender)
    }

    fn median(&self, contender: &str) -> Option<f64> {
        Some(self.of(contender)?.median())
    }

    /// How many times less ours is than another's; none where nothing is divided by nothing.
    fn faster_than(&self, contender: &str) -> Option<f64> {
        let ours = self.median(OURS)?;
        (ours > 0.0).then_some(self.median(contender)? / ours)
    }

    fn title(&self) -> String {
        format!("{} {}", self.workload, self.metric)
            .trim_end()
            .to_owned()
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

    fn extremes(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted[0], sorted[sorted.len() - 1])
    }
}
