//! client-go's workqueue and controller-runtime's priority queue: a program in Go, which runs the
//! same workloads in a separate process.
//!
//! The harness builds the program (`benches/compare/go`) when it starts, and ends it when it ends. The
//! program reads requests from its standard input, a line of JSON each: the name of the queue and
//! the round. It checks what was delivered, and returns the figures in a line of JSON; none if the
//! workload does not apply. While others are measured it is blocked in a read; before and after a
//! round it collects its garbage.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};

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
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
}

impl Program {
    fn start() -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("compare-go");
        eprintln!("go build ... (takes minutes the first time)");
        let build = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"))
            .output()
            .context("there is no `go`")?;
        if !build.status.success() {
            let said = String::from_utf8_lossy(&build.stderr);
            bail!(
                "`go build` has failed: {}",
                said.lines().last().unwrap_or("no output")
            );
        }
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            requests: child.stdin.take(),
            responses: BufReader::new(child.stdout.take().expect("its output is piped")),
            child,
        })
    }

    fn ask(&mut self, queue: &str, round: &Round<'_>) -> Result<Option<Vec<f64>>> {
        let requests = self.requests.as_mut().expect("open until the drop");
        let request = serde_json::json!({ "Queue": queue, "Round": round });
        writeln!(requests, "{request}")?;
        let mut line = String::new();
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
