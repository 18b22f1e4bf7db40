//! Who is measured, and the two traits through which the harness sees them.
//!
//! A [`Contender`] is what `main` knows: a name, and "run one round of this workload". One in a
//! process of its own (another language) implements it directly.
//!
//! A [`Queue`] is a queue in this process, for one kind of key. The workloads are generic over
//! it, so that each is compiled for each queue and nothing is called through a pointer in a timed
//! loop.

mod delay;
mod limit;

use std::borrow::Borrow;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use keyqueue::limiter::NoLimit;
use keyqueue::{DefaultHasher, Item, KeyHandle, WorkQueue};

use crate::keys::Key;
use crate::single_lock::{SingleLock, Stored};
use crate::workloads::{self, Kind, Round, Scale};

/// Someone who takes part.
pub(crate) trait Contender {
    fn name(&self) -> &'static str;

    /// Runs one round and checks its counts. `None` when the workload does not apply.
    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>>;
}

/// All of them, in the order of the table's columns.
pub(crate) fn all() -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(Keyed::<WorkQueue<u64>, WorkQueue<String>>::named(
            "keyqueue",
        )),
        Box::new(Keyed::<SingleLock<u64>, SingleLock<Arc<str>>>::named(
            "single-lock",
        )),
        Box::new(limit::array_queue()),
        Box::new(limit::seg_queue()),
        Box::new(delay::heap()),
        Box::new(delay::delay_queue()),
    ]
}

/// A queue in this process, for keys of kind `Q`.
pub(crate) trait Queue<Q: Key + ?Sized>: Send + Sync + 'static {
    /// What `add` takes; made before the clock starts.
    type Key: Send + 'static;
    /// What `get` returns.
    type Item<'a>: Send;
    /// A key resolved beforehand; the key itself where the queue has no such thing.
    type Handle: Send + Sync;

    fn new() -> Self;
    fn key(key: Q::Owned) -> Self::Key;
    fn key_of<'a>(item: &'a Self::Item<'_>) -> &'a Q;

    fn add(&self, key: Self::Key);
    fn add_ref(&self, key: &Q);
    fn handle(&self, key: Q::Owned) -> Self::Handle;
    fn add_handle(&self, handle: &Self::Handle);

    /// Blocks; `None` once the queue is shut down and empty.
    fn get(&self) -> Option<Self::Item<'_>>;
    fn done(&self, item: Self::Item<'_>);

    fn len(&self) -> usize;
    fn shut_down(&self);
    fn shrink(&self);

    /// A round of a workload of delays, for queues that have them.
    fn delayed(_: workloads::delay::Kind, _: &Scale) -> Option<Vec<f64>> {
        None
    }
}

/// A deduplicating queue in this process: `U` holds `u64` keys, `S` strings.
struct Keyed<U, S> {
    name: &'static str,
    queues: PhantomData<fn() -> (U, S)>,
}

impl<U, S> Keyed<U, S> {
    fn named(name: &'static str) -> Self {
        Self {
            name,
            queues: PhantomData,
        }
    }
}

impl<U: Queue<u64>, S: Queue<str>> Contender for Keyed<U, S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>> {
        if let Kind::Delay(kind) = workload {
            return U::delayed(kind, scale);
        }
        Some(if workload.is_of_strings() {
            workloads::run::<str, S>(workload, scale, round)
        } else {
            workloads::run::<u64, U>(workload, scale, round)
        })
    }
}

impl<Q> Queue<Q> for WorkQueue<Q::Owned>
where
    Q: Key + ?Sized + Hash + Eq,
    Q::Owned: Hash + Eq + 'static,
{
    type Key = Q::Owned;
    type Item<'a> = Item<'a, Q::Owned, NoLimit, DefaultHasher>;
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

    fn delayed(kind: workloads::delay::Kind, scale: &Scale) -> Option<Vec<f64>> {
        Some(workloads::delay::run::<WorkQueue<u64>>(kind, scale))
    }
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
