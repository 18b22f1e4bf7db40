//! What a fleet has on the server: a stream for each partition, the bucket of owners, and the stream of dead letters.
//! Creates them, and checks those that are there.
//!
//! `layout` has their names.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

use async_nats::Client;
use async_nats::jetstream::context::{CreateStreamErrorKind, KeyValueErrorKind};
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{
    self, DiscardPolicy, RetentionPolicy, StorageType, Stream, SubjectTransform,
};
use async_nats::jetstream::{self, Context, ErrorCode};
use futures_util::{StreamExt, TryStreamExt};
use tokio::time::sleep;

use crate::cause::{Cause, hint, is_missing, is_silent, is_unknown};
use crate::layout::Layout;
use crate::repartition::close_late;
use crate::{Coalesce, Config, Error};

/// For how long the server recognises a message id: longer than a producer publishes a message again. The server keeps
/// all ids of this time in memory, about 200 bytes each.
pub(crate) const DUPLICATES: Duration = Duration::from_secs(60);
/// For each request of a membership that has no shorter limit.
pub(crate) const MOST: Duration = Duration::from_secs(2);
/// For how long `join` and `create` ask again for what the server has not replied to.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at what other processes create.
const PAUSE: Duration = Duration::from_millis(50);
/// How many requests about streams are sent at once.
pub(crate) const AT_ONCE: usize = 16;

/// The first version of the server that has schedules.
const OLDEST: (u32, u32) = (2, 12);

