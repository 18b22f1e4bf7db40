//! The queue with one lock, as a contender.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::single_lock::{Empty, SingleLock, Stored};
use super::{Contender, Keyed};
use crate::keys::Key;
use crate::queue::{Queue, Tasked};
use crate::spec::{Kind, Scale};
use crate::workloads::{backlog, limiter};

pub(super) fn single_lock() -> impl Contender {
    Keyed::<SingleLock<u64>, SingleLock<Arc<str>>>::named("single-lock", others)
}

fn others(workload: Kind, scale: &Scale) -> Option<Vec<f64>> {
    Some(match workload {
        Kind::Backlog => backlog::run::<SingleLock<u64>>(scale),
        Kind::Limiter { limiter, threads } => limiter::locked(limiter, threads, scale),
        _ => return None,
    })
}

impl<Q, K> Queue<Q> for SingleLock<K>
where
    Q: Key + ?Sized + Hash + Eq,
    K: Stored<Q> + Send + Sync + 'static,
{
    type Key = K;
    type Item<'a> = K;
    type Handle = K;

    fn new() -> Self {
        Self::new()
    }

    fn key(key: Q::Owned) -> K {
        K::store(key.borrow())
    }

    fn key_of(item: &K) -> &Q {
        item.borrow()
    }

    fn add(&self, key: K) {
        self.add(key);
    }

    fn add_ref(&self, key: &Q) {
        self.add_ref(key);
    }

    fn handle(&self, key: Q::Owned) -> K {
        K::store(key.borrow())
    }

    fn add_handle(&self, handle: &K) {
        self.add_ref(handle.borrow());
    }

    fn get(&self) -> Option<K> {
        self.get()
    }

    fn done(&self, item: K) {
        self.done(item);
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

/// Has no wakers, and needs none: no worker of a backlog waits before all keys are done.
impl Tasked for SingleLock<u64> {
    async fn get_in_task(&self) -> Option<u64> {
        loop {
            match self.try_get() {
                Ok(key) => return key,
                Err(Empty) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}
