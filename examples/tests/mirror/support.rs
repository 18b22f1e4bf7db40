//! Two directories, the program to mirror them with, and how to see what it did.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use tempfile::TempDir;

use crate::programs::{Ended, Running, program, run};

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

    pub(crate) fn run(&self, mut command: Command) -> Ended {
        let roots = [self.source(), self.target()];
        run(command.args(roots).args(["--workers", "3"]))
    }

    /// Runs to the end, which must be a good one; returns the summary.
    pub(crate) fn mirror(&self) -> Summary {
        let ended = self.run(program("mirror"));
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        self.assert_equal();
        Summary::of(&ended)
    }

    /// Starts to follow, and waits until the first scan has copied a file that marks its end.
    pub(crate) fn watch(&self, mut command: Command) -> Running {
        self.write("ready", "");
        let command = command.args([self.source(), self.target()]).arg("--watch");
        let watching = Running::piped(command);
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

/// What is at a path. Sockets are left out, as the program leaves them out.
#[derive(Debug, PartialEq)]
pub(crate) enum Node {
    Directory,
    /// With its content, mode and time of modification.
    File(Vec<u8>, u32, SystemTime),
    Link(PathBuf),
}

/// All paths below `root`. A path that goes while this looks is as if it had not been there.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Node> {
    let entries = walkdir::WalkDir::new(root).min_depth(1);
    let nodes = entries.into_iter().flatten().filter_map(|entry| {
        let path = entry.path();
        let there = path.symlink_metadata().ok()?;
        let node = if there.is_dir() {
            Node::Directory
        } else if there.is_symlink() {
            Node::Link(fs::read_link(path).ok()?)
        } else if there.is_file() {
            let (mode, modified) = (there.permissions().mode(), there.modified().unwrap());
            Node::File(fs::read(path).ok()?, mode, modified)
        } else {
            return None;
        };
        Some((path.strip_prefix(root).unwrap().to_owned(), node))
    });
    nodes.collect()
}

/// The counts that the program prints at the end.
#[derive(Debug)]
pub(crate) struct Summary(pub(crate) String);

impl Summary {
    #[track_caller]
    pub(crate) fn of(ended: &Ended) -> Self {
        let summary = Self(ended.stdout.clone());
        let [events, merged, delivered, retries] =
            summary.get(["events in", "merged", "delivered", "retries"]);
        let told = "no event is lost";
        assert_eq!(events + retries, merged + delivered, "{told}: {summary:?}");
        summary
    }

    #[track_caller]
    pub(crate) fn get<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| {
            let mut lines = self.0.lines();
            let count = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let count = count.unwrap_or_else(|| panic!("no {name} in {self:?}"));
            count.parse().unwrap()
        })
    }
}

/// Interrupts a run that follows, which must then end with this code.
#[track_caller]
pub(crate) fn interrupt(watching: Running, code: i32) -> Ended {
    let ended = watching.interrupt();
    assert_eq!(ended.code, Some(code), "{ended:?}");
    ended
}

#[track_caller]
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    rig::eventually(what, condition);
}

/// The program where no file can grow beyond some kilobytes: a full disk that root, too, meets.
pub(crate) fn with_small_disk() -> Command {
    with_disk_of(8)
}

/// The program where no file can grow beyond this many blocks of 512 bytes.
pub(crate) fn with_disk_of(blocks: u64) -> Command {
    let mut command = Command::new("sh");
    let limited = format!(r#"trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@""#);
    command
        .args(["-c", &limited])
        .arg(program("mirror").get_program());
    command
}

/// More than fits on it.
pub(crate) const TOO_LARGE: &[u8] = &[b'x'; 1 << 20];
