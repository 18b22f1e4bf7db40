//! Lists the dead letters of a fleet, puts them back and drops them, from any process that has a client.

use std::time::SystemTime;

use async_nats::jetstream;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::{Client, HeaderMap};
use bytes::Bytes;

use super::{ATTEMPTS, ERROR, key};
use crate::layout::Layout;
use crate::scan::scan;
use crate::stream;
use crate::{Config, Error, Producer};

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// Its number in the stream of dead letters: later ones have higher numbers.
    pub sequence: u64,
    /// The key, as it was passed to [`Producer::add`](crate::Producer::add). `None`: no producer has published this message,
    /// so it can be dropped, and not put back.
    pub key: Option<String>,
    /// The last error, on one line.
    pub error: String,
    /// The number of tries; 0 if no handler was called.
    pub attempts: u64,
    /// The payload of the message.
    pub payload: Bytes,
    /// When the letter was stored, by the clock of the server.
    pub time: SystemTime,
}

impl Letter {
    fn new(sequence: u64, headers: &HeaderMap, payload: Bytes, time: SystemTime) -> Self {
        let text = |name| headers.get(name).map_or("", |value| value.as_str());
        Letter {
            sequence,
            key: key(headers),
            error: text(ERROR).to_owned(),
            attempts: text(ATTEMPTS).parse().unwrap_or(0),
            payload,
            time,
        }
    }
}

/// Returns the number of dead letters. `None`: the configuration has none, or [`create`](crate::create) has not made their stream.
///
/// # Errors
///
/// [`Error::Server`] if the server cannot be reached.
pub async fn count(client: &Client, config: &Config) -> Result<Option<u64>, Error> {
    if config.dead_letters.is_none() {
        return Ok(None);
    }
    let context = jetstream::new(client.clone());
    let stream = stream::find(&context, &config.dead_stream()).await?;
    Ok(stream.map(|there| there.cached_info().state.messages))
}

/// Returns the dead letters whose sequence is higher than `after`, the oldest first, `at_most` of them. Pass 0, and then the
/// sequence of the last one, to read all. The payloads are in memory: with payloads of a megabyte, a thousand letters are a gigabyte.
///
/// # Errors
///
/// [`Error::Server`] if the server cannot be reached, or there is no stream of dead letters.
///
/// ```no_run
/// # async fn print(client: async_nats::Client, config: keyqueue_nats::Config) -> Result<(), keyqueue_nats::Error> {
/// use keyqueue_nats::dead_letter;
///
/// for letter in dead_letter::list(&client, &config, 0, 100).await? {
///     println!("{} {:?} {}", letter.sequence, letter.key, letter.error);
///     if letter.error.contains("timed out") {
///         let was_there = dead_letter::put_back(&client, &config, letter.sequence).await?;
///         assert!(was_there, "nobody else handles them");
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub async fn list(
    client: &Client,
    config: &Config,
    after: u64,
    at_most: usize,
) -> Result<Vec<Letter>, Error> {
    let stream = letters(client, config).await?;
    let from = DeliverPolicy::ByStartSequence {
        start_sequence: after.saturating_add(1),
    };
    let read = async {
        let scanned = scan(&stream, String::new(), from, at_most).await?;
        let mut letters = Vec::new();
        for message in scanned.messages {
            let info = message.info()?;
            let (sequence, time) = (info.stream_sequence, info.published.into());
            let headers = message.headers.clone().unwrap_or_default();
            let payload = message.payload.clone();
            letters.push(Letter::new(sequence, &headers, payload, time));
        }
        Ok::<_, async_nats::Error>(letters)
    };
    read.await.map_err(Error::server(format!(
        "reading the stream {}",
        config.dead_stream()
    )))
}

/// Returns the dead letter with this sequence. `None`: it is gone.
///
/// # Errors
///
/// As [`list()`].
pub async fn get(client: &Client, config: &Config, sequence: u64) -> Result<Option<Letter>, Error> {
    get_in(&letters(client, config).await?, config, sequence).await
}

/// Adds the payload of a dead letter under its key again, and then deletes the letter. Returns whether the letter was there.
///
/// A process that dies between the two leaves the letter. Several calls for one letter, at the same time or within 60 s, add its message once
/// ([`Producer::add_once`]); a later one, or one behind a [`repartition`](crate::repartition()), adds it a second time. The message goes to the partitions that the fleet has now, which may be others than those of `config`. Its headers are not added again. See the
/// [module's documentation](super) for what an old message replaces.
///
/// # Errors
///
/// [`Error::Key`] if the letter has no key. Otherwise as [`list()`] and [`Producer::add`]: then the letter is still there.
///
/// # Cancel safety
///
/// If the future is dropped the message may be added or not, and the letter may be there or not; a letter that is gone was added.
pub async fn put_back(client: &Client, config: &Config, sequence: u64) -> Result<bool, Error> {
    let stream = letters(client, config).await?;
    let Some(letter) = get_in(&stream, config, sequence).await? else {
        return Ok(false);
    };
    let Some(key) = letter.key else {
        return Err(Error::Key {
            key: String::new(),
            reason: "is that of a message that no producer has published: drop it instead".into(),
        });
    };
    let [store, _] = stream::buckets(&jetstream::new(client.clone()), config).await?;
    let layout = Layout::read(&store, config).await?;
    let config = Config {
        partitions: layout.next.unwrap_or(layout.now),
        ..config.clone()
    };
    let producer = Producer::new(client.clone(), &config)?;
    // With the time: a stream that was made again has the same sequences.
    let stored = letter.time.duration_since(SystemTime::UNIX_EPOCH);
    let id = format!(
        "letter-{sequence}-{}",
        stored.unwrap_or_default().as_nanos()
    );
    producer.add_once(&id, &key, letter.payload).await?;
    // Also if another call has deleted it meanwhile: the message is added.
    delete(&stream, &config, sequence).await?;
    Ok(true)
}

/// Deletes a dead letter for good. Returns whether the letter was there.
///
/// # Errors
///
/// As [`list()`].
pub async fn drop_letter(client: &Client, config: &Config, sequence: u64) -> Result<bool, Error> {
    delete(&letters(client, config).await?, config, sequence).await
}

/// Finds the stream of dead letters.
async fn letters(client: &Client, config: &Config) -> Result<Stream, Error> {
    let (context, name) = (jetstream::new(client.clone()), config.dead_stream());
    stream::find(&context, &name).await?.ok_or_else(|| {
        let hint = "which `create` makes for a configuration with `dead_letters`";
        Error::server(format!("looking for the stream {name}, {hint}"))("there is none")
    })
}

async fn get_in(stream: &Stream, config: &Config, sequence: u64) -> Result<Option<Letter>, Error> {
    match stream.get_raw_message(sequence).await {
        Ok(found) => Ok(Some(Letter::new(
            sequence,
            &found.headers,
            found.payload,
            found.time.into(),
        ))),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => {
            let doing = format!("reading the message {sequence} of {}", config.dead_stream());
            Err(Error::server(doing)(error))
        }
    }
}

async fn delete(stream: &Stream, config: &Config, sequence: u64) -> Result<bool, Error> {
    match stream.delete_message(sequence).await {
        Ok(deleted) => Ok(deleted),
        // The server has several codes for a message that is gone.
        Err(error) => match get_in(stream, config, sequence).await? {
            None => Ok(false),
            Some(_) => {
                let doing = format!(
                    "deleting the message {sequence} of {}",
                    config.dead_stream()
                );
                Err(Error::server(doing)(error))
            }
        },
    }
}
