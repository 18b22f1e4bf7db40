//! Adds that keep the bound of the queue, or exceed it: [`crate::wait::room`] has the protocol.

use std::time::Duration;

use super::edit::{Adding, Edit};
use super::key::Key;
use crate::Added;
use crate::wait::blocking::{block_until, deadline_in};
use crate::wait::room::{Room, Share, Turn};

/// How one attempt to add gets room.
pub(super) enum Admission<'r> {
    /// It exceeds the bound, if there is none.
    Exceeding,
    /// It fails, if there is none or others wait for it.
    Within,
    /// It has waited for it.
    Granted(Turn<'r>),
}

impl<'r> Admission<'r> {
    /// Returns the share of an add of a key.
    pub(super) fn share(self, room: Option<&'r Room>) -> Share<'r> {
        match self {
            Admission::Exceeding => Share::exceeding(room),
            Admission::Within => Share::within(room),
            Admission::Granted(turn) => turn.share(),
        }
    }
}

impl<K, V, X, E> Adding<'_, K, V, X, E>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: Key<K, V>,
    E: Edit<V>,
{
    /// Adds once there is room, and returns what was not added in time. Without `patience` it does not wait.
    #[inline]
    pub(super) fn run(self, patience: Option<Duration>) -> Result<Added, Self> {
        let attempted = self.attempt(Admission::Within);
        match patience {
            None => attempted,
            Some(limit) => attempted.or_else(|adding| adding.wait(limit)),
        }
    }

    /// Adds once there is room, or when it has waited long enough.
    #[inline]
    pub(super) fn run_or_exceed(self, patience: Option<Duration>) -> Added {
        let waited = match patience {
            None => Err(self),
            patience => self.run(patience),
        };
        let added = waited.or_else(|adding| adding.attempt(Admission::Exceeding));
        added.unwrap_or_else(|_| unreachable!("what exceeds the bound is not refused"))
    }

    #[cold]
    fn wait(mut self, limit: Duration) -> Result<Added, Self> {
        let deadline = deadline_in(limit);
        loop {
            let mut turn = self.turn();
            if block_until(&mut turn, deadline).is_none() {
                return Err(self);
            }
            match self.attempt(Admission::Granted(turn)) {
                Ok(added) => return Ok(added),
                Err(again) => self = again,
            }
        }
    }

    /// Adds once there is room. Dropping the future adds nothing.
    pub(super) async fn run_async(mut self) -> Added {
        let mut admission = Admission::Within;
        loop {
            match self.attempt(admission) {
                Ok(added) => return added,
                Err(again) => self = again,
            }
            let mut turn = self.turn();
            (&mut turn).await;
            admission = Admission::Granted(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{Full, WorkQueue};

    const LIMIT: Duration = Duration::from_millis(20);

    #[test] // B2 V6
    fn what_may_wait_for_a_while_waits_and_then_exceeds_the_bound_or_comes_back() {
        let queue = WorkQueue::builder().capacity(1).build().unwrap();
        queue.add(1);
        let began = Instant::now();
        assert_eq!(queue.entry(2).within(LIMIT).try_add(), Err(Full(2)));
        assert!(began.elapsed() >= LIMIT);
        assert_eq!(queue.entry(2).within(LIMIT).add(), Added::Queued);
        assert!(began.elapsed() >= 2 * LIMIT);
        assert_eq!(queue.entry(3).try_add(), Err(Full(3)));
        assert_eq!(queue.entry(3).add(), Added::Queued);
        assert_eq!(queue.len(), 3);
    }

    #[test] // V6
    fn an_update_in_a_queue_without_values_calls_its_function_if_it_is_accepted() {
        let queue = WorkQueue::builder().capacity(1).build().unwrap();
        let mut calls = 0;
        assert_eq!(queue.entry(1).update(|()| calls += 1), Added::Queued);
        assert_eq!(calls, 1);
        assert!(queue.entry(2).try_update(|()| calls += 1).is_err());
        queue.shut_down();
        assert_eq!(queue.entry(2).update(|()| calls += 1), Added::ShutDown);
        assert_eq!(calls, 1);
    }
}
