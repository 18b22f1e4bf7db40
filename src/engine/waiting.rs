//! Getting a key when there may be none: what a consumer does before it waits, and after.
//!
//! A getter that finds the queue empty checks whether idle keys should be swept, polls for a
//! short time unless that was in vain of late, registers, takes once more, and waits ([`crate::wait`] has the protocol).

use std::time::Instant;

use super::Core;
use super::taking::Taken;
use crate::fifo::groups::grouping::Grouping;
use crate::sync::ThreadParker;
use crate::wait::Waiter;

impl<K, V> Core<K, V> {
    /// Takes the key at the head of the FIFO. If there is none, waits for one until `deadline`.
    /// [`Taken::Empty`] means that the deadline has passed.
    #[inline]
    pub(crate) fn take_wait(&self, deadline: Option<Instant>) -> Taken<K> {
        self.take().or_else(|| self.wait(deadline))
    }

    #[cold]
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Taken<K> {
        self.wait_unless(deadline, &ThreadParker::current(), || false)
    }

    /// Waits for a key like [`take_wait`](Self::take_wait). Once `stopped` returns true, takes no
    /// key and returns [`Taken::Empty`]; the thread that makes it true then wakes `parker`.
    #[cold]
    pub(crate) fn wait_unless(
        &self,
        deadline: Option<Instant>,
        parker: &ThreadParker,
        stopped: impl Fn() -> bool,
    ) -> Taken<K> {
        loop {
            let taken = self.look_and_take().or_else(|| self.poll(parker));
            if !taken.is_empty() {
                return taken;
            }
            let waiter = self.getters.register(parker.waker());
            let taken = self.take();
            if !taken.is_empty() {
                self.leave(waiter);
                return taken;
            }
            let until = deadline.into_iter().chain(self.next_look()).min();
            let mut in_time = true;
            while in_time && !stopped() && !waiter.is_notified(parker.waker()) {
                parker.park(until);
                in_time = until.is_none_or(|until| Instant::now() < until);
            }
            if stopped() {
                self.leave(waiter);
                return Taken::Empty;
            }
            // The thread is off the list now and takes once more, so a notification that came at
            // the last moment is not lost: its key is found here, or another getter has it.
            let taken = self.take_back(waiter);
            let too_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if !taken.is_empty() || too_late() {
                return taken;
            }
        }
    }

    /// Sweeps some idle keys if that is due, and returns whether there are more to sweep now.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        !self.keeps_idle()
            && (self.keys.look(|| self.timer.clock().nanos())
                || self.groups().is_some_and(Grouping::look))
    }

    /// Returns whether nothing is swept: what the keys carry stays after a shut-down, for a caller that asks for it.
    #[inline]
    fn keeps_idle(&self) -> bool {
        self.extras.is_some() && self.closing.has_begun() && self.values().is_some()
    }

    /// Sweeps idle keys if that is due, but takes a key as soon as there is one. Called by threads
    /// and tasks that have found the queue empty.
    #[inline]
    pub(crate) fn look_and_take(&self) -> Taken<K> {
        while self.look() {
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
        }
        Taken::Empty
    }

    /// Returns when a waiting thread should look again; `None` if there is nothing to sweep.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        if self.keeps_idle() {
            return None;
        }
        let clock = self.timer.clock();
        let keys = self.keys.next_look(|| clock.nanos());
        let groups = self.groups().and_then(Grouping::next_look);
        clock.instant(keys.into_iter().chain(groups).min()?)
    }

    /// Takes a key for a waiter that was notified or stops waiting.
    ///
    /// Also notifies as many others as this one has overtaken: a task may keep the future of a
    /// `get` and not poll it.
    pub(crate) fn take_back(&self, waiter: Waiter) -> Taken<K> {
        let overtaken = self.getters.come_back(waiter);
        let taken = self.take();
        if overtaken > 0 && self.may_take() {
            self.getters.notify(overtaken);
        }
        taken
    }

    /// Polls for a key for a short time before the thread sleeps, unless that was in vain of late.
    fn poll(&self, parker: &ThreadParker) -> Taken<K> {
        let look = || Some(self.take()).filter(|taken| !taken.is_empty());
        parker.poll(look).unwrap_or(Taken::Empty)
    }

    /// Takes a getter that stops waiting off the list, and passes on a notification that it may
    /// have received.
    pub(crate) fn leave(&self, waiter: Waiter) {
        if self.getters.cancel(waiter) && self.may_take() {
            self.getters.notify(1);
        }
    }

    /// Returns whether a key may be taken now. If it waits for a token, the timer's thread notifies a getter then.
    fn may_take(&self) -> bool {
        match self.groups() {
            None => !self.fifo.is_empty(),
            Some(groups) => groups.missing(1).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{WorkQueue, merge};

    // C9: a thread that waits would look again and again for what it may not sweep.
    #[test] // C10 S12
    fn nothing_is_looked_for_while_values_stay_for_what_is_left() {
        const KEYS: usize = 10_000;
        let builder = WorkQueue::builder().shards(2).merge(merge::latest);
        let queue = builder.build().unwrap();
        (0..KEYS).for_each(|key| _ = queue.put(key, key));
        drop(queue.get_batch(KEYS));
        assert!(queue.core.next_look().is_some());
        queue.shut_down();
        assert!(!queue.core.look());
        assert_eq!(queue.core.next_look(), None);
    }
}
