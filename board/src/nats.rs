//! A fleet of replicas on NATS JetStream, as a board reads it from the server.
//!
//! A look waits for the server, for [`LIMIT`] at most. An action is not cut off in the midst of its requests, because it would then
//! perhaps be done without a word of that. Views and actions are blocking work, so they block on the runtime of the board, on
//! threads that are made for it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use keyqueue_nats::status::{Owner, Partition, SessionState};
use keyqueue_nats::{Coalesce, Config, Error, dead_letter, status};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::fleet::{Cell, Column, Partitioned, Partitions};
use crate::letters::{LetterStore, TOGETHER, Verb};
use crate::rows::Letter;
use crate::source::{LetterId, Refused};
use crate::text;

/// How long a look waits for the server.
const LIMIT: Duration = Duration::from_secs(2);
/// How long an action waits for the end of what it has begun, which goes on after that: less than a request of a browser. The client waits for
/// 10 s for each of its few requests, unless it was told otherwise.
const END: Duration = Duration::from_secs(50);
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
    mark: String,
}

impl Nats {
    pub(crate) fn new(client: Client, config: Config) -> Self {
        let mut mark = DefaultHasher::new(); // of fixed keys, so that all replicas have the same
        (&config.stream, &config.dead_letters).hash(&mut mark);
        Nats {
            mark: format!("{:016x}", mark.finish()),
            client,
            config,
        }
    }

    /// Waits for the server. It must not be called by a task.
    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Refused> {
        let stream = &self.config.stream;
        let Ok(runtime) = Handle::try_current() else {
            let why = format!("the fleet {stream} needs a tokio runtime");
            return Err(Refused::Server(why));
        };
        match runtime.block_on(async { timeout(LIMIT, asked).await }) {
            Ok(found) => found.map_err(|error| Refused::Server(shown(&error))),
            Err(_) => Err(Refused::Server(self.silent(LIMIT))),
        }
    }

    fn silent(&self, time: Duration) -> String {
        let (stream, seconds) = (&self.config.stream, time.as_secs());
        format!("the server of the fleet {stream} has not responded for {seconds} s")
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

    fn mark(&self) -> &str {
        &self.mark
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

fn shown(error: &Error) -> String {
    text::cut(&error.to_string(), text::WHOLE)
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

    /// All of them at once, because each is several requests, one after the other. It returns when they have ended, so that a newer
    /// letter of a key comes after an older one.
    fn act(&self, verb: Verb, ids: &[LetterId]) -> Vec<Result<(), Refused>> {
        let Ok(runtime) = Handle::try_current() else {
            return vec![self.wait(std::future::pending())];
        };
        let one = |number: u64| {
            let (client, config) = (self.client.clone(), self.config.clone());
            runtime.spawn(async move {
                match verb {
                    Verb::PutBack => dead_letter::put_back(&client, &config, number).await,
                    Verb::Drop => dead_letter::drop_letter(&client, &config, number).await,
                }
            })
        };
        let all = ids.iter().map(|id| (id.number, one(id.number)));
        let all: Vec<_> = all.collect();
        let end = Instant::now() + END;
        let came = all.into_iter().map(|(number, one)| {
            let ended = runtime.block_on(async { timeout_at(end, one).await });
            let ended = ended.map_err(|_| Refused::Perhaps(self.silent(END)))?;
            let came = ended.map_err(|error| Refused::Perhaps(error.to_string()))?;
            match came {
                Ok(true) => Ok(()),
                Ok(false) => Err(Refused::NoLetter(number)),
                Err(Error::Key { .. }) => Err(Refused::Keyless),
                // It may have done what it has not confirmed.
                Err(error @ Error::Server { .. }) => Err(Refused::Perhaps(shown(&error))),
                Err(error) => Err(Refused::Server(shown(&error))),
            }
        });
        came.collect()
    }

    /// Payloads may be of a megabyte, and come within [`LIMIT`].
    fn step(&self) -> usize {
        TOGETHER
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

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use async_nats::HeaderMap;
    use keyqueue_nats::create;
    use servers::nats::Servers;
    use servers::until;

    use super::*;

    #[tokio::test(flavor = "multi_thread")] // X5
    async fn what_has_begun_at_a_server_that_stops_for_a_while_is_ended() {
        let directory = env::temp_dir().join(format!("keyqueue-board-{}", process::id()));
        let Some(mut servers) = Servers::prepare(&directory, 1).unwrap() else {
            return;
        };
        servers.start().unwrap();
        let client = servers.ready().await.unwrap();
        let config = Config {
            partitions: 1,
            dead_letters: Some("work-dead".into()),
            ..Config::default()
        };
        create(&client, &config).await.unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(dead_letter::KEY, "a");
        let sent = client.publish_with_headers("work-dead", headers, "x".into());
        sent.await.unwrap();
        let letters = async || dead_letter::count(&client, &config).await.unwrap();
        until("it is there", async || letters().await == Some(1)).await;
        let server = servers.process(0).unwrap().to_string();
        let signal = |signal: &str| {
            let sent = process::Command::new("kill")
                .args([signal, server.as_str()])
                .status();
            assert!(sent.unwrap().success());
        };
        signal("-STOP");
        let nats = Nats::new(client.clone(), config.clone());
        let act = tokio::task::spawn_blocking(move || {
            nats.act(Verb::PutBack, &[LetterId { number: 1, mark: 0 }])
        });
        tokio::time::sleep(LIMIT + Duration::from_secs(1)).await;
        signal("-CONT");
        assert_eq!(act.await.unwrap(), [Ok(())]);
        assert_eq!(letters().await, Some(0));
        drop(servers);
        fs::remove_dir_all(directory).unwrap();
    }
}
