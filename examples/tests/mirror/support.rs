//! Two directories, the program to mirror them with, and how to see what it did.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::programs;
pub(crate) use crate::programs::text;

/// Far beyond what anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn program() -> PathBuf {
    programs::program("mirror")
}

/// A source and a target directory, of which only the first is there. They are not siblings: a
/// relative link that leads out of them leads elsewhere from each.
pub(crate) struct Pair {
    pub(crate) dir: TempDir,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let pair = Self {
            dir: TempDir::new().unwrap(),
        };
        fs::create_dir(pair.source()).unwrap();
        pair
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.dir.path().join("below/target")
    }

    /// Writes a file of the source, with the directories above it.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn run(&self) -> Output {
        let mut command = Command::new(program());
        command
            .args([self.source(), self.target()])
            .args(["--workers", "3"])
            .output()
            .unwrap()
    }

    /// Runs to the end, which must be a good one; returns the summary.
    pub(crate) fn mirror(&self) -> Summary {
        let output = self.run();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(text(&output.stderr), "");
        self.assert_equal();
        Summary::of(&output)
    }

    /// Starts to follow, and waits until the first scan is through as far as `path`.
    pub(crate) fn watch(&self) -> Watching {
        self.watch_with(Command::new(program()))
    }

    pub(crate) fn watch_with(&self, mut command: Command) -> Watching {
        self.write("ready", "");
        let command = command.args([self.source(), self.target()]).arg("--watch");
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let watching = Watching(Some(child));
        until("the first scan", || self.target().join("ready").exists());
        watching
    }

    /// Waits until both trees are equal.
    pub(crate) fn settle(&self) {
        until("equal trees", || {
            tree(&self.source()) == tree(&self.target())
        });
    }

    pub(crate) fn assert_equal(&self) {
        assert_eq!(tree(&self.source()), tree(&self.target()));
    }
}

/// What is at a path. Times are those of files; sockets are left out, as the program leaves them
/// out.
#[derive(Debug, PartialEq)]
pub(crate) enum Node {
    Directory,
    File {
        content: Vec<u8>,
        mode: u32,
        modified: std::time::SystemTime,
    },
    Link(PathBuf),
}

/// All paths below `root`. A path that goes while this looks is as if it had not been there.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut nodes = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root)
        .min_depth(1)
        .into_iter()
        .flatten()
    {
        let path = entry.path();
        let Ok(there) = path.symlink_metadata() else {
            continue;
        };
        let node = if there.is_dir() {
            Some(Node::Directory)
        } else if there.is_symlink() {
            fs::read_link(path).ok().map(Node::Link)
        } else if there.is_file() {
            let (mode, modified) = (there.permissions().mode(), there.modified().unwrap());
            fs::read(path).ok().map(|content| Node::File {
                content,
                mode,
                modified,
            })
        } else {
            None
        };
        nodes.extend(node.map(|node| (path.strip_prefix(root).unwrap().to_owned(), node)));
    }
    nodes
}

/// The counts that the program prints at the end.
#[derive(Debug)]
pub(crate) struct Summary(pub(crate) String);

impl Summary {
    pub(crate) fn of(output: &Output) -> Self {
        let summary = Self(text(&output.stdout));
        let [events, merged, delivered, retries] =
            ["events in", "merged", "delivered", "retries"].map(|name| summary.get(name));
        assert_eq!(
            events + retries,
            merged + delivered,
            "no event is lost: {summary:?}"
        );
        summary
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        let value = self
            .0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
            .parse()
            .unwrap()
    }
}

/// A program that follows; killed if a test fails.
pub(crate) struct Watching(Option<Child>);

impl Watching {
    /// Interrupts it, and returns how it ended, which must be with this code.
    pub(crate) fn interrupt(mut self, code: i32) -> Output {
        let child = self.0.take().unwrap();
        let kill = format!("kill -INT {}", child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        output
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// The program where no file can grow beyond some kilobytes: a full disk that root, too, meets.
pub(crate) fn with_small_disk() -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"trap "" XFSZ; ulimit -f 8; exec "$0" "$@""#])
        .arg(program());
    command
}

/// More than fits on it.
pub(crate) const TOO_LARGE: &[u8] = &[b'x'; 1 << 20];
