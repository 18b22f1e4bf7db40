//! A process that ends when its owner does, however that ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program runs under a shell that waits until its own standard input is closed, then kills the program and
/// removes the file or directory `$0`. The system closes the pipe when the owner exits, panics or is killed, so
/// that no server is left behind. Ctrl-C reaches the shell, too, and must not end it before its program.
const SUPERVISE: &str = r#"
trap '' INT TERM HUP
"$@" &
program=$!
cat
kill -KILL $program
wait $program
[ -z "$0" ] || rm -rf "$0"
"#;

/// Dropping it kills the program and waits for its end.
#[derive(Debug)]
pub struct Supervised(Child);

impl Supervised {
    /// Starts a program. Its output goes to the file `log`; `remove` is removed after its end.
    pub fn start(
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        log: &Path,
        remove: Option<&Path>,
    ) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new("sh")
            .args(["-c", SUPERVISE])
            .arg(remove.unwrap_or(Path::new("")))
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Supervised(child))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // An error means that the shell is gone already.
        _ = self.0.wait();
    }
}
