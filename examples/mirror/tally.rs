//! The counts of a run, and their summary.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use crate::sync::Done;

#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Adds of paths, from the scan and from notifications.
    pub(crate) events: u64,
    /// Further attempts after a failure: the failures, without those that ended in giving up.
    pub(crate) retries: u64,
    /// Paths delivered to a worker, and attempts that a worker repeats by itself while the queue
    /// drains.
    pub(crate) delivered: u64,
    /// Files copied, and the bytes of them.
    pub(crate) copied: u64,
    pub(crate) bytes: u64,
    /// Files of equal content that got the source's time or permissions.
    pub(crate) touched: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    pub(crate) deleted: u64,
    pub(crate) specials: u64,
}

impl Counts {
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

    /// Prints the summary. Everything that was added is delivered by then, so what exceeds the
    /// deliveries was merged into them.
    pub(crate) fn print(&self, failed: usize, elapsed: Duration) -> io::Result<()> {
        let merged = (self.events + self.retries).saturating_sub(self.delivered);
        let mut out = io::stdout().lock();
        writeln!(out, "files copied: {}", self.copied)?;
        writeln!(out, "bytes copied: {}", self.bytes)?;
        writeln!(out, "files touched: {}", self.touched)?;
        writeln!(out, "directories made: {}", self.directories)?;
        writeln!(out, "links made: {}", self.links)?;
        writeln!(out, "deleted: {}", self.deleted)?;
        writeln!(out, "special files skipped: {}", self.specials)?;
        writeln!(out, "events in: {}", self.events)?;
        writeln!(out, "merged: {merged}")?;
        writeln!(out, "delivered: {}", self.delivered)?;
        writeln!(out, "retries: {}", self.retries)?;
        writeln!(out, "failed: {failed}")?;
        writeln!(out, "seconds: {:.3}", elapsed.as_secs_f64())
    }
}

#[derive(Default)]
pub(crate) struct Tally(Mutex<Counts>);

impl Tally {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap());
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.0.lock().unwrap()
    }
}
