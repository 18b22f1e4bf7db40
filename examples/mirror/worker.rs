//! The loop around the queue, and what its threads share.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar};
use keyqueue::{Added, WorkQueue};

use crate::delay::Delays;
use crate::failures::Failures;
use crate::roots::Roots;
use crate::scan;
use crate::sync::{self, Outcome};
use crate::tally::Tally;
use crate::watch::Watch;

pub(crate) struct Mirror {
    pub(crate) queue: WorkQueue<PathBuf>,
    pub(crate) delays: Delays,
    pub(crate) failures: Failures,
    pub(crate) tally: Tally,
    pub(crate) roots: Roots,
    /// Only when following.
    pub(crate) watch: Option<Watch>,
    /// Silent where standard error is no terminal.
    pub(crate) progress: ProgressBar,
}

impl Mirror {
    pub(crate) fn new(roots: Roots) -> Self {
        Self {
            queue: WorkQueue::new(),
            delays: Delays::default(),
            failures: Failures::default(),
            tally: Tally::default(),
            roots,
            watch: None,
            progress: ProgressBar::new_spinner(),
        }
    }

    /// Has `path` looked at, once more if it is being looked at.
    pub(crate) fn add(&self, path: PathBuf) {
        if self.queue.add(path) != Added::ShutDown {
            self.tally.update(|counts| counts.events += 1);
        }
    }

    /// Has `path` looked at in a while.
    pub(crate) fn add_after(&self, path: &Path, delay: Duration) {
        if self.delays.add_after(path, delay) != Added::ShutDown {
            self.tally.update(|counts| counts.events += 1);
        }
    }

    pub(crate) fn close_watch(&self) {
        if let Some(watch) = &self.watch {
            watch.close();
        }
    }

    /// Says something to the user, above the progress line.
    pub(crate) fn say(&self, text: &str) {
        self.progress.suspend(|| eprintln!("{text}"));
    }

    pub(crate) fn show_progress(&self) {
        let counts = self.tally.counts();
        self.progress.set_message(format!(
            "{} delivered, {} queued, {} waiting, {} failing, {} copied ({})",
            counts.delivered,
            self.queue.len(),
            self.delays.len(),
            self.failures.waiting(),
            counts.copied,
            HumanBytes(counts.bytes),
        ));
        self.progress.tick();
    }
}

/// One worker: takes paths until the queue is shut down and empty.
pub(crate) fn run(mirror: &Mirror) {
    while let Some(path) = mirror.queue.get() {
        while let Err(error) = look_at(mirror, &path) {
            let Some(wait) = mirror.failures.record(&path, format!("{error:#}")) else {
                break;
            };
            mirror.tally.update(|counts| counts.retries += 1);
            if mirror.delays.add_after(&path, wait) != Added::ShutDown {
                break;
            }
            // The queue drains and takes nothing back: see it through here.
            thread::sleep(wait);
        }
        // Here the item is dropped: done. Only now may another worker get the path.
    }
}

/// Makes the target equal at one path; a directory that is followed has its entries added.
fn look_at(mirror: &Mirror, path: &Path) -> anyhow::Result<()> {
    mirror.tally.update(|counts| counts.delivered += 1);
    let outcome = sync::path(&mirror.roots, path)?;
    if let (Outcome::Directory { .. }, Some(watch)) = (&outcome, &mirror.watch) {
        // First the watch, then the list.
        if watch.directory(&mirror.roots.source.join(path))? {
            scan::directory(mirror, path)?;
        }
    }
    if let Outcome::Special = outcome {
        mirror.say(&format!("skipped: {} is a special file", path.display()));
    }
    mirror.failures.forget(path);
    mirror.tally.update(|counts| counts.record(&outcome));
    Ok(())
}
