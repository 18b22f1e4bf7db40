//! The checks that have to notice a bug.

use std::fmt;
use std::process::{Command, Output};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::tree::Tree;

/// What Miri is told, as in .ci/jobs/miri.sh.
const MIRIFLAGS: &str = "-Zmiri-many-seeds=0..20 -Zmiri-preemption-rate=0.05 \
    -Zmiri-address-reuse-cross-thread-rate=0 \
    -Zmiri-compare-exchange-weak-failure-rate=0.1";

/// A checker and a part of it: `loom adds handle`, `shuttle crowd`, `unit timer::wheel`, `test
/// shutdown`, `miri visibility canceller`, `model`. The second word is the test binary, or for unit
/// tests the filter; the third selects the tests that have it in their name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Checker(Vec<String>);

impl FromStr for Checker {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        match words[..] {
            ["model"]
            | ["loom" | "shuttle" | "unit" | "test" | "miri", _]
            | ["loom" | "shuttle" | "unit" | "test" | "miri", _, _] => {
                Ok(Checker(words.into_iter().map(str::to_owned).collect()))
            }
            _ => bail!("`{text}` is no checker"),
        }
    }
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

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

impl Checker {
    /// Builds and runs it.
    ///
    /// # Errors
    ///
    /// If it cannot be built, which is no catch.
    pub(crate) fn run(&self, tree: &Tree) -> Result<Run> {
        let began = Instant::now();
        let built = self.command(tree, true).output()?;
        ensure!(
            built.status.success(),
            "{self} does not build (.ci/jobs/miri.sh installs Miri):\n{}",
            text(&built)
        );
        let build = began.elapsed().as_secs_f64();
        let ran = self.command(tree, false).output()?;
        let output = text(&ran);
        Ok(Run {
            failure: failure(ran.status.code(), &output).with_context(|| self.to_string())?,
            output,
            build,
            seconds: began.elapsed().as_secs_f64() - build,
        })
    }

    /// The command that runs it, or only builds it.
    fn command(&self, tree: &Tree, only_build: bool) -> Command {
        let word = |at| self.0.get(at).map_or("", String::as_str);
        let (kind, part, filter) = (word(0), word(1), word(2));
        let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        if let "loom" | "shuttle" = kind {
            flags.push_str(&format!(" --cfg keyqueue_{kind}"));
        }
        // A cfg changes every crate, and so does Miri: each has a target directory for itself. Unit
        // and integration tests have a profile of their own: one build for each bug takes longer
        // than the tests.
        let (target, arguments) = match kind {
            "loom" | "shuttle" => (
                kind,
                format!("test -p keyqueue-{kind}-tests --release --test {part}"),
            ),
            "miri" if part == "unit" => (kind, "+nightly miri test -p keyqueue --lib".to_owned()),
            "miri" => (
                kind,
                format!("+nightly miri test -p keyqueue --test {part}"),
            ),
            "unit" => (
                "real",
                format!("test -p keyqueue --profile=mutants --lib {part}"),
            ),
            "test" => (
                "real",
                format!("test -p keyqueue --profile=mutants --test {part}"),
            ),
            _ => (
                "real",
                "test -p keyqueue-model --profile=mutants".to_owned(),
            ),
        };
        // In seconds. What takes as long has hung: twenty seeds under Miri take longest.
        let patience = match kind {
            _ if only_build => "1800",
            "miri" => "1200",
            _ => "240",
        };
        // It ends the tests as well, not only cargo.
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", patience, "cargo"])
            .args(arguments.split(' '))
            .arg("--quiet")
            .args(only_build.then_some("--no-run"))
            .args(filter.split_whitespace())
            .current_dir(&tree.root)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_TARGET_DIR", tree.target.join(target))
            .env("RUSTFLAGS", flags)
            .env("MIRIFLAGS", MIRIFLAGS);
        command
    }
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
    fn a_failure_names_the_test() {
        let ok = "test result: ok. 3 passed; 0 failed";
        assert_eq!(failure(Some(0), ok).unwrap(), None);
        assert!(failure(Some(0), "test result: ok. 0 passed").is_err());
        for (code, output, how) in [
            (
                Some(101),
                "---- a::b stdout ----\nthread panicked",
                "`a::b` fails",
            ),
            (Some(101), "watchdog: test `c` hung for 60 s", "`c` hangs"),
            (
                Some(1),
                "error: Undefined Behavior: Data race detected between",
                "a data race",
            ),
            (
                Some(1),
                "error: Undefined Behavior: memory access failed",
                "undefined behaviour",
            ),
            (Some(124), "", "hangs"),
            (None, "", "aborts"),
        ] {
            assert_eq!(failure(code, output).unwrap().as_deref(), Some(how));
        }
    }
}
