//! The matrix: which of the fast checkers catch each bug of the crate.
//!
//! A checker is a program of tests. Those of a group are built by one command, and run without cargo, as many at once as there
//! are processors. The table is a file of text: a line for each bug, with a letter for each checker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::checker::MOST_SECONDS;
use crate::list::{Mutant, root};
use crate::tree::Tree;

struct Group {
    name: &'static str,
    /// Its target directory.
    target: &'static str,
    checkers: &'static str,
    /// The command of cargo that builds them.
    command: &'static str,
    flags: &'static str,
}

const GROUPS: [Group; 4] = [
    Group {
        name: "unit",
        target: "real",
        checkers: "unit",
        command: "test --profile=mutants -p keyqueue -p keyqueue-tests -p keyqueue-model -p keyqueue-soak --lib",
        flags: "",
    },
    Group {
        name: "real",
        target: "real",
        checkers: "queue order memory visibility values workers limits metrics peers \
                   model/limits model/linearizability model/state_machine model/values soak",
        command: "test --profile=mutants -p keyqueue -p keyqueue-tests -p keyqueue-model -p keyqueue-soak \
                  --bins --test=*",
        flags: "",
    },
    Group {
        name: "shuttle",
        target: "shuttle",
        checkers: "shuttle/crowd shuttle/freeze shuttle/overflow shuttle/pairs shuttle/room shuttle/shut_down \
                   shuttle/turns shuttle/waiting",
        command: "test --release -p keyqueue-shuttle-tests --tests",
        flags: "--cfg keyqueue_shuttle",
    },
    Group {
        name: "loom",
        target: "loom",
        checkers: "loom/adds loom/closing loom/fifo loom/groups loom/held loom/known loom/leaving loom/left loom/limiter \
                   loom/linger loom/many loom/receipts loom/ring loom/room loom/timer loom/times loom/track loom/values \
                   loom/waiting loom/workers",
        command: "test --release -p keyqueue-loom-tests --tests",
        flags: "--cfg keyqueue_loom",
    },
];

fn checkers() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.checkers.split(' '))
}

/// How a checker ended: `.`, `x` or `h`; and the modules of the tests that failed.
type Cell = (char, String);

/// The cells of a bug that are known, by checker.
type Row = BTreeMap<String, Cell>;

/// The table of a file.
pub(crate) struct Matrix {
    file: PathBuf,
    rows: BTreeMap<String, Row>,
}

impl Matrix {
    /// Reads the table, and writes it again for the bugs and checkers that there are now.
    pub(crate) fn open(all: &[Mutant]) -> Result<Self> {
        let file = root().join("checks/mutants/matrix.txt");
        // None at first.
        let rows = parse(&fs::read_to_string(&file).unwrap_or_default());
        let mut text =
            "# x: fails, h: hangs, .: passes, ?: not run; then where it fails\n".to_owned();
        for Group { name, checkers, .. } in GROUPS {
            text += &format!("# {name}: {checkers}\n");
        }
        for mutant in all {
            if let Some(row) = rows.get(&mutant.name) {
                text += &line(&mutant.name, row);
            }
        }
        fs::write(&file, text)?;
        Ok(Matrix { file, rows })
    }

    /// Plants those of the bugs of which it is not known what a group says of them, and appends their lines to the file. Returns
    /// how many could not be run.
    pub(crate) fn fill(&mut self, tree: &Tree, bugs: &[&Mutant], group: &str) -> Result<usize> {
        let group = GROUPS.iter().find(|known| known.name == group);
        let group = group.context("there is no such group")?;
        let is_known = |mutant: &Mutant| {
            let row = self.rows.get(&mutant.name);
            row.is_some_and(|row| {
                group
                    .checkers
                    .split(' ')
                    .all(|checker| row.contains_key(checker))
            })
        };
        // The other packages are not built.
        let is_left = |mutant: &&&Mutant| mutant.file.starts_with("src/") && !is_known(mutant);
        let left: Vec<_> = bugs.iter().filter(is_left).collect();
        if left.is_empty() {
            return Ok(0);
        }
        let patience = group.patience(tree)?;
        let mut broken = 0;
        for mutant in left {
            let began = Instant::now();
            let mut build = 0.0;
            let ran = tree.with(&[mutant], || {
                let programs = group.build(tree)?;
                build = began.elapsed().as_secs_f64();
                Ok(run(&programs, &patience))
            });
            match ran {
                Ok((ran, _)) => {
                    let row = self.rows.entry(mutant.name.clone()).or_default();
                    row.extend(ran.into_iter().map(|(name, cell, _)| (name, cell)));
                    let line = line(&mutant.name, row);
                    let seconds = began.elapsed().as_secs_f64();
                    println!(
                        "{} ({build:.0} of {seconds:.0} s building)",
                        line.trim_end()
                    );
                    let mut file = OpenOptions::new().append(true).open(&self.file)?;
                    file.write_all(line.as_bytes())?;
                }
                Err(error) => {
                    broken += 1;
                    println!("{:<50} COULD NOT RUN: {error:#}", mutant.name);
                }
            }
        }
        Ok(broken)
    }
}

