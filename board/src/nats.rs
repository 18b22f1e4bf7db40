//! A fleet of replicas on NATS JetStream, as a board reads it from the server.
//!
//! Each request waits for the server, for [`LIMIT`] at most. Views and actions are blocking work, so they block on the runtime of
//! the board, on threads that are made for it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use keyqueue_nats::status::{Owner, Partition, SessionState};
use keyqueue_nats::{Coalesce, Config, Error, dead_letter, status};
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::fleet::{Cell, Column, Partitioned, Partitions};
use crate::letters::{LetterStore, Verb};
use crate::rows::Letter;
use crate::source::{LetterId, Refused};
use crate::text;

/// How long the board waits for the server.
const LIMIT: Duration = Duration::from_secs(2);
/// The partitions of a fleet, those that nobody owns first.
const COLUMNS: [Column; 9] = [
    ("partition", "Partition"),
    ("owner", "Owner"),
    ("session", "Session"),
    ("renewed", "Renewed"),
    ("messages", "Messages"),
    ("unacknowledged", "In hand"),
    ("undelivered", "Not delivered"),
    ("failed_keys", "Failed keys"),
    // Long, and of the least use.
    ("epoch", "Epoch"),
];

/// A fleet on its server.
pub(crate) struct Nats {
    client: Client,
    config: Config,
}

impl Nats {
    pub(crate) fn new(client: Client, config: Config) -> Self {
        Nats { client, config }
    }

    /// Waits for the server. It must not be called by a task.
    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Refused> {
        let stream = &self.config.stream;
        let Ok(runtime) = Handle::try_current() else {
            let why = format!("the fleet {stream} needs a tokio runtime");
            return Err(Refused::Server(why));
        };
        self.came(runtime.block_on(async { timeout(LIMIT, asked).await }))
    }

    /// Returns what came of a request.
    fn came<T>(&self, came: Result<Result<T, Error>, Elapsed>) -> Result<T, Refused> {
        let stream = &self.config.stream;
        match came {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(Error::Key { .. })) => Err(Refused::Keyless),
            Ok(Err(error)) => Err(Refused::Server(text::cut(&error.to_string(), text::WHOLE))),
            Err(_) => Err(Refused::Server(format!(
                "the server of the fleet {stream} has not responded for {} s",
                LIMIT.as_secs()
            ))),
        }
    }
}

impl Partitioned for Nats {
    fn about(&self) -> String {
        format!("streams {}-N", self.config.stream)
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    fn look(&self) -> Result<Partitions, Refused> {
        let status = self.wait(status(&self.client, &self.config))?;
        let of = &status.partitions;
        let consumers = || of.iter().filter_map(|of| of.consumer.as_ref());
        let unowned = status.unowned() as u64;
        let missing = of.iter().filter(|of| of.messages.is_none()).count() as u64;
        let messages = of.iter().filter_map(|of| of.messages).sum();
        let mut numbers = vec![
            ("partitions", of.len() as u64, false),
            ("unowned", unowned, unowned > 0),
            ("messages", messages, false),
            (
                "in hand",
                consumers().map(|of| of.unacknowledged).sum(),
                false,
            ),
            (
                "not delivered",
                consumers().map(|of| of.undelivered).sum(),
                false,
            ),
            (
                "failed keys",
                of.iter().map(|of| of.failed_keys).sum(),
                false,
            ),
        ];
        numbers.extend((missing > 0).then_some(("without a stream", missing, true)));
        numbers.extend(
            status
                .dead_letters
                .map(|letters| ("dead letters", letters, false)),
        );
        let last = of.len().saturating_sub(1);
        let mut notes = vec![format!(
            "Streams: {0}-{1}-0 to {last}",
            self.config.stream,
            of.len()
        )];
        notes.extend(status.changes_to.map(|next| {
            format!("The number of partitions changes to {next}: these take no new messages, and those are not handled before these are empty.")
        }));
        let rows = |is_owned| {
            of.iter()
                .filter(move |of| of.is_owned() == is_owned)
                .map(cells)
        };
        let mut json = serde_json::to_value(&status).unwrap_or_default();
        json["unowned"] = unowned.into();
        Ok(Partitions {
            notes,
            numbers,
            caption: "Partitions, those that nobody owns first",
            columns: &COLUMNS,
            rows: rows(false).chain(rows(true)).collect(),
            server: "connected".into(),
            unowned: Some(unowned),
            messages,
            dead_letters: status.dead_letters,
            json,
        })
    }

    fn letters(&self) -> Result<&dyn LetterStore, String> {
        match self.config.dead_letters {
            Some(_) => Ok(self),
            None => Err("The board does not know the dead letters of this fleet.".into()),
        }
    }

    fn replaces_newer(&self) -> bool {
        self.config.coalesce != Coalesce::Never
    }
}

fn cells(of: &Partition) -> Vec<Cell> {
    let (owner, consumer) = (of.owner.as_ref(), of.consumer.as_ref());
    vec![
        Cell::Number(Some(of.partition.into())),
        Cell::Text(owner.map(|owner| owner.replica.clone())),
        Cell::State(session(owner).into(), !of.is_owned()),
        Cell::Time(owner.and_then(|owner| owner.renewed_ago)),
        match of.messages {
            None => Cell::State("no stream".into(), true),
            messages => Cell::Number(messages),
        },
        Cell::Number(consumer.map(|of| of.unacknowledged)),
        Cell::Number(consumer.map(|of| of.undelivered)),
        Cell::Number(Some(of.failed_keys)),
        Cell::Number(of.epoch),
    ]
}

fn session(owner: Option<&Owner>) -> &'static str {
    match owner.map(|owner| owner.session_state) {
        None => "unowned",
        Some(SessionState::Live) => "live",
        Some(SessionState::Leaving) => "leaving",
        Some(SessionState::Silent) => "unowned: silent",
        Some(SessionState::Ended) => "unowned: ended",
        Some(_) => "unknown",
    }
}

