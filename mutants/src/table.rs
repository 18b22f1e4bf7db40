//! The table of who caught what.

use anyhow::{Context, Result};

use crate::checker::Checker;
use crate::list::{Mutant, root};

const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->";

/// What became of one bug.
pub(crate) struct Row<'a> {
    mutant: &'a Mutant,
    /// Who caught it, and how; none if it survived.
    pub(crate) caught: Option<(Checker, String)>,
    /// Seconds of building and running, of all checkers asked.
    pub(crate) build: f64,
    pub(crate) run: f64,
}

impl<'a> Row<'a> {
    pub(crate) fn new(mutant: &'a Mutant) -> Self {
        Row {
            mutant,
            caught: None,
            build: 0.0,
            run: 0.0,
        }
    }

    /// For people who wait.
    pub(crate) fn line(&self) -> String {
        let by = match &self.caught {
            Some((checker, how)) => format!("caught by {checker}: {how}"),
            None => "SURVIVED".to_owned(),
        };
        let (name, build, run) = (&self.mutant.name, self.build, self.run);
        format!("{name:<34} {by} ({build:.0} s building, {run:.1} s)")
    }

    fn markdown(&self) -> String {
        let Mutant { what, file, .. } = self.mutant;
        let by = match &self.caught {
            Some((checker, how)) => format!("{} | {how}", checker.whole()),
            None => "**nobody** | **survived**".to_owned(),
        };
        let (build, run) = (self.build, self.run);
        format!("| `{file}` | {what} | {by} | {build:.0} | {run:.1} |\n")
    }
}

/// Puts what is known so far of so many bugs into the page.
pub(crate) fn write(rows: &[Row<'_>], planned: usize) -> Result<()> {
    let path = root().join("mutants/README.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (before, rest) = page.split_once(BEGIN).context("no place for the table")?;
    let (_, after) = rest.split_once(END).context("no end of the table")?;
    let mut table = String::from(
        "| in | the bug | caught by | how | build, s | run, s |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    table.extend(rows.iter().map(Row::markdown));
    let caught = rows.iter().filter(|row| row.caught.is_some()).count();
    let mut sum = format!("\n{caught} of {} caught.\n", rows.len());
    if rows.len() < planned {
        sum += &format!(
            "The other {} on the list were not planted in this run.\n",
            planned - rows.len()
        );
    }
    std::fs::write(&path, format!("{before}{BEGIN}{table}{sum}{END}{after}"))?;
    Ok(())
}
