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

use std::fmt;

use async_nats::jetstream::kv::Store;

use crate::fleet::bucket::{last, replace};
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

    /// The subject of a key: `in`, `key` or `at`.
    pub(crate) fn subject_of(&self, kind: &str, token: &str) -> String {
        self.subjects(self.partition_of(token), kind, token)
    }

    /// Whether the streams take a limited number of messages or bytes. Then they have no schedules.
    pub(crate) fn is_limited(&self) -> bool {
        self.max_messages.is_some() || self.max_bytes.is_some()
    }

    /// The bucket of owners, and that of counts.
    pub(crate) fn buckets(&self) -> [String; 2] {
        ["owners", "counts"].map(|of| format!("{}-{of}", self.stream))
    }

    /// The stream of dead letters.
    pub(crate) fn dead_stream(&self) -> String {
        format!("{}-dead", self.stream)
    }

    /// The error of a fleet whose number of partitions is another one.
    pub(crate) fn other_partitions(&self, found: impl Into<String>) -> Error {
        Error::Mismatch {
            what: format!("partitions of the fleet {}", self.stream),
            found: found.into(),
            wanted: self.partitions.to_string(),
        }
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

/// The record with the number of partitions of a fleet, which may differ from that of a configuration: `16`, or while it is changed
/// `16 64`.
pub(crate) struct Layout {
    /// The number of partitions whose messages are handled.
    pub(crate) now: u16,
    /// The number that takes new messages, while the number is changed.
    pub(crate) next: Option<u16>,
    /// Of the record; 0: there is none.
    pub(crate) revision: u64,
}

impl Layout {
    /// Reads the record. `None`: there is none.
    pub(crate) async fn find(store: &Store, config: &Config) -> Result<Option<Self>, Error> {
        let doing = format!("reading the record {LAYOUT} of the bucket {}", store.name);
        // A follower may have that of before the last change.
        let record = last(&store.stream, &format!("{}{LAYOUT}", store.prefix)).await;
        let record = record.map_err(Error::server(doing))?;
        let Some(record) = record else {
            return Ok(None);
        };
        let found = String::from_utf8_lossy(&record.payload);
        let (now, next) = parse(&found).ok_or_else(|| config.other_partitions(&*found))?;
        Ok(Some(Layout {
            now,
            next,
            revision: record.sequence,
        }))
    }

    /// Reads the record of a fleet that has one.
    pub(crate) async fn read(store: &Store, config: &Config) -> Result<Self, Error> {
        let found = Self::find(store, config).await?;
        found.ok_or_else(|| config.other_partitions("unknown (`create` writes it)"))
    }

    /// Writes it if the record's revision is still this one; otherwise another process has written it.
    pub(crate) async fn write(&self, store: &Store) -> Result<(), Error> {
        let write = replace(store, LAYOUT, self.to_string(), self.revision).await;
        let doing = format!("writing the record {LAYOUT} of the bucket {}", store.name);
        write.map_err(Error::server(doing))
    }

    /// Whether it is still the record.
    pub(crate) async fn is_current(&self, store: &Store, config: &Config) -> Result<bool, Error> {
        let found = Self::find(store, config).await?;
        Ok(found.is_some_and(|found| found.revision == self.revision))
    }

    /// Whether the streams of the configuration's number take new messages.
    pub(crate) fn takes(&self, config: &Config) -> bool {
        self.next.unwrap_or(self.now) == config.partitions
    }

    /// Whether the fleet has the configuration's number of partitions. Returns whether their streams may be closed, because the number is
    /// being changed.
    pub(crate) fn check(&self, config: &Config) -> Result<bool, Error> {
        if self.now == config.partitions {
            return Ok(self.next.is_some());
        }
        Err(config.other_partitions(match self.next {
            Some(next) => format!(
                "{}, to be {next} as soon as what is there is done",
                self.now
            ),
            None => self.now.to_string(),
        }))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.now)?;
        self.next.map_or(Ok(()), |next| write!(f, " {next}"))
    }
}

/// The numbers of a record.
fn parse(text: &str) -> Option<(u16, Option<u16>)> {
    let (now, next) = match text.split_once(' ') {
        Some((now, next)) => (now, Some(next.parse().ok()?)),
        None => (text, None),
    };
    Some((now.parse().ok()?, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_has_one_number_or_two() {
        for (text, numbers) in [("16", (16, None)), ("16 64", (16, Some(64)))] {
            assert_eq!(parse(text), Some(numbers));
            let layout = Layout {
                now: numbers.0,
                next: numbers.1,
                revision: 0,
            };
            assert_eq!(layout.to_string(), text);
        }
        assert_eq!((parse(""), parse("16 "), parse("x")), (None, None, None));
    }
}