impl LetterStore for Nats {
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused> {
        let after = from.saturating_sub(1);
        let found = self.wait(dead_letter::list(&self.client, &self.config, after, max))?;
        Ok(found.iter().map(|letter| row(letter, most)).collect())
    }

    /// All of them at once, because each is several requests, one after the other.
    fn act(&self, verb: Verb, numbers: &[u64]) -> Vec<Result<(), Refused>> {
        let Ok(runtime) = Handle::try_current() else {
            return vec![self.wait(std::future::pending())];
        };
        let one = |number: u64| {
            let (client, config) = (self.client.clone(), self.config.clone());
            runtime.spawn(timeout(LIMIT, async move {
                match verb {
                    Verb::PutBack => dead_letter::put_back(&client, &config, number).await,
                    Verb::Drop => dead_letter::drop_letter(&client, &config, number).await,
                }
            }))
        };
        let all: Vec<_> = numbers
            .iter()
            .map(|number| (*number, one(*number)))
            .collect();
        let came = all.into_iter().map(|(number, one)| {
            let came = runtime.block_on(one);
            let came = came.map_err(|error| Refused::Server(error.to_string()))?;
            let was_there = self.came(came)?;
            was_there.then_some(()).ok_or(Refused::NoLetter(number))
        });
        came.collect()
    }

    fn len(&self) -> Result<usize, Refused> {
        let count = self.wait(dead_letter::count(&self.client, &self.config))?;
        Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
    }
}

fn row(letter: &dead_letter::Letter, most: usize) -> Letter {
    let payload = match std::str::from_utf8(&letter.payload) {
        Ok(payload) => text::cut(payload, most),
        Err(_) => {
            // One byte too many shows that there are more.
            let end = letter.payload.len().min(most + 1);
            text::cut(&letter.payload[..end].escape_ascii().to_string(), most)
        }
    };
    let (number, time) = (letter.sequence, letter.time);
    let mut mark = DefaultHasher::new(); // of fixed keys, so that all replicas have the same
    (number, &letter.key, time).hash(&mut mark);
    Letter {
        id: LetterId {
            number,
            mark: mark.finish(),
        },
        key: text::cut(letter.key.as_deref().unwrap_or("(no key)"), most),
        value: Some(payload),
        error: text::cut(&letter.error, most),
        reason: None,
        attempts: letter.attempts,
        first: None,
        last: letter.time,
    }
}
