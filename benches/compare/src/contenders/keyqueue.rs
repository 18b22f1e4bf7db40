//! This crate.

use std::borrow::Borrow;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Item, WorkQueue, merge};
use smallvec::SmallVec;

use crate::keys::{Key, Tally};
use crate::queue::{Delays, Event, Inboxes, Queue, Tasked};
use crate::workload::{Kind, Round};
use crate::workloads::{self, backlog, delay, groups, levels, limiter, paced, reconcile, values};

pub(super) fn run(round: &Round<'_>) -> Option<Vec<f64>> {
    match round.kind {
        Kind::Backlog => Some(backlog::run::<WorkQueue<u64>>(round.count)),
        Kind::Reconcile => Some(reconcile(round.count)),
        Kind::WakeTask => Some(paced::wake_task::<WorkQueue<u64>>(round.count)),
        _ => workloads::run_u64::<WorkQueue<u64>>(round)
            .or_else(|| workloads::run_str::<WorkQueue<String>>(round))
            .or_else(|| delay::run::<WorkQueue<u64>>(round))
            .or_else(|| limiter::keyqueue(round))
            .or_else(|| values::run::<Values<Vec<Event>>>(round))
            .or_else(|| run_levels(round, 3))
            .or_else(|| groups::run(round, grouped)),
    }
}

/// The workloads with levels or groups, on a queue that has neither.
pub(super) fn run_one_level(round: &Round<'_>) -> Option<Vec<f64>> {
    match round.kind {
        // Its urgent keys would wait behind the backlog.
        Kind::LevelsBacklog => None,
        _ => run_levels(round, 1).or_else(|| groups::run(round, |_| WorkQueue::new())),
    }
}

/// The workloads with values, whose first event needs no memory of its own.
pub(super) fn run_in_place(round: &Round<'_>) -> Option<Vec<f64>> {
    values::run::<Values<SmallVec<[Event; 1]>>>(round)
}

fn grouped(groups: u64) -> WorkQueue<u64> {
    let builder = WorkQueue::builder().group_by(move |key: &u64| *key % groups);
    builder.build().expect("in range")
}

fn run_levels(round: &Round<'_>, levels: usize) -> Option<Vec<f64>> {
    let new = || WorkQueue::builder().levels(levels).build();
    let add_at = |queue: &WorkQueue<u64>, level, key| _ = queue.entry(key).level(level).add();
    levels::run(round, || new().expect("in range"), add_at)
}

fn reconcile(count: usize) -> Vec<f64> {
    let limiter = ItemExponentialFailure::new(limiter::BASE, limiter::MAX);
    let queue = WorkQueue::builder()
        .rate_limiter(limiter.expect("the delays are in range"))
        .build()
        .expect("nothing is out of range");
    let keys = str::first(count);
    reconcile::timed(count, async |deliver| {
        queue.add_all(keys);
        queue.shut_down();
        let workers = Workers::new(&queue).concurrency(reconcile::TASKS.into());
        let run = workers.run_async(async |job| {
            deliver(&job);
            Ok::<_, Infallible>(Outcome::Done)
        });
        run.await.expect("the number of tasks is allowed");
    })
}

impl<Q: Key + ?Sized> Queue<Q> for WorkQueue<Q::Owned>
where
    Q::Owned: 'static,
{
    type Key = Q::Owned;
    type Item<'a> = Item<'a, Q::Owned>;

    fn new() -> Self {
        Self::new()
    }

    fn key<'a>(item: &'a Self::Item<'_>) -> &'a Q {
        item.key().borrow()
    }

    fn add(&self, key: Q::Owned) {
        self.add(key);
    }

    fn add_ref(&self, key: &Q) {
        self.entry_ref(key).add();
    }

    fn get(&self) -> Option<Self::Item<'_>> {
        self.get()
    }

    fn done(&self, item: Self::Item<'_>) {
        item.done();
    }

    fn add_all(&self, keys: impl Iterator<Item = Q::Owned>) {
        self.add_all(keys);
    }

    fn deliver_some(&self, most: usize, delivered: &mut Tally) {
        let batch = self.get_batch(most).expect("a key is queued");
        batch
            .iter()
            .for_each(|item| delivered.count::<Q>(item.key().borrow()));
        batch.done();
    }

    fn deliver_batches(&self, most: usize) -> Tally {
        let mut delivered = Tally::default();
        while let Some(batch) = self.get_batch(most) {
            batch
                .iter()
                .for_each(|item| delivered.count::<Q>(item.key().borrow()));
            batch.done();
        }
        delivered
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn shut_down(&self) {
        self.shut_down();
    }

    fn shrink(&self) {
        self.shrink();
    }

    fn by_handle(&self, keys: Vec<Q::Owned>) -> impl Fn(usize) + Sync {
        let handles: Vec<_> = keys.into_iter().map(|key| self.handle(key)).collect();
        move |n| {
            handles[n].add();
        }
    }
}

impl Tasked for WorkQueue<u64> {
    fn get_in_task(&self) -> impl Future<Output = Option<Self::Item<'_>>> + Send {
        self.get_async()
    }
}

/// Values that hold their events behind a pointer, or the first one in place.
pub(super) struct Values<V>(WorkQueue<u64, V>);

/// Where several events are kept.
pub(super) trait Events:
    Default + Extend<Event> + IntoIterator<Item = Event> + Send + Sync + 'static
{
    fn one(event: Event) -> Self;
    fn push(&mut self, event: Event);
    fn all(&self) -> &[Event];
}

impl Events for Vec<Event> {
    fn one(event: Event) -> Self {
        vec![event]
    }

    fn push(&mut self, event: Event) {
        // Most keys have one event, and `push` alone would make room for four.
        self.reserve_exact(usize::from(self.is_empty()));
        self.push(event);
    }

    fn all(&self) -> &[Event] {
        self
    }
}

impl Events for SmallVec<[Event; 1]> {
    fn one(event: Event) -> Self {
        Self::from_buf([event])
    }

    fn push(&mut self, event: Event) {
        self.push(event);
    }

    fn all(&self) -> &[Event] {
        self
    }
}

impl<V: Events> Inboxes for Values<V> {
    fn new(_workers: usize) -> Self {
        let builder = WorkQueue::builder().merge(merge::append);
        Self(builder.build().expect("nothing is out of range"))
    }

    fn put(&self, key: u64, event: Event) {
        self.0.entry(key).update(|events| events.push(event));
    }

    fn deliver(&self, mut work: impl FnMut(u64, &[Event])) {
        while let Some(item) = self.0.get() {
            work(*item, item.value().all());
            item.done();
        }
    }

    fn put_all(&self, events: impl Iterator<Item = (u64, Event)>) {
        self.0
            .put_all(events.map(|(key, event)| (key, V::one(event))));
    }

    fn deliver_batches(&self, most: usize, mut work: impl FnMut(u64, &[Event])) {
        while let Some(batch) = self.0.get_batch(most) {
            batch
                .iter()
                .for_each(|item| work(**item, item.value().all()));
            batch.done();
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shut_down(&self) {
        self.0.shut_down();
    }
}

impl Delays for WorkQueue<u64> {
    fn new(_: Sender<u64>) -> Self {
        Self::new()
    }

    fn add_after(&self, key: u64, delay: Duration) {
        self.add_after(key, delay);
    }

    fn cancel(&self, key: u64) -> Option<bool> {
        Some(self.cancel(&key))
    }

    fn get(&self, _: &Receiver<u64>) -> u64 {
        *self.get().expect("never shut down")
    }
}
