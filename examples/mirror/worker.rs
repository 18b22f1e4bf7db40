//! The processing of a path, and the state that the threads share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar};
use keyqueue::backoff::{Backoff, retry};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Failure, GivenUp, Reason, Workers};
use keyqueue::{Added, DelayPolicy, WorkQueue};

use crate::roots::Roots;
use crate::scan;
use crate::sync::{self, Done};
use crate::tally::Tally;
use crate::watch::Watch;

/// How often a path that fails is tried again, and the waits: 100, 200, 400, 800 ms.
const RETRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Mirror {
    pub(crate) queue: WorkQueue<PathBuf, ItemExponentialFailure<PathBuf>>,
    pub(crate) tally: Tally,
    pub(crate) roots: Roots,
    /// Only when following.
    pub(crate) watch: Option<Watch>,
    /// After an interrupt the program does not wait for failing paths.
    pub(crate) interrupted: AtomicBool,
    /// Silent where standard error is no terminal.
    pub(crate) progress: ProgressBar,
}

impl Mirror {
    pub(crate) fn new(roots: Roots) -> anyhow::Result<Self> {
        let queue = WorkQueue::builder()
            .rate_limiter(ItemExponentialFailure::new(FIRST_WAIT, LONGEST_WAIT)?)
            // The last notification of a burst counts, and also before a retry that is further off.
            .delay_policy(DelayPolicy::Replace)
            // A drain delivers pending retries immediately instead of dropping them.
            .drain_delays(true)
            .build()?;
        Ok(Self {
            queue,
            tally: Tally::default(),
            roots,
            watch: None,
            interrupted: AtomicBool::new(false),
            progress: ProgressBar::new_spinner(),
        })
    }

    /// Adds `path`: it is processed once more if it is processing.
    pub(crate) fn add(&self, path: PathBuf) {
        self.count(self.queue.add(path));
    }

    /// Adds `path` after a delay.
    pub(crate) fn add_after(&self, path: PathBuf, delay: Duration) {
        self.count(self.queue.add_after(path, delay));
    }

    fn count(&self, added: Added) {
        if added.is_accepted() {
            self.tally.with(|counts| counts.events += 1);
        }
    }

    /// Works on what is added, until the queue is shut down and empty.
    pub(crate) fn work(&self, threads: usize) -> anyhow::Result<()> {
        Workers::new(&self.queue)
            .threads(threads)
            .max_retries(RETRIES)
            .on_give_up(|path, end: GivenUp<anyhow::Error>| self.give_up(path, end))
            .run(|path: &PathBuf| {
                let looked_at = self.look_at(path);
                self.tally.with(|counts| match &looked_at {
                    Ok(()) => _ = counts.failures.remove(path),
                    Err(_) => {
                        counts.failures.insert(path.clone(), None);
                        counts.retries += 1;
                    }
                });
                looked_at
            })
            .context("cannot work on any path")
            .inspect_err(|_| {
                // There is no other worker to take them.
                self.queue.shut_down();
                while self.queue.get().is_some() {}
            })
    }

    fn give_up(&self, path: &Path, end: GivenUp<anyhow::Error>) {
        self.tally.with(|counts| counts.retries -= 1);
        let mut failure = end.failure;
        let mut attempts = end.retries + 1;
        // Ordering: Relaxed; read late, it costs a second.
        if end.reason == Reason::ShutDown && !self.interrupted.load(Ordering::Relaxed) {
            // The queue drains and takes nothing back: see it through here.
            let backoff = Backoff {
                duration: FIRST_WAIT,
                factor: 2.0,
                steps: RETRIES - end.retries,
                ..Backoff::default()
            };
            let again = retry(backoff, || {
                attempts += 1;
                self.tally.with(|counts| counts.retries += 1);
                self.look_at(path)
            });
            match again {
                Ok(()) => return self.tally.with(|counts| _ = counts.failures.remove(path)),
                Err(error) => failure = Failure::Error(error),
            }
        }
        let why = format!("{failure:#} (attempts: {attempts})");
        self.tally
            .with(|counts| _ = counts.failures.insert(path.to_owned(), Some(why)));
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
        let queued = self.queue.len();
        self.progress.set_message(self.tally.with(|counts| {
            let (delivered, copied, failing) = (counts.delivered, counts.copied, counts.failing());
            let bytes = HumanBytes(counts.bytes);
            format!("{delivered} delivered, {queued} queued, {failing} failing, {copied} copied ({bytes})")
        }));
        self.progress.tick();
    }

    /// Makes the target equal at one path; a directory that is followed has its entries added.
    fn look_at(&self, path: &Path) -> anyhow::Result<()> {
        self.tally.with(|counts| counts.delivered += 1);
        let done = sync::path(&self.roots, path)?;
        if let (Done::Directory { .. }, Some(watch)) = (&done, &self.watch) {
            // First the watch, then the list.
            if watch.directory(&self.roots.source.join(path))? {
                scan::directory(self, path)?;
            }
        }
        if let Done::Special = done {
            self.say(&format!("skipped: {} is a special file", path.display()));
        }
        self.tally.with(|counts| counts.record(&done));
        Ok(())
    }
}
