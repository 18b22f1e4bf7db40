//! Receives the messages of one partition for as long as this replica owns it, and puts them into the
//! queue.
//!
//! The partition's consumer has the epoch in its name, `p3-e42`. The server refuses a second consumer
//! of the same messages, so a new owner deletes its predecessors' and then creates its own, which
//! gets everything that is not acknowledged. A predecessor that is late finds its consumer gone, or
//! one with a higher epoch in its place, and stops.
//!
//! Messages that the server has sent into a connection that broke are on nobody's list until
//! `ack_wait` has passed. So after every interruption the owner, too, deletes its consumer and creates
//! it again, and gets again what it has not acknowledged. A message that it holds already is merged with
//! its copy; only a key that is being processed is delivered once more.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use async_nats::jetstream::{self, ErrorCode};
use futures_util::{StreamExt, TryStreamExt};
use tokio::time::sleep;

use super::Shared;
use super::load::{Load, Message};
use super::tenure::Tenure;
use crate::{key, stream};

/// How many messages a pull request asks for. A request is renewed when half of it is delivered.
const BATCH: usize = 500;
const EXPIRES: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Between two tries after an error of the server.
const PAUSE: Duration = Duration::from_millis(200);

/// Receives until the caller drops the future, or until another replica's epoch is higher.
pub(super) async fn receive(shared: Arc<Shared>, tenure: Arc<Tenure>) {
    let mut connects = shared.connects.subscribe();
    loop {
        // A replica whose lease has lapsed leaves the partition's consumers alone.
        shared.lease.held().await;
        connects.mark_unchanged();
        match consumer(&shared, &tenure).await {
            Ok(Some(consumer)) => tokio::select! {
                end = pull(&shared, &tenure, &consumer) => {
                    tracing::warn!(fence = %tenure.fence, ?end, "receiving is interrupted");
                }
                _ = connects.changed() => {}
            },
            Ok(None) => {
                tracing::warn!(fence = %tenure.fence, "a consumer with a higher epoch is there");
                return;
            }
            Err(error) => {
                tracing::warn!(fence = %tenure.fence, %error, "cannot create the consumer");
            }
        }
        sleep(PAUSE).await;
        delete_consumer(&shared.stream, &tenure).await;
    }
}

/// Creates the consumer of this tenure, or finds it. `None`: the partition has a later owner.
async fn consumer(
    shared: &Shared,
    tenure: &Tenure,
) -> Result<Option<PullConsumer>, async_nats::Error> {
    let config = &shared.config;
    let name = stream::consumer_name(tenure.fence);
    let wanted = pull::Config {
        durable_name: Some(name.clone()),
        filter_subject: config.subject_of(tenure.fence.partition),
        ack_policy: AckPolicy::Explicit,
        deliver_policy: DeliverPolicy::All,
        ack_wait: config.ack_wait,
        max_ack_pending: config.max_ack_pending.into(),
        num_replicas: config.replicas,
        // A consumer that a restart of the server loses is created again: what is not acknowledged
        // is in the stream. Writing the state of 64 consumers to files takes the server longer than all else.
        memory_storage: true,
        ..Default::default()
    };
    match shared.stream.create_consumer(wanted.clone()).await {
        Ok(consumer) => return Ok(Some(consumer)),
        Err(error) => match error.kind() {
            ConsumerErrorKind::JetStream(refusal)
                if refusal.error_code() == ErrorCode::CONSUMER_WQ_CONSUMER_NOT_UNIQUE => {}
            _ => return Err(error.into()),
        },
    }
    let mut names = shared.stream.consumer_names();
    while let Some(name) = names.try_next().await? {
        match stream::consumer_fence(&name) {
            Some(other) if other.partition != tenure.fence.partition => {}
            Some(other) if other > tenure.fence => return Ok(None),
            Some(_) => {
                tracing::info!(fence = %tenure.fence, consumer = name, "deletes the former owner's consumer");
                shared.stream.delete_consumer(&name).await?;
            }
            // Somebody else's. If it takes messages of this partition, the server refuses ours.
            None => tracing::warn!(consumer = name, "a consumer that is not of this fleet"),
        }
    }
    Ok(Some(shared.stream.create_consumer(wanted).await?))
}

async fn pull(
    shared: &Shared,
    tenure: &Arc<Tenure>,
    consumer: &PullConsumer,
) -> Result<(), async_nats::Error> {
    let mut messages = consumer
        .stream()
        .max_messages_per_batch(BATCH)
        .expires(EXPIRES)
        .heartbeat(HEARTBEAT)
        .messages()
        .await?;
    while let Some(message) = messages.next().await {
        put(shared, tenure, message?);
    }
    Ok(())
}

fn put(shared: &Shared, tenure: &Arc<Tenure>, message: jetstream::Message) {
    let (sequence, delivered) = match message.info() {
        Ok(info) => (info.stream_sequence, info.delivered),
        Err(error) => {
            tracing::error!(%error, subject = %message.subject, "not a message of a stream");
            return;
        }
    };
    let message = message.message;
    let Some(reply) = message.reply else { return };
    shared.series.received(delivered > 1);
    let token = message.subject.rsplit('.').next().unwrap_or_default();
    let message = Message {
        payload: message.payload,
        headers: message.headers,
        sequence,
        reply,
    };
    match key::decode(token) {
        Some(key) => {
            shared
                .queue
                .entry_ref(&*key)
                .put(Load::new(tenure, message));
        }
        // It was not published by a `Producer`, and it would come again and again.
        None => {
            tracing::error!(token, sequence, "the message has no key: it is terminated");
            shared.acks.terminate(tenure, message.reply);
        }
    }
}

/// Deletes the consumer of a tenure that has ended, so that its successor finds none. An error does no harm:
/// the successor deletes it.
pub(super) async fn delete_consumer(stream: &Stream, tenure: &Tenure) {
    let name = stream::consumer_name(tenure.fence);
    if let Err(error) = stream.delete_consumer(&name).await {
        tracing::debug!(fence = %tenure.fence, %error, "the consumer is left to the next owner");
    }
}
