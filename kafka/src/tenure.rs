//! A partition, from its assignment to its revocation: what was read of it, and what is finished.
//!
//! # Protocol
//!
//! A record carries the tenure under which it was read, so one of an earlier assignment of the same partition can neither begin nor
//! be finished under a later one.
//!
//! | who | does |
//! | --- | --- |
//! | the driver | [`begin`](Tenure::begin) for each record, before it is put into the queue |
//! | a worker | [`enter`](Tenure::enter), which waits for the [lease](crate::lease), the handler, [`finish`](Tenure::finish), and drops the guard. A record that may not enter, or is cancelled, stays held and unfinished: the last snapshot needs it |
//! | the driver, at a revocation | [`revoke`](Tenure::revoke): nothing enters any more. Waits until nothing [runs](Tenure::running); if that takes too long, [`cancel`](Tenure::cancel). Then commits a last [`snapshot`](Tenure::snapshot), or none if the assignment is lost |
//!
//! The gate: a worker adds to `running` and then looks at `revoked`; the driver sets `revoked` and then looks at `running`. All four are
//! `SeqCst`, so at least one of them sees the other: either the worker does not enter, or the driver waits for it. A worker in the gate
//! adds to `running` without that look for the letter of its record, which [stays](Tenure::stay) when the worker leaves.
//!
//! A partition that is [read again](crate::driver) without a new assignment gets another tenure [behind](Tenure::behind) the one that is
//! revoked: it runs and is cancelled with the handlers of that one.
//!
//! One lock has what is held, what is remembered, and the position, so that a snapshot is of one moment.

mod failing;
mod held;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keyqueue::track::{Begun, Progress, Tracker};
use rdkafka::Offset;
use tokio::sync::Semaphore;

use crate::OrderBy;
use crate::bell::Bell;
use crate::key::Key;
use crate::lease::Lease;
use crate::lock;
use crate::metadata::{self, Beyond, Known, Metadata, Stored, Written};
use crate::record::Inner;
use failing::Failing;
use held::Held;

pub(crate) struct Tenure {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// The number of the topic and partition in this process.
    pub(crate) slot: u32,
    /// Whether the records of a key are handled one after the other, so that what is finished can be written by key.
    by_key: bool,
    state: Mutex<State>,
    running: AtomicUsize,
    revoked: AtomicBool,
    /// Nothing is committed of it any more.
    lost: AtomicBool,
    /// Without permits, and closed when the tenure is cancelled.
    cancel: Semaphore,
    /// There are keys that fail; and they take more than their share of the room.
    fails: AtomicBool,
    crowded: AtomicBool,
    bell: Arc<Bell>,
    lease: Arc<Lease>,
    /// Those before it under the same assignment, whose handlers ran when the partition was read again.
    earlier: Vec<Arc<Tenure>>,
}

struct State {
    /// Above all that were read. `None`: nothing was.
    next: Option<u64>,
    /// What the tenure began from, until its first record was read.
    base: u64,
    fingerprint: Option<u32>,
    /// What was finished before, and is not all read again.
    remembered: Option<Beyond>,
    held: Held,
    failing: Failing,
    /// Counts changes, so that a commit without any is none.
    version: u64,
    committed: Option<(u64, i64)>,
    /// It began at the end of the log: nothing is read before a commit.
    is_end: bool,
}

/// What [`Tenure::begin`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// To be handled.
    New,
    /// Finished before this assignment.
    Finished,
    /// Below what was read before: the partition has to be read again from here.
    Disorder,
}

/// What is to be committed.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) offset: i64,
    pub(crate) written: Written,
}

/// What a tenure begins from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// Where it is read from.
    pub(crate) base: u64,
    /// Whether that is committed.
    pub(crate) is_committed: bool,
    /// Whether it is the end of the log, for a group that begins there. Nothing is read before it is committed: the next member would
    /// begin at a later end.
    pub(crate) is_end: bool,
    pub(crate) stored: Option<Stored>,
}

impl Start {
    pub(crate) fn offset(&self) -> Offset {
        Offset::Offset(i64::try_from(self.base).unwrap_or(i64::MAX))
    }
}

/// A handler that runs, or a letter on its way. Dropping it leaves the gate.
pub(crate) struct Running<T: Deref<Target = Tenure>>(T);

