//! This crate.

use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

use keyqueue::{Item, KeyHandle, WorkQueue};

use super::{Contender, Keyed};
use crate::keys::Key;
use crate::queue::{Delays, Queue, Tasked};
use crate::spec::{Kind, Scale, Waiter};
use crate::workloads::{backlog, delay, limiter, reconcile, wake};

pub(super) fn keyqueue() -> impl Contender {
    Keyed::<WorkQueue<u64>, WorkQueue<String>>::named("keyqueue", others)
}

fn others(workload: Kind, scale: &Scale) -> Option<Vec<f64>> {
    Some(match workload {
        Kind::Backlog => backlog::run::<WorkQueue<u64>>(scale),
        Kind::Delay { of } => delay::run::<WorkQueue<u64>>(of, scale),
        Kind::Limiter { limiter, threads } => limiter::keyqueue(limiter, threads, scale),
        Kind::Reconcile => reconcile::keyqueue(scale),
        Kind::Wake {
            waiter: Waiter::Task,
        } => wake::task(scale),
        _ => return None,
    })
}

impl<Q> Queue<Q> for WorkQueue<Q::Owned>
where
    Q: Key + ?Sized + Hash + Eq,
    Q::Owned: Hash + Eq + 'static,
{
    type Key = Q::Owned;
    type Item<'a> = Item<'a, Q::Owned>;
    type Handle = KeyHandle<Q::Owned>;

    fn new() -> Self {
        Self::new()
    }

    fn key(key: Q::Owned) -> Q::Owned {
        key
    }

    fn key_of<'a>(item: &'a Self::Item<'_>) -> &'a Q {
        item.key().borrow()
    }

    fn add(&self, key: Q::Owned) {
        self.add(key);
    }

    fn add_ref(&self, key: &Q) {
        self.add_ref(key);
    }

    fn handle(&self, key: Q::Owned) -> Self::Handle {
        self.handle(key)
    }

    fn add_handle(&self, handle: &Self::Handle) {
        handle.add();
    }

    fn get(&self) -> Option<Self::Item<'_>> {
        self.get()
    }

    fn done(&self, item: Self::Item<'_>) {
        item.done();
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
}

impl Tasked for WorkQueue<u64> {
    fn get_in_task(&self) -> impl Future<Output = Option<Self::Item<'_>>> + Send {
        self.get_async()
    }
}

impl Delays for WorkQueue<u64> {
    fn new() -> Self {
        Self::new()
    }

    fn add_after(&self, key: u64, delay: Duration) {
        self.add_after(key, delay);
    }

    fn cancel(&self, key: u64) -> bool {
        self.cancel(&key)
    }

    fn get(&self) -> u64 {
        *self.get().expect("never shut down")
    }
}
