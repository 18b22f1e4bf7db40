//! The table of who caught what.

use anyhow::{Context, Result};

use crate::checker::Checker;
use crate::list::{Mutant, root};

const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->";
const HEAD: &str = "\
| in | the bug | caught by | how | build, s | run, s |
| --- | --- | --- | --- | --- | --- |
";
const SURVIVED: &str = "**nobody** | **survived**";

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
        let by = match &self.caught {
            Some((checker, how)) => format!("{} | {how}", checker.whole()),
            None => SURVIVED.to_owned(),
        };
        let (begin, build, run) = (beginning(self.mutant), self.build, self.run);
        format!("{begin}{by} | {build:.0} | {run:.1} |\n")
    }
}

/// Puts what became of some of the bugs into the page. What an earlier run has found out of the others
/// on the list stays there.
pub(crate) fn write(rows: &[Row<'_>], list: &[Mutant]) -> Result<()> {
    let path = root().join("checks/mutants/README.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, with_rows(&page, rows, list)?)?;
    Ok(())
}

fn with_rows(page: &str, rows: &[Row<'_>], list: &[Mutant]) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("no place for the table")?;
    let (earlier, after) = rest.split_once(END).context("no end of the table")?;
    let known = list.iter().filter_map(|mutant| {
        let new = rows.iter().find(|row| row.mutant.name == mutant.name);
        new.map(Row::markdown).or_else(|| {
            let begin = beginning(mutant);
            let mut lines = earlier.lines();
            let line = lines.find(|line| line.starts_with(&begin))?;
            Some(format!("{line}\n"))
        })
    });
    let known: Vec<String> = known.collect();
    let survived = known.iter().filter(|row| row.contains(SURVIVED)).count();
    let mut sum = format!("\n{} of {} caught.\n", known.len() - survived, known.len());
    if known.len() < list.len() {
        let others = list.len() - known.len();
        sum += &format!("The other {others} on the list were not planted yet.\n");
    }
    let table = known.concat();
    Ok(format!("{before}{BEGIN}{HEAD}{table}{sum}{END}{after}"))
}

/// How a bug's row begins.
fn beginning(mutant: &Mutant) -> String {
    format!("| `{}` | {} | ", mutant.file, mutant.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::read;

    #[test]
    fn rows_of_an_earlier_run_stay_in_the_order_of_the_list() {
        let list = &read().unwrap()[..3];
        let empty = format!("before\n{BEGIN}{END}after\n");
        let row = |at: usize| Row::new(&list[at]);
        let page = with_rows(&empty, &[row(2)], list).unwrap();
        assert!(page.contains("0 of 1 caught.\nThe other 2 on the list"));
        let mut caught = row(0);
        let checker = list[0].checks[0].clone();
        caught.caught = Some((checker, "hangs".to_owned()));
        let page = with_rows(&page, &[caught, row(1)], list).unwrap();
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(rows.len(), 3);
        for (row, mutant) in rows.iter().zip(list) {
            assert!(row.starts_with(&beginning(mutant)), "{row}");
        }
        assert!(page.contains("\n1 of 3 caught.\n<!--"), "{page}");
        assert!(page.starts_with("before\n") && page.ends_with("after\n"));
    }
}
