//! Adds keys from anywhere: [`Producer`].

use std::time::{Duration, SystemTime};

use async_nats::Client;
use async_nats::header::{NATS_SCHEDULE, NATS_SCHEDULE_TARGET};
use async_nats::jetstream::context::{
    Context, ContextBuilder, PublishAckFuture, PublishError, PublishErrorKind,
};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode};
use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};
use std::error::Error as _;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep};

use crate::{Config, Error, key};

/// How many messages of one batch may wait for the server at once.
const WINDOW: usize = 1000;
/// The client's own limit, for all adds of a producer: out of the way. Adds that waited for each other's
/// confirmations could wait forever.
const MOST_WAITING: usize = 1 << 20;
/// How long one try waits for the server.
const TRY: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// A message id is recognised for 120 s. The last try begins before that.
const LONGEST_PATIENCE: Duration = Duration::from_secs(100);

/// Adds keys to a fleet, from any process.
///
/// An add returns once the server has stored the message. Until then the producer publishes it again with
/// the same message id, which the server recognises, so it is stored once.
///
/// A key is any text of 1 to 200 bytes. In subjects, and only there, every ASCII character but letters,
/// digits, `-` and `_` is written as `%` and two hexadecimal digits, which count as three bytes.
///
/// Two adds of one key that run at the same time are stored in either order. Where the last one has to win,
/// await the first.
///
/// # Cancel safety
///
/// Dropping the future of an add leaves open whether the message is stored.
#[derive(Clone, Debug)]
pub struct Producer {
    context: Context,
    config: Config,
    patience: Duration,
}

impl Producer {
    /// Returns a producer. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the configuration is out of range.
    pub fn new(client: Client, config: &Config) -> Result<Self, Error> {
        config.check()?;
        let context = ContextBuilder::new()
            .timeout(TRY)
            .max_ack_inflight(MOST_WAITING)
            .build(client);
        Ok(Producer {
            context,
            config: config.clone(),
            patience: Duration::from_secs(30),
        })
    }

    /// Sets for how long an add tries to reach the server: 30 s by default, 100 s at most, for the server
    /// recognises a message id for 120 s. Longer ones count as 100 s.
    #[must_use]
    pub fn patience(mut self, limit: Duration) -> Self {
        self.patience = limit.min(LONGEST_PATIENCE);
        self
    }

    /// Adds a key with a message, and returns the message's sequence in the stream.
    ///
    /// After it has returned `Ok`, a delivery of the key begins that covers this message or a later one of the key
    /// (N1).
    ///
    /// # Errors
    ///
    /// [`Error::Key`] if the key is empty or too long, [`Error::Refused`] if the server refuses the message: then
    /// it is not stored. [`Error::Server`] if the server has not confirmed it in time: then it may be stored or not.
    pub async fn add(&self, key: &str, payload: impl Into<Bytes>) -> Result<u64, Error> {
        let sent = self.send(key, payload.into()).await?;
        self.stored(sent).await
    }

    /// Adds a key with a message after a delay, which the server keeps: it survives this process. Returns
    /// the sequence of the delayed message, which has another one when it is delivered.
    ///
    /// The delay is rounded up to the next full second of the server's clock. A key has one pending delay: a later call
    /// replaces it. A delay of zero is [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); also [`Error::Config`] if the time is after the year 9999, or if the stream has
    /// a limit ([`Config::max_messages`], [`Config::max_bytes`]).
    pub async fn add_after(
        &self,
        key: &str,
        payload: impl Into<Bytes>,
        delay: Duration,
    ) -> Result<u64, Error> {
        if delay.is_zero() {
            return self.add(key, payload).await;
        }
        let token = key::encode(key)?;
        if self.config.is_limited() {
            return Err(Error::Config {
                field: "delay",
                value: format!("{delay:?}"),
                reason: "a stream with max_messages or max_bytes keeps no delayed messages".into(),
            });
        }
        let due = due(SystemTime::now(), delay).ok_or_else(|| Error::Config {
            field: "delay",
            value: format!("{delay:?}"),
            reason: "ends in the year 9999 or before".into(),
        })?;
        let message = PublishMessage::build()
            .payload(payload.into())
            .header(NATS_SCHEDULE, format!("@at {due}"))
            .header(NATS_SCHEDULE_TARGET, self.config.subject_in(&token));
        let sent = self
            .publish(key, self.config.subject_at(&token), message)
            .await;
        self.stored(sent).await
    }

