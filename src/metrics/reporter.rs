//! The one thread that reports for every queue of the process.
//!
//! # Protocol
//!
//! * A queue is on the list from its first add to its end, or until it is shut down and at rest. The list
//!   holds it weakly; while the thread reports of it, under that entry's mutex, it holds it for good.
//! * The queue's drop takes its entry off the list and waits for that mutex. So the thread is never the
//!   last to hold a queue, and touches none that has been dropped.
//! * The thread ends when the list is empty. Whoever takes the last entry off wakes and joins it (S6).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use super::INTERVAL;
use crate::caught::caught;

/// What can be reported of.
pub(super) trait Report: Send + Sync {
    /// Reports, and says whether there will be more to report.
    fn report(&self, now: bool) -> bool;
}

/// A queue on the list.
struct Entry {
    /// Where it lives, to tell it by without waiting for the mutex.
    address: usize,
    /// None once it is off the list.
    queue: Mutex<Option<Weak<dyn Report>>>,
}

struct List {
    entries: Vec<Arc<Entry>>,
    /// The thread that reports, and those that are on their way out.
    threads: Vec<JoinHandle<()>>,
    /// How often a thread was started: only the last of them reports.
    generation: u64,
}

static LIST: Mutex<List> = Mutex::new(List {
    entries: Vec::new(),
    threads: Vec::new(),
    generation: 0,
});

/// Told when the list has become empty.
static EMPTY: Condvar = Condvar::new();

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that panics is done under these mutexes, so a poisoned one is as good.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(queue: &Weak<dyn Report>) -> usize {
    queue.as_ptr().cast::<()>().addr()
}

impl Entry {
    /// Reports, and says whether the queue stays on the list.
    fn report(&self, now: bool) -> bool {
        let entry = lock(&self.queue);
        let Some(queue) = entry.as_ref().and_then(Weak::upgrade) else {
            return false;
        };
        // A recorder is anybody's code. One that panics is called again the next time.
        let stays = caught(|| queue.report(now)).unwrap_or(true);
        // Given back before the entry, on which the queue's drop waits.
        drop(queue);
        stays
    }
}

/// Puts a queue on the list, and starts the thread if it is not there. False if it cannot be started;
/// then the queue is not on the list.
pub(super) fn enlist(queue: &Weak<dyn Report>) -> bool {
    let mut list = lock(&LIST);
    let address = address(queue);
    if list.entries.iter().any(|entry| entry.address == address) {
        return true;
    }
    if list.entries.is_empty() {
        let generation = list.generation + 1;
        let thread = thread::Builder::new().name("keyqueue-metrics".into());
        let Ok(started) = thread.spawn(move || run(generation)) else {
            return false;
        };
        list.generation = generation;
        list.threads.retain(|thread| !thread.is_finished());
        list.threads.push(started);
    }
    list.entries.push(Arc::new(Entry {
        address,
        queue: Mutex::new(Some(Weak::clone(queue))),
    }));
    true
}

/// Takes a queue off the list, and waits until nothing is done for it.
pub(super) fn dismiss(queue: &Weak<dyn Report>) {
    let (entry, threads) = {
        let mut list = lock(&LIST);
        let address = address(queue);
        let at = list
            .entries
            .iter()
            .position(|entry| entry.address == address);
        let entry = at.map(|at| list.entries.swap_remove(at));
        let mut threads = Vec::new();
        if list.entries.is_empty() {
            EMPTY.notify_all();
            threads.append(&mut list.threads);
        }
        (entry, threads)
    };
    if let Some(entry) = entry {
        lock(&entry.queue).take();
    }
    for thread in threads {
        if thread.thread().id() != thread::current().id() {
            // It catches what it runs; had it panicked all the same, it has ended as well.
            let _ = thread.join();
        }
    }
}

/// Reports of every named queue of the process now: for an exporter that can say when it is asked.
///
/// A queue that is built with [`manual_timers`](crate::Builder::manual_timers), or that no key has been
/// added to yet, is left out.
pub fn report_all() {
    let entries = lock(&LIST).entries.clone();
    for entry in entries {
        entry.report(true);
    }
}

/// The thread.
fn run(generation: u64) {
    loop {
        let entries = {
            let list = lock(&LIST);
            let wanted =
                |list: &mut List| list.generation <= generation && !list.entries.is_empty();
            let (mut list, _) = EMPTY
                .wait_timeout_while(list, INTERVAL, wanted)
                .unwrap_or_else(PoisonError::into_inner);
            if !wanted(&mut list) {
                return;
            }
            list.entries.clone()
        };
        for entry in entries {
            if !entry.report(false) {
                let mut list = lock(&LIST);
                list.entries.retain(|kept| !Arc::ptr_eq(kept, &entry));
            }
        }
    }
}
