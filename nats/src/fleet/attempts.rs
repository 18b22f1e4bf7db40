//! How often each key of a partition has failed, and its highest epoch: counted where it outlives the process, and the bucket of owners,
//! whose revisions it would raise.
//!
//! An owner notes its epoch as the record `<partitions>.e.<partition>` before it receives. If it finds a higher one, the bucket of owners is
//! not the former one, and the owner needs a higher epoch (N14).
//!
//! A failure is written to the bucket as the record `<partitions>.a.<partition>.<key>`, and a success removes it. Each owner reads the
//! records of its partition before it receives. A key that has never failed has no record, so it costs nothing.
//!
//! A key that kills its process writes nothing. So an owner whose predecessor has not handed over counts each delivery of what the
//! predecessor had received *before* it begins. Of the keys with such a count one is delivered at a time in the process: the next death
//! is that key's, and not that of those beside it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use futures_util::TryStreamExt;
use tokio::time::timeout;

use super::Shared;
use super::receive::Higher;
use crate::Fence;

/// How long a write may take. If the server is away the count is this process's until the next one.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a count is kept that nobody changes, beside the longest back-off.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Of one tenure.
#[derive(Default)]
pub(crate) struct Attempts {
    counts: Mutex<HashMap<String, u32>>,
}

impl Attempts {
    fn counts(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the key, encoded as a token, has failed since it last succeeded.
    pub(crate) fn of(&self, token: &str) -> u32 {
        self.counts().get(token).copied().unwrap_or(0)
    }

    /// Counts a failure, or a delivery that may be one.
    pub(crate) async fn count(&self, shared: &Shared, fence: Fence, token: &str) {
        let count = {
            let mut counts = self.counts();
            let count = counts.entry(token.to_owned()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let kept = KEPT + 2 * shared.config.max_backoff;
        write(shared, fence, token, count, kept).await;
    }

    /// Takes back a count: it was no failure.
    pub(crate) async fn uncount(&self, shared: &Shared, fence: Fence, token: &str) {
        let count = self.of(token).saturating_sub(1);
        if count == 0 {
            return self.forget(shared, fence, token).await;
        }
        self.counts().insert(token.to_owned(), count);
        let kept = KEPT + 2 * shared.config.max_backoff;
        write(shared, fence, token, count, kept).await;
    }

    /// Forgets the failures of a key.
    pub(crate) async fn forget(&self, shared: &Shared, fence: Fence, token: &str) {
        let counted = self.counts().remove(token).is_some();
        if counted {
            write(shared, fence, token, 0, Duration::from_secs(1)).await;
        }
    }

    /// Reads the records of the partition.
    pub(crate) async fn read(
        &self,
        shared: &Shared,
        fence: Fence,
    ) -> Result<(), async_nats::Error> {
        let store = &shared.counts;
        let prefix = prefix(shared, fence);
        let mut subjects = store
            .stream
            .info_with_subjects(format!("{}{prefix}>", store.prefix))
            .await?;
        let mut found = HashMap::new();
        while let Some((subject, _)) = subjects.try_next().await? {
            let Some(token) = subject
                .strip_prefix(&*store.prefix)
                .and_then(|key| key.strip_prefix(&*prefix))
            else {
                continue;
            };
            let message = store.stream.get_last_raw_message_by_subject(&subject);
            let message = match message.await {
                Ok(message) => message,
                // Its time was over.
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => continue,
                Err(error) => return Err(error.into()),
            };
            let count = std::str::from_utf8(&message.payload)
                .ok()
                .and_then(|text| text.parse().ok());
            if let Some(count @ 1..) = count {
                found.insert(token.to_owned(), count);
            }
        }
        *self.counts() = found;
        Ok(())
    }
}

/// Notes the epoch of a partition, which has to be the highest one.
pub(super) async fn note(shared: &Shared, fence: Fence) -> Result<(), async_nats::Error> {
    let store = &shared.counts;
    let Fence { partition, epoch } = fence;
    let subject = format!("{}{}.e.{partition}", store.prefix, shared.config.partitions);
    let (highest, revision) = match store.stream.get_last_raw_message_by_subject(&subject).await {
        Ok(record) => {
            let text = std::str::from_utf8(&record.payload)?;
            (text.parse()?, record.sequence)
        }
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => (0, 0),
        Err(error) => return Err(error.into()),
    };
    if highest > epoch {
        return Err(Higher(highest).into());
    }
    let record = PublishMessage::build()
        .payload(epoch.to_string().into())
        .expected_last_subject_sequence(revision);
    shared.context.send_publish(subject, record).await?.await?;
    Ok(())
}

fn prefix(shared: &Shared, fence: Fence) -> String {
    format!("{}.a.{}.", shared.config.partitions, fence.partition)
}

async fn write(shared: &Shared, fence: Fence, token: &str, count: u32, kept: Duration) {
    let subject = format!("{}{}{token}", shared.counts.prefix, prefix(shared, fence));
    let record = PublishMessage::build()
        .payload(count.to_string().into())
        .ttl(kept);
    let write = async { shared.context.send_publish(subject, record).await?.await };
    match timeout(LIMIT, write).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(token, count, %error, "a count of failures is not stored"),
        Err(_) => tracing::warn!(token, count, "a count of failures may not be stored"),
    }
}
