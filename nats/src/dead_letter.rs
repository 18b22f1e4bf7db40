//! Dead letters: the messages of keys that were given up, published to a subject of their own.

use async_nats::jetstream::message::PublishMessage;

use crate::fleet::Shared;
use crate::fleet::load::Load;
use crate::key;

/// The header with the key of a dead letter, encoded as in the subjects: see
/// [`Producer::add`](crate::Producer::add).
pub const KEY: &str = "Keyqueue-Key";
/// The header with the last error of a dead letter, on one line.
pub const ERROR: &str = "Keyqueue-Error";
/// The header with the number of tries.
pub const ATTEMPTS: &str = "Keyqueue-Attempts";
/// The header with the sequence that the message had in the stream.
pub const SEQUENCE: &str = "Keyqueue-Sequence";

/// Publishes the messages of a key that is given up, and waits until they are stored. Without a
/// subject for them there is nothing to do: the event and the series report the key.
pub(crate) async fn publish(
    shared: &Shared,
    key: &str,
    load: &Load,
    attempts: u32,
    error: &str,
) -> Result<(), async_nats::Error> {
    let Some(subject) = &shared.config.dead_letters else {
        return Ok(());
    };
    let token = key::encode(key)?;
    // A header is one line.
    let error = error.replace(['\r', '\n'], " ");
    for message in load.messages.iter() {
        let mut headers = message.headers.clone().unwrap_or_default();
        headers.insert(KEY, &*token);
        headers.insert(ERROR, error.as_str());
        headers.insert(ATTEMPTS, attempts.to_string());
        headers.insert(SEQUENCE, message.sequence.to_string());
        let letter = PublishMessage::build()
            .payload(message.payload.clone())
            .headers(headers)
            .message_id(format!("{}-{}", shared.config.stream, message.sequence));
        shared
            .context
            .send_publish(subject.clone(), letter)
            .await?
            .await?;
    }
    Ok(())
}
