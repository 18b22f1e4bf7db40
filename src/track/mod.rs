//! Acknowledging a log: which of its messages are finished, when they are finished in any order.
//!
//! A reader reads a log (a partition of a broker, a file, a table that only grows) in the order of its offsets, and stores one
//! number: all below it is finished. Many workers finish messages out of order, so a restart at that number repeats all that was
//! finished beyond it. A [`Tracker`] knows the number, and the finished ranges beyond it. Its [`Progress`] is small enough to be
//! stored with the number. After a restart a tracker that is created from it says of each message that is read again whether it is
//! finished.
//!
//! ```
//! use keyqueue::track::{Begun, Progress, Tracker};
//!
//! let tracker = Tracker::new(100); // The log says: all below 100 is finished.
//! for offset in [100, 101, 102, 105] { // 103 and 104 are gone from the log.
//!     assert_eq!(tracker.begin(offset), Begun::New);
//! }
//! for offset in [101, 105] {
//!     tracker.finish(offset); // A worker has finished it.
//! }
//! let progress = tracker.progress();
//! assert_eq!(progress.first_unfinished(), 100);
//! assert_eq!(progress.finished(), [101..102, 103..106]);
//! let stored = (progress.first_unfinished(), progress.to_text(4096));
//!
//! // After a restart.
//! let tracker = Tracker::new(Progress::from_text(stored.0, &stored.1)?);
//! let again: Vec<_> = [100, 101, 102, 105].map(|offset| tracker.begin(offset)).into();
//! assert_eq!(again, [Begun::New, Begun::Finished, Begun::New, Begun::Finished]);
//! # Ok::<(), keyqueue::ConfigError>(())
//! ```
//!
//! # Protocol
//!
//! One lock holds what is unfinished and what is remembered from before a restart. `begin`, `finish` and `progress` take it once
//! each, so a progress is of one moment: a message counts as finished in it if `finish` came before, and as unfinished if `begin`
//! came before and `finish` did not. An offset that was never begun, and is below the highest one that was, counts as finished: it
//! is a gap. Memory is bounded by the messages in hand and by the ranges of the progress that the tracker was created from (A1).

mod code;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;

use crate::sync::Mutex;

pub use progress::Progress;

/// Which messages of a log are finished: see the [module](self).
///
/// A reader begins offsets, workers finish them, from any threads, and something stores the [`progress`](Self::progress) from
/// time to time. A log with several partitions needs a tracker for each partition, and a new tracker whenever a partition is assigned
/// again.
pub struct Tracker(Mutex<Seen>);

struct Seen {
    unfinished: BTreeSet<u64>,
    /// Above all that were begun.
    next: u64,
    /// What was finished before a restart and reaches beyond `next`, in order, with gaps between.
    remembered: VecDeque<Range<u64>>,
}

/// What [`Tracker::begin`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Begun {
    /// The message has to be worked on. It is unfinished from now on.
    New,
    /// The message was begun before, and is still unfinished: the worker that has it will finish it.
    InHand,
    /// The message was finished before a restart: there is nothing to do.
    Finished,
}

impl Tracker {
    /// Creates a tracker for a log that is read from [`first_unfinished`](Progress::first_unfinished) of `progress` on. A number
    /// alone is a progress with nothing finished beyond it.
    #[must_use]
    pub fn new(progress: impl Into<Progress>) -> Self {
        let progress = progress.into();
        Tracker(Mutex::new(Seen {
            unfinished: BTreeSet::new(),
            next: progress.first_unfinished(),
            remembered: progress.finished.into(),
        }))
    }

    /// Notes that the message at `offset` was read. Call it before a worker can get the message.
    ///
    /// Offsets should come in ascending order, as logs return them. An offset that comes late, below those that were begun, is a
    /// new message, unless it is in hand or remembered as finished. So its work may be done again, but is never skipped.
    ///
    /// Takes time logarithmic in what is in hand.
    pub fn begin(&self, offset: u64) -> Begun {
        let seen = &mut *self.0.lock();
        let at = seen.remembered.partition_point(|range| range.end <= offset);
        let range = seen.remembered.get(at);
        let finished = range.is_some_and(|range| range.contains(&offset));
        seen.next = seen.next.max(offset.saturating_add(1));
        let passed = seen
            .remembered
            .partition_point(|range| range.end <= seen.next);
        seen.remembered.drain(..passed);
        if finished {
            return Begun::Finished;
        }
        match seen.unfinished.insert(offset) {
            true => Begun::New,
            false => Begun::InHand,
        }
    }

    /// Notes that the message at `offset` is finished: its work is done, or it will never be done. Returns whether it was
    /// unfinished; otherwise this changes nothing.
    ///
    /// The last offset of all, `u64::MAX`, is not remembered: after a restart it is new.
    pub fn finish(&self, offset: u64) -> bool {
        self.0.lock().unfinished.remove(&offset)
    }

    /// Returns the number of messages that were begun and are not finished.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.0.lock().unfinished.len()
    }

    /// Returns what is finished, as of one moment during the call. Takes time linear in what is in hand and what is remembered.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let seen = self.0.lock();
        let mut finished = Vec::new();
        let mut unfinished = seen.unfinished.iter().copied();
        let first = unfinished.next();
        let mut after = first.map(|first| first.saturating_add(1));
        for offset in unfinished.chain([seen.next]) {
            if let Some(after) = after.replace(offset.saturating_add(1)) {
                finished.push(after..offset);
            }
        }
        let beyond = |range: &Range<u64>| range.start.max(seen.next)..range.end;
        finished.extend(seen.remembered.iter().map(beyond));
        Progress::new(first.unwrap_or(seen.next), finished)
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.0.lock();
        f.debug_struct("Tracker")
            .field("unfinished", &seen.unfinished.len())
            .field("next", &seen.next)
            .finish_non_exhaustive()
    }
}
