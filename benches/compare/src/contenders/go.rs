//! client-go's workqueue and controller-runtime's priority queue: a program in Go, which runs the
//! same workloads in a separate process.
//!
//! The harness builds the program (`benches/compare/go`) when it starts. A line of JSON each asks
//! for a round of a queue and has its figures: none if the workload does not apply. The program
//! ends with its input; while others are measured it is blocked in a read.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};

use super::Contender;
use crate::workload::Round;

/// The two queues of the program.
pub(super) fn contenders() -> [Contender; 2] {
    let queues = [
        ("client-go", "k8s.io/client-go"),
        ("priorityqueue", "sigs.k8s.io/controller-runtime"),
    ];
    let program = Program::start().map(|program| Rc::new(RefCell::new(program)));
    queues.map(|(name, packages)| match &program {
        Ok(program) => {
            let program = Rc::clone(program);
            Contender::new(name, packages, move |round| {
                let figures = program.borrow_mut().ask(name, round);
                figures.unwrap_or_else(|error| panic!("{name}: {error:#}"))
            })
        }
        Err(error) => Contender {
            not_run: Some(format!("{error:#}")),
            ..Contender::new(name, packages, |_| None)
        },
    })
}

/// The running program.
struct Program {
    child: Child,
    responses: BufReader<ChildStdout>,
}

impl Program {
    fn start() -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("compare-go");
        eprintln!("go build ... (takes minutes the first time)");
        let build = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/go"))
            .output()
            .context("there is no `go`")?;
        let said = String::from_utf8_lossy(&build.stderr);
        let why = said.lines().last().unwrap_or("no output");
        ensure!(build.status.success(), "`go build` has failed: {why}");
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            responses: BufReader::new(child.stdout.take().expect("its output is piped")),
            child,
        })
    }

    fn ask(&mut self, queue: &str, round: &Round<'_>) -> Result<Option<Vec<f64>>> {
        let requests = self.child.stdin.as_mut().expect("its input is piped");
        let request = serde_json::json!({ "Queue": queue, "Round": round });
        writeln!(requests, "{request}")?;
        let mut line = String::new();
        self.responses.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the program ended");
        Ok(serde_json::from_str(&line)?)
    }
}