/// What is seen of a tenure.
pub(crate) struct Seen {
    pub(crate) progress: Progress,
    pub(crate) next: Option<u64>,
    pub(crate) committed: Option<i64>,
    pub(crate) oldest: Option<Arc<Inner>>,
    /// Held records that have failed.
    pub(crate) failing: usize,
}

impl Tenure {
    pub(crate) fn new(
        (topic, partition, slot): (Arc<str>, i32, u32),
        by_key: bool,
        start: Start,
        bell: Arc<Bell>,
        lease: Arc<Lease>,
    ) -> Self {
        let base = start.base;
        let stored = start.stored;
        let state = State {
            next: start.is_end.then_some(base),
            base,
            fingerprint: stored.as_ref().map(|stored| stored.fingerprint),
            remembered: stored.map(|stored| stored.beyond),
            held: Held::default(),
            failing: Failing::default(),
            version: 0,
            committed: start.is_committed.then_some((0, base as i64)),
            is_end: start.is_end,
        };
        Tenure {
            topic,
            partition,
            slot,
            by_key,
            state: Mutex::new(state),
            running: AtomicUsize::new(0),
            revoked: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            cancel: Semaphore::const_new(0),
            fails: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            bell,
            lease,
            earlier: Vec::new(),
        }
    }

    /// Takes over the handlers of the tenure before it under the same assignment, which is revoked: this one has ended when those have.
    pub(crate) fn behind(mut self, before: &Arc<Tenure>) -> Self {
        let earlier = before.earlier.iter().chain([before]);
        let runs = earlier.filter(|tenure| tenure.running_here() > 0);
        self.earlier = runs.cloned().collect();
        self
    }

    /// Notes that these records were read, in order, and returns what was found of each: up to the first that is out of order.
    pub(crate) fn begin(&self, read: &[Arc<Inner>]) -> Vec<Intake> {
        let mut found = Vec::with_capacity(read.len());
        let state = &mut *lock(&self.state);
        for record in read {
            let intake = state.begin(record);
            found.push(intake);
            if intake == Intake::Disorder {
                break;
            }
        }
        found
    }

    /// Notes that a record is finished: its work is done, or it is a dead letter, or is skipped. Returns whether it was held.
    pub(crate) fn finish(&self, record: &Inner) -> bool {
        let state = &mut *lock(&self.state);
        let is_held = state.held.take(record.offset).is_some();
        state.version += u64::from(is_held);
        is_held
    }

    /// Whether a record is not finished, and this is not [over](Self::clear).
    pub(crate) fn holds(&self, record: &Inner) -> bool {
        lock(&self.state).held.has(record.offset)
    }

    /// The records and bytes that are held.
    pub(crate) fn held(&self) -> (usize, usize) {
        lock(&self.state).held.size()
    }

    /// Notes that a record of this key has failed. Returns whether it has to make room: keys that fail have too much, and others of
    /// the partition have succeeded since this one began to fail.
    pub(crate) fn failed(&self, key: Key) -> bool {
        let state = &mut *lock(&self.state);
        let others_succeed = state.failing.fail(key);
        // Ordering: Relaxed, both; under the lock, or a look at it that may be late.
        self.fails.store(true, Ordering::Relaxed);
        others_succeed && self.crowded.load(Ordering::Relaxed)
    }

    /// Notes that this record has not failed: it is done, or was delayed, which gains no room.
    pub(crate) fn succeeded(&self, record: &Arc<Inner>, order: &OrderBy, is_done: bool) {
        // Ordering: Relaxed; as above.
        if self.fails.load(Ordering::Relaxed) {
            let key = order.key(record);
            lock(&self.state).failing.succeed(&key, is_done);
        }
    }

