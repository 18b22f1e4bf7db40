//! How the programs end.

use std::io::{self, ErrorKind, Write};
use std::process::{ExitCode, Termination};

use anyhow::Context;

/// Returns the program's exit code. An error is written as `NAME: message`, and its code is 1.
pub fn exit(name: &str, ended: anyhow::Result<impl Termination>) -> ExitCode {
    match ended {
        Ok(ended) => ended.report(),
        Err(error) => {
            // Standard error may be closed, too.
            let _ = writeln!(io::stderr(), "{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Allows the reader of the output to close it, as `head` does: that is no error.
pub fn written(output: io::Result<()>) -> anyhow::Result<()> {
    match output {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        output => output.context("cannot write the output"),
    }
}
