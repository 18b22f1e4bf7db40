//! Adds keys from anywhere: [`Producer`].

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, HeaderMap, Request};
use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::delay::{self, Next, Turn};
use crate::{Config, Error, key};

/// How many messages of one batch may wait for the server at once.
const WINDOW: usize = 1000;
/// How long one try waits for the server.
const TRY: Duration = Duration::from_secs(2);
/// Between two tries; doubled with each, up to [`TRY`].
const PAUSE: Duration = Duration::from_millis(50);
/// After how long without a stream an add asks the server whether there is one: a cluster that elects a leader has none
/// for a moment.
const GRACE: Duration = Duration::from_secs(2);
/// The last try begins while the server still recognises the message's id, see
/// [`DUPLICATES`](crate::stream::DUPLICATES).
const LONGEST_PATIENCE: Duration = Duration::from_secs(50);

/// Adds keys to a fleet, from any process.
///
/// An add returns once the server has stored the message. Until then the producer publishes it again with
/// the same message id, which the server recognises, so it is stored once. (A server that was killed recognises only the
/// ids of messages that are still in the stream: one that was delivered or replaced before may be stored again.)
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
    client: Client,
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
        Ok(Producer {
            client,
            config: config.clone(),
            patience: Duration::from_secs(30),
        })
    }

    /// Sets for how long an add tries to reach the server: 30 s by default, 50 s at most, because the server
    /// recognises a message id for 60 s. Longer ones count as 50 s.
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
    /// it is not stored. [`Error::Server`] if the server has not confirmed it in time ([`patience`](Self::patience)): its
    /// text says whether the message may be stored or not, or is not stored. In the first case it may also be
    /// stored later, when a lost connection is back.
    ///
    /// [`Error::Server`], too, if there is no stream: after about 2 s, if the server says that no stream takes the message.
    /// [`create`](crate::create) makes the stream.
    ///
    /// ```no_run
    /// # async fn add(client: async_nats::Client) -> Result<(), keyqueue_nats::Error> {
    /// use keyqueue_nats::{Config, Error, Producer};
    ///
    /// let producer = Producer::new(client, &Config::default())?;
    /// let first = producer.add("pod/a", "state 1").await?;
    /// let second = producer.add("pod/a", "state 2").await?;
    /// assert!(second > first);
    ///
    /// let long = producer.add(&"x".repeat(201), "").await;
    /// assert!(matches!(long, Err(Error::Key { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add(&self, key: &str, payload: impl Into<Bytes>) -> Result<u64, Error> {
        let subject = self.config.subject_of("in", &key::encode(key)?);
        self.store(key, subject, HeaderMap::new(), payload.into())
            .await
    }

    /// Adds a key with a message that has an id of the caller's, so that a process which has died and does not know whether it
    /// has added the message can add it again: within 60 s the server stores one message of a key for each id, and this
    /// returns the sequence of the first.
    ///
    /// The id is the key's: another key may have the same. A repeat is not stored either if the first message was delivered or
    /// replaced by a later one of its key ([`Coalesce::Server`](crate::Coalesce::Server)), so the later one stays; but after more than
    /// 60 s, or if all servers of the stream were killed in between, it is stored as a new message, which replaces the later one. It is also stored
    /// as a new one if [`repartition`](crate::repartition()) has changed the number of partitions in between: each stream knows its own ids.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); also [`Error::Config`] if the id is empty, or has a character other than visible ASCII.
    pub async fn add_once(
        &self,
        id: &str,
        key: &str,
        payload: impl Into<Bytes>,
    ) -> Result<u64, Error> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "visible characters of ASCII, one at least";
            return Err(Error::config("id", format!("{id:?}"), reason));
        }
        let token = key::encode(key)?;
        let mut headers = HeaderMap::new();
        // A token has no dot.
        headers.insert(NATS_MESSAGE_ID, format!("{token}.{id}"));
        let subject = self.config.subject_of("in", &token);
        self.store(key, subject, headers, payload.into()).await
    }

    /// Adds a key with a message after a delay, which the server keeps: it survives this process. Returns
    /// the sequence of the delayed message, which has another one when it is delivered.
    ///
    /// The time at which it is due is that of this process's clock, rounded up to a full second; the server delivers it when its own clock
    /// shows that time. So keep the clocks of both by NTP: a second between them is a second more, or less. A delay of
    /// zero is [`add`](Self::add).
    ///
    /// A key has one pending delay: a later call replaces it, with two requests more, of which one is a look (`$JS.API.STREAM.MSG.GET.<stream>`). One that ends within 2 s is not replaced but ends, and the call
    /// waits for that: the server would remove the new message with the former one if it came while the server adds that one. Of calls for one key that
    /// run at the same time, one may stand for all: each returns the sequence of its message. With clocks that are more than a second apart the call
    /// may wait for longer, up to 12 s if this one is ahead, or lose that message if it is behind.
    ///
    /// A delay from before a [`repartition`](crate::repartition()) is not replaced: it ends in the old stream, and the key is delivered for each.
    ///
    /// The message is added when it is due, not before: with [`Coalesce::Server`](crate::Coalesce::Server) it then replaces
    /// the one that waits, also if that was added later than this call.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); also [`Error::Config`] if the time is after the year 9999, or if the stream has
    /// a limit ([`Config::max_messages`], [`Config::max_bytes`]). [`Error::Server`], too, if the server confirms the message when the former delay has
    /// all but ended, or when that has been due for 10 s and is not added yet: then it may be stored or not.
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
        let refused = |reason| Error::config("delay", format!("{delay:?}"), reason);
        if self.config.is_limited() {
            let reason = "a stream with max_messages or max_bytes keeps no delayed messages";
            return Err(refused(reason));
        }
        // Not `in`: a stream that takes no new messages keeps its delayed ones.
        let target = self.config.subject_of("key", &token);
        let headers = delay::headers(delay, target);
        let headers = headers.ok_or_else(|| refused("ends in the year 9999 or before"))?;
        let subject = self.config.subject_of("at", &token);
        self.store(key, subject, headers, payload.into()).await
    }

    /// Adds many keys, as [`add`](Self::add) does, up to 1000 at once, and returns the result of each, in
    /// their order. The messages are published in their order, so the last one of a key wins, unless one has to be
    /// published again.
    ///
    /// Once the server has not confirmed one of them in time, those that were not published yet are not tried:
    /// each has an [`Error::Server`], too. So a batch of any size returns soon after patience has run out.
    pub async fn add_batch<K, P>(
        &self,
        messages: impl IntoIterator<Item = (K, P)>,
    ) -> Vec<Result<u64, Error>>
    where
        K: AsRef<str>,
        P: Into<Bytes>,
    {
        let mut waiting = FuturesOrdered::new();
        let mut results = Vec::new();
        let mut silent = false;
        for (key, payload) in messages {
            if waiting.len() == WINDOW {
                let result = waiting.next().await;
                silent |= matches!(result, Some(Err(Error::Server { .. })));
                results.extend(result);
            }
            let payload = payload.into();
            // They are published in the order of their first polls. Without `unconstrained` tokio would
            // postpone some of these, and then wake the last one first.
            waiting.push_back(unconstrained(async move {
                if silent {
                    let doing = format!("adding {:?}, which was not tried", key.as_ref());
                    let why = "the server has not confirmed an earlier message of the batch";
                    return Err(Error::server(doing)(why));
                }
                self.add(key.as_ref(), payload).await
            }));
        }
        while let Some(result) = waiting.next().await {
            results.push(result);
        }
        results
    }

    /// Publishes the message again and again, with one id, until the server has stored or refused it or
    /// patience runs out.
    async fn store(
        &self,
        key: &str,
        subject: String,
        mut headers: HeaderMap,
        payload: Bytes,
    ) -> Result<u64, Error> {
        if headers.get(NATS_MESSAGE_ID).is_none() {
            headers.insert(NATS_MESSAGE_ID, &*nuid::next());
        }
        let began = Instant::now();
        let end = began + self.patience;
        let mut asked = false;
        let mut pause = PAUSE;
        // Whether a try that the server has not replied to may have stored the message.
        let mut open = false;
        let mut turn = Turn::default();
        loop {
            let publishing = self.publish(&subject, &headers, &payload);
            // Also bounds the time in the client's buffer, which is full while there is no connection.
            let reply = timeout_at(end.min(Instant::now() + TRY), publishing).await;
            let reply = match reply {
                Ok(Err(Failure::Former)) => Ok(self
                    .look(&mut turn, open, end, &subject, &mut headers)
                    .await),
                reply => reply,
            };
            let error = match reply {
                Ok(Ok(_)) if turn.is_late() => {
                    let error =
                        "the server has confirmed it so late that the key's former delay has ended";
                    return Err(unconfirmed(key, true, error));
                }
                Ok(Ok(sequence)) => return Ok(sequence),
                // The one that is there can be replaced.
                Ok(Err(Failure::Former)) => continue,
                Ok(Err(Failure::Refused(reason))) if !open => {
                    return Err(Error::Refused {
                        key: key.to_owned(),
                        reason,
                    });
                }
                Ok(Err(Failure::Refused(reason))) => return Err(unconfirmed(key, open, reason)),
                Ok(Err(Failure::NoStream)) => {
                    let error = format!(
                        "no stream of {} with {} partitions replies, or `create` has not made them, or the server has no JetStream",
                        self.config.stream, self.config.partitions
                    );
                    if !asked && began.elapsed() >= GRACE {
                        asked = true;
                        if let Some(error) = self.missing(&subject, end).await {
                            return Err(unconfirmed(key, open, error));
                        }
                    }
                    error.into()
                }
                Ok(Err(Failure::NotStored(error))) => error,
                Ok(Err(Failure::Unknown(error))) => {
                    open = true;
                    error
                }
                Err(elapsed) => {
                    open = true;
                    elapsed.into()
                }
            };
            let next = Instant::now() + pause;
            if next >= end {
                return Err(unconfirmed(key, open, error));
            }
            sleep_until(next).await;
            pause = (2 * pause).min(TRY);
        }
    }

    /// Asks the server whether a stream takes this subject. Returns an error that says that there is none; `None`: there is
    /// one, or the server does not say.
    async fn missing(&self, subject: &str, end: Instant) -> Option<String> {
        let context = jetstream::new(self.client.clone());
        let asking = context.stream_by_subject(subject);
        match timeout_at(end.min(Instant::now() + TRY), asking).await {
            Ok(Err(error)) if error.kind() == GetStreamByNameErrorKind::NotFound => Some(format!(
                "no stream takes the subject {subject}: `create` makes those of {} with {} partitions",
                self.config.stream, self.config.partitions
            )),
            _ => None,
        }
    }

    /// Looks at the delayed message of the key that is there. Returns the sequence of one that has replaced the call's own, or
    /// [`Failure::Former`] if that can be published now.
    async fn look(
        &self,
        turn: &mut Turn,
        open: bool,
        end: Instant,
        subject: &str,
        headers: &mut HeaderMap,
    ) -> Result<u64, Failure> {
        let token = subject.rsplit_once('.').map_or("", |(_, token)| token);
        let stream = self.config.stream_of(self.config.partition_of(token));
        let finding = delay::find(&self.client, &stream, subject);
        let found = match timeout_at(end.min(Instant::now() + TRY), finding).await {
            Ok(found) => found,
            Err(elapsed) => Err(elapsed.into()),
        };
        let found = found.map_err(|error| {
            let doing =
                format!("looking at the key's former delay ($JS.API.STREAM.MSG.GET.{stream})");
            Failure::NotStored(format!("{doing}: {error}").into())
        })?;
        match turn.next(found, open, headers) {
            Next::Replaced(sequence) => Ok(sequence),
            Next::Publish => Err(Failure::Former),
            Next::Wait => {
                let error = "the key's former delay ends, or another one is stored, at this moment";
                Err(Failure::NotStored(error.into()))
            }
        }
    }

    /// Publishes the message once.
    async fn publish(
        &self,
        subject: &str,
        headers: &HeaderMap,
        payload: &Bytes,
    ) -> Result<u64, Failure> {
        let request = Request::new()
            .headers(headers.clone())
            .payload(payload.clone())
            .timeout(None);
        let reply = self.client.send_request(subject.to_owned(), request).await;
        let reply = reply.map_err(|error| match error.kind() {
            RequestErrorKind::MaxPayloadExceeded => Failure::Refused(error.to_string()),
            RequestErrorKind::NoResponders => Failure::NoStream,
            _ => Failure::Unknown(error.into()),
        })?;
        match serde_json::from_slice(&reply.payload) {
            Ok(Response::Ok(PublishAck { sequence, .. })) => Ok(sequence),
            Ok(Response::Err { error }) if delay::is_former(&error) => Err(Failure::Former),
            Ok(Response::Err { error }) if is_final(&error) => {
                Err(Failure::Refused(error.to_string()))
            }
            Ok(Response::Err { error }) => Err(Failure::NotStored(error.into())),
            Err(error) => Err(Failure::Unknown(error.into())),
        }
    }
}

/// Why a message that was published once is not confirmed.
enum Failure {
    /// The server refuses it, and would refuse it again.
    Refused(String),
    /// There is no stream, or it has no leader at the moment.
    NoStream,
    /// There is a delayed message of its key already.
    Former,
    /// The server has not stored it, and may do so later.
    NotStored(async_nats::Error),
    /// It may be stored or not.
    Unknown(async_nats::Error),
}

/// `open`: a try may have stored the message.
fn unconfirmed(key: &str, open: bool, error: impl Into<async_nats::Error>) -> Error {
    let state = if open {
        "may be stored or not"
    } else {
        "is not stored"
    };
    Error::server(format!("adding {key:?}, which {state}"))(error)
}

/// Whether the server would refuse the message again.
fn is_final(error: &jetstream::Error) -> bool {
    match error.error_code() {
        // The stream's limit of messages or bytes; the server's limit of storage.
        ErrorCode::STREAM_STORE_FAILED | ErrorCode::INSUFFICIENT_RESOURCES => true,
        // The same message is being stored.
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT => false,
        // The rest as in HTTP: what the client has sent, or the server's state. 429 is an overload.
        _ => (400..500).contains(&error.code()) && error.code() != 429,
    }
}