    /// Adds many keys, as [`add`](Self::add) does, up to 1000 at once, and returns the result of each, in
    /// their order. The messages are published in their order, so the last one of a key wins, unless one has to be
    /// published again.
    pub async fn add_batch<K, P>(
        &self,
        messages: impl IntoIterator<Item = (K, P)>,
    ) -> Vec<Result<u64, Error>>
    where
        K: AsRef<str>,
        P: Into<Bytes>,
    {
        // They are sent one after the other; only the confirmations are awaited together.
        let mut waiting = FuturesOrdered::new();
        let mut results = Vec::new();
        for (key, payload) in messages {
            if waiting.len() == WINDOW {
                results.extend(waiting.next().await);
            }
            let sent = self.send(key.as_ref(), payload.into()).await;
            waiting.push_back(async { self.stored(sent?).await });
        }
        while let Some(result) = waiting.next().await {
            results.push(result);
        }
        results
    }

    async fn send(&self, key: &str, payload: Bytes) -> Result<Sent, Error> {
        let subject = self.config.subject_in(&key::encode(key)?);
        let message = PublishMessage::build().payload(payload);
        Ok(self.publish(key, subject, message).await)
    }

    async fn publish(&self, key: &str, subject: String, message: PublishMessage) -> Sent {
        let message = message.message_id(nuid::next().to_string());
        let end = Instant::now() + self.patience;
        let first = self.context.send_publish(subject.clone(), message.clone());
        Sent {
            key: key.to_owned(),
            last: first.await,
            subject,
            message,
            end,
        }
    }

    /// Waits until the server has stored or refused the message, and publishes it again until patience runs out.
    async fn stored(&self, mut sent: Sent) -> Result<u64, Error> {
        loop {
            let stored = match sent.last {
                Ok(confirmation) => confirmation.await,
                Err(error) => Err(error),
            };
            let error = match stored {
                Ok(ack) => return Ok(ack.sequence),
                Err(error) => error,
            };
            if let Some(reason) = refusal(&error) {
                let key = sent.key;
                return Err(Error::Refused { key, reason });
            }
            if Instant::now() + PAUSE >= sent.end {
                let doing = format!("adding {:?}, which may be stored or not", sent.key);
                return Err(Error::server(doing)(error));
            }
            sleep(PAUSE).await;
            let again = self
                .context
                .send_publish(sent.subject.clone(), sent.message.clone());
            sent.last = again.await;
        }
    }
}

/// A message that was sent, and may have to be sent again.
struct Sent {
    key: String,
    subject: String,
    message: PublishMessage,
    /// When patience runs out.
    end: Instant,
    /// The last try.
    last: Result<PublishAckFuture, PublishError>,
}

/// What the server says, if it has refused the message for good. Everything else may pass: a server that
/// restarts, a stream without a leader, a lost connection.
fn refusal(error: &PublishError) -> Option<String> {
    if error.kind() == PublishErrorKind::MaxPayloadExceeded {
        return Some(error.to_string());
    }
    let said = error.source()?.downcast_ref::<jetstream::Error>()?;
    let refused = [
        // The stream's limit of messages or bytes, or the disk.
        ErrorCode::STREAM_STORE_FAILED,
        ErrorCode::INSUFFICIENT_RESOURCES,
        ErrorCode::STORAGE_RESOURCES_EXCEEDED,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
        ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
        ErrorCode::STREAM_SEALED,
    ];
    refused
        .contains(&said.error_code())
        .then(|| said.to_string())
}

/// The time of a schedule: never earlier than the delay.
fn due(now: SystemTime, delay: Duration) -> Option<String> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let due = since.checked_add(delay)?;
    let seconds = due.as_secs() + u64::from(due.subsec_nanos() > 0);
    let due = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?;
    due.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_never_early_and_at_most_a_second_late() {
        let at = |nanos| SystemTime::UNIX_EPOCH + Duration::new(1_767_225_600, nanos);
        let delay = Duration::from_millis(1500);
        assert_eq!(due(at(0), delay).unwrap(), "2026-01-01T00:00:02Z");
        assert_eq!(due(at(500_000_000), delay).unwrap(), "2026-01-01T00:00:02Z");
        assert_eq!(due(at(500_000_001), delay).unwrap(), "2026-01-01T00:00:03Z");
        assert_eq!(due(at(0), Duration::MAX), None);
        assert_eq!(
            due(at(0), Duration::from_secs(8000 * 365 * 24 * 3600)),
            None
        );
    }
}
