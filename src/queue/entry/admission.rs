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
