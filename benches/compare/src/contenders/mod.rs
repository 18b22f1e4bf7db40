//! Who is measured, and the two traits through which the harness sees them.
//!
//! A [`Contender`] is what `main` knows: a name, and "run one round of this workload". One in a
//! process of its own (another language) implements it directly.
//!
//! A [`Queue`] is a queue in this process, for one kind of key. The workloads are generic over
//! it, so that each is compiled for each queue and nothing is called through a pointer in a timed
//! loop.

mod baseline;
mod delay;
pub(crate) mod go;
mod kube;
mod limit;
mod ours;
mod single_lock;

use std::marker::PhantomData;

pub(crate) use single_lock::SingleLock;

use crate::keys::Key;
use crate::workloads::{self, Kind, Round, Scale, Waiter};

/// Someone who takes part.
pub(crate) trait Contender {
    fn name(&self) -> &'static str;

    /// Runs one round and checks its counts. `None` when the workload does not apply.
    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>>;
}

/// Everybody who can take part, in the order of the table's columns.
pub(crate) struct Field {
    pub(crate) contenders: Vec<Box<dyn Contender>>,
    /// Who cannot, and why.
    pub(crate) not_run: Vec<(&'static str, String)>,
}

impl Field {
    pub(crate) fn gather() -> Self {
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(ours::keyqueue())];
        let mut not_run = Vec::new();
        match go::contenders() {
            Ok(queues) => contenders.extend(queues),
            Err(error) => {
                let why = format!("{error:#}");
                not_run = vec![("client-go", why.clone()), ("priorityqueue", why)];
            }
        }
        contenders.extend([
            Box::new(baseline::single_lock()) as Box<dyn Contender>,
            Box::new(kube::kube()),
            Box::new(delay::delay_queue()),
            Box::new(delay::heap()),
            Box::new(limit::array_queue()),
            Box::new(limit::seg_queue()),
        ]);
        Self {
            contenders,
            not_run,
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&dyn Contender> {
        let found = self
            .contenders
            .iter()
            .find(|contender| contender.name() == name);
        found.map(|contender| &**contender)
    }
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
}

/// A deduplicating queue in this process: `U` holds `u64` keys, `S` strings.
struct Keyed<U, S> {
    name: &'static str,
    /// Runs those workloads that are not the same for every queue.
    beside: fn(Kind, &Scale) -> Option<Vec<f64>>,
    queues: PhantomData<fn() -> (U, S)>,
}

impl<U, S> Keyed<U, S> {
    fn named(name: &'static str, beside: fn(Kind, &Scale) -> Option<Vec<f64>>) -> Self {
        Self {
            name,
            beside,
            queues: PhantomData,
        }
    }
}

impl<U: Queue<u64>, S: Queue<str>> Contender for Keyed<U, S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>> {
        match workload {
            Kind::Backlog
            | Kind::Delay { .. }
            | Kind::Limiter { .. }
            | Kind::Reconcile
            | Kind::Wake {
                waiter: Waiter::Task,
            } => (self.beside)(workload, scale),
            _ if workload.is_of_strings() => Some(workloads::run_str::<S>(workload, scale, round)),
            _ => Some(workloads::run_u64::<U>(workload, scale, round)),
        }
    }
}
