//! A queue without its types: what a board reads of it, and does to it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::letters::{LetterStore, Verb};
use crate::rows::{Census, Keys, Row, Summary, Wanted, seconds};

/// What was counted since the queue was built; all 0 for a queue that counts nothing.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) delivered: u64,
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    #[serde(serialize_with = "seconds")]
    pub(crate) queue_time: Duration,
    #[serde(serialize_with = "seconds")]
    pub(crate) work_time: Duration,
}

/// A queue that a board shows. Each call returns `None`, or [`Refused::Gone`], once the queue is dropped.
pub(crate) trait Source: Send + Sync {
    /// Visits no key.
    fn summary(&self) -> Option<Summary>;

    /// Returns what a named queue has counted, in builds that count.
    fn totals(&self) -> Option<Totals>;

    /// Visits every key, in bounded steps, or as many as it can within this time.
    fn census(&self, within: Duration) -> Option<Census>;

    fn keys(&self, wanted: &Wanted) -> Option<Keys>;

    /// Returns a key with all of its text; `None` if the queue does not have it any more, or if it has moved and is not found
    /// within this time.
    fn key(&self, key: &KeyId, within: Duration) -> Option<Row>;

    /// Returns the dead letters; `None` if the board was not told where they are.
    fn letter_store(&self) -> Option<&dyn LetterStore>;

    /// Does what somebody may do who has been checked. Returns how many keys, letters, groups or queues it was done to.
    fn act(&self, task: &Task) -> Result<Done, Refused>;
}

/// Names a key in a form.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyId {
    pub(crate) id: String,
    /// Where to look first.
    pub(crate) at: u64,
}

/// Names a dead letter in a link or a form: its number, which another process uses for another letter, and a mark, which it
/// does not, and which changes with the letter. Replicas that show the same fleet have the same marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LetterId {
    pub(crate) number: u64,
    pub(crate) mark: u64,
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.number, self.mark)
    }
}

impl FromStr for LetterId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, mark) = text.split_once('-').ok_or(())?;
        let number = number.parse().map_err(|_| ())?;
        let mark = u64::from_str_radix(mark, 16).map_err(|_| ())?;
        Ok(LetterId { number, mark })
    }
}

impl Serialize for LetterId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The highest number of the letters that are meant, and the latest time at which one was given up, in nanoseconds since 1970.
pub(crate) type Upto = (u64, u64);

/// Which dead letters.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    These(Vec<LetterId>),
    /// All with this text, as they were at the question. How many these were said to be is the bar's length.
    All {
        search: String,
        upto: Upto,
        said: Option<usize>,
    },
}

/// What to do.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Letters(Verb, Which),
    /// Ends the action on all letters with this number before its end.
    StopLetters(u64),
    RunNow(KeyId),
    DropKey(KeyId),
    /// Zero releases it.
    Hold(String, Duration),
    Pause,
    Resume,
    Drain,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// To how many.
    pub(crate) count: usize,
    /// Whether the time was over before all were looked at.
    pub(crate) is_partial: bool,
    /// To what, as it is shown.
    pub(crate) subject: String,
    /// Why it was not done to all that were meant.
    pub(crate) why: Option<Refused>,
}

impl Done {
    pub(crate) fn one(subject: String) -> Self {
        Done {
            count: 1,
            subject,
            ..Done::default()
        }
    }
}

/// Why it was not done.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum Refused {
    #[error("the queue is gone: it was dropped")]
    Gone,
    #[error("the queue is shut down, and refuses adds")]
    ShutDown,
    #[error("the queue does not have this key any more, or it was not found in the time of a look")]
    NoKey,
    #[error("the key has no pending delay any more")]
    NotDelayed,
    #[error(
        "a queued key without a value cannot be taken out of the queue, and it has no pending delay to cancel"
    )]
    NothingToDrop,
    #[error("there is no dead letter {0} any more, or another thread is handling it")]
    NoLetter(u64),
    #[error(
        "the dead letter {0} is not what this page shows: its key was given up again, or the page is from an earlier process, or from another replica: look at the list again"
    )]
    OtherLetter(u64),
    #[error(
        "this page was loaded from an earlier process, or from another replica: load it again, and look whether that is what you mean"
    )]
    OtherProcess,
    #[error("an action on all dead letters is going on: stop it, or wait for its end")]
    Busy,
    #[error("the action that was to be stopped has ended, or another process does it")]
    HasEnded,
    #[error("it was stopped")]
    Stopped,
    #[error("it has not ended yet")]
    Unended,
    #[error("the board does not know the dead letters of this queue")]
    NoLetters,
    #[error("the queue has no group with this id any more, or the board does not know its groups")]
    NoGroup,
    #[error("{0}")]
    NotPausable(String),
    #[error("no thread can be started to wait for the drain: {0}")]
    NoThread(String),
    #[error("this cannot be done with a fleet or a consumer")]
    NotOfFleet,
    #[error(
        "a dead letter whose message no producer has published has no key, and cannot be put back: drop it instead"
    )]
    Keyless,
    #[error(
        "a dead letter without its value cannot be put back: its worker has taken the value, or another thread has the letter; if it still has none later, drop it"
    )]
    NoValue,
    /// The server of a fleet has not confirmed what it was asked to do.
    #[error("perhaps done: {0}")]
    Perhaps(String),
    /// The server of a fleet does not respond, or refuses.
    #[error("{0}")]
    Server(String),
}
