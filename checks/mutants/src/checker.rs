//! Those who are to notice.

use std::fmt;
use std::process::{Command, Output};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tree::Tree;

/// No checker takes as long without a bug, in seconds; one that does has hung.
const PATIENCE: &str = "240";
/// Nor does building it.
const PATIENCE_BUILDING: &str = "1800";

/// Twenty seeds under Miri take longer, on a busy machine.
const PATIENCE_MIRI: &str = "1200";

/// The profile of unit and integration tests: one build for each bug takes longer than the tests.
const QUICK_TO_BUILD: &str = "--profile=mutants";

/// What Miri is told, as in .ci/jobs/miri.sh.
const MIRIFLAGS: &str = "-Zmiri-many-seeds=0..20 -Zmiri-preemption-rate=0.05 \
    -Zmiri-address-reuse-cross-thread-rate=0 \
    -Zmiri-compare-exchange-weak-failure-rate=0.1";

/// A checker and a part of it: `loom adds handle`, `shuttle crowd`, `unit timer::wheel`, `test shutdown`,
/// `miri visibility canceller`, `model`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Checker {
    kind: Kind,
    /// The test binary, or for unit tests the filter.
    part: Option<String>,
    /// The tests in it, all that have this in their name.
    filter: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Model checks.
    Loom,
    /// Large scenarios under random schedules.
    Shuttle,
    Unit,
    /// Integration tests.
    Test,
    /// Integration tests under Miri, with many seeds.
    Miri,
    /// The property test against the reference model.
    Model,
}

impl FromStr for Checker {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let name = words.next().unwrap_or_default();
        let kind = KINDS.into_iter().find(|kind| kind.name() == name);
        let kind = kind.with_context(|| format!("`{text}` is no checker"))?;
        let checker = Checker {
            kind,
            part: words.next(),
            filter: words.next(),
        };
        let needs_part = kind != Kind::Model;
        if words.next().is_some() || needs_part != checker.part.is_some() {
            bail!("`{text}` is no checker");
        }
        Ok(checker)
    }
}

const KINDS: [Kind; 6] = [
    Kind::Loom,
    Kind::Shuttle,
    Kind::Unit,
    Kind::Test,
    Kind::Miri,
    Kind::Model,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Loom => "loom",
            Kind::Shuttle => "shuttle",
            Kind::Unit => "unit",
            Kind::Test => "test",
            Kind::Miri => "miri",
            Kind::Model => "model",
        }
    }
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        for word in [&self.part, &self.filter].into_iter().flatten() {
            write!(f, " {word}")?;
        }
        Ok(())
    }
}

/// How a run of a checker ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Passed,
    /// With what has failed.
    Failed(String),
}

pub(crate) struct Run {
    pub(crate) verdict: Verdict,
    pub(crate) output: String,
    /// Seconds to build.
    pub(crate) build: f64,
    /// Seconds to run.
    pub(crate) seconds: f64,
}

