//! Adds that keep the bound of the queue, or exceed it: [`crate::wait::room`] has the protocol.

use std::time::Duration;

use crate::Added;
use crate::wait::blocking::{block_until, deadline_in};
use crate::wait::room::{Room, Share, Turn};

/// What an add does if there is no room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Exceeds the bound.
    Exceeds,
    /// Is refused.
    Refuses,
    /// Waits, at most this long.
    Waits(Option<Duration>),
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

    /// Adds as soon as `patience` allows, and returns what was not added in time.
    #[inline]
    fn run(self, patience: Patience) -> Result<Added, Self> {
        let limit = match patience {
            Patience::Exceeds => return self.attempt(Admission::Exceeding),
            Patience::Refuses => return self.attempt(Admission::Within),
            Patience::Waits(limit) => limit,
        };
        self.attempt(Admission::Within)
            .or_else(|attempt| attempt.wait(limit))
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
