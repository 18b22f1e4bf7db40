//! Adds a key later: one pending delay for a key, the earlier time wins, and when it ends it is a plain
//! add. One thread runs it; all that it shares is behind one lock.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use keyqueue::{Added, WorkQueue};

#[derive(Default)]
pub(crate) struct Delays {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    by_path: HashMap<PathBuf, Instant>,
    by_time: BTreeSet<(Instant, PathBuf)>,
    closed: bool,
}

impl Delays {
    /// Adds `path` in `delay` from now, or earlier if it is pending for an earlier time.
    pub(crate) fn add_after(&self, path: &Path, delay: Duration) -> Added {
        let mut pending = self.pending.lock().unwrap();
        if pending.closed {
            return Added::ShutDown;
        }
        let due = Instant::now() + delay;
        match pending.by_path.get(path).copied() {
            Some(earlier) if earlier <= due => return Added::Delayed,
            Some(later) => drop(pending.by_time.remove(&(later, path.to_owned()))),
            None => {}
        }
        pending.by_path.insert(path.to_owned(), due);
        pending.by_time.insert((due, path.to_owned()));
        self.changed.notify_one();
        Added::Delayed
    }

    /// How many keys are waiting.
    pub(crate) fn len(&self) -> usize {
        self.pending.lock().unwrap().by_path.len()
    }

    /// Adds what is pending, and refuses what comes.
    pub(crate) fn close(&self, queue: &WorkQueue<PathBuf>) {
        let mut pending = self.pending.lock().unwrap();
        pending.closed = true;
        pending.by_path.clear();
        for (_, path) in std::mem::take(&mut pending.by_time) {
            queue.add(path);
        }
        self.changed.notify_one();
    }

    /// Adds each key to `queue` at its time; returns when closed.
    pub(crate) fn run(&self, queue: &WorkQueue<PathBuf>) {
        let mut pending = self.pending.lock().unwrap();
        while !pending.closed {
            let now = Instant::now();
            pending = match pending.by_time.first() {
                None => self.changed.wait(pending).unwrap(),
                Some((due, _)) if *due > now => {
                    let rest = *due - now;
                    self.changed.wait_timeout(pending, rest).unwrap().0
                }
                Some(_) => {
                    if let Some((_, path)) = pending.by_time.pop_first() {
                        pending.by_path.remove(&path);
                        queue.add(path);
                    }
                    pending
                }
            };
        }
    }
}