/// `name   ..x.h? queue(core::states,delays) order(levels)`
fn line(name: &str, row: &Row) -> String {
    let end = |checker: &str| row.get(checker).map_or('?', |cell| cell.0);
    let mut line = format!("{name:<50} {}", checkers().map(end).collect::<String>());
    for checker in checkers() {
        if let Some((_, place)) = row.get(checker).filter(|cell| !cell.1.is_empty()) {
            line += &format!(" {checker}({place})");
        }
    }
    line + "\n"
}

/// The rows of a table; of two lines of a bug, the later one is newer.
fn parse(text: &str) -> BTreeMap<String, Row> {
    let mut checkers = Vec::new();
    let mut rows = BTreeMap::<String, Row>::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            if let Some((_, names)) = head
                .split_once(": ")
                .filter(|head| GROUPS.iter().any(|group| group.name == head.0))
            {
                checkers.extend(names.split(' '));
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(ends)) = (words.next(), words.next()) else {
            continue;
        };
        let places: BTreeMap<_, _> = words
            .filter_map(|word| word.strip_suffix(')')?.split_once('('))
            .collect();
        let known = checkers
            .iter()
            .zip(ends.chars())
            .filter(|(_, end)| *end != '?');
        let cells = known.map(|(checker, end)| {
            let place = places.get(checker).copied().unwrap_or_default();
            ((*checker).to_owned(), (end, place.to_owned()))
        });
        rows.entry(name.to_owned()).or_default().extend(cells);
    }
    rows
}

/// A program of tests.
struct Program {
    checker: String,
    path: PathBuf,
    folder: PathBuf,
}

impl Group {
    fn build(&self, tree: &Tree) -> Result<Vec<Program>> {
        let built = Command::new("cargo")
            .args(self.command.split_whitespace())
            .args(["--no-run", "--quiet", "--message-format=json"])
            .current_dir(&tree.root)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_TARGET_DIR", tree.target.join(self.target))
            .env("RUSTFLAGS", self.flags)
            .output()?;
        let (mut programs, mut said) = (Vec::new(), String::new());
        for line in String::from_utf8(built.stdout)?.lines() {
            let message: Value = serde_json::from_str(line)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            said += &text(&message["message"]["rendered"]);
            if message["executable"].is_string() {
                let manifest = text(&message["manifest_path"]);
                let folder = Path::new(&manifest).parent().context("a folder")?;
                let package = folder.strip_prefix(&tree.root)?.to_string_lossy();
                let target = text(&message["target"]["name"]);
                let checker = match (&*package, &*target) {
                    ("", "keyqueue") => "unit".to_owned(),
                    ("" | "tests", _) => target,
                    ("checks/soak", _) => "soak".to_owned(),
                    ("checks/model", _) => format!("model/{target}"),
                    _ => format!("{}/{target}", self.target),
                };
                let is_test = self.target != "real" && message["target"]["kind"][0] == "test";
                ensure!(!is_test || self.has(&checker), "{checker} is in no group");
                programs.push(Program {
                    checker,
                    path: text(&message["executable"]).into(),
                    folder: folder.to_owned(),
                });
            }
        }
        ensure!(built.status.success(), "it does not build:\n{said}");
        // The others have no tests.
        programs.retain(|program| self.has(&program.checker));
        Ok(programs)
    }

