//! A run: its contenders, its machine, and the figures of all rounds, which are kept as JSON.

mod machine;
mod plots;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::contenders::Contender;
use crate::workload::Figure;

/// The contender that is judged.
const OURS: &str = "keyqueue";

/// A whole run.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: String,
    /// Nanoseconds of an atomic read-modify-write.
    rmw_ns: f64,
    rounds: u32,
    pub(crate) seconds: u64,
    /// Each contender, and its version, or why it did not run.
    contenders: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
}

/// One figure of one workload.
#[derive(Serialize)]
pub(crate) struct Row {
    /// The workload, and the figure where the workload has several.
    id: String,
    unit: &'static str,
    /// By contender, in the order of the rounds.
    figures: BTreeMap<&'static str, Vec<f64>>,
    #[serde(skip)]
    of: &'static Figure,
}

impl Report {
    /// A run that is about to start.
    pub(crate) fn new(rounds: u32, contenders: &[Contender]) -> Self {
        Self {
            machine: machine::machine(),
            rmw_ns: machine::rmw_ns(),
            rounds,
            seconds: 0,
            contenders: machine::versions(contenders),
            rows: Vec::new(),
        }
    }

    /// Writes the tables of BENCHMARKS.md, the figures of README.md and its picture, and the run as JSON and the
    /// other plots into `results` of the harness.
    pub(crate) fn publish(&self, harness: &Path) -> Result<()> {
        let results = harness.join("results");
        fs::create_dir_all(&results)?;
        let json = serde_json::to_string(self)? + "\n";
        fs::write(results.join("results.json"), json)?;
        plots::draw(self, &results)?;
        for (page, text) in self.pages(harness)? {
            fs::write(page, text)?;
        }
        Ok(())
    }

    /// The pages with the tables of this run, and their paths.
    fn pages(&self, harness: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut pages = Vec::new();
        for (page, parts) in tables::pages(self) {
            let path = harness.join("../..").join(page);
            let mut text = fs::read_to_string(&path)?;
            for (name, part) in parts {
                text = filled(&text, name, &part).context(page)?;
            }
            pages.push((path, text));
        }
        Ok(pages)
    }

    /// The results, for a terminal.
    pub(crate) fn print(&self) {
        println!("{}\n\n{}", tables::results(self), tables::summary(self));
    }

    fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

/// A page with a new text between the marks of that name.
fn filled(page: &str, name: &str, text: &str) -> Result<String> {
    let [begin, end] = ["begin", "end"].map(|mark| format!("<!-- {name}: {mark} -->\n"));
    let no_mark = || format!("no marks around the {name}");
    let (before, rest) = page.split_once(&begin).with_context(no_mark)?;
    let (_, after) = rest.split_once(&end).with_context(no_mark)?;
    Ok(format!("{before}{begin}{text}\n{end}{after}"))
}

impl Row {
    pub(crate) fn new(workload: &str, figure: &'static Figure) -> Self {
        Self {
            id: format!("{workload} {}", figure.0).trim_end().to_owned(),
            unit: figure.1,
            figures: BTreeMap::new(),
            of: figure,
        }
    }

    /// Keeps a figure; one that is not a number stands for something that a contender cannot do.
    pub(crate) fn record(&mut self, contender: &'static str, figure: f64) {
        if !figure.is_nan() {
            self.figures.entry(contender).or_default().push(figure);
        }
    }

    /// Least, median and most.
    fn range(&self, contender: &str) -> Option<[f64; 3]> {
        let mut sorted = self.figures.get(contender)?.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
        let median = f64::midpoint(sorted[low], sorted[high]);
        Some([sorted[0], median, sorted[sorted.len() - 1]])
    }

    fn median(&self, contender: &str) -> Option<f64> {
        self.range(contender).map(|[_, median, _]| median)
    }

    /// The contender's median divided by keyqueue's; `None` where keyqueue's is zero.
    fn ratio_to(&self, contender: &str) -> Option<f64> {
        let ours = self.median(OURS)?;
        (ours > 0.0).then_some(self.median(contender)? / ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_have_the_marks_of_their_tables() {
        let pages = Report::new(1, &[]).pages(Path::new(env!("CARGO_MANIFEST_DIR")));
        for (path, text) in pages.expect("the marks") {
            let took = "1 rounds took 0 min 0 s";
            assert!(
                text.contains("Medians of 1 ") || text.contains(took),
                "{path:?}"
            );
        }
    }
}
