//! The checks that have to notice a bug.

use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::tree::Tree;

/// What Miri is told, as in .ci/jobs/miri.sh.
const MIRIFLAGS: &str = "-Zmiri-many-seeds=0..20 -Zmiri-preemption-rate=0.05 \
    -Zmiri-address-reuse-cross-thread-rate=0 \
    -Zmiri-compare-exchange-weak-failure-rate=0.1";

/// Longer than any build, and than any run without a bug.
pub(crate) const MOST_SECONDS: f64 = 1800.0;

/// The run of a checker.
pub(crate) struct Run {
    /// What has failed, if it did not pass.
    pub(crate) failure: Option<String>,
    pub(crate) output: String,
    /// Seconds to build.
    pub(crate) build: f64,
    /// Seconds to run.
    pub(crate) seconds: f64,
}

/// A checker and a part of it: `loom adds handle`, `shuttle crowd`, `unit timer::wheel`, `test
/// queue`, `miri visibility canceller`, `nats marks`, `fleet lost`, `kube mock lists`, `kafka handlers room`, `stress values`, `model`, `ownership`.
/// The second word is the test binary (for `miri`, `kube` and `kafka` also `unit`), or for unit tests, those of keyqueue-nats and
/// the lives of keyqueue-soak the filter; the third selects the tests that have it in their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Checker<'a> {
    kind: &'a str,
    part: &'a str,
    filter: &'a str,
}

impl<'a> Checker<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let mut word = || words.next().unwrap_or_default();
        let (kind, part, filter) = (word(), word(), word());
        let known = match kind {
            "model" | "ownership" => part.is_empty(),
            "loom" | "shuttle" | "unit" | "test" | "stress" | "miri" | "nats" | "fleet"
            | "kube" | "kafka" | "board" => !part.is_empty(),
            _ => false,
        };
        ensure!(known && words.next().is_none(), "`{text}` is no checker");
        Ok(Checker { kind, part, filter })
    }

    /// The name of the target directory that it is built in. A cfg changes every crate, and so does Miri: each has one for
    /// itself.
    pub(crate) fn target(self) -> &'a str {
        match self.kind {
            "loom" | "shuttle" | "miri" | "kube" => self.kind,
            // Both build librdkafka.
            "board" | "kafka" => "kafka",
            "ownership" | "nats" | "fleet" => "nats",
            _ => "real",
        }
    }

    /// Builds and runs it. A run that takes longer than `patience`, in seconds, has hung.
    ///
    /// # Errors
    ///
    /// If it cannot be built, which is no catch.
    pub(crate) fn run(self, tree: &Tree, patience: f64) -> Result<Run> {
        let began = Instant::now();
        let built = self.command(tree, None).output()?;
        ensure!(
            built.status.success(),
            "it does not build (.ci/jobs/planted.sh installs Miri):\n{}",
            text(&built)
        );
        let build = began.elapsed().as_secs_f64();
        let ran = self.command(tree, Some(patience)).output()?;
        let output = text(&ran);
        Ok(Run {
            failure: failure(ran.status.code(), &output)?,
            output,
            build,
            seconds: began.elapsed().as_secs_f64() - build,
        })
    }

    /// The command that runs it, or only builds it if there is no patience to run it with.
    fn command(self, tree: &Tree, patience: Option<f64>) -> Command {
        let Checker { kind, part, filter } = self;
        let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        if let "loom" | "shuttle" = kind {
            flags.push_str(&format!(" --cfg keyqueue_{kind}"));
        }
        let arguments = match kind {
            "loom" | "shuttle" => format!("test -p keyqueue-{kind}-tests --release --test {part}"),
            "miri" if part == "unit" => "+nightly miri test -p keyqueue --lib".to_owned(),
            "miri" => format!("+nightly miri test -p keyqueue --test {part}"),
            "ownership" => "test -p keyqueue-nats-model".to_owned(),
            "nats" => format!("test -p keyqueue-nats --lib {part}"),
            "fleet" => format!("test -p keyqueue-nats --test {part}"),
            "board" | "kube" | "kafka" => {
                // What shows a consumer of Kafka has bugs, too.
                let features = if kind == "board" {
                    " --features kafka"
                } else {
                    ""
                };
                let tests = match part {
                    "unit" => "--lib".to_owned(),
                    part => format!("--test {part}"),
                };
                format!("test -p keyqueue-{kind}{features} {tests}")
            }
            _ => {
                // With the features of both packages, whichever has the tests: the crate is built once for all.
                const BOTH: &str = "keyqueue -p keyqueue-tests";
                let tests = match kind {
                    "unit" => format!("{BOTH} --lib {part}"),
                    "test" => format!("{BOTH} --test {part}"),
                    "stress" => format!("keyqueue-soak --bins {part}"),
                    _ => "keyqueue-model".to_owned(),
                };
                // A profile of their own: one build for each bug takes longer than the tests.
                format!("test --profile=mutants -p {tests}")
            }
        };
        let seconds = patience.unwrap_or(MOST_SECONDS).to_string();
        // It ends the tests as well, not only cargo.
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &seconds, "cargo"])
            .args(arguments.split(' '))
            .arg("--quiet")
            .args(patience.is_none().then_some("--no-run"))
            .args(filter.split_whitespace())
            .current_dir(&tree.root)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_TARGET_DIR", tree.target.join(self.target()))
            .env("RUSTFLAGS", flags)
            .env("MIRIFLAGS", MIRIFLAGS);
        command
    }
}