impl Checker {
    /// Builds and runs it.
    ///
    /// # Errors
    ///
    /// If it cannot be built, which is no catch.
    pub(crate) fn run(&self, tree: &Tree) -> Result<Run> {
        if self.kind == Kind::Miri {
            require_miri()?;
        }
        let began = Instant::now();
        let built = self
            .command(tree, PATIENCE_BUILDING, &["--no-run"])
            .output()?;
        if !built.status.success() {
            bail!("{self} does not build:\n{}", text(&built));
        }
        let build = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let patience = match self.kind {
            Kind::Miri => PATIENCE_MIRI,
            _ => PATIENCE,
        };
        let ran = self.command(tree, patience, &[]).output()?;
        let output = text(&ran);
        Ok(Run {
            verdict: verdict(ran.status.code(), &output).with_context(|| self.to_string())?,
            output,
            build,
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    fn command(&self, tree: &Tree, patience: &str, further: &[&str]) -> Command {
        // It ends the tests as well, not only cargo.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", patience, "cargo"]);
        if self.kind == Kind::Miri {
            command
                .args(["+nightly", "miri"])
                .env("MIRIFLAGS", MIRIFLAGS);
        }
        command.args(["test", "--quiet"]);
        command
            .current_dir(&tree.root)
            .env("CARGO_INCREMENTAL", "1");
        let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        let part = self.part.as_deref().unwrap_or_default();
        // A cfg changes every crate, and so does Miri: each has a target directory for itself.
        let target = match self.kind {
            Kind::Loom | Kind::Shuttle => {
                let name = self.kind.name();
                flags.push_str(&format!(" --cfg keyqueue_{name}"));
                let package = format!("keyqueue-{name}-tests");
                command.args(["-p", &package, "--release", "--test", part]);
                name
            }
            Kind::Model => {
                command.args(["-p", "keyqueue-model", QUICK_TO_BUILD]);
                "real"
            }
            Kind::Unit => {
                command.args(["-p", "keyqueue", QUICK_TO_BUILD, "--lib", part]);
                "real"
            }
            Kind::Test => {
                command.args(["-p", "keyqueue", QUICK_TO_BUILD, "--test", part]);
                "real"
            }
            Kind::Miri if part == "unit" => {
                command.args(["-p", "keyqueue", "--lib"]);
                "miri"
            }
            Kind::Miri => {
                command.args(["-p", "keyqueue", "--test", part]);
                "miri"
            }
        };
        command
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", tree.target.join(target));
        command.args(&self.filter).args(further);
        command
    }
}

fn require_miri() -> Result<()> {
    let asked = Command::new("cargo")
        .args(["+nightly", "miri", "--version"])
        .output()?;
    anyhow::ensure!(
        asked.status.success(),
        "no Miri; .ci/jobs/miri.sh installs it"
    );
    Ok(())
}

fn text(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    format!("{stdout}{}", String::from_utf8_lossy(&output.stderr))
}

/// What the run of a built checker says.
fn verdict(code: Option<i32>, output: &str) -> Result<Verdict> {
    const HUNG: i32 = 124;
    let passed = |line: &str| {
        let count = line.strip_prefix("test result: ok. ")?;
        count.split(' ').next()?.parse::<u32>().ok()
    };
    if code == Some(0) {
        let tests: u32 = output.lines().filter_map(passed).sum();
        // A filter that has gone out of date would pass forever.
        anyhow::ensure!(tests > 0, "no test ran:\n{output}");
        return Ok(Verdict::Passed);
    }
    // `---- name stdout ----` stands above what a failed test has printed.
    let failed = output.lines().find_map(|line| {
        let name = line.strip_prefix("---- ")?.strip_suffix(" stdout ----")?;
        Some(format!("`{name}` fails"))
    });
    let hung = output.lines().find_map(|line| {
        let (_, name) = line.split_once("watchdog: test `")?;
        Some(format!("`{}` hangs", name.split('`').next()?))
    });
    // Miri ends the process there, and the harness does not report which test it was.
    let undefined = output.contains("error: Undefined Behavior: ").then(|| {
        match output.contains("Data race detected") {
            true => "a data race".to_owned(),
            false => "undefined behaviour".to_owned(),
        }
    });
    Ok(Verdict::Failed(
        match (failed.or(hung).or(undefined), code) {
            (Some(how), _) => how,
            (None, Some(HUNG)) => "hangs".to_owned(),
            (None, _) => "aborts".to_owned(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(how: &str) -> Verdict {
        Verdict::Failed(how.to_owned())
    }

    #[test]
    fn a_checker_is_read_and_written_the_same_way() {
        for text in [
            "loom adds handle",
            "shuttle crowd",
            "unit timer::wheel",
            "test core",
            "miri visibility cancels",
            "model",
        ] {
            let checker = text.parse::<Checker>().unwrap();
            assert_eq!(checker.to_string(), text);
        }
        for text in [
            "",
            "loom",
            "shuttle",
            "miri",
            "model a",
            "test a b c",
            "hope",
        ] {
            assert!(text.parse::<Checker>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_verdict_names_the_test() {
        let ok = "test result: ok. 3 passed; 0 failed";
        assert_eq!(verdict(Some(0), ok).unwrap(), Verdict::Passed);
        assert!(verdict(Some(0), "test result: ok. 0 passed").is_err());
        let output = "---- a::b stdout ----\nthread panicked";
        assert_eq!(verdict(Some(101), output).unwrap(), failed("`a::b` fails"));
        let output = "watchdog: test `c` hung for 60 s";
        assert_eq!(verdict(Some(101), output).unwrap(), failed("`c` hangs"));
        let output = "error: Undefined Behavior: Data race detected between";
        assert_eq!(verdict(Some(1), output).unwrap(), failed("a data race"));
        let output = "error: Undefined Behavior: memory access failed";
        assert_eq!(
            verdict(Some(1), output).unwrap(),
            failed("undefined behaviour")
        );
        assert_eq!(verdict(Some(124), "").unwrap(), failed("hangs"));
        assert_eq!(verdict(None, "").unwrap(), failed("aborts"));
    }
}
