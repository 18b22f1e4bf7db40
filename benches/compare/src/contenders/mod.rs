//! The queues that are measured, and which workloads each of them runs.
//!
//! A [`Contender`] has a name and runs one round of a workload. Queues in this process implement
//! [`Queue`], and [`Keyed`] makes contenders of them; a queue in another process implements
//! [`Contender`] directly.

mod baseline;
mod delay;
pub(crate) mod go;
mod keyqueue;
mod kube;
mod limit;
mod single_lock;

use std::marker::PhantomData;

pub(crate) use single_lock::SingleLock;

use crate::queue::Queue;
use crate::spec::{Kind, Round, Scale, Waiter};
use crate::workloads;

/// A queue, or a part of one, that is measured.
pub(crate) trait Contender {
    fn name(&self) -> &'static str;

    /// Runs one round and checks its counts. `None` when the workload does not apply.
    fn run(&self, workload: Kind, scale: &Scale, round: &Round) -> Option<Vec<f64>>;
}

/// All contenders, in the order of the columns.
pub(crate) struct Field {
    pub(crate) contenders: Vec<Box<dyn Contender>>,
    /// The contenders that cannot run, and why.
    pub(crate) not_run: Vec<(&'static str, String)>,
}

impl Field {
    pub(crate) fn gather() -> Self {
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(keyqueue::keyqueue())];
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

/// A deduplicating queue in this process: `U` holds `u64` keys, `S` strings.
struct Keyed<U, S> {
    name: &'static str,
    /// Runs the workloads that are not the same for every queue.
    others: fn(Kind, &Scale) -> Option<Vec<f64>>,
    queues: PhantomData<fn() -> (U, S)>,
}

impl<U, S> Keyed<U, S> {
    fn named(name: &'static str, others: fn(Kind, &Scale) -> Option<Vec<f64>>) -> Self {
        Self {
            name,
            others,
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
            } => (self.others)(workload, scale),
            _ if workload.is_of_strings() => Some(workloads::run_str::<S>(workload, scale, round)),
            _ => Some(workloads::run_u64::<U>(workload, scale, round)),
        }
    }
}
