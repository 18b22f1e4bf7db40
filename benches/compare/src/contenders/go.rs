//! client-go's workqueue and controller-runtime's priority queue: a program in Go, which runs the
//! same workloads in a process of its own.
//!
//! The harness builds the program (`benches/compare/go`) when it starts, and ends it when it ends. The
//! program reads requests from its standard input, a line of JSON each: the workload and the scale.
//! It returns a line for each: the figures, and the tally of what it delivered, which is checked
//! here as for every contender. While others are measured it is blocked in a read; before and after
//! a round it collects its garbage.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Contender;
use crate::keys::Tally;
use crate::spec::{Kind, Round, Scale};

/// The two queues of the program, or why it cannot run.
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
    responses: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Request<'a> {
    queue: &'a str,
    workload: Kind,
    scale: &'a Scale,
    /// The keys of the events of `replay`.
    events: &'a [String],
    passes: usize,
}

#[derive(Deserialize)]
struct Response {
    /// `None` when the workload does not apply; a figure is `None` when the queue cannot do that part.
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
        let response = self.program.borrow_mut().ask(&request);
        let response = response.unwrap_or_else(|error| panic!("{}: {error:#}", self.name));
        let figures = response.figures?;
        if let Some(expected) = workload.delivers(scale) {
            assert_eq!(response.delivered, expected, "delivered by {}", self.name);
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
        let responses = child.stdout.take().expect("its output is piped");
        Ok(Self {
            child,
            requests,
            responses: BufReader::new(responses),
        })
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Response> {
        let requests = self.requests.as_mut().expect("open until the drop");
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        requests.write_all(line.as_bytes())?;
        requests.flush()?;
        line.clear();
        self.responses.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the program ended");
        Ok(serde_json::from_str(&line)?)
    }
}

/// The program ends with its input.
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

/// Builds the program into the directory of the harness; only the first build takes long.
fn build() -> Result<PathBuf> {
    let harness = std::env::current_exe().context("no directory to build in")?;
    let program = harness.with_file_name("compare-go");
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
        let last = said.lines().last().unwrap_or("no output");
        bail!("`go build` has failed: {last}");
    }
    Ok(program)
}
