//! Dead letters: the messages of keys that were given up.
//!
//! A replica publishes each message of such a key to the subject [`Config::dead_letters`](crate::Config::dead_letters),
//! with its payload, its headers and the headers of this module. Headers whose names begin with `Nats-` are left out: they are for the
//! server, and the stream of the letters refuses some. So are headers that leave no room for those of this module: the server takes 64 KiB of
//! headers, and its `max_payload` of headers and payload together. [`create`](crate::create) makes the stream
//! `<stream>-dead` for them (`WORK-dead` by default). All keys have this one subject: the key is in a header, and
//! [`key`] returns it.
//!
//! The stream has no limit, and nobody but you deletes from it. [`list()`], [`put_back`] and [`drop_letter`] are for a page or a
//! tool that looks at it now and then. A program that handles each letter once makes a consumer. This one prints up to 100 dead
//! letters, adds the key of each again, and then deletes the letter. One without a key, of a message that no producer has sent, it leaves there:
//!
//! ```no_run
//! use async_nats::jetstream::{self, consumer::pull};
//! use futures_util::StreamExt; // or tokio_stream's
//! use keyqueue_nats::{Config, Producer, dead_letter};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), async_nats::Error> {
//! let client = async_nats::connect("localhost").await?;
//! let config = Config { dead_letters: Some("work-dead".into()), ..Config::default() };
//! let producer = Producer::new(client.clone(), &config)?;
//!
//! let stream = jetstream::new(client).get_stream("WORK-dead").await?;
//! let reader = pull::Config { durable_name: Some("reader".into()), ..Default::default() };
//! let consumer = stream.get_or_create_consumer("reader", reader).await?;
//! let mut letters = consumer.fetch().max_messages(100).messages().await?; // ends also when there are no more
//! while let Some(letter) = letters.next().await {
//!     let letter = letter?;
//!     let headers = letter.headers.clone().unwrap_or_default();
//!     let error = headers.get(dead_letter::ERROR).map_or("", |error| error.as_str());
//!     println!("{}: {error}", letter.info()?.stream_sequence);
//!     if let Some(key) = dead_letter::key(&headers) {
//!         producer.add(&key, letter.payload.clone()).await?;
//!         stream.delete_message(letter.info()?.stream_sequence).await?; // before `ack`: nobody sees it again
//!     }
//!     letter.ack().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A letter is an old message. Unless the configuration has [`Coalesce::Never`](crate::Coalesce::Never), adding it again
//! replaces a later message of its key that still waits. If your payloads are states, add the present state of the key instead.

mod list;

use async_nats::jetstream::message::PublishMessage;
use async_nats::{HeaderMap, HeaderName};

use crate::Fence;
use crate::fleet::Shared;
use crate::fleet::load::Message;
use crate::key as token;
pub use list::{Letter, count, drop_letter, get, list, put_back};

/// The header with the key of a dead letter, encoded as a token of a subject: [`key`] decodes it.
pub const KEY: &str = "Keyqueue-Key";
/// The header with the last error of a dead letter, on one line: its first 4096 bytes, or fewer if the message leaves no room for them.
pub const ERROR: &str = "Keyqueue-Error";
/// The header with the number of tries, in decimal digits.
pub const ATTEMPTS: &str = "Keyqueue-Attempts";
/// The header with the sequence that the message had in its partition's stream, in decimal digits.
pub const SEQUENCE: &str = "Keyqueue-Sequence";

/// The bytes of headers that the server takes.
const MOST_HEADERS: usize = u16::MAX as usize;
/// The bytes of an error that are kept.
const MOST_ERROR: usize = 4096;
/// More bytes than the headers of this module need without the error.
const OTHERS: usize = 1024;

/// Returns the key of a dead letter, as it was passed to [`Producer::add`](crate::Producer::add). `None`: there is no
/// header [`KEY`], or it has no key.
///
/// ```
/// use async_nats::HeaderMap;
/// use keyqueue_nats::dead_letter;
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(dead_letter::key(&headers), None);
/// headers.insert(dead_letter::KEY, "pod%2Fa");
/// assert_eq!(dead_letter::key(&headers).as_deref(), Some("pod/a"));
/// headers.insert(dead_letter::KEY, "pod/a"); // not how a replica writes it
/// assert_eq!(dead_letter::key(&headers), None);
/// ```
#[must_use]
pub fn key(headers: &HeaderMap) -> Option<String> {
    let encoded = headers.get(KEY)?;
    token::decode(encoded.as_str()).map(Into::into)
}

/// Publishes messages of a key that is given up, one after the other, and waits until they are stored. `stored` counts those that are. Without a
/// subject for them there is nothing to do: the event and the series report the key.
pub(crate) async fn publish(
    shared: &Shared,
    fence: Fence,
    token: &str,
    messages: &[Message],
    attempts: u32,
    error: &str,
    stored: &mut usize,
) -> Result<(), async_nats::Error> {
    let Some(subject) = &shared.config.dead_letters else {
        *stored = messages.len();
        return Ok(());
    };
    let stream = shared.config.stream_of(fence.partition);
    let most = shared.client.max_payload();
    for message in messages {
        let letter = PublishMessage::build()
            .payload(message.payload.clone())
            .headers(headers(message, token, attempts, error, most))
            // With the time: a stream that was made again has the same sequences.
            .message_id(format!("{stream}-{}-{}", message.sequence, message.stored));
        let publish = shared.context.send_publish(subject.clone(), letter);
        publish.await?.await?;
        *stored += 1;
    }
    Ok(())
}

/// The headers of the letter of a message: those of the message for which there is room, and those of this module. `most`: the bytes of
/// headers and payload that the server takes.
fn headers(message: &Message, token: &str, attempts: u32, error: &str, most: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let room = most.saturating_sub(message.payload.len());
    let mut room = room.min(MOST_HEADERS).saturating_sub(OTHERS);
    let of_message = message.headers.iter().flat_map(|headers| headers.iter());
    for (name, values) in of_message.filter(|(name, _)| !is_for_server(name)) {
        for value in values {
            let line = format!("{name}: {value}\r\n").len();
            // The letter is stored without what there is no room for.
            if let Some(left) = room.checked_sub(line) {
                room = left;
                headers.append(name.clone(), value.clone());
            }
        }
    }
    headers.insert(KEY, token);
    let mut end = error.len().min(room).min(MOST_ERROR);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    // A header is one line.
    headers.insert(ERROR, error[..end].replace(['\r', '\n'], " "));
    headers.insert(ATTEMPTS, attempts.to_string());
    headers.insert(SEQUENCE, message.sequence.to_string());
    headers
}

/// Whether the server reads the header: the time at which a message was due, for example, which only a stream with schedules takes.
fn is_for_server(name: &HeaderName) -> bool {
    let name: &[u8] = name.as_ref();
    let start = name.get(..5);
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"Nats-"))
}