impl Config {
    /// A partition's stream as it should be. `open`: it takes new messages.
    pub(crate) fn stream_config(&self, partition: u16, open: bool) -> stream::Config {
        let limit =
            |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let subject = |kind| self.subjects(partition, kind, "*");
        let mut subjects = vec![subject("key")];
        if open {
            subjects.extend([subject("in"), subject("at")]);
        }
        stream::Config {
            name: self.stream_of(partition),
            description: Some(format!(
                "Partition {partition} of {} of the work queue {} (keyqueue-nats)",
                self.partitions, self.stream
            )),
            subjects,
            subject_transform: Some(SubjectTransform {
                source: subject("in"),
                destination: self.subjects(partition, "key", "{{wildcard(1)}}"),
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

    /// A bucket's stream. Its revisions begin at the time at which it is made, in milliseconds, so the epochs of a bucket of owners that
    /// was deleted and made again are higher than before: fewer than a thousand records are written in a second. If they are not, because
    /// a clock was set back, the owners take higher ones (`attempts`).
    fn bucket_config(&self, bucket: &str) -> stream::Config {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        stream::Config {
            name: format!("KV_{bucket}"),
            description: Some(format!(
                "The {bucket} of the partitions of the work queue {} (keyqueue-nats)",
                self.stream
            )),
            subjects: vec![format!("$KV.{bucket}.>")],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: self.replicas,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            // Records of sessions that have ended have a time to live.
            allow_message_ttl: true,
            subject_delete_marker_ttl: Some(Duration::from_secs(60)),
            first_sequence: since
                .ok()
                .and_then(|since| u64::try_from(since.as_millis()).ok()),
            ..Default::default()
        }
    }

    fn dead_config(&self, subject: &str) -> stream::Config {
        stream::Config {
            name: self.dead_stream(),
            description: Some(format!(
                "The dead letters of the work queue {} (keyqueue-nats)",
                self.stream
            )),
            subjects: vec![subject.to_owned()],
            num_replicas: self.replicas,
            duplicate_window: DUPLICATES,
            ..Default::default()
        }
    }
}

/// Creates what a fleet needs on the server: the streams `<stream>-<partitions>-<n>`, the buckets `<stream>-owners` and `<stream>-counts`, and
/// with [`Config::dead_letters`] the stream `<stream>-dead`. Whatever is there already is checked instead, and what is missing is
/// made, so every process may call this, at any time. Of the stream of dead letters only the subject is checked: you may give it limits.
///
/// While [`repartition`](crate::repartition()) changes the number, this returns [`Error::Mismatch`] for the new number: it makes the new streams, and
/// a [`Producer`](crate::Producer) of the new number does not need this. Streams of the old number that are missing then are made closed. If a change begins while this makes
/// streams, it closes them and returns [`Error::Mismatch`]. Until then, or if it fails or is dropped before, they take messages that
/// nobody handles.
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
    let create = async || {
        create_all(client, config).await?;
        find_all(client, config).await.map(drop)
    };
    // Not all servers know what another process has just made.
    let passes = |source: &Cause| is_silent(source) || is_unknown(source);
    patiently(client, create, passes).await
}

async fn create_all(client: &Client, config: &Config) -> Result<(), Error> {
    check_version(client)?;
    let mut context = jetstream::new(client.clone());
    context.set_timeout(MOST);
    for bucket in config.buckets() {
        create_stream(&context, config.bucket_config(&bucket)).await?;
    }
    let [store, _] = buckets(&context, config).await?;
    if Layout::find(&store, config).await?.is_none() {
        // It is lost if the bucket was deleted. A second set of streams would deliver new messages before old ones.
        for (other, partition) in others(&context, config).await? {
            if find_partition(&context, &other, partition).await?.is_some() {
                return Err(config.other_partitions(other.partitions.to_string()));
            }
        }
        let first = Layout {
            now: config.partitions,
            next: None,
            revision: 0,
        };
        first.write(&store).await?;
    }
    let closes = Layout::read(&store, config).await?.check(config)?;
    let made = create_streams(&context, config, !closes).await?;
    // Others that are there are `repartition`'s business: it may have failed before the new ones take anything.
    close_late(&context, &store, config, made).await?;
    Layout::read(&store, config).await?.check(config)?;
    if let Some(subject) = &config.dead_letters {
        let dead = config.dead_config(subject);
        let (name, subjects) = (dead.name.clone(), dead.subjects.clone());
        // The rest of its configuration is its readers' business.
        let (found, _) = create_stream(&context, dead).await?;
        let what = format!("subjects (dead_letters) of the stream {name}");
        same(what, &found.subjects, &subjects)?;
    }
    Ok(())
}

/// The configurations of this fleet with other numbers, and their partitions, of which there are streams by name.
pub(crate) async fn others(
    context: &Context,
    config: &Config,
) -> Result<Vec<(Config, u16)>, Error> {
    let names = context.stream_names().try_collect::<Vec<String>>().await;
    let names = names.map_err(Error::server("listing the streams"))?;
    let other = |name: String| {
        let numbers = name.strip_prefix(&config.stream)?.strip_prefix('-')?;
        let (partitions, partition) = numbers.split_once('-')?;
        let (partitions, partition) = (partitions.parse().ok()?, partition.parse().ok()?);
        let config = Config {
            partitions,
            ..config.clone()
        };
        Some((config, partition)).filter(|(other, _)| other.stream_of(partition) == name)
    };
    let mut others: Vec<_> = names.into_iter().filter_map(other).collect();
    others.retain(|(other, _)| other.partitions != config.partitions);
    Ok(others)
}

/// Looks for a partition's stream. One that has its name, and not its subjects, is somebody else's.
pub(crate) async fn find_partition(
    context: &Context,
    config: &Config,
    partition: u16,
) -> Result<Option<Stream>, Error> {
    let wanted = config.stream_config(partition, false);
    let there = find(context, &wanted.name).await?;
    Ok(there.filter(|there| is_its(&there.cached_info().config, &wanted).is_ok()))
}

/// An error: the stream that has a partition's name is somebody else's, and is left as it is.
fn is_its(found: &stream::Config, wanted: &stream::Config) -> Result<(), Error> {
    let what = format!("subject_transform of the stream {}", wanted.name);
    same(what, &found.subject_transform, &wanted.subject_transform)
}

/// Finds out whether streams of others are in the places of partitions.
pub(crate) async fn check_names(context: &Context, config: &Config) -> Result<(), Error> {
    let check = async |partition| {
        let wanted = config.stream_config(partition, false);
        let there = find(context, &wanted.name).await?;
        there.map_or(Ok(()), |there| is_its(&there.cached_info().config, &wanted))
    };
    let checked = futures_util::stream::iter(0..config.partitions).map(check);
    checked.buffer_unordered(AT_ONCE).try_collect().await
}

/// Creates the streams of the partitions that are not there, and returns which. `open`: they take new messages.
pub(crate) async fn create_streams(
    context: &Context,
    config: &Config,
    open: bool,
) -> Result<Vec<u16>, Error> {
    let create = async |partition| {
        let wanted = config.stream_config(partition, open);
        let (found, was_missing) = create_stream(context, wanted.clone()).await?;
        is_its(&found, &wanted)?;
        Ok(was_missing.then_some(partition))
    };
    let created = futures_util::stream::iter(0..config.partitions)
        .map(create)
        .buffer_unordered(AT_ONCE);
    created
        .try_filter_map(async |made| Ok(made))
        .try_collect()
        .await
}

/// The bucket of owners, and that of counts.
pub(crate) async fn buckets(context: &Context, config: &Config) -> Result<[Store; 2], Error> {
    let [owners, counts] = config.buckets();
    Ok([
        bucket(context, owners).await?,
        bucket(context, counts).await?,
    ])
}

async fn bucket(context: &Context, name: String) -> Result<Store, Error> {
    let store = context.get_key_value(&name).await;
    store.map_err(|error| {
        let hint = match hint(&error) {
            "" if error.kind() == KeyValueErrorKind::GetBucket => ", which `create` makes",
            hint => hint,
        };
        Error::server(format!("looking for the bucket {name}{hint}"))(error)
    })
}

/// Returns the configuration of the stream that is there, or that it has created, and whether it was missing.
async fn create_stream(
    context: &Context,
    wanted: stream::Config,
) -> Result<(stream::Config, bool), Error> {
    let name = wanted.name.clone();
    if let Some(there) = find(context, &name).await? {
        return Ok((there.cached_info().config.clone(), false));
    }
    let began = Instant::now();
    loop {
        let error = match context.create_stream(wanted.clone()).await {
            Ok(created) => return Ok((created.cached_info().config.clone(), true)),
            Err(error) => error,
        };
        // Another process may have created it at this moment.
        if let Ok(there) = context.get_stream(&name).await {
            return Ok((there.cached_info().config.clone(), true));
        }
        // Or several servers are about to.
        if !passes(&error.kind()) || began.elapsed() >= PATIENCE {
            return Err(Error::server(format!("creating the stream {name}"))(error));
        }
        sleep(PAUSE).await;
    }
}

/// The server replies when the stream has a leader.
fn passes(kind: &CreateStreamErrorKind) -> bool {
    match kind {
        CreateStreamErrorKind::JetStream(error) => {
            error.error_code() == ErrorCode::STREAM_NAME_EXIST
        }
        kind => *kind == CreateStreamErrorKind::TimedOut,
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

/// Looks for a stream. `None`: there is none.
pub(crate) async fn find(context: &Context, name: &str) -> Result<Option<Stream>, Error> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_missing(&error.kind()) => Ok(None),
        Err(error) => {
            let doing = format!("looking for the stream {name}{}", hint(&error));
            Err(Error::server(doing)(error))
        }
    }
}

/// Finds the streams, in the order of the partitions, and the bucket, and compares them with the configuration.
pub(crate) async fn open(
    client: &Client,
    config: &Config,
) -> Result<(Context, Vec<Stream>, [Store; 2]), Error> {
    patiently(client, || find_all(client, config), is_silent).await
}

/// Does it again after errors of the server that may pass.
async fn patiently<T, F>(
    client: &Client,
    run: impl Fn() -> F,
    passes: impl Fn(&Cause) -> bool,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let began = Instant::now();
    loop {
        match run().await {
            Err(Error::Server { source, .. }) if passes(&*source) && began.elapsed() < PATIENCE => {
                sleep(PAUSE).await;
            }
            done => return done.map_err(|error| error.at(client)),
        }
    }
}

async fn find_all(
    client: &Client,
    config: &Config,
) -> Result<(Context, Vec<Stream>, [Store; 2]), Error> {
    check_version(client)?;
    let mut context = jetstream::new(client.clone());
    // Also of the handles that it makes.
    context.set_timeout(MOST);
    let stores = buckets(&context, config).await?;
    for store in &stores {
        let found = &store.stream.cached_info().config;
        let wanted = config.bucket_config(&store.name);
        let of = |setting: &str| format!("{setting} of the bucket {}", store.name);
        // A bucket in memory is empty after a restart of the server.
        same(of("storage"), &found.storage, &wanted.storage)?;
        let history = found.max_messages_per_subject;
        same(of("history"), &history, &wanted.max_messages_per_subject)?;
        same(of("replicas"), &found.num_replicas, &wanted.num_replicas)?;
        let ttl = (found.allow_message_ttl, wanted.allow_message_ttl);
        same(of("allow_message_ttl"), &ttl.0, &ttl.1)?;
    }
    let closes = Layout::read(&stores[0], config).await?.check(config)?;
    let streams = find_streams(&context, config, closes).await?;
    Ok((context, streams, stores))
}

/// Finds the partitions' streams, and compares them with the configuration. `closes`: some may be closed.
pub(crate) async fn find_streams(
    context: &Context,
    config: &Config,
    closes: bool,
) -> Result<Vec<Stream>, Error> {
    let streams = futures_util::stream::iter(0..config.partitions)
        .map(|partition| partition_stream(context, config, partition, closes))
        .buffered(AT_ONCE);
    streams.try_collect().await
}

/// Finds a partition's stream, and compares it with the configuration.
async fn partition_stream(
    context: &Context,
    config: &Config,
    partition: u16,
    closes: bool,
) -> Result<Stream, Error> {
    let mut wanted = config.stream_config(partition, true);
    let name = wanted.name.clone();
    let stream = context.get_stream(&name).await.map_err(|error| {
        let hint = match is_missing(&error.kind()) {
            true => ", which `create` makes",
            false => hint(&error),
        };
        Error::server(format!("looking for the stream {name}{hint}"))(error)
    })?;
    let found = &stream.cached_info().config;
    let closed = config.stream_config(partition, false);
    if closes && found.subjects == closed.subjects {
        wanted = closed;
    }
    let name = &wanted.name;
    let of = |setting: &str| format!("{setting} of the stream {name}");
    is_its(found, &wanted)?;
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
    Ok(stream)
}

/// A limit of the stream, as it is in [`Config`]. The server's -1 is none.
fn limit(found: i64) -> Option<u64> {
    u64::try_from(found).ok()
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
        let versions = ["2.12.0", "2.12.0-RC.1", "2.15.2", "3.0.0", "10.0"];
        assert!(!versions.into_iter().chain(["", "dev"]).any(is_old));
    }
}
