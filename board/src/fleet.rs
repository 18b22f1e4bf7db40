//! A fleet of replicas on NATS JetStream, as a board reads it from the server.
//!
//! Each request waits for the server, for [`LIMIT`] at most. Views and actions are blocking work, so they block on the runtime of
//! the board, on threads that are made for it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::connection::State;
use keyqueue_nats::status::Status;
use keyqueue_nats::{Coalesce, Config, Error, dead_letter, status};
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::board::lock;
use crate::letters::{LastJob, LetterStore, Verb};
use crate::place::Place;
use crate::rows::Letter;
use crate::source::{Done, KeyId, LetterId, Refused, Task};
use crate::text;

/// How long the board waits for the server.
const LIMIT: Duration = Duration::from_secs(2);
/// Viewers share a status for this long.
const STALE: Duration = Duration::from_secs(1);

type Seen = (Instant, Result<Arc<Status>, Refused>);

/// A fleet, with what was last seen of it.
pub(crate) struct Fleet {
    pub(crate) name: String,
    client: Client,
    config: Config,
    seen: Mutex<Option<Seen>>,
    last_job: LastJob,
}

impl Fleet {
    pub(crate) fn new(name: String, client: Client, config: Config) -> Self {
        let seen = Mutex::default();
        Fleet {
            name,
            client,
            config,
            seen,
            last_job: LastJob::default(),
        }
    }

    /// Returns the first part of the names of its streams.
    pub(crate) fn stream(&self) -> &str {
        &self.config.stream
    }

    /// Returns whether there is a connection to the server, without a request.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Returns a status that is as new as is reasonable.
    pub(crate) fn look(&self) -> Result<Arc<Status>, Refused> {
        let mut seen = lock(&self.seen);
        if let Some((at, status)) = &*seen
            && at.elapsed() < STALE
        {
            return status.clone();
        }
        let status = self.wait(status(&self.client, &self.config)).map(Arc::new);
        *seen = Some((Instant::now(), status.clone()));
        status
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

impl Place for Fleet {
    fn letter_store(&self) -> Option<&dyn LetterStore> {
        self.config.dead_letters.as_ref().map(|_| self as _)
    }

    fn last_job(&self) -> &LastJob {
        &self.last_job
    }

    fn mark(&self) -> &str {
        ""
    }

    fn key(&self, _: &KeyId) -> Result<String, Refused> {
        Err(Refused::NotOfFleet)
    }

    fn act_on_keys(&self, _: &Task) -> Result<Done, Refused> {
        Err(Refused::NotOfFleet)
    }

    fn replaces_newer(&self) -> bool {
        self.config.coalesce != Coalesce::Never
    }
}

impl LetterStore for Fleet {
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
        let came = came.collect();
        *lock(&self.seen) = None;
        came
    }

    fn len(&self) -> Result<usize, Refused> {
        let count = self.wait(dead_letter::count(&self.client, &self.config))?;
        Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
    }

    fn capacity(&self) -> Option<usize> {
        None
    }

    fn lost(&self) -> u64 {
        0
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