/// The packages that have bugs, as arguments of a build for each part.
pub(crate) const CORE: &[&str] = &["-p keyqueue --all-features"];
// bookkeeper chooses a version of Kubernetes for keyqueue-kube. The features of keyqueue-kafka need libraries of the system.
pub(crate) const OTHERS: &[&str] = &[
    "-p keyqueue-nats -p keyqueue-nats-model -p keyqueue-board -p bookkeeper --all-features",
    "-p keyqueue-kafka",
];

/// Builds what has bugs.
///
/// # Errors
///
/// If it cannot be built: the compiler names the lines.
pub(crate) fn build(tree: &Tree, packages: &[&str]) -> Result<()> {
    for packages in packages {
        let built = Command::new("cargo")
            .args(["check", "--quiet"])
            .args(packages.split(' '))
            .current_dir(&tree.root)
            // It shares the dependencies of other checks.
            .env("CARGO_TARGET_DIR", tree.target.join(".."))
            .output()?;
        ensure!(
            built.status.success(),
            "it does not build:\n{}",
            text(&built)
        );
    }
    Ok(())
}

fn text(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    format!("{stdout}{}", String::from_utf8_lossy(&output.stderr))
}

/// What has failed in the run of a built checker, none if all has passed.
fn failure(code: Option<i32>, output: &str) -> Result<Option<String>> {
    const HUNG: i32 = 124;
    if code == Some(0) {
        let passed = |line: &str| {
            let count = line.strip_prefix("test result: ok. ")?;
            count.split(' ').next()?.parse::<u32>().ok()
        };
        let tests: u32 = output.lines().filter_map(passed).sum();
        // A filter that has gone out of date would pass forever.
        ensure!(tests > 0, "no test ran:\n{output}");
        return Ok(None);
    }
    let named = |line: &str| {
        // `---- name stdout ----` stands above what a failed test has printed.
        if let Some(name) = line.strip_prefix("---- ") {
            return Some(format!("`{}` fails", name.strip_suffix(" stdout ----")?));
        }
        let (_, name) = line.split_once("watchdog: test `")?;
        Some(format!("`{}` hangs", name.split('`').next()?))
    };
    let how = match output.lines().find_map(named) {
        Some(how) => how,
        // Miri ends the process there, and the harness does not report which test it was.
        None if output.contains("error: Undefined Behavior: Data race") => "a data race".into(),
        None if output.contains("error: Undefined Behavior: ") => "undefined behaviour".into(),
        None if code == Some(HUNG) => "hangs".into(),
        None => "aborts".into(),
    };
    Ok(Some(how))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_test() {
        let ok = "test result: ok. 3 passed; 0 failed";
        assert_eq!(failure(Some(0), ok).unwrap(), None);
        assert!(failure(Some(0), "test result: ok. 0 passed").is_err());
        let race = "error: Undefined Behavior: Data race detected between";
        let freed = "error: Undefined Behavior: memory access failed";
        for (output, how) in [
            ("---- a::b stdout ----\nthread panicked", "`a::b` fails"),
            ("watchdog: test `c` hung for 60 s", "`c` hangs"),
            (race, "a data race"),
            (freed, "undefined behaviour"),
            ("", "aborts"),
        ] {
            assert_eq!(failure(Some(1), output).unwrap().as_deref(), Some(how));
        }
        assert_eq!(failure(Some(124), "").unwrap().as_deref(), Some("hangs"));
    }
}
