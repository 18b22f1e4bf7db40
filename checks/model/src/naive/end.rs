//! The ends of the reference queue: shut-downs, drains, and what they leave.

use std::collections::BTreeMap;

use keyqueue::{LeftReason, Remaining};

use super::Naive;

impl<K: Ord + Copy + Default + Into<u64>> Naive<K> {
    /// Whether the queue is shut down and nothing is left to do.
    pub fn is_at_rest(&self) -> bool {
        self.shut_down && self.queued.is_empty() && self.processing.is_empty()
    }

    pub fn remaining(&self) -> Remaining {
        let mut left = Remaining::default();
        left.queued = self.queued.len();
        left.processing = self.processing.len();
        left.delayed = self.dropped;
        left.refused = self.refused;
        left
    }

    /// Shuts down and releases the drainers.
    pub fn shut_down(&mut self) -> Remaining {
        self.close(false);
        self.end_redelivery();
        self.releases += 1;
        self.drainers.wake_all();
        self.remaining()
    }

    /// Shuts down, and delivers nothing from now on. Returns what was left.
    pub fn shut_down_now(&mut self) -> Remaining {
        self.close(false);
        let left = self.remaining();
        self.redelivers = 0;
        let queued = self.queued.iter();
        let discarded: Vec<K> = queued.chain(self.dirty.keys()).copied().collect();
        for key in discarded {
            self.leave(key, LeftReason::Queued);
        }
        self.queued.clear();
        self.dirty.clear();
        self.getters.wake_all();
        self.drainers.wake_all();
        left
    }

    /// Refuses adds, after those that are delayed if they are to be delivered.
    fn close(&mut self, deliver: bool) {
        let delayed = self.delays.take_all();
        if deliver && !self.shut_down {
            self.mark_all(&delayed);
        } else {
            self.dropped += delayed.len();
            for (key, _) in delayed {
                self.leave(key, LeftReason::Delayed);
            }
        }
        if !self.shut_down {
            self.shut_down = true;
            self.redelivers = usize::from(deliver);
            self.getters.wake_all();
        } else if deliver && self.redelivers > 0 {
            self.redelivers += 1;
        }
        if self.is_at_rest() {
            self.drainers.wake_all();
        }
    }

    /// Shuts down, and waits for no time at all.
    pub fn drain_now(&mut self) -> Remaining {
        self.close(self.drain_delays);
        self.end_drain();
        self.remaining()
    }

    /// Polls drainer `who`; true is ready.
    pub fn poll_drain(&mut self, who: usize) -> bool {
        if self.drainers.waits(who) {
            return false;
        }
        self.drainers.leave(who);
        if !self.drains.contains_key(&who) {
            self.drains.insert(who, self.releases);
            self.close(self.drain_delays);
        }
        let ready = self.is_at_rest() || self.releases != self.drains[&who];
        if ready {
            self.drains.remove(&who);
            self.end_drain();
        } else {
            self.drainers.register(who);
        }
        ready
    }

    /// Drainer `who` does not want to wait any longer.
    pub fn drop_drain(&mut self, who: usize) {
        self.drainers.leave(who);
        if self.drains.remove(&who).is_some() {
            self.end_drain();
        }
    }

    /// Delivers nothing again that is retried from now on.
    pub(super) fn end_redelivery(&mut self) {
        self.redelivers = self.redelivers.min(1);
        self.end_drain();
    }

    /// Ends one drain. The last one ends what is delivered again.
    fn end_drain(&mut self) {
        let before = self.redelivers;
        self.redelivers = before.saturating_sub(1);
        if before == 1 && self.has_ended() {
            self.getters.wake_all();
        }
    }

    pub(super) fn leave(&mut self, key: K, reason: LeftReason) {
        let left = self.left.entry(key).or_insert(reason);
        *left = reason.max(*left);
    }

    /// Ends all deliveries, and takes what is left.
    pub fn take_left(&mut self) -> BTreeMap<K, LeftReason> {
        self.shut_down_now();
        std::mem::take(&mut self.left)
    }
}
