//! The records of ownership in the key-value bucket: writes, reads and the watcher.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::kv::{Entry, Operation, Store, UpdateError, UpdateErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, ErrorCode};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::cause::any;
use crate::ownership::{Input, Key, Revision, Value, WriteEnd};
use crate::stream::MOST;

/// How long the record of a session that has ended is kept. By then no partition's record names it.
const KEPT: Duration = Duration::from_secs(3600);
/// How long the watcher may show nothing while there is something that was written here.
const SILENCE: Duration = Duration::from_millis(500);
/// Between two tries while the servers store another value of a record.
const IN_FLIGHT: Duration = Duration::from_millis(20);

pub(super) struct Bucket {
    pub(super) context: Context,
    pub(super) store: Store,
    /// Its records begin with the number of partitions: a fleet with another number has records of its own.
    pub(super) partitions: u16,
    /// For one write or read.
    pub(super) limit: Duration,
    /// The last revision that was written here. The watcher has to show it.
    pub(super) written: AtomicU64,
    /// Why the last write that failed has failed. Before one has: why the bucket cannot be watched.
    pub(super) trouble: Mutex<String>,
}

impl Bucket {
    /// Writes a record if its revision is still the expected one.
    pub(super) async fn write(&self, key: Key, value: Value, expect: Revision) -> Input {
        let mut message = PublishMessage::build()
            .payload(encode(&value).into())
            .expected_last_subject_sequence(expect);
        if value == Value::Ended {
            message = message.ttl(KEPT);
        }
        let subject = self.subject(&key);
        let publish = async { self.context.send_publish(subject, message).await?.await };
        let end = match timeout(self.limit, publish).await {
            Ok(Ok(ack)) => {
                // Relaxed: a number.
                self.written.fetch_max(ack.sequence, Relaxed);
                WriteEnd::Written(ack.sequence)
            }
            Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => {
                WriteEnd::Conflict
            }
            Ok(Err(error)) => {
                tracing::debug!(?key, %error, "a write may have failed");
                *self.trouble() = format!(
                    "a write of the bucket {} has failed: {error}",
                    self.store.name
                );
                WriteEnd::Unknown
            }
            Err(_) => {
                *self.trouble() = "the server does not answer in time".to_owned();
                WriteEnd::Unknown
            }
        };
        Input::Wrote { key, end }
    }

    pub(super) fn trouble(&self) -> MutexGuard<'_, String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a record from the leader of the bucket's stream: a follower may be behind. `None`: it could not
    /// be read.
    pub(super) async fn read(&self, key: Key) -> Option<Input> {
        let subject = self.subject(&key);
        match timeout(self.limit, last(&self.store.stream, &subject)).await {
            Ok(Ok(record)) => Some(Input::Seen {
                key,
                value: record.as_ref().and_then(|record| decode(&record.payload)),
                revision: record.map_or(0, |record| record.sequence),
            }),
            Ok(Err(error)) => {
                tracing::debug!(?key, %error, "a record cannot be read");
                None
            }
            Err(_) => None,
        }
    }

    fn subject(&self, key: &Key) -> String {
        format!("{}{}", self.store.prefix, name(self.partitions, key))
    }

    /// Passes on what is in the bucket, and then its changes, until the watcher has to be started again.
    pub(super) async fn watch(
        &self,
        changes: &mpsc::Sender<Input>,
    ) -> Result<(), async_nats::Error> {
        let mut watch = timeout(self.limit, self.store.watch_with_history(">")).await??;
        let (mut shown, mut complete) = (0, false);
        loop {
            let was_complete = complete;
            // Relaxed: a number.
            let written = self.written.load(Relaxed);
            let limit = if complete { SILENCE } else { self.limit };
            match timeout(limit, watch.next()).await {
                Ok(None) => return Ok(()),
                Ok(Some(entry)) => {
                    let entry = entry?;
                    shown = entry.revision;
                    complete |= entry.seen_current;
                    if let Some(seen) = seen(self.partitions, entry) {
                        changes.send(seen).await?;
                    }
                }
                // The bucket counts as delivered: it is empty, or its last record has vanished since it was counted.
                Err(_) if !complete => complete = true,
                // The consumer of the watcher may have died with its server. The client would notice that after 10 s.
                Err(_) if shown < written => return Ok(()),
                Err(_) => {}
            }
            if complete && !was_complete {
                changes.send(Input::Snapshot).await?;
            }
        }
    }
}

