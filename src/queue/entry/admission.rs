//! Adds that keep the bound of the queue, or exceed it: [`crate::wait::room`] has the protocol.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::edit::{Adding, Edit};
use super::key::Key;
use crate::Added;
use crate::engine::Core;
use crate::sync::Arc;
use crate::time::clock::END;
use crate::time::nanos;
use crate::wait::Waiter;
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

    /// Adds once there is room, or when it has waited long enough; without `patience` only once there is. Dropping the
    /// future adds nothing.
    pub(super) async fn run_async(mut self, patience: Option<Duration>) -> Added {
        let core = self.at.core;
        let end = patience.map(|limit| {
            let now = core.timer.clock().nanos();
            now.saturating_add(nanos::saturating(limit))
        });
        let until = end.filter(|until| *until <= END);
        let mut admission = Admission::Within;
        loop {
            match self.attempt(admission) {
                Ok(added) => return added,
                Err(again) => self = again,
            }
            let mut turn = self.turn();
            let wait = TimedTurn {
                core,
                turn: &mut turn,
                until,
                waiter: None,
            };
            admission = match wait.await {
                true => Admission::Granted(turn),
                false => Admission::Exceeding,
            };
        }
    }
}

/// Waits for a turn, at most until a time; returns whether the turn has come. Whoever drops this drops the turn, or uses
/// it.
struct TimedTurn<'t, 'q, K, V> {
    core: &'q Arc<Core<K, V>>,
    turn: &'t mut Turn<'q>,
    /// In nanoseconds of the queue's clock.
    until: Option<u64>,
    /// Where the timer's thread notifies it, from when it has to wait.
    waiter: Option<Waiter>,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Future for TimedTurn<'_, '_, K, V> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let (core, waker) = (self.core, context.waker());
        if Pin::new(&mut *self.turn).poll(context).is_ready() {
            return Poll::Ready(true);
        }
        let Some(until) = self.until else {
            return Poll::Pending;
        };
        let is_notified = |waiter: &Waiter| waiter.is_notified(waker);
        if self.waiter.as_ref().is_some_and(is_notified) || core.timer.clock().nanos() >= until {
            return Poll::Ready(false);
        }
        if self.waiter.is_none() {
            self.waiter = Some(self.turn.room().timed.linger(waker, until));
            core.driver.start(core);
            core.timer.wake_by(until);
        }
        Poll::Pending
    }
}

impl<K, V> Drop for TimedTurn<'_, '_, K, V> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.turn.room().timed.stop_lingering(&waiter);
        }
    }
}
