//! Reads what a stream has now, with a consumer that exists for one look.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::Message;
use async_nats::jetstream::stream::Stream;
use futures_util::TryStreamExt;
use time::OffsetDateTime;

/// How many messages are fetched with one request.
const BATCH: usize = 500;
/// The server removes the consumer of a look that was dropped after this time.
const UNUSED: Duration = Duration::from_secs(10);

/// What a look has found.
pub(crate) struct Scanned {
    /// When it began, by the clock of the server, which also sets the times of the messages.
    pub(crate) began: OffsetDateTime,
    pub(crate) messages: Vec<Message>,
}

/// Reads at most this many messages of a stream, in their order.
pub(crate) async fn scan(
    stream: &Stream,
    filter: String,
    from: DeliverPolicy,
    at_most: usize,
) -> Result<Scanned, async_nats::Error> {
    let wanted = pull::Config {
        description: Some("A look at the stream (keyqueue-nats)".into()),
        filter_subject: filter,
        deliver_policy: from,
        ack_policy: AckPolicy::None,
        inactive_threshold: UNUSED,
        memory_storage: true,
        num_replicas: 1,
        ..Default::default()
    };
    let consumer = stream.create_consumer(wanted).await?;
    let info = consumer.cached_info();
    let (name, began) = (info.name.clone(), info.created);
    let mut messages: Vec<Message> = Vec::new();
    while messages.len() < at_most {
        let wanted = BATCH.min(at_most - messages.len());
        // Without `expires` it ends once the server has no more.
        let fetched = consumer.fetch().max_messages(wanted).messages().await?;
        let fetched: Vec<Message> = fetched.try_collect().await?;
        let is_last = match fetched.last() {
            None => true,
            Some(last) => last.info()?.pending == 0,
        };
        messages.extend(fetched);
        if is_last {
            break;
        }
    }
    if let Err(error) = stream.delete_consumer(&name).await {
        tracing::debug!(name, %error, "the consumer of a look is left to its time limit");
    }
    Ok(Scanned { began, messages })
}
