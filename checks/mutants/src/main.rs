//! A check on the checks: plants the bugs of `bugs.diff` one at a time, and runs the checker that
//! has to find each.
//!
//! They are planted in copies of the tree, one for each target directory, so that each costs one
//! incremental build. `README.md` says the rest.

mod checker;
mod list;
mod matrix;
mod tree;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread::{self, available_parallelism};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;

use crate::checker::{Checker, MOST_SECONDS, Run};
use crate::list::Mutant;
use crate::matrix::Matrix;
use crate::tree::Tree;

/// Plants known bugs one at a time, and sees who finds each.
#[derive(Parser)]
struct Options {
    /// Only bugs with this in their name, their file or their checker
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Only the first of four parts of them, for example
    #[arg(long, value_name = "1/4", value_parser = part)]
    part: Option<(usize, usize)>,
    /// Only build them, as many at once as are apart from each other
    #[arg(long)]
    build: bool,
    /// Run every checker of these groups (`unit`, `real`, `shuttle`, `loom`) on each, and add the ends to `matrix.txt`
    #[arg(long, value_name = "GROUP")]
    matrix: Vec<String>,
}

fn part(text: &str) -> Result<(usize, usize)> {
    let (part, of) = text.split_once('/').context("as in 1/4")?;
    let (part, of) = (part.parse()?, of.parse()?);
    ensure!(0 < part && part <= of, "from 1 to {of}");
    Ok((part, of))
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let all = list::read()?;
    let mut mutants: Vec<&Mutant> = all.iter().collect();
    if !options.only.is_empty() {
        mutants.retain(|mutant| {
            let texts = [&mutant.name, &mutant.file, &mutant.check];
            let mut words = options.only.iter();
            words.any(|word| texts.iter().any(|text| text.contains(word)))
        });
        ensure!(!mutants.is_empty(), "no bug is called that");
    }
    if let Some((part, of)) = options.part {
        mutants = mutants.into_iter().skip(part - 1).step_by(of).collect();
    }

    if !options.matrix.is_empty() {
        let (tree, mut matrix, mut broken) = (Tree::copy("matrix")?, Matrix::open(&all)?, 0);
        for group in &options.matrix {
            broken += matrix.fill(&tree, &mutants, group)?;
        }
        return Ok(ExitCode::from(u8::from(broken > 0)));
    }
    if options.build {
        return build(&Tree::copy("build")?, mutants);
    }
    let ends = plant_all(&mutants)?;
    let Ends { survived, broken } = ends;
    let planted = mutants.len() - broken;
    println!("{planted} bugs planted, {survived} survived, {broken} could not be");
    Ok(ExitCode::from(u8::from(survived + broken > 0)))
}

/// How many bugs were not found, and how many could not be planted.
#[derive(Default)]
struct Ends {
    survived: usize,
    broken: usize,
}

/// Plants all, those of a target directory one after the other, in a tree of their own.
fn plant_all(mutants: &[&Mutant]) -> Result<Ends> {
    let mut lanes = BTreeMap::<&str, Vec<&Mutant>>::new();
    for &mutant in mutants {
        let lane = lanes.entry(mutant.checker()?.target());
        lane.or_default().push(mutant);
    }
    let mut lanes: Vec<_> = lanes.into_iter().collect();
    // The longest first.
    lanes.sort_by_key(|(_, mutants)| mutants.len());
    let lanes = Mutex::new(lanes);
    let next = || lanes.lock().expect("no lane panics here").pop();
    let worker = || -> Result<Ends> {
        let mut ends = Ends::default();
        while let Some((target, mutants)) = next() {
            plant_each(&Tree::copy(target)?, &mutants, &mut ends)?;
        }
        Ok(ends)
    };
    // A build after a bug keeps one processor busy, and a test that hangs keeps none busy.
    let workers = (3 * available_parallelism()?.get()).div_ceil(2);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut all = Ends::default();
        for worker in workers {
            let ends = worker.join().map_err(|_| anyhow!("a worker panicked"))??;
            all.survived += ends.survived;
            all.broken += ends.broken;
        }
        Ok(all)
    })
}

fn plant_each(tree: &Tree, mutants: &[&Mutant], ends: &mut Ends) -> Result<()> {
    // All before the first bug: after each the tree is built again.
    let mut sound = Sound::new();
    for mutant in mutants {
        let checker = mutant.checker()?;
        let run = || patience(tree, checker, &mutant.check).map_err(|error| format!("{error:#}"));
        sound.entry(checker).or_insert_with(run);
    }
    for mutant in mutants {
        let end = match plant(tree, &sound, mutant) {
            Ok(run) => {
                let end = match &run.failure {
                    Some(how) => format!("caught by {}: {how}", mutant.check),
                    None => {
                        ends.survived += 1;
                        "SURVIVED".to_owned()
                    }
                };
                let Run { build, seconds, .. } = run;
                format!("{end} ({build:.0} s building, {seconds:.1} s)")
            }
            Err(error) => {
                ends.broken += 1;
                format!("COULD NOT RUN: {error:#}")
            }
        };
        println!("{:<34} {end}", mutant.name);
    }
    Ok(())
}

/// Sees whether all bugs build.
fn build(tree: &Tree, mutants: Vec<&Mutant>) -> Result<ExitCode> {
    println!("{} bugs", mutants.len());
    let is_core = |mutant: &&Mutant| mutant.file.starts_with("src/");
    let (core, others): (Vec<_>, Vec<_>) = mutants.into_iter().partition(is_core);
    for (packages, mut mutants) in [(checker::CORE, core), (checker::OTHERS, others)] {
        while !mutants.is_empty() {
            (_, mutants) = tree.with(&mutants, || checker::build(tree, packages))?;
        }
    }
    println!("all build");
    Ok(ExitCode::SUCCESS)
}

/// How long a run of each checker may take, or why it does not pass without a bug.
type Sound<'a> = BTreeMap<Checker<'a>, Result<f64, String>>;

/// Runs a checker without a bug, which it has to pass: otherwise what it says of a bug means nothing.
fn patience(tree: &Tree, checker: Checker<'_>, check: &str) -> Result<f64> {
    let run = checker.run(tree, MOST_SECONDS);
    let run = run.with_context(|| check.to_owned())?;
    let (failed, output) = (run.failure.is_some(), run.output);
    ensure!(!failed, "{check} fails without a bug:\n{output}");
    println!("{check}: passes without a bug, {:.1} s", run.seconds);
    // A model with a bug may have far more states.
    let least = if check.starts_with("loom") || check.starts_with("shuttle") {
        60.0
    } else {
        20.0
    };
    Ok(least + 5.0 * run.seconds)
}

/// Plants a bug, and runs its checker.
fn plant(tree: &Tree, sound: &Sound<'_>, mutant: &Mutant) -> Result<Run> {
    let checker = mutant.checker()?;
    let patience = sound[&checker].as_ref().map_err(|why| anyhow!("{why}"))?;
    let (run, _) = tree.with(&[mutant], || checker.run(tree, *patience))?;
    Ok(run)
}
