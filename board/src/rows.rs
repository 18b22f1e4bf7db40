//! What a look at a queue has found, as text and numbers: what the pages show, and what their JSON has.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keyqueue::Listed;
use serde::{Serialize, Serializer};

use crate::source::LetterId;
use crate::text;

/// A queue, without a look at its keys.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) queued: usize,
    pub(crate) state: &'static str,
    pub(crate) pausable: bool,
    /// Also of a queue that is draining: then nothing ends it but a resume.
    pub(crate) paused: bool,
    /// `None` if the board was not told where they are.
    pub(crate) dead_letters: Option<usize>,
}

impl Summary {
    pub(crate) const OPEN: &str = "open";
    pub(crate) const PAUSED: &str = "paused";
    /// It is shut down, and has keys left, queued or in hand.
    pub(crate) const DRAINING: &str = "draining";
    pub(crate) const SHUT_DOWN: &str = "shut down";
    pub(crate) const GONE: &str = "gone";
    /// In the list of queues.
    pub(crate) const PANICS: &str = "a look at it panics";

    /// A queue without queued keys is shut down only if a look at all keys since then has found none in hand.
    pub(crate) fn note_left(&mut self, census: Option<&Census>) {
        let has_none = |it: &Census| !it.is_partial && it.queued == 0 && it.processing == 0;
        if self.state == Self::SHUT_DOWN && !census.is_some_and(has_none) {
            self.state = Self::DRAINING;
        }
    }
}

/// What a look at all keys has found.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Census {
    pub(crate) queued: usize,
    pub(crate) processing: usize,
    pub(crate) delayed: usize,
    /// Queued keys of each level; none, if the queue has no levels.
    pub(crate) levels: Vec<usize>,
    /// Keys in hand, those that are held for the longest time first.
    pub(crate) in_hand: Vec<Row>,
    pub(crate) groups: Vec<Group>,
    /// The number of groups, of which the first are in `groups`.
    pub(crate) group_count: usize,
    /// Whether there was no time for all keys: then the numbers are of some, and there are no groups.
    pub(crate) is_partial: bool,
    /// When the look began, and how long it took.
    #[serde(serialize_with = "maybe_unix")]
    pub(crate) at: Option<SystemTime>,
    #[serde(serialize_with = "seconds")]
    pub(crate) took: Duration,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// What names it in a form: names may look alike.
    pub(crate) id: String,
    pub(crate) queued: usize,
    pub(crate) in_flight: usize,
    #[serde(serialize_with = "maybe_seconds")]
    pub(crate) held_for: Option<Duration>,
}

/// A key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    /// What names it in a form, and where to look for it first.
    pub(crate) id: String,
    pub(crate) at: u64,
    pub(crate) state: &'static str,
    pub(crate) level: Option<usize>,
    #[serde(serialize_with = "maybe_seconds")]
    pub(crate) age: Option<Duration>,
    #[serde(serialize_with = "maybe_seconds")]
    pub(crate) held: Option<Duration>,
    #[serde(serialize_with = "maybe_seconds")]
    pub(crate) due_in: Option<Duration>,
    pub(crate) requeues: u32,
    /// The attempt and the error of the last failure.
    pub(crate) attempt: Option<u32>,
    pub(crate) error: Option<String>,
    pub(crate) value: Option<String>,
}

/// A page of keys.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Keys {
    pub(crate) rows: Vec<Row>,
    pub(crate) next: Option<u64>,
    /// How many keys were looked at for it.
    pub(crate) looked: usize,
    /// Whether there was no time for all keys, so that a sorted page is one of some.
    pub(crate) is_partial: bool,
}

/// A dead letter.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Letter {
    pub(crate) id: LetterId,
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) error: String,
    /// `None` of a fleet, as is `first`.
    pub(crate) reason: Option<String>,
    pub(crate) attempts: u64,
    #[serde(serialize_with = "maybe_unix")]
    pub(crate) first: Option<SystemTime>,
    #[serde(serialize_with = "unix")]
    pub(crate) last: SystemTime,
}

