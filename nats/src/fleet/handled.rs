//! What is handled: it is acknowledged, or deleted, so that nobody delivers it again. [`super::marks`] says what that is.

use std::sync::Arc;

use async_nats::Subject;
use async_nats::jetstream::stream::RawMessageErrorKind;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::time::timeout;

use super::Shared;
use super::acks::Acks;
use super::load::Load;
use super::receive::{LIMIT, leader};
use super::tenure::Tenure;
use super::work::Job;
use crate::stream::AT_ONCE;
use crate::{Fence, key as token};

/// Acknowledges, and drops, the messages that are handled, or older than one that is (N7).
pub(super) fn drop_older(shared: &Shared, key: &str, job: &mut Job) {
    let marks = shared.marks(job.value().tenure.fence);
    let mut messages = job.value().messages.iter();
    if !messages.any(|message| marks.covers(key, message)) {
        return;
    }
    let load = job.value_mut();
    let tenure = Arc::clone(&load.tenure);
    let before = load.messages.len();
    load.messages.retain(|message| {
        let is_older = marks.covers(key, message);
        if is_older {
            shared.acks.send(&tenure, message.reply.clone());
        }
        !is_older
    });
    // An earlier delivery has covered these.
    load.covered -= before - load.messages.len();
}

/// Has the server remove the first messages, which are handled. Acknowledgements of some may not reach their consumer, because it was made again
/// while the handler ran, or those of older ones may have been lost. All are deleted then before the delivery ends, which a hand-over waits for:
/// otherwise the next owner would deliver them again (N5), or an older one as the newest (N7).
pub(super) async fn remove(
    shared: &Shared,
    key: &str,
    load: &Load,
    handled: usize,
    acknowledge: fn(&Acks, &Tenure, Subject) -> bool,
) {
    let mut reach = true;
    for message in &load.messages[..handled] {
        reach &= acknowledge(&shared.acks, &load.tenure, message.reply.clone());
    }
    if !reach && let Err(error) = shared.delete_handled(load.tenure.fence, key).await {
        // A server that is away keeps the key for the time of one request, not of each.
        tracing::debug!(%error, "messages that are handled come again");
    }
}

/// Deletes what is handled and may not be acknowledged, because acknowledgements were lost with a connection or a leader of the consumer, and has
/// not come again. Otherwise the next owner would deliver it (N5), and perhaps after what is newer (N7).
pub(super) async fn delete_handled(shared: &Shared, tenure: &Tenure) {
    let fence = tenure.fence;
    let consumer = tenure.consumer_name();
    let info = timeout(LIMIT, shared.stream(fence).consumer_info(consumer)).await;
    // Without a reply it may have another leader.
    if let Ok(Ok(info)) = info
        && tenure.has_caught_up(leader(info.cluster.as_ref()))
    {
        return;
    }
    let keys = stream::iter(shared.marks(fence).keys());
    let deleted = keys
        .map(|key| async move { shared.delete_handled(fence, &key).await })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>();
    if let Err(error) = deleted.await {
        tracing::debug!(%fence, %error, "the next owner may deliver again what is handled");
    }
}

impl Shared {
    /// Notes that the first messages of this are handled.
    pub(super) fn mark(&self, key: &str, load: &Load, handled: usize) {
        if let Some(last) = load.messages[..handled].last() {
            let marks = self.marks(load.tenure.fence);
            marks.note(key, last.sequence, load.stored);
        }
    }

    /// Deletes from its stream what a key's mark covers.
    async fn delete_handled(&self, fence: Fence, key: &str) -> Result<(), async_nats::Error> {
        let Some(mark) = self.marks(fence).of(key) else {
            return Ok(());
        };
        let token = token::encode(key).expect("it was decoded");
        let (stream, subject) = (self.stream(fence), self.config.subject_of("key", &token));
        let purge = async |sequence: u64| {
            let purge = stream.purge().filter(&subject);
            purge.sequence(sequence + 1).await
        };
        // If the last one that is handled is there, the stream is the one in which it was: all those before it are handled.
        if let Ok(last) = stream.get_raw_message(mark.sequence).await
            && last.subject.as_str() == subject
            && mark.covers(last.sequence, last.time.unix_timestamp_nanos())
        {
            purge(mark.sequence).await?;
            return Ok(());
        }
        loop {
            // One after the other, because the stream may have been made again: then other messages have these sequences.
            let first = match stream.get_first_raw_message_by_subject(&subject, 1).await {
                Ok(first) => first,
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if !mark.covers(first.sequence, first.time.unix_timestamp_nanos()) {
                return Ok(());
            }
            // It may be gone by now.
            purge(first.sequence).await?;
        }
    }
}
