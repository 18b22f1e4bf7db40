//! Adds that keep the bound of the queue, or exceed it: [`crate::wait::room`] has the protocol.

use std::time::Duration;

use crate::Added;
use crate::wait::blocking::{block_until, deadline_in};
use crate::wait::room::{Room, Share, Turn};

/// How long an add waits if there is no room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    Now,
    /// At most this long.
    Within(Duration),
    Forever,
}

/// How one attempt to add gets room.
pub(crate) enum Admission<T> {
    /// It exceeds the bound, if there is none.
    Exceeding,
    /// It fails, if there is none or others wait for it.
    Within,
    /// It has waited for it.
    Granted(T),
}

impl<'r> Admission<Turn<'r>> {
    /// Returns the share of an add of a key.
    pub(crate) fn share(self, room: Option<&'r Room>) -> Share<'r> {
        match self {
            Admission::Exceeding => Share::exceeding(room),
            Admission::Within => Share::within(room),
            Admission::Granted(turn) => turn.share(),
        }
    }
}

/// An add that has not happened yet.
pub(crate) trait Attempt: Sized {
    /// [`Turn`]; a type of its own because a trait with a lifetime makes futures that the compiler does not see to be
    /// `Send`.
    type Turn: Future<Output = ()> + Unpin;

    /// Adds, or fails for lack of room; then nothing has changed. Does not fail if the room is granted or exceeded,
    /// unless another thread has taken what was granted.
    fn attempt(self, admission: Admission<Self::Turn>) -> Result<Added, Self>;

    /// Returns the place in the line of an add that has failed.
    fn turn(&self) -> Self::Turn;

    /// Adds once there is room, and returns what was not added in time.
    #[inline]
    fn run(self, patience: Patience) -> Result<Added, Self> {
        let attempted = self.attempt(Admission::Within);
        match patience {
            Patience::Now => attempted,
            Patience::Within(limit) => attempted.or_else(|attempt| attempt.wait(Some(limit))),
            Patience::Forever => attempted.or_else(|attempt| attempt.wait(None)),
        }
    }

    /// Adds once there is room, or when it has waited long enough.
    #[inline]
    fn run_or_exceed(self, patience: Patience) -> Added {
        let waited = match patience {
            Patience::Now => Err(self),
            patience => self.run(patience),
        };
        let added = waited.or_else(|attempt| attempt.attempt(Admission::Exceeding));
        added.unwrap_or_else(|_| unreachable!("what exceeds the bound is not refused"))
    }

    #[cold]
    fn wait(mut self, limit: Option<Duration>) -> Result<Added, Self> {
        let deadline = limit.and_then(deadline_in);
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
}

/// Adds once there is room. Dropping the future adds nothing.
pub(crate) async fn run_async<A: Attempt>(attempt: A) -> Added {
    let mut outcome = attempt.attempt(Admission::Within);
    loop {
        let attempt = match outcome {
            Ok(added) => return added,
            Err(attempt) => attempt,
        };
        let mut turn = attempt.turn();
        (&mut turn).await;
        outcome = attempt.attempt(Admission::Granted(turn));
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