    /// Looks whether keys that fail hold more than this many records, or bytes, and forgets those that hold none.
    pub(crate) fn look_at_failing(&self, order: &OrderBy, records: usize, bytes: usize) {
        let held: Vec<_> = {
            let state = lock(&self.state);
            let fails = !state.failing.is_empty();
            state.held.iter().filter(|_| fails).cloned().collect()
        };
        let keys: Vec<_> = held.iter().map(|record| order.key(record)).collect();
        let state = &mut *lock(&self.state);
        let fails = |(key, _): &(&Key, _)| state.failing.has(key);
        let weights = keys.iter().zip(&held).filter(fails);
        let weights: Vec<_> = weights.map(|(_, record)| record.weight()).collect();
        // One record may be larger than its share.
        let is_large = weights.len() > 1 && weights.iter().sum::<usize>() > bytes;
        let crowded = weights.len() > records || is_large;
        state.failing.retain(&keys.iter().collect());
        // Ordering: Relaxed, both; as above.
        self.crowded.store(crowded, Ordering::Relaxed);
        self.fails
            .store(!state.failing.is_empty(), Ordering::Relaxed);
    }

    /// Waits until a handler may begin: while the lease goes on, or the tenure has ended.
    pub(crate) async fn wait(&self) {
        self.lease.wait(|| self.is_revoked()).await;
    }

    /// Lets a handler begin, once it may, unless the tenure has ended.
    pub(crate) async fn enter(&self) -> Option<Running<&Tenure>> {
        self.wait().await;
        Running::enter(self)
    }

    /// Adds to what runs, for one that is in the gate: whatever is revoked meanwhile, the driver still waits for that one.
    pub(crate) fn stay(self: &Arc<Self>) -> Running<Arc<Tenure>> {
        // Ordering: SeqCst; the gate of the header.
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(self))
    }

    /// The handlers that run, with those of earlier tenures.
    pub(crate) fn running(&self) -> usize {
        let earlier = self.earlier.iter().map(|tenure| tenure.running_here());
        self.running_here() + earlier.sum::<usize>()
    }

    fn running_here(&self) -> usize {
        // Ordering: SeqCst; the gate of the header.
        self.running.load(Ordering::SeqCst)
    }

    /// Lets no other handler begin.
    pub(crate) fn revoke(&self) {
        // Ordering: SeqCst; the gate of the header.
        self.revoked.store(true, Ordering::SeqCst);
        self.lease.ring();
    }

    pub(crate) fn is_revoked(&self) -> bool {
        // Ordering: SeqCst; the gate of the header.
        self.revoked.load(Ordering::SeqCst)
    }

    /// Notes that the assignment is lost.
    pub(crate) fn lose(&self) {
        // Ordering: Relaxed; a look that is late sees a commit refused.
        self.lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_lost(&self) -> bool {
        // Ordering: Relaxed; as above.
        self.lost.load(Ordering::Relaxed)
    }

    /// Cancels the handlers that run, at their next await point. For a tenure that is revoked.
    pub(crate) fn cancel(&self) {
        self.cancel.close();
        self.earlier.iter().for_each(|tenure| tenure.cancel.close());
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_closed()
    }

    /// Is ready when the tenure is cancelled.
    pub(crate) async fn cancelled(&self) {
        // An error: it is closed.
        _ = self.cancel.acquire().await;
    }

    /// What is to be committed: `None` if nothing was read, or nothing has changed since the last commit and it is no renewal.
    pub(crate) fn snapshot(
        &self,
        how: Metadata,
        is_last: bool,
        is_renewal: bool,
    ) -> Option<Snapshot> {
        let state = lock(&self.state);
        let next = state.next?;
        let is_known = |(version, _)| version == state.version;
        if !is_renewal && state.committed.is_some_and(is_known) {
            return None;
        }
        let progress = state.progress();
        let base = progress.first_unfinished();
        // It would forget what was finished beyond. Soon more is read again.
        if !is_last && state.held.first().is_none() && state.remembered.is_some() {
            return None;
        }
        let known = state.known(progress, next, self.by_key);
        let written =
            known.map_or_else(Written::default, |known| metadata::write(&known, base, how));
        Some(Snapshot {
            version: state.version,
            offset: i64::try_from(base).unwrap_or(i64::MAX),
            written,
        })
    }

    /// Notes that a snapshot was committed.
    pub(crate) fn committed(&self, snapshot: &Snapshot) {
        lock(&self.state).committed = Some((snapshot.version, snapshot.offset));
    }

    /// Whether nothing is read before its beginning is committed.
    pub(crate) fn waits_for_commit(&self) -> bool {
        let state = lock(&self.state);
        state.is_end && state.committed.is_none()
    }

    /// Forgets what is held, after the end.
    pub(crate) fn clear(&self) -> Vec<Arc<Inner>> {
        let held = std::mem::take(&mut lock(&self.state).held);
        held.iter().cloned().collect()
    }

    pub(crate) fn seen(&self) -> Seen {
        let state = lock(&self.state);
        let progress = state.progress();
        Seen {
            next: state.next,
            committed: state.committed.map(|(_, offset)| offset),
            oldest: state.held.first().cloned(),
            failing: state
                .held
                .iter()
                .filter(|record| record.has_failed())
                .count(),
            progress,
        }
    }
}