    fn has(&self, checker: &str) -> bool {
        self.checkers.split(' ').any(|mine| mine == checker)
    }

    /// How long each checker may take with a bug: without one it passes.
    fn patience(&self, tree: &Tree) -> Result<BTreeMap<String, f64>> {
        let programs = self.build(tree)?;
        let mut patience = BTreeMap::new();
        for (checker, (end, place), seconds) in run(&programs, &patience) {
            ensure!(end == '.', "{checker} fails without a bug: {place}");
            println!("{checker}: passes without a bug, {seconds:.1} s");
            patience.insert(checker, 60.0 + 3.0 * seconds);
        }
        for checker in self.checkers.split(' ') {
            ensure!(patience.contains_key(checker), "{checker} is not built");
        }
        Ok(patience)
    }
}

/// Runs programs, as many at once as there are processors. Returns how each ended, and its seconds.
fn run(programs: &[Program], patience: &BTreeMap<String, f64>) -> Vec<(String, Cell, f64)> {
    let (left, ended) = (Mutex::new(programs.iter()), Mutex::new(Vec::new()));
    let next = || left.lock().expect("no panic").next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let began = Instant::now();
                    let patience = patience.get(&program.checker).unwrap_or(&MOST_SECONDS);
                    let cell = program.run(*patience);
                    let seconds = began.elapsed().as_secs_f64();
                    let ran = (program.checker.clone(), cell, seconds);
                    ended.lock().expect("no panic").push(ran);
                }
            });
        }
    });
    ended.into_inner().expect("no panic")
}

impl Program {
    fn run(&self, patience: f64) -> Cell {
        let output = Command::new("timeout")
            .args(["--kill-after=5", &patience.to_string()])
            .arg(&self.path)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            // They run beside each other: what only takes long does not hang.
            .env("KEYQUEUE_TEST_PATIENCE", "3")
            .output()
            .expect("`timeout` is there");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        cell(output.status.code(), &text)
    }
}

fn cell(code: Option<i32>, output: &str) -> Cell {
    let (mut hangs, mut places) = (matches!(code, Some(124 | 137)), BTreeSet::new());
    for line in output.lines() {
        let failed = line
            .strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... FAILED"));
        let hung = line
            .split_once("watchdog: test `")
            .and_then(|(_, rest)| rest.split('`').next());
        hangs |= hung.is_some();
        if let Some((place, _)) = failed.or(hung).and_then(|name| name.rsplit_once("::")) {
            places.insert(place.trim_end_matches("::tests"));
        }
    }
    let end = match code {
        Some(0) => '.',
        _ if hangs => 'h',
        _ => 'x',
    };
    (end, places.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_a_later_one_is_newer() {
        let row = Row::from([
            ("queue".to_owned(), ('x', "core::states,delays".to_owned())),
            ("order".to_owned(), ('.', String::new())),
            ("loom/adds".to_owned(), ('h', String::new())),
        ]);
        let head: String = GROUPS
            .iter()
            .map(|group| format!("# {}: {}\n", group.name, group.checkers))
            .collect();
        let text = head + &line("a-bug", &row);
        assert_eq!(
            parse(&text),
            BTreeMap::from([("a-bug".to_owned(), row.clone())])
        );

        let newer = Row::from([("queue".to_owned(), ('.', String::new()))]);
        let both = parse(&(text + &line("a-bug", &newer)));
        assert_eq!(both["a-bug"]["queue"], newer["queue"]);
        assert_eq!(both["a-bug"]["order"], row["order"]);
    }

    #[test]
    fn a_cell_says_how_a_program_ended_and_where() {
        let failed = "test groups::turns::a ... ok\ntest levels::b ... FAILED\ntest wait::tests::c ... FAILED";
        assert_eq!(cell(Some(101), failed), ('x', "levels,wait".to_owned()));
        let hung = "watchdog: test `delays::threads::d` hung for 60 s";
        assert_eq!(cell(None, hung), ('h', "delays::threads".to_owned()));
        assert_eq!(cell(Some(124), ""), ('h', String::new()));
        assert_eq!(cell(Some(0), "test a ... ok"), ('.', String::new()));
    }
}
