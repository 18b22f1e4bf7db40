//! A check on the checks: plants known bugs one at a time, and sees who finds each.
//!
//! `cargo run --release -p keyqueue-mutants -- [--only WORD] [--write]`
//!
//! The bugs are in `mutants.toml`: a text that stands once in a file, what takes its place, and the
//! checkers that are to notice, the quickest first. They are planted in a copy of the tree, with a
//! target directory of its own, so that each costs one incremental build. Every checker has to pass without a
//! bug before its first. A bug that does not compile is an error, not a catch; one that no checker
//! notices *survives*, and makes the run fail.
//!
//! `--write` puts their rows into the table in `checks/mutants/README.md`.

mod checker;
mod list;
mod table;
mod tree;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::checker::{Checker, Verdict};
use crate::list::Mutant;
use crate::table::Row;
use crate::tree::Tree;

/// Plants known bugs one at a time, and sees who finds each.
#[derive(Parser)]
struct Options {
    /// Only bugs with this in their name, their file or their first checker
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Write their rows into the table in checks/mutants/README.md
    #[arg(long)]
    write: bool,
    /// Name the bugs, and plant none
    #[arg(long)]
    list: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let all = list::read()?;
    let mut mutants: Vec<&Mutant> = all.iter().collect();
    if !options.only.is_empty() {
        mutants.retain(|mutant| {
            let checker = mutant.checks.first().map(Checker::to_string);
            let texts = [&mutant.name, &mutant.file, &checker.unwrap_or_default()];
            let mut words = options.only.iter();
            words.any(|word| texts.iter().any(|text| text.contains(word)))
        });
        ensure!(!mutants.is_empty(), "no bug is called that");
    }
    if options.list {
        for mutant in &mutants {
            println!("{:<34} {}: {}", mutant.name, mutant.file, mutant.what);
        }
        return Ok(ExitCode::SUCCESS);
    }

    let tree = Tree::copy()?;
    let mut sound = BTreeSet::new();
    let mut rows = Vec::new();
    for mutant in mutants {
        for checker in &mutant.checks {
            if sound.insert(checker) {
                passes_without_a_bug(&tree, checker)?;
            }
        }
        let row = plant(&tree, mutant).with_context(|| mutant.name.clone())?;
        println!("{}", row.line());
        rows.push(row);
        if options.write {
            table::write(&rows, &all)?;
        }
    }
    let survivors = rows.iter().filter(|row| row.caught.is_none()).count();
    println!("{} bugs planted, {survivors} survived", rows.len());
    Ok(ExitCode::from(u8::from(survivors > 0)))
}

/// Sees to it that what a checker says means something.
fn passes_without_a_bug(tree: &Tree, checker: &Checker) -> Result<()> {
    let run = checker.run(tree)?;
    ensure!(
        matches!(run.verdict, Verdict::Passed),
        "{checker} fails without a bug:\n{}",
        run.output
    );
    println!("{checker}: passes without a bug, {:.1} s", run.seconds);
    Ok(())
}

/// Plants one bug, and asks its checkers in turn until one notices.
fn plant<'a>(tree: &Tree, mutant: &'a Mutant) -> Result<Row<'a>> {
    let planted = tree.plant(mutant)?;
    let mut row = Row::new(mutant);
    for checker in &mutant.checks {
        let run = checker.run(tree)?;
        row.build += run.build;
        row.run += run.seconds;
        if let Verdict::Failed(how) = run.verdict {
            row.caught = Some((checker.clone(), how));
            break;
        }
    }
    drop(planted);
    Ok(row)
}
