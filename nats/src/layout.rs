//! The names of what a fleet has on the server, and the number of its partitions.
//!
//! Partition 3 of 16 of the fleet `WORK` is the stream `WORK-16-3`. Its subjects, with the subject `work`:
//!
//! ```text
//!     work.16.3.in.<key>           producers publish here; the stream renames it to
//!     work.16.3.key.<key>          the messages as they are stored
//!     work.16.3.at.<key>           a message that is to be published later
//! ```
//!
//! The number of partitions is a part of all names, so that a message can be in no partition that another number would
//! have given it. The record `layout` of the bucket has the number, and while it is changed both.

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::message::PublishMessage;

use crate::{Config, Error, Fence};

/// The record of the bucket with the number of partitions.
const LAYOUT: &str = "layout";

impl Config {
    /// The partition of a key, by its token: FNV-1a with 32 bits, modulo the number of partitions, as the server's
    /// `partition` does it.
    pub(crate) fn partition_of(&self, token: &str) -> u16 {
        let hash = token.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        u16::try_from(hash % u32::from(self.partitions)).expect("less than the partitions")
    }

    /// The name of a partition's stream.
    pub(crate) fn stream_of(&self, partition: u16) -> String {
        format!("{}-{}-{partition}", self.stream, self.partitions)
    }

    pub(crate) fn subjects(&self, partition: u16, kind: &str, token: &str) -> String {
        format!(
            "{}.{}.{partition}.{kind}.{token}",
            self.subject, self.partitions
        )
    }

    /// Where a key's message is published.
    pub(crate) fn subject_in(&self, token: &str) -> String {
        self.subjects(self.partition_of(token), "in", token)
    }

    /// Where a key's message is published that is to come later.
    pub(crate) fn subject_at(&self, token: &str) -> String {
        self.subjects(self.partition_of(token), "at", token)
    }

    /// Where the server then publishes it: a stream that takes no new messages keeps its delayed ones.
    pub(crate) fn subject_due(&self, token: &str) -> String {
        self.subjects(self.partition_of(token), "key", token)
    }

    /// Whether the streams take a limited number of messages or bytes. Then they have no schedules.
    pub(crate) fn is_limited(&self) -> bool {
        self.max_messages.is_some() || self.max_bytes.is_some()
    }

    pub(crate) fn bucket(&self) -> String {
        format!("{}-owners", self.stream)
    }
}

/// The name of the consumer of a partition under an epoch. The owner numbers those that it makes, so that none is taken for a former one.
pub(crate) fn consumer_name(fence: Fence, number: u64) -> String {
    format!("p{}-e{}-{number}", fence.partition, fence.epoch)
}

/// The partition and the epoch of a consumer by its name.
pub(crate) fn consumer_fence(name: &str) -> Option<Fence> {
    let (partition, rest) = name.strip_prefix('p')?.split_once("-e")?;
    Some(Fence {
        partition: partition.parse().ok()?,
        epoch: rest.split_once('-')?.0.parse().ok()?,
    })
}

impl Config {
    pub(crate) fn layout(&self) -> String {
        format!("partitions of the fleet {}", self.stream)
    }
}

/// The record with the number of partitions, and its revision.
pub(crate) async fn layout(store: &Store, config: &Config) -> Result<Option<(String, u64)>, Error> {
    let doing = format!(
        "reading the record {LAYOUT} of the bucket {}",
        config.bucket()
    );
    let entry = store.entry(LAYOUT).await.map_err(Error::server(doing))?;
    Ok(entry.map(|entry| {
        (
            String::from_utf8_lossy(&entry.value).into_owned(),
            entry.revision,
        )
    }))
}

/// Writes it if its revision is still this one; otherwise another process has written it.
pub(crate) async fn write_layout(
    context: &Context,
    store: &Store,
    value: String,
    revision: u64,
) -> Result<(), Error> {
    let record = PublishMessage::build()
        .payload(value.into())
        .expected_last_subject_sequence(revision);
    let subject = format!("{}{LAYOUT}", store.prefix);
    let write = async { context.send_publish(subject, record).await?.await };
    match write.await {
        Err(error) if error.kind() != PublishErrorKind::WrongLastSequence => Err(Error::server(
            format!("writing the record {LAYOUT} of a bucket"),
        )(error)),
        _ => Ok(()),
    }
}

/// Whether the fleet has this number of partitions. One whose number is being changed has both, `16 64`: then this returns
/// that its streams may be closed.
pub(crate) async fn check_layout(store: &Store, config: &Config) -> Result<bool, Error> {
    let (found, _) = layout(store, config).await?.unwrap_or_default();
    let wanted = config.partitions.to_string();
    if found.split(' ').next() == Some(&wanted) {
        return Ok(found != wanted);
    }
    Err(Error::Mismatch {
        what: config.layout(),
        found: match found.split_once(' ') {
            Some((now, next)) => format!("{now}, to be {next} as soon as what is there is done"),
            None if found.is_empty() => "unknown (`create` writes it)".into(),
            None => found,
        },
        wanted,
    })
}

/// The number of partitions that a fleet has now, which may differ from that of a configuration.
pub(crate) struct Layout {
    /// The number of partitions whose messages are handled.
    pub(crate) now: u16,
    /// The number that takes new messages, while the number is changed.
    pub(crate) next: Option<u16>,
}

impl Layout {
    /// Reads the record.
    pub(crate) async fn read(store: &Store, config: &Config) -> Result<Self, Error> {
        let (found, _) = layout(store, config).await?.unwrap_or_default();
        parse(&found).ok_or_else(|| Error::Mismatch {
            what: config.layout(),
            found: match &*found {
                "" => "unknown (`create` writes it)".into(),
                _ => format!("{found:?}"),
            },
            wanted: config.partitions.to_string(),
        })
    }
}

/// Reads `16` or `16 64`.
fn parse(text: &str) -> Option<Layout> {
    let (now, next) = match text.split_once(' ') {
        Some((now, next)) => (now, Some(next.parse().ok()?)),
        None => (text, None),
    };
    let now = now.parse().ok()?;
    Some(Layout { now, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_has_one_number_or_two() {
        let read = |text| parse(text).map(|layout| (layout.now, layout.next));
        assert_eq!(read("16"), Some((16, None)));
        assert_eq!(read("16 64"), Some((16, Some(64))));
        assert_eq!((read(""), read("16 "), read("x")), (None, None, None));
    }
}
