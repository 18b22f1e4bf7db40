//! What the programs share: what they print, and how they end.

use std::io::{self, ErrorKind, Write};
use std::process::{ExitCode, Termination};

use anyhow::Context;

/// The most characters of a label.
const LABEL: usize = 60;

/// Makes bytes from outside fit to be printed: short, and without control characters.
pub fn label(bytes: &[u8]) -> String {
    let mut label = String::new();
    for (n, char) in String::from_utf8_lossy(bytes).chars().enumerate() {
        if n == LABEL {
            label.push('…');
            break;
        }
        if char.is_ascii_graphic() {
            label.push(char);
        } else {
            label.extend(char.escape_debug());
        }
    }
    label
}

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
