//! A channel, which knows no keys: what it costs to wait for one.

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::RwLock;

use crate::queue::Queue;
use crate::workload::{Kind, Round};
use crate::workloads;

pub(super) fn run(round: &Round<'_>) -> Option<Vec<f64>> {
    match round.kind {
        Kind::IdleCost => workloads::run_u64::<Channel>(round),
        _ => None,
    }
}

struct Channel {
    /// Until it is shut down.
    sender: RwLock<Option<Sender<u64>>>,
    receiver: Receiver<u64>,
}

impl Queue<u64> for Channel {
    type Key = u64;
    type Item<'a> = u64;

    fn new() -> Self {
        let (sender, receiver) = unbounded();
        Self {
            sender: RwLock::new(Some(sender)),
            receiver,
        }
    }

    fn key(item: &u64) -> &u64 {
        item
    }

    fn add(&self, key: u64) {
        if let Some(sender) = &*self.sender.read() {
            sender.send(key).expect("the receiver lives");
        }
    }

    fn add_ref(&self, key: &u64) {
        self.add(*key);
    }

    fn get(&self) -> Option<u64> {
        self.receiver.recv().ok()
    }

    fn done(&self, _: u64) {}

    fn len(&self) -> usize {
        self.receiver.len()
    }

    fn shut_down(&self) {
        self.sender.write().take();
    }
}
