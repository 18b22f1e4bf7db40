//! A run: its contenders, its machine, and the figures of all rounds, which are kept as JSON.

mod machine;
mod page;
mod plots;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::contenders::Field;
use crate::model::{self, Curve};
use machine::Machine;

/// The contender that is judged.
const OURS: &str = "keyqueue";

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    machine: Machine,
    quick: bool,
    rounds: u32,
    pub(crate) seconds: u64,
    contenders: Vec<Entrant>,
    pub(crate) rows: Vec<Row>,
    /// The model of more processors; empty if it was not computed.
    model: Vec<Curve>,
}

/// A contender.
#[derive(Serialize, Deserialize)]
struct Entrant {
    name: String,
    version: String,
    /// Why it did not run, if it did not.
    not_run: Option<String>,
}

/// One figure of one workload.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    /// The workload, and the figure where the workload has several.
    id: String,
    unit: String,
    /// By contender, in the order of the rounds.
    figures: BTreeMap<String, Vec<f64>>,
}

impl Report {
    /// A run that is about to start.
    pub(crate) fn new(quick: bool, rounds: u32, field: &Field) -> Self {
        let running = field.contenders.iter().map(|it| (it.name(), None));
        let not_run = field.not_run.iter().map(|(name, why)| (*name, Some(why)));
        let entrants = running.chain(not_run).map(|(name, why)| Entrant {
            name: name.to_owned(),
            version: machine::version(name),
            not_run: why.cloned(),
        });
        Self {
            machine: Machine::this(),
            quick,
            rounds,
            seconds: 0,
            contenders: entrants.collect(),
            rows: Vec::new(),
            model: Vec::new(),
        }
    }

    /// Adds the model, which needs the measured cycles.
    pub(crate) fn add_model(&mut self) -> Result<()> {
        for contender in model::MODELLED {
            let row = self.row("cycle-u64").context("cycle-u64 was not run")?;
            let cycle = row.median(contender).context("it did not run")?;
            self.model.push(model::curve(contender, cycle)?);
        }
        Ok(())
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

    /// Writes BENCHMARKS.md and the figures of README.md into the repository, and the run as JSON
    /// and the plots into `results`.
    pub(crate) fn publish(&self, repository: &Path, results: &Path) -> Result<()> {
        fs::create_dir_all(results)?;
        self.write_json(&results.join("results.json"))?;
        plots::draw(self, results)?;
        let readme = repository.join("README.md");
        let updated = page::readme(self, &fs::read_to_string(&readme)?)?;
        fs::write(readme, updated)?;
        fs::write(repository.join("BENCHMARKS.md"), page::benchmarks(self))?;
        Ok(())
    }

    /// The tables, for a terminal.
    pub(crate) fn print(&self) {
        println!("{}\n", tables::results(self));
        println!(
            "{}\n",
            tables::table(tables::TARGETS, &tables::verdicts(self))
        );
        println!("{}\n\n{}", tables::summary(self), tables::rmws(self));
        if !self.model.is_empty() {
            println!("\nA model, not a measurement:\n{}", tables::model(self));
        }
    }

    fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

impl Row {
    pub(crate) fn new(workload: &str, figure: &str, unit: &str) -> Self {
        Self {
            id: format!("{workload} {figure}").trim_end().to_owned(),
            unit: unit.to_owned(),
            figures: BTreeMap::new(),
        }
    }

    /// Keeps a figure; one that is not a number stands for something that a contender cannot do.
    pub(crate) fn record(&mut self, contender: &str, figure: f64) {
        if !figure.is_nan() {
            let figures = self.figures.entry(contender.to_owned());
            figures.or_default().push(figure);
        }
    }

    fn sorted(&self, contender: &str) -> Option<Vec<f64>> {
        let mut sorted = self.figures.get(contender)?.clone();
        sorted.sort_by(f64::total_cmp);
        Some(sorted)
    }

    fn median(&self, contender: &str) -> Option<f64> {
        let sorted = self.sorted(contender)?;
        let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
        Some(f64::midpoint(sorted[low], sorted[high]))
    }

    fn extremes(&self, contender: &str) -> Option<(f64, f64)> {
        let sorted = self.sorted(contender)?;
        Some((*sorted.first()?, *sorted.last()?))
    }

    /// The contender's median divided by keyqueue's; `None` where keyqueue's is zero.
    fn ratio_to(&self, contender: &str) -> Option<f64> {
        let ours = self.median(OURS)?;
        (ours > 0.0).then_some(self.median(contender)? / ours)
    }
}
