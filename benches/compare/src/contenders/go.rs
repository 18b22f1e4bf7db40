//! client-go's workqueue and controller-runtime's priority queue: a program in Go, which runs the
//! same workloads in a process of its own.
//!
//! The program (`benches/compare/go`) is built when the harness starts, and lives as long as it. It
//! reads a request a line from its standard input, the workload and the scale, both in JSON, and
//! answers with a line: the figures, and the tally of what it delivered, which is checked here as
//! for everybody. It idles, blocked in a read, while others are measured; before and after a round
//! it collects its garbage.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Contender;
use crate::keys::Tally;
use crate::workloads::{Kind, Round, Scale};

/// The two queues of the program; none of them, and why, if it cannot be had.
pub(super) fn contenders() -> Result<[Box<dyn Contender>; 2]> {
    let program = Rc::new(RefCell::new(Program::start()?));
    let queue = |name| -> Box<dyn Contender> {
        Box::new(GoQueue {
            name,
            program: Rc::clone(&program),
        })
    };
    Ok([queue("client-go"), queue("priorityqueue")])
}

struct GoQueue {
    name: &'static str,
    program: Rc<RefCell<Program>>,
}

/// The running program.
struct Program {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Request<'a> {
    queue: &'a str,
    workload: Kind,
    scale: &'a Scale,
    /// Of `replay`: the keys of the events, told once a round of it.
    events: &'a [String],
    passes: usize,
}

#[derive(Deserialize)]
struct Answer {
    /// None when the workload does not apply; none in a place of it for what the queue cannot do.
    figures: Option<Vec<Option<f64>>>,
    delivered: Tally,
}

impl Contender for GoQueue {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, workload: Kind, scale: &Scale, _: &Round) -> Option<Vec<f64>> {
        let events = match workload {
            Kind::Replay => &*scale.log.keys,
            _ => &[],
        };
        let request = Request {
            queue: self.name,
            workload,
            scale,
            events,
            passes: scale.log.passes,
        };
        let answer = self.program.borrow_mut().ask(&request);
        let answer = answer.unwrap_or_else(|error| panic!("{}: {error:#}", self.name));
        let figures = answer.figures?;
        if let Some(expected) = workload.delivers(scale) {
            assert_eq!(answer.delivered, expected, "delivered by {}", self.name);
        }
        Some(
            figures
                .into_iter()
                .map(|figure| figure.unwrap_or(f64::NAN))
                .collect(),
        )
    }
}

impl Program {
    fn start() -> Result<Self> {
        let program = build()?;
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().expect("its output is piped");
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Answer> {
        let requests = self.requests.as_mut().expect("open until the drop");
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        requests.write_all(line.as_bytes())?;
        requests.flush()?;
        line.clear();
        self.answers.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the program has ended, and said why");
        Ok(serde_json::from_str(&line)?)
    }
}

/// It ends with its input.
impl Drop for Program {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// Where the module is.
pub(crate) fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("go")
}

/// Builds the program beside the harness; Go keeps what it has built, so that the next time is short.
fn build() -> Result<PathBuf> {
    let beside = std::env::current_exe().context("no directory to build in")?;
    let program = beside.with_file_name("compare-go");
    eprintln!("go build ... (takes minutes the first time)");
    let build = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(module())
        .output();
    let build = match build {
        Ok(build) => build,
        Err(error) => bail!("there is no `go` ({error})"),
    };
    if !build.status.success() {
        let said = String::from_utf8_lossy(&build.stderr);
        let last = said.lines().last().unwrap_or("it does not say why");
        bail!("`go build` has failed: {last}");
    }
    Ok(program)
}
