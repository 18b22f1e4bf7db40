//! The one thread that reports for every queue of the process.
//!
//! # Protocol
//!
//! * A queue is on the list from its first add or delay until it is dropped, or shut down and at rest. The
//!   list holds a weak reference, of which an entry makes a strong one while it reports, under its
//!   mutex.
//! * The queue's drop removes its entry from the list and waits for that mutex. So the thread never
//!   has the last reference to a queue, and accesses none that has been dropped.
//! * The thread ends when the list is empty. The caller that removes the last entry wakes and joins
//!   it (S6).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::{INTERVAL, lock};
use crate::sync::catch_panic::catch_panic;

/// Reports for a queue, now or if it is due, and returns whether there will be more to report.
type Report = dyn Fn(bool) -> bool + Send;

/// A queue's place on the list; `None` once the queue is being dropped.
pub(super) type Entry = Mutex<Option<Box<Report>>>;

struct List {
    entries: Vec<Arc<Entry>>,
    /// Earlier threads, which are about to end, and last the one that reports.
    threads: Vec<JoinHandle<()>>,
}

static LIST: Mutex<List> = Mutex::new(List {
    entries: Vec::new(),
    threads: Vec::new(),
});

/// Notified when the list becomes empty.
static EMPTY: Condvar = Condvar::new();

/// Reports, and returns whether the queue stays on the list.
fn report(entry: &Entry, now: bool) -> bool {
    let entry = lock(entry);
    // A recorder is user code. One that panics is called again at the next report.
    entry
        .as_deref()
        .is_some_and(|report| catch_panic(|| report(now)).unwrap_or(true))
}

/// Puts a queue on the list, and starts the thread if it is not running. Returns false if the
/// thread cannot be started; the queue is then not on the list.
#[cold]
pub(super) fn register(entry: &Arc<Entry>) -> bool {
    let mut list = lock(&LIST);
    if list.entries.iter().any(|known| Arc::ptr_eq(known, entry)) {
        return true;
    }
    if list.entries.is_empty() {
        let thread = thread::Builder::new().name("keyqueue-metrics".into());
        let Ok(started) = thread.spawn(run) else {
            return false;
        };
        list.threads.retain(|thread| !thread.is_finished());
        list.threads.push(started);
    }
    list.entries.push(Arc::clone(entry));
    true
}

fn remove(list: &mut List, entry: &Arc<Entry>) {
    list.entries.retain(|known| !Arc::ptr_eq(known, entry));
}

/// Takes a queue off the list, and waits for a report of it to end.
pub(super) fn unregister(entry: &Arc<Entry>) {
    let mut threads = Vec::new();
    {
        let mut list = lock(&LIST);
        remove(&mut list, entry);
        if list.entries.is_empty() {
            EMPTY.notify_all();
            threads.append(&mut list.threads);
        }
    }
    lock(entry).take();
    for thread in threads {
        if thread.thread().id() != thread::current().id() {
            // The thread catches panics of what it runs. If it panicked anyway, it has ended, too.
            let _ = thread.join();
        }
    }
}

/// Reports for every named queue of the process now, for exporters that are notified of a scrape.
///
/// Skips queues that are built with [`manual_timers`](crate::Builder::manual_timers), and queues to
/// which no key has been added yet, also not with a delay. Skips as well those that have been shut down, finished all keys
/// and reported after that: what is counted for these later, such as retries that workers give up,
/// [`report`](crate::WorkQueue::report) alone has.
pub fn report_all() {
    let entries = lock(&LIST).entries.clone();
    for entry in entries {
        report(&entry, true);
    }
}

/// The body of the reporter thread.
fn run() {
    let me = thread::current().id();
    let is_wanted = |list: &mut List| {
        let last = list.threads.last();
        last.is_some_and(|last| last.thread().id() == me) && !list.entries.is_empty()
    };
    loop {
        let (mut list, _) = EMPTY
            .wait_timeout_while(lock(&LIST), INTERVAL, is_wanted)
            .unwrap_or_else(PoisonError::into_inner);
        if !is_wanted(&mut list) {
            return;
        }
        let entries = list.entries.clone();
        drop(list);
        for entry in entries {
            if !report(&entry, false) {
                remove(&mut lock(&LIST), &entry);
            }
        }
    }
}