/// The last message of a subject, from the leader of its stream: of a bucket's stream, a record.
pub(crate) async fn last<I>(
    stream: &Stream<I>,
    subject: &str,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes a record if its revision is still this one. Otherwise another process has written it, which is no error.
pub(crate) async fn replace(
    store: &Store,
    key: &str,
    value: String,
    revision: u64,
) -> Result<(), UpdateError> {
    let end = Instant::now() + MOST;
    loop {
        match store.update(key, value.clone().into(), revision).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => return Ok(()),
            Err(error) if is_in_flight(&error) && Instant::now() < end => sleep(IN_FLIGHT).await,
            Err(error) => return Err(error),
        }
    }
}

/// Whether the servers are storing another value of the record. The next try shows whether they have.
fn is_in_flight(error: &UpdateError) -> bool {
    any(error, |refused: &jetstream::Error| {
        refused.error_code() == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
    })
}

fn seen(partitions: u16, entry: Entry) -> Option<Input> {
    let value = match entry.operation {
        Operation::Put => decode(&entry.value),
        Operation::Delete | Operation::Purge => None,
    };
    Some(Input::Seen {
        key: parse(partitions, &entry.key)?,
        value,
        revision: entry.revision,
    })
}

/// The key of a record in the bucket: `16.s.<session>` or `16.p.<partition>`, of 16 partitions.
fn name(partitions: u16, key: &Key) -> String {
    match key {
        Key::Session(session) => format!("{partitions}.s.{session}"),
        Key::Partition(partition) => format!("{partitions}.p.{partition}"),
    }
}

/// `None`: another record, or one of another number of partitions, or of a partition beyond it.
fn parse(partitions: u16, name: &str) -> Option<Key> {
    let (of, rest) = name.split_once('.')?;
    match key(rest).filter(|_| of == partitions.to_string())? {
        Key::Partition(partition) if partition >= partitions => None,
        key => Some(key),
    }
}

/// The key of a record by its name without the number of partitions.
pub(crate) fn key(name: &str) -> Option<Key> {
    match name.split_once('.')? {
        ("s", session) => Some(Key::Session(session.into())),
        ("p", partition) => Some(Key::Partition(partition.parse().ok()?)),
        _ => None,
    }
}

/// The value of a record, as a person reads it in the bucket: `live 3`, `owned <session>`.
fn encode(value: &Value) -> String {
    match value {
        Value::Live { beat } => format!("live {beat}"),
        Value::Leaving { beat } => format!("leaving {beat}"),
        Value::Ended => "ended".to_owned(),
        Value::Owned { session, base: 0 } => format!("owned {session}"),
        Value::Owned { session, base } => format!("owned {session} {base}"),
        Value::Free { base: 0 } => "free".to_owned(),
        Value::Free { base } => format!("free {base}"),
    }
}

/// A value of an unknown form is like a record that is missing: its session is observed for a lease.
pub(crate) fn decode(text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?;
    match text.split_once(' ').unwrap_or((text, "")) {
        ("live", beat) => Some(Value::Live {
            beat: beat.parse().ok()?,
        }),
        ("leaving", beat) => Some(Value::Leaving {
            beat: beat.parse().ok()?,
        }),
        ("ended", "") => Some(Value::Ended),
        ("owned", rest) => {
            let (session, base) = rest.split_once(' ').unwrap_or((rest, "0"));
            Some(Value::Owned {
                session: session.to_owned(),
                base: base.parse().ok()?,
            })
        }
        ("free", "") => Some(Value::Free { base: 0 }),
        ("free", base) => Some(Value::Free {
            base: base.parse().ok()?,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_records_come_back() {
        for key in [Key::Session("a.b.1".into()), Key::Partition(7)] {
            assert_eq!(parse(16, &name(16, &key)), Some(key.clone()));
            assert_eq!(parse(64, &name(16, &key)), None);
        }
        assert_eq!(parse(16, "16.p.16"), None);
        assert_eq!(parse(16, "16.x.1"), None);
        assert_eq!(parse(16, "layout"), None);
        let values = [
            Value::Live { beat: 3 },
            Value::Leaving { beat: 4 },
            Value::Ended,
            Value::Owned {
                session: "a.b.1".into(),
                base: 0,
            },
            Value::Owned {
                session: "a.b.1".into(),
                base: 5,
            },
            Value::Free { base: 0 },
            Value::Free { base: 7 },
        ];
        for value in values {
            assert_eq!(decode(encode(&value).as_bytes()), Some(value));
        }
        assert_eq!(decode(b"live x"), None);
    }
}
