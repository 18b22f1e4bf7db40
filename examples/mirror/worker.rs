//! The processing of a path, and the state that the threads share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{GivenUp, Running, Workers};
use keyqueue::{DelayPolicy, WorkQueue};
use notify::RecommendedWatcher;

use crate::roots::Roots;
use crate::sync::{self, Done};
use crate::tally::Tally;
use crate::{interrupt, scan, watch};

/// How often a path that fails is tried again, and the waits: 100, 200, 400, 800 ms.
const RETRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Mirror {
    pub(crate) queue: WorkQueue<PathBuf>,
    pub(crate) roots: Roots,
    tally: Mutex<Tally>,
    /// The notifier, while the source is followed.
    pub(crate) watcher: Mutex<Option<RecommendedWatcher>>,
    /// Silent where standard error is no terminal.
    pub(crate) progress: ProgressBar,
}

impl Mirror {
    pub(crate) fn new(roots: Roots) -> anyhow::Result<Arc<Self>> {
        let queue = WorkQueue::builder()
            .rate_limiter(ItemExponentialFailure::new(FIRST_WAIT, LONGEST_WAIT)?)
            // The last notification of a burst counts, and also before a retry that is further off.
            .delay_policy(DelayPolicy::Replace)
            // A drain delivers pending delays immediately instead of dropping them.
            .drain_delays(true)
            .build()?;
        Ok(Arc::new(Self {
            queue,
            roots,
            tally: Mutex::default(),
            watcher: Mutex::default(),
            progress: ProgressBar::new_spinner(),
        }))
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap()
    }

    /// Adds `path`: it is processed once more if it is processing.
    pub(crate) fn add(&self, path: PathBuf) {
        self.add_after(path, Duration::ZERO);
    }

    /// Adds `path` after a delay.
    pub(crate) fn add_after(&self, path: PathBuf, delay: Duration) {
        // Locked first, so that the event is counted before its delivery.
        let mut tally = self.tally();
        if self.queue.add_after(path, delay).is_accepted() {
            tally.events += 1;
        }
    }

    /// Starts workers, by default one for each core. They work on what is added until the queue is
    /// shut down and empty.
    pub(crate) fn start(
        self: &Arc<Self>,
        threads: Option<u16>,
    ) -> anyhow::Result<Running<PathBuf>> {
        let (worker, reporter) = (Arc::clone(self), Arc::clone(self));
        let mut workers = Workers::new(&self.queue)
            .max_retries(RETRIES)
            .on_give_up(move |path, end| reporter.give_up(path, &end));
        if let Some(threads) = threads {
            workers = workers.concurrency(threads.into());
        }
        workers
            .spawn(move |path| worker.visit(&path))
            .context("cannot start the workers")
    }

    fn visit(&self, path: &Path) -> anyhow::Result<()> {
        if interrupt::abandons() {
            return Ok(());
        }
        self.tally().delivered += 1;
        let visited = self.make_equal(path);
        let mut tally = self.tally();
        match &visited {
            Ok(done) => {
                tally.failures.remove(path);
                tally.record(done);
            }
            Err(_) => {
                tally.failures.insert(path.to_owned(), None);
                tally.retries += 1;
            }
        }
        visited.map(drop)
    }

    fn give_up(&self, path: &Path, end: &GivenUp<anyhow::Error>) {
        let why = format!("{:#} (attempts: {})", end.failure, end.retries + 1);
        let mut tally = self.tally();
        tally.retries -= 1;
        tally.failures.insert(path.to_owned(), Some(why));
    }

    /// Makes the target equal at one path; a directory that is followed has its entries added.
    fn make_equal(&self, path: &Path) -> anyhow::Result<Done> {
        let done = sync::path(&self.roots, path)?;
        // First the watch, then the list.
        if let Done::Directory { .. } = done
            && watch::directory(self, &self.roots.source.join(path))?
        {
            scan::directory(self, path)?;
        }
        if let Done::Special = done {
            self.say(&format!("skipped: {} is a special file", path.display()));
        }
        Ok(done)
    }

    /// Says something to the user, above the progress line.
    pub(crate) fn say(&self, text: &str) {
        self.progress.suspend(|| eprintln!("{text}"));
    }

    pub(crate) fn show_progress(&self) {
        let tally = self.tally();
        let (delivered, queued, copied) = (tally.delivered, self.queue.len(), tally.copied);
        let (failing, bytes) = (tally.failing(), HumanBytes(tally.bytes));
        self.progress.set_message(format!(
            "{delivered} delivered, {queued} queued, {failing} failing, {copied} copied ({bytes})"
        ));
        self.progress.tick();
    }
}