impl State {
    fn begin(&mut self, record: &Arc<Inner>) -> Intake {
        let offset = record.offset;
        match self.next {
            Some(next) if offset < next => return Intake::Disorder,
            Some(_) => {}
            None => self.read_first(record),
        }
        self.next = Some(offset + 1);
        let remembered = self.remembered.as_ref();
        let is_finished = remembered.is_some_and(|beyond| beyond.is_finished(record));
        self.remembered.take_if(|beyond| beyond.end() <= offset + 1);
        if is_finished {
            self.version += 1;
            return Intake::Finished;
        }
        self.held.push(record);
        Intake::New
    }

    /// What is finished: all below `next` that is not held, and beyond it what is remembered.
    fn progress(&self) -> Progress {
        let tracker = match &self.remembered {
            Some(Beyond::Ranges(progress)) => Tracker::new(progress.clone()),
            _ => Tracker::new(self.base),
        };
        for record in self.held.iter() {
            tracker.begin(record.offset);
        }
        if let Some(last) = self.next.and_then(|next| next.checked_sub(1))
            && tracker.begin(last) == Begun::New
        {
            tracker.finish(last);
        }
        tracker.progress()
    }

    /// Compares the first record that was read with what was stored, and believes that only if it is about this log.
    fn read_first(&mut self, record: &Inner) {
        let is_same =
            record.offset == self.base && self.fingerprint == Some(metadata::fingerprint(record));
        if !is_same {
            self.remembered = None;
            // Below the base: the log is another one, or was cut.
            self.base = self.base.min(record.offset);
        }
    }

    /// What can be said about the records beyond the base; `None` if nothing can, or need be.
    fn known(&self, progress: Progress, next: u64, by_key: bool) -> Option<Known> {
        let base = progress.first_unfinished();
        // Without a record at the base there is no fingerprint. (All that was read is finished, and something was finished
        // beyond what was read again after a restart.)
        let first = self.held.first().filter(|first| first.offset == base);
        let fingerprint = metadata::fingerprint(first?);
        let beyond = progress.finished().last().map_or(base, |last| last.end);
        let memory = match &self.remembered {
            Some(Beyond::Keys(keys)) => Some(keys),
            _ => None,
        };
        if beyond == base && memory.is_none() {
            return None;
        }
        let keys = || {
            let mut keys = memory.cloned().unwrap_or_default();
            // Those of keys that were finished up to here stay unfinished beyond.
            keys.first
                .values_mut()
                .for_each(|first| *first = next.max(*first));
            keys.upto = next.max(keys.upto);
            for record in self.held.iter() {
                let offset = record.offset;
                keys.unfinished(metadata::key_hash(record.key(), offset), offset);
            }
            keys
        };
        // Ranges that were remembered, and are not read again, cannot be said by key.
        let keys = (memory.is_some() || by_key && beyond <= next).then(keys);
        // And the other way around.
        let ranges = memory.is_none().then_some(progress);
        let known = Known {
            ranges,
            keys,
            fingerprint,
        };
        Some(known)
    }
}

impl<T: Deref<Target = Tenure>> Running<T> {
    /// Lets a handler begin that has [waited](Tenure::wait), unless the tenure has ended.
    pub(crate) fn enter(tenure: T) -> Option<Self> {
        // Ordering: SeqCst, both; the gate of the header.
        tenure.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(tenure);
        (!running.0.revoked.load(Ordering::SeqCst)).then_some(running)
    }
}

impl<T: Deref<Target = Tenure>> Drop for Running<T> {
    fn drop(&mut self) {
        // Ordering: SeqCst, both; the gate of the header. If a revocation waits, it looks again.
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if self.0.is_revoked() {
            self.0.bell.ring();
        }
    }
}
