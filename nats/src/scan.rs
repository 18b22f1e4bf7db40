//! Reads what a stream has now, with a consumer that exists for one look.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::Message;
use async_nats::jetstream::stream::Stream;
use futures_util::TryStreamExt;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep, timeout};

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

/// How long the server may send nothing that it was asked for.
const SILENCE: Duration = Duration::from_secs(1);
/// After this time an error is the caller's. A server of a cluster may not know yet of a consumer that another one has just made, and
/// refuses the first request with 503.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Reads at most this many messages of a stream, in their order. What fails is tried again (N12).
pub(crate) async fn scan(
    stream: &Stream,
    filter: String,
    from: DeliverPolicy,
    at_most: usize,
) -> Result<Scanned, async_nats::Error> {
    let began = Instant::now();
    loop {
        match once(stream, filter.clone(), from, at_most).await {
            Err(error) if began.elapsed() < PATIENCE => {
                tracing::debug!(%error, "a look at the stream is tried again");
                sleep(PAUSE).await;
            }
            end => return end,
        }
    }
}

async fn once(
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
    let consumer = timeout(SILENCE, stream.create_consumer(wanted)).await??;
    let info = consumer.cached_info();
    let (name, began) = (info.name.clone(), info.created);
    let mut messages: Vec<Message> = Vec::new();
    while messages.len() < at_most {
        let wanted = BATCH.min(at_most - messages.len());
        // Without `expires` it ends once the server has no more.
        let mut fetched = consumer.fetch().max_messages(wanted).messages().await?;
        let before = messages.len();
        while let Some(message) = timeout(SILENCE, fetched.try_next()).await?? {
            messages.push(message);
        }
        let is_last = match messages[before..].last() {
            None => true,
            Some(last) => last.info()?.pending == 0,
        };
        if is_last {
            break;
        }
    }
    if timeout(SILENCE, stream.delete_consumer(&name))
        .await
        .is_err()
    {
        tracing::debug!(name, "the consumer of a look is left to its time limit");
    }
    Ok(Scanned { began, messages })
}
