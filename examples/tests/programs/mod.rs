//! The examples as programs, for their tests: starting, running and waiting for them.
#![allow(
    dead_code,
    reason = "each test binary compiles this module and uses a part of it"
)]

use std::io::Read;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// cargo builds the examples before it runs all tests; with `--test NAME` alone it does not.
pub(crate) fn program(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let file = format!("examples/{name}{}", std::env::consts::EXE_SUFFIX);
    let program = tests.ancestors().nth(2).unwrap().join(file);
    assert!(
        program.exists(),
        "build it: cargo build -p keyqueue-examples --all-features --example {name} ({})",
        program.display()
    );
    Command::new(program)
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Ended {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Ended {
    /// It must have refused what it was asked for: with this code and message, and no output.
    #[track_caller]
    pub(crate) fn assert_refused(&self, code: i32, message: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(message), "no {message:?} in {self:?}");
        assert_eq!(self.stdout, "");
    }
}

pub(crate) fn run(command: &mut Command) -> Ended {
    command.output().unwrap().into()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that runs; killed when dropped.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Running(Some(command.spawn().unwrap()))
    }

    /// Its standard output, which it was started with a pipe for.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.0.as_mut().unwrap().stdout.take().unwrap()
    }

    /// Starts it with its output in pipes.
    pub(crate) fn piped(command: &mut Command) -> Self {
        Self::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Reads its standard error up to `text`.
    #[track_caller]
    pub(crate) fn until_it_says(&mut self, text: &str) {
        let (stderr, mut said) = (self.0.as_mut().unwrap().stderr.as_mut().unwrap(), vec![]);
        while !said.ends_with(text.as_bytes()) {
            let mut byte = [0];
            stderr.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
    }

    /// Interrupts it, as Ctrl-C does, and waits for its end.
    pub(crate) fn interrupt(self) -> Ended {
        self.end_by("INT")
    }

    /// Sends it a signal, and waits for its end.
    pub(crate) fn end_by(mut self, signal: &str) -> Ended {
        let child = self.0.take().unwrap();
        let kill = format!("kill -{signal} {}", child.id());
        let killed = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(killed.success());
        Running(Some(child)).end()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let child = self.0.take().unwrap();
        child.wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
