//! What has partitions: a fleet of replicas, or a consumer of Kafka. They differ in where a look comes from, and in what a row of
//! their table has.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::board::lock;
use crate::bulk::LastJob;
use crate::letters::LetterStore;
use crate::place::Place;
use crate::source::{Done, KeyId, Refused, Task};

/// Viewers share a look for this long.
const STALE: Duration = Duration::from_secs(1);

/// Where a look comes from.
pub(crate) trait Partitioned: Send + Sync {
    /// Returns what it is, in a few words.
    fn about(&self) -> String;

    /// Returns whether there is a connection to its server, without a request.
    fn is_connected(&self) -> bool {
        true
    }

    fn look(&self) -> Result<Partitions, Refused>;

    /// As [`Place::mark`].
    fn mark(&self) -> &str;

    /// As [`Place::letters`].
    fn letters(&self) -> Result<&dyn LetterStore, String>;

    fn replaces_newer(&self) -> bool {
        false
    }
}

/// What a look has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    pub(crate) notes: Vec<String>,
    /// Each with whether it tells of a problem.
    pub(crate) numbers: Vec<(&'static str, u64, bool)>,
    pub(crate) caption: &'static str,
    pub(crate) columns: &'static [Column],
    /// Those with a problem first.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// What the list of fleets says of the server.
    pub(crate) server: String,
    /// Of a fleet.
    pub(crate) unowned: Option<u64>,
    pub(crate) messages: u64,
    /// How many there are, if the server says it.
    pub(crate) dead_letters: Option<u64>,
    /// `Null` if it is to be made of the rows.
    pub(crate) json: Value,
}

/// The name of a column in JSON, and on the page.
pub(crate) type Column = (&'static str, &'static str);

#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Number(Option<u64>),
    /// From elsewhere.
    Text(Option<String>),
    Time(Option<Duration>),
    /// Whether it is a problem.
    State(Cow<'static, str>, bool),
}

impl Cell {
    fn json(&self) -> Value {
        match self {
            Cell::Number(number) => (*number).into(),
            Cell::Text(text) => text.clone().into(),
            Cell::Time(time) => time.map(|time| time.as_secs_f64()).into(),
            Cell::State(state, _) => state.clone().into(),
        }
    }
}

impl Partitions {
    pub(crate) fn json(&self) -> Value {
        if !self.json.is_null() {
            return self.json.clone();
        }
        let row = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row);
            let cells = cells.map(|((name, _), cell)| ((*name).to_owned(), cell.json()));
            Value::Object(cells.collect())
        };
        let numbers = self.numbers.iter();
        let mut json: Map<_, _> = numbers
            .map(|(name, number, _)| (name.replace(' ', "_"), (*number).into()))
            .collect();
        json.insert("partitions".into(), self.rows.iter().map(row).collect());
        Value::Object(json)
    }
}

type Seen = (Instant, Result<Arc<Partitions>, Refused>);

/// A fleet, or a consumer, with what was last seen of it.
pub(crate) struct Fleet {
    pub(crate) name: String,
    pub(crate) source: Box<dyn Partitioned>,
    seen: Mutex<Option<Seen>>,
    last_job: LastJob,
}

impl Fleet {
    pub(crate) fn new(name: String, source: impl Partitioned + 'static) -> Self {
        Fleet {
            name,
            source: Box::new(source),
            seen: Mutex::default(),
            last_job: LastJob::default(),
        }
    }

    /// Returns a look that is as new as is reasonable.
    pub(crate) fn look(&self) -> Result<Arc<Partitions>, Refused> {
        let mut seen = lock(&self.seen);
        if let Some((at, found)) = &*seen
            && at.elapsed() < STALE
        {
            return found.clone();
        }
        let found = self.source.look().map(Arc::new);
        *seen = Some((Instant::now(), found.clone()));
        found
    }
}

impl Place for Fleet {
    fn letters(&self) -> Result<&dyn LetterStore, String> {
        self.source.letters()
    }

    fn last_job(&self) -> &LastJob {
        &self.last_job
    }

    fn mark(&self) -> &str {
        self.source.mark()
    }

    fn key(&self, _: &KeyId) -> Result<String, Refused> {
        Err(Refused::NotOfFleet)
    }

    fn act_on_keys(&self, _: &Task) -> Result<Done, Refused> {
        Err(Refused::NotOfFleet)
    }

    fn replaces_newer(&self) -> bool {
        self.source.replaces_newer()
    }

    fn forget(&self) {
        *lock(&self.seen) = None;
    }
}
