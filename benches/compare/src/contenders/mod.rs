//! The queues that are measured, and which workloads each of them runs.

mod by_hand;
mod channel;
mod delay;
mod go;
mod grouped_lock;
mod keyqueue;
mod kube;
mod leveled_lock;
mod limit;
mod locked;
mod sharded_channels;
mod single_lock;

use crate::workload::Round;
use crate::workloads::delay::run as delays;
use crate::workloads::values::run as values;
use by_hand::ByHand;
use delay::{Heap, TokioUtil};
use sharded_channels::ShardedChannels;

type Run = Box<dyn Fn(&Round<'_>) -> Option<Vec<f64>>>;

/// A queue, or a part of one, that is measured.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// The crates or the Go module that it is made of.
    pub(crate) packages: &'static str,
    /// Why it cannot run, if it cannot.
    pub(crate) not_run: Option<String>,
    /// Runs one round and checks its counts. `None` when the workload does not apply.
    pub(crate) run: Run,
}

impl Contender {
    fn new(
        name: &'static str,
        packages: &'static str,
        run: impl Fn(&Round<'_>) -> Option<Vec<f64>> + 'static,
    ) -> Self {
        Self {
            name,
            packages,
            not_run: None,
            run: Box::new(run),
        }
    }
}

/// All contenders, in the order of the columns.
pub(crate) fn all() -> Vec<Contender> {
    let [client_go, priority_queue] = go::contenders();
    vec![
        Contender::new("keyqueue", "keyqueue", keyqueue::run),
        client_go,
        priority_queue,
        Contender::new("one-level", "keyqueue", keyqueue::run_one_level),
        Contender::new("in-place", "keyqueue smallvec", keyqueue::run_in_place),
        Contender::new(
            "single-lock",
            "parking_lot hashbrown foldhash",
            single_lock::run,
        ),
        Contender::new(
            "by-hand",
            "dashmap crossbeam-channel foldhash",
            values::<ByHand>,
        ),
        Contender::new(
            "sharded-channels",
            "crossbeam-channel foldhash",
            values::<ShardedChannels>,
        ),
        Contender::new("crossbeam-channel", "crossbeam-channel", channel::run),
        Contender::new("kube-runtime", "kube-runtime", kube::run),
        Contender::new("delay-queue", "tokio-util", delays::<TokioUtil>),
        Contender::new("heap", "parking_lot", delays::<Heap>),
        Contender::new("array-queue", "crossbeam-queue", limit::run::<true>),
        Contender::new("seg-queue", "crossbeam-queue", limit::run::<false>),
    ]
}
