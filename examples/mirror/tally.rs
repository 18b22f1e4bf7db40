//! The counts of a run with the paths that failed, and their summary.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::sync::Done;

#[derive(Default)]
pub(crate) struct Tally {
    /// Adds of paths, from the scan and from notifications.
    pub(crate) events: u64,
    /// Further attempts after a failure: the failures, without those that ended in giving up.
    pub(crate) retries: u64,
    /// Paths delivered to a worker.
    pub(crate) delivered: u64,
    /// Files copied, and the bytes of them.
    pub(crate) copied: u64,
    pub(crate) bytes: u64,
    /// Files of equal content that got the source's time or permissions.
    touched: u64,
    directories: u64,
    links: u64,
    deleted: u64,
    specials: u64,
    /// By path that failed: `None` while another attempt is to come, else why there is none.
    pub(crate) failures: BTreeMap<PathBuf, Option<String>>,
}

impl Tally {
    pub(crate) fn record(&mut self, done: &Done) {
        match done {
            Done::Copied { bytes } => {
                self.copied += 1;
                self.bytes += bytes;
            }
            Done::Touched => self.touched += 1,
            Done::Directory { made } => self.directories += u64::from(*made),
            Done::Linked => self.links += 1,
            Done::Deleted => self.deleted += 1,
            Done::Special => self.specials += 1,
            Done::Unchanged => {}
        }
    }

    /// How many failed paths have another attempt before them.
    pub(crate) fn failing(&self) -> usize {
        self.failures.values().filter(|why| why.is_none()).count()
    }

    /// How many have none.
    pub(crate) fn failed(&self) -> usize {
        self.failures.len() - self.failing()
    }

    /// Prints the failures and the summary. Everything that was added is delivered by then, so what
    /// exceeds the deliveries was merged into them.
    pub(crate) fn print(&self, elapsed: Duration) -> io::Result<()> {
        for (path, why) in &self.failures {
            if let Some(why) = why {
                eprintln!("failed: {}: {why}", path.display());
            }
        }
        let merged = (self.events + self.retries).saturating_sub(self.delivered);
        let mut out = io::stdout().lock();
        for (what, count) in [
            ("files copied", self.copied),
            ("bytes copied", self.bytes),
            ("files touched", self.touched),
            ("directories made", self.directories),
            ("links made", self.links),
            ("deleted", self.deleted),
            ("special files skipped", self.specials),
            ("events in", self.events),
            ("merged", merged),
            ("delivered", self.delivered),
            ("retries", self.retries),
            ("failed", self.failed() as u64),
        ] {
            writeln!(out, "{what}: {count}")?;
        }
        writeln!(out, "seconds: {:.3}", elapsed.as_secs_f64())
    }
}