impl Letter {
    pub(crate) fn matches(&self, search: &str) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        [&self.key, &self.error, value]
            .iter()
            .any(|text| text::finds(search, text))
    }

    /// Returns its last time, in nanoseconds since 1970.
    pub(crate) fn nanos(&self) -> u64 {
        let last = self.last.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Cuts its texts for a table.
    pub(crate) fn brief(self) -> Self {
        let cut = |text: String| text::cut(&text, text::IN_TABLE);
        Letter {
            key: cut(self.key),
            value: self.value.map(cut),
            error: cut(self.error),
            reason: self.reason.map(cut),
            ..self
        }
    }
}

/// A page of dead letters.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Letters {
    pub(crate) rows: Vec<Letter>,
    pub(crate) next: Option<u64>,
    pub(crate) len: usize,
    /// `None`: the store has no limit.
    pub(crate) capacity: Option<usize>,
    pub(crate) lost: u64,
    /// Whether there was no time for all letters, so that a sorted page, or the errors, are of some.
    pub(crate) is_partial: bool,
}

/// The letters with one error, but for numbers and their own key in it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Errors {
    pub(crate) error: String,
    pub(crate) count: usize,
    #[serde(serialize_with = "unix")]
    pub(crate) last: SystemTime,
}

/// By what a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Keys that have been there for the longest time first, but letters that came last.
    Age,
    Due,
    Attempts,
    Error,
}

impl Sort {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "age" => Sort::Age,
            "due" => Sort::Due,
            "attempts" => Sort::Attempts,
            "error" => Sort::Error,
            _ => return None,
        })
    }
}

/// Where something is in a sorted list: what has no such number or text comes last.
pub(crate) type Place = (bool, i128, String);

/// The smallest numbers come first.
pub(crate) fn by_number(number: Option<i128>) -> Place {
    (number.is_none(), number.unwrap_or(0), String::new())
}

pub(crate) fn by_text(text: Option<&str>) -> Place {
    let text = text.map(|text| text::cut(text, text::IN_TABLE));
    (text.is_none(), 0, text.unwrap_or_default())
}

/// Keeps the first of many in an order, so that a sorted page takes no more memory than those before it.
pub(crate) struct First<O, T> {
    most: usize,
    kept: Vec<(O, T)>,
}

impl<O: Ord, T> First<O, T> {
    pub(crate) fn new(most: usize) -> Self {
        let kept = Vec::new();
        First { most, kept }
    }

    pub(crate) fn push(&mut self, place: O, it: T) {
        self.kept.push((place, it));
        if self.kept.len() > 4 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.kept.truncate(self.most);
    }

    pub(crate) fn into_iter(mut self) -> impl Iterator<Item = T> {
        self.cut();
        self.kept.into_iter().map(|(_, it)| it)
    }
}

/// Which rows a page has, and from where on.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Of keys.
    pub(crate) listed: Listed,
    pub(crate) search: String,
    pub(crate) sort: Option<Sort>,
    /// The place of a key in the queue, or the number of a letter; of a sorted list, how many rows are before it.
    pub(crate) from: u64,
    pub(crate) max: usize,
    /// How long to look at most.
    pub(crate) within: Duration,
}

impl Wanted {
    /// The most rows before those of a sorted page.
    const DEEPEST: usize = 10_000;

    /// Returns how many rows of a sorted list are before those of the page.
    pub(crate) fn skipped(&self) -> usize {
        usize::try_from(self.from).map_or(Self::DEEPEST, |from| from.min(Self::DEEPEST))
    }

    /// Returns where the next page of a sorted list of this many rows begins.
    pub(crate) fn next(&self, rows: usize) -> Option<u64> {
        let next = self.skipped() + self.max;
        (rows > next && next <= Self::DEEPEST).then_some(next as u64)
    }
}

pub(crate) fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

fn maybe_seconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

fn maybe_unix<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => unix(time, to),
        None => to.serialize_none(),
    }
}

fn unix<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    to.serialize_f64(since.as_secs_f64())
}
