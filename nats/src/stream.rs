//! What a fleet has on the server: the stream of messages, the bucket of owners, and the stream of dead letters.
//! Creates them, and checks those that are there.
//!
//! ```text
//!     <subject>.in.<key>           producers publish here; the stream renames it to
//!     <subject>.p.<n>.<key>        the messages of partition n, as they are stored
//!     <subject>.at.<key>           a message that is to be published later
//! ```

use std::fmt::Debug;
use std::iter::successors;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::context::{
    GetStreamErrorKind, KeyValueErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::kv::{self, Store};
use async_nats::jetstream::stream::{
    self, DiscardPolicy, RetentionPolicy, StorageType, Stream, SubjectTransform,
};
use async_nats::jetstream::{self, Context, ErrorCode};

use crate::{Coalesce, Config, Error, Fence};

/// For how long the server recognises a message id: longer than a producer publishes a message again. The server keeps
/// all ids of this time in memory, about 200 bytes each.
pub(crate) const DUPLICATES: Duration = Duration::from_secs(60);

/// The first version of the server that has schedules.
const OLDEST: (u32, u32) = (2, 12);

impl Config {
    pub(crate) fn subject_in(&self, token: &str) -> String {
        format!("{}.in.{token}", self.subject)
    }

    pub(crate) fn subject_at(&self, token: &str) -> String {
        format!("{}.at.{token}", self.subject)
    }

    pub(crate) fn subject_of(&self, partition: u16) -> String {
        format!("{}.p.{partition}.*", self.subject)
    }

    /// Whether the stream takes a limited number of messages or bytes. Then it has no schedules.
    pub(crate) fn is_limited(&self) -> bool {
        self.max_messages.is_some() || self.max_bytes.is_some()
    }

    fn bucket(&self) -> String {
        format!("{}-owners", self.stream)
    }

    /// The stream as it should be.
    fn stream_config(&self) -> stream::Config {
        let limit =
            |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        stream::Config {
            name: self.stream.clone(),
            subjects: vec![self.subject_in("*"), self.subject_at("*")],
            subject_transform: Some(SubjectTransform {
                source: self.subject_in("*"),
                destination: format!(
                    "{}.p.{{{{partition({},1)}}}}.{{{{wildcard(1)}}}}",
                    self.subject, self.partitions
                ),
            }),
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            num_replicas: self.replicas,
            // A full stream refuses the new message: `Old` would drop another key's. Without a limit
            // there is nothing to discard, and the server has schedules only with `Old`.
            discard: if self.is_limited() {
                DiscardPolicy::New
            } else {
                DiscardPolicy::Old
            },
            max_messages_per_subject: match self.coalesce {
                Coalesce::Server => 1,
                Coalesce::Client | Coalesce::Never => -1,
            },
            max_messages: limit(self.max_messages),
            max_bytes: limit(self.max_bytes),
            duplicate_window: DUPLICATES,
            allow_message_schedules: !self.is_limited(),
            ..Default::default()
        }
    }
}

/// The name of the consumer of a partition under an epoch.
pub(crate) fn consumer_name(fence: Fence) -> String {
    format!("p{}-e{}", fence.partition, fence.epoch)
}

/// The partition and the epoch of a consumer by its name.
pub(crate) fn consumer_fence(name: &str) -> Option<Fence> {
    let (partition, epoch) = name.strip_prefix('p')?.split_once("-e")?;
    Some(Fence {
        partition: partition.parse().ok()?,
        epoch: epoch.parse().ok()?,
    })
}

/// Creates what a fleet needs on the server: the stream `<stream>`, the bucket `<stream>-owners`, and
/// with [`Config::dead_letters`] the stream `<stream>-dead`. Whatever is there already is checked instead, so
/// every process may call this. Of the stream of dead letters only the subject is checked: you may give it limits.
///
/// The server is a nats-server 2.12 or later with JetStream (`nats-server -js`).
///
/// # Errors
///
/// [`Error::Config`] if the configuration is out of range, [`Error::Mismatch`] if what is there is different,
/// [`Error::Server`] if the server cannot be reached, refuses, is older than 2.12 or has no JetStream. What was created before the error stays; call it
/// again.
pub async fn create(client: &Client, config: &Config) -> Result<(), Error> {
    config.check()?;
    check_version(client)?;
    let context = jetstream::new(client.clone());
    create_stream(&context, config.stream_config()).await?;
    if let Some(subject) = &config.dead_letters {
        let name = format!("{}-dead", config.stream);
        let subjects = vec![subject.clone()];
        let dead = stream::Config {
            name: name.clone(),
            subjects: subjects.clone(),
            num_replicas: config.replicas,
            duplicate_window: DUPLICATES,
            ..Default::default()
        };
        // The rest of its configuration is its readers' business.
        let found = create_stream(&context, dead).await?;
        let what = format!("subjects (dead_letters) of the stream {name}");
        same(what, &found.subjects, &subjects)?;
    }
    let bucket = config.bucket();
    match context.get_key_value(&bucket).await {
        Ok(_) => {}
        Err(error) if error.kind() == KeyValueErrorKind::GetBucket => {
            let settings = kv::Config {
                bucket: bucket.clone(),
                description: format!("The owners of the partitions of {}.", config.stream),
                history: 1,
                storage: StorageType::File,
                num_replicas: config.replicas,
                // Records of sessions that have ended have a time to live.
                limit_markers: Some(Duration::from_secs(60)),
                ..Default::default()
            };
            let created = context.create_key_value(settings).await;
            created.map_err(Error::server(format!("creating the bucket {bucket}")))?;
        }
        Err(error) => {
            return Err(Error::server(format!("looking for the bucket {bucket}"))(
                error,
            ));
        }
    }
    open(client, config).await.map(drop)
}

/// Returns the configuration of the stream that is there, or that it has created.
async fn create_stream(context: &Context, wanted: stream::Config) -> Result<stream::Config, Error> {
    let name = wanted.name.clone();
    match context.get_stream(&name).await {
        Ok(there) => return Ok(there.cached_info().config.clone()),
        Err(error) if is_missing(&error.kind()) => {}
        Err(error) => {
            let doing = format!("looking for the stream {name}{}", hint(&error));
            return Err(Error::server(doing)(error));
        }
    }
    // If another process creates it at this moment, the server compares the two.
    let created = context.create_stream(wanted).await;
    let created = created.map_err(Error::server(format!("creating the stream {name}")))?;
    Ok(created.cached_info().config.clone())
}

/// What to tell about an error of a request, if nobody has replied to it.
fn hint(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let mut causes = successors(Some(error), |cause| cause.source());
    let silent = causes.any(|cause| {
        cause
            .downcast_ref::<RequestError>()
            .is_some_and(|error| error.kind() == RequestErrorKind::NoResponders)
    });
    if silent {
        " on a server that may have no JetStream (`-js`)"
    } else {
        ""
    }
}

fn check_version(client: &Client) -> Result<(), Error> {
    let version = client.server_info().version;
    if is_old(&version) {
        let doing = "using the server, which has to be 2.12 or later";
        return Err(Error::server(doing)(format!("it has {version}")));
    }
    Ok(())
}

/// Whether a server of this version has no schedules. One whose version cannot be read may have them.
fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    let found: Option<(u32, u32)> = numbers.next().zip(numbers.next());
    found.is_some_and(|found| found < OLDEST)
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Finds the stream and the bucket, and compares them with the configuration.
pub(crate) async fn open(
    client: &Client,
    config: &Config,
) -> Result<(Context, Stream, Store), Error> {
    check_version(client)?;
    let context = jetstream::new(client.clone());
    let name = &config.stream;
    let stream = context.get_stream(name).await;
    let stream = stream.map_err(|error| {
        let hint = if is_missing(&error.kind()) {
            ", which `create` makes"
        } else {
            hint(&error)
        };
        Error::server(format!("looking for the stream {name}{hint}"))(error)
    })?;
    let (found, wanted) = (&stream.cached_info().config, config.stream_config());
    let of = |setting: &str| format!("{setting} of the stream {name}");
    same(of("partitions"), &partitions(found), &partitions(&wanted))?;
    same(
        of("subject_transform"),
        &found.subject_transform,
        &wanted.subject_transform,
    )?;
    same(of("subjects"), &found.subjects, &wanted.subjects)?;
    same(of("retention"), &found.retention, &wanted.retention)?;
    same(of("storage"), &found.storage, &wanted.storage)?;
    same(of("replicas"), &found.num_replicas, &wanted.num_replicas)?;
    let each = found.max_messages_per_subject;
    if each != wanted.max_messages_per_subject {
        return Err(Error::Mismatch {
            what: of("coalesce"),
            found: match each {
                1 => "Server".into(),
                -1 => "Client or Never".into(),
                most => format!("{most} messages for each key"),
            },
            wanted: format!("{:?}", config.coalesce),
        });
    }
    same(
        of("max_messages"),
        &limit(found.max_messages),
        &config.max_messages,
    )?;
    same(of("max_bytes"), &limit(found.max_bytes), &config.max_bytes)?;
    same(of("discard"), &found.discard, &wanted.discard)?;
    let schedules = (
        found.allow_message_schedules,
        wanted.allow_message_schedules,
    );
    same(of("allow_message_schedules"), &schedules.0, &schedules.1)?;

    let name = config.bucket();
    let store = context.get_key_value(&name).await;
    let store = store.map_err(Error::server(format!("looking for the bucket {name}")))?;
    let status = store.status().await;
    let status = status.map_err(Error::server(format!("reading the bucket {name}")))?;
    let found = &status.info.config;
    let of = |setting: &str| format!("{setting} of the bucket {name}");
    // A bucket in memory is empty after a restart of the server, and its epochs begin again.
    same(of("storage"), &found.storage, &StorageType::File)?;
    same(of("history"), &found.max_messages_per_subject, &1)?;
    same(of("replicas"), &found.num_replicas, &config.replicas)?;
    same(of("allow_message_ttl"), &found.allow_message_ttl, &true)?;
    Ok((context, stream, store))
}

/// A limit of the stream, as it is in [`Config`]. The server's -1 is none.
fn limit(found: i64) -> Option<u64> {
    u64::try_from(found).ok()
}

/// The number of partitions; 0 if the stream has none.
fn partitions(config: &stream::Config) -> u16 {
    let transform = config.subject_transform.as_ref();
    let count = transform.and_then(|transform| {
        let (_, rest) = transform.destination.split_once("{{partition(")?;
        rest.split_once(',')?.0.trim().parse().ok()
    });
    count.unwrap_or(0)
}

fn same<T: PartialEq + Debug>(what: String, found: &T, wanted: &T) -> Result<(), Error> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::Mismatch {
        what,
        found: format!("{found:?}"),
        wanted: format!("{wanted:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_known_by_its_version() {
        let versions = ["1.9.9", "2.9.25", "2.11.9", "2.11.0-RC.1"];
        assert!(versions.into_iter().all(is_old));
        let versions = [
            "2.12.0",
            "2.12.0-RC.1",
            "2.15.2",
            "3.0.0",
            "10.0",
            "",
            "dev",
        ];
        assert!(!versions.into_iter().any(is_old));
    }
}
