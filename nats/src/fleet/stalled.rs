//! The partitions whose messages do not come to their owner: told once, and counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Shared;
use crate::{Event, Fence};

/// By partition.
#[derive(Default)]
pub(super) struct Stalled(Mutex<BTreeMap<u16, Fence>>);

impl Stalled {
    fn fences(&self) -> MutexGuard<'_, BTreeMap<u16, Fence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Tells that the messages of a partition do not come, and why, or that they come again: once.
    pub(super) fn stalled(&self, fence: Fence, reason: Option<String>) {
        let mut stalled = self.stalled.fences();
        let before = match reason {
            Some(_) => stalled.insert(fence.partition, fence),
            None => stalled.remove(&fence.partition),
        };
        let event = match reason {
            Some(reason) if before.is_none() => Event::Stalled { fence, reason },
            None if before.is_some() => Event::Receiving(fence),
            _ => return,
        };
        self.series.stalled.set(stalled.len() as f64);
        drop(stalled);
        self.tell(event);
    }

    /// The partition is not ours any more.
    pub(super) fn forget_stalled(&self, fence: Fence) {
        let mut stalled = self.stalled.fences();
        stalled.remove(&fence.partition);
        self.series.stalled.set(stalled.len() as f64);
    }
}
