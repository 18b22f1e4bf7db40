//! The partitions whose messages do not come to their owner: told once, and counted.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use super::Shared;
use super::tenure::Tenure;
use crate::{Event, Fence};

impl Shared {
    fn stalled_partitions(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells that the messages of a partition do not come, and why, or that they come again: once.
    pub(super) fn stalled(&self, fence: Fence, reason: Option<String>) {
        let mut stalled = self.stalled_partitions();
        let event = match reason {
            Some(reason) if stalled.insert(fence.partition) => Event::Stalled { fence, reason },
            None if stalled.remove(&fence.partition) => Event::Receiving(fence),
            _ => return,
        };
        self.series.stalled.set(stalled.len() as f64);
        drop(stalled);
        self.tell(event);
    }

    /// The same of a partition that this replica owns. If it has lost it meanwhile, nothing of it is left.
    pub(super) fn stalled_here(&self, tenure: &Tenure, reason: Option<String>) {
        self.stalled(tenure.fence, reason);
        // A tenure is lost before its partition is forgotten.
        if tenure.is_lost() {
            self.forget_stalled(tenure.fence);
        }
    }

    /// The partition is not ours any more.
    pub(super) fn forget_stalled(&self, fence: Fence) {
        let mut stalled = self.stalled_partitions();
        stalled.remove(&fence.partition);
        self.series.stalled.set(stalled.len() as f64);
    }
}
