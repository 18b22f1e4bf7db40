//! What a fleet is doing, as its server has it: [`status()`] works in any process that has a client.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use async_nats::Client;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::{self, Context};
use futures_util::{StreamExt, TryStreamExt};
use serde::{Serialize, Serializer};
use tokio::try_join;

use crate::dead_letter;
use crate::fleet::attempts::count;
use crate::fleet::bucket;
use crate::layout::{Layout, consumer_fence};
use crate::ownership::{Key, Value};
use crate::scan::scan;
use crate::stream::{self, AT_ONCE};
use crate::{Config, Error};

/// A fleet, as it was while [`status()`] looked at it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Its partitions, by number. There are as many as the fleet has now, which may differ from [`Config::partitions`].
    pub partitions: Vec<Partition>,
    /// The number of partitions that it will have, while [`repartition`](crate::repartition()) changes the number: those of
    /// [`partitions`](Self::partitions) take no new messages then.
    pub changes_to: Option<u16>,
    /// The number of dead letters. `None`: the configuration has none, or there is no stream for them.
    pub dead_letters: Option<u64>,
}

impl Status {
    /// Returns how many partitions nobody owns: [`Partition::is_owned`].
    #[must_use]
    pub fn unowned(&self) -> usize {
        let owned = self.partitions.iter().filter(|of| of.is_owned());
        self.partitions.len() - owned.count()
    }
}

/// A partition of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Partition {
    /// Its number, from 0.
    pub partition: u16,
    /// The replica that its record names. `None`: no replica has claimed it, or the last one has handed it over.
    pub owner: Option<Owner>,
    /// The epoch of the owner: that of the [`Fence`](crate::Fence) of its deliveries.
    pub epoch: Option<u64>,
    /// How many messages its stream has: those that wait, those that replicas hold, and delayed ones. `None`: there is no
    /// stream, which [`create`](crate::create) makes.
    pub messages: Option<u64>,
    /// The consumer through which the owner receives. `None`: there is none.
    pub consumer: Option<Consumer>,
    /// How many of its keys have failed since they last succeeded.
    pub failed_keys: u64,
}

impl Partition {
    /// Whether a replica owns it that renews its lease. If not, its messages wait until another replica has taken it, which
    /// happens after a lease, if there is one.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        let session = self.owner.as_ref().map(|owner| owner.session_state);
        matches!(session, Some(SessionState::Live | SessionState::Leaving))
    }
}

/// The replica that owns a partition, or was the last one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Owner {
    /// Its name, as it was passed to [`Fleet::join`](crate::Fleet::join).
    pub replica: String,
    /// Its session: `<replica>.<random>.<n>`.
    pub session: String,
    /// What the session is doing.
    pub session_state: SessionState,
    /// How long ago the session was renewed, in seconds when it is serialized. `None`: it has no record.
    #[serde(serialize_with = "seconds")]
    pub renewed_ago: Option<Duration>,
}

/// What the session of a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionState {
    /// It renews its lease.
    Live,
    /// It renews its lease, and hands over its partitions.
    Leaving,
    /// It has not renewed its lease for longer than the lease: the replica is dead, stopped or cut off from the server.
    Silent,
    /// It has ended, and its record says so, or is gone.
    Ended,
}

/// The consumer of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Consumer {
    /// Its name: `p<partition>-e<epoch>-<n>`.
    pub name: String,
    /// Messages that the owner holds: delivered, and not acknowledged.
    pub unacknowledged: u64,
    /// Messages that the server has not delivered yet.
    pub undelivered: u64,
}

fn seconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

/// Looks at a fleet. The requests are sent 16 at a time. The parts are read one after the other, so a message that moves
/// meanwhile may be counted twice, or not at all.
///
/// It reads the records of all sessions, partitions and keys that have failed: with a hundred thousand failed keys some
/// megabytes.
///
/// # Errors
///
/// [`Error::Config`] if the configuration is out of range, [`Error::Mismatch`] if the number of partitions is unknown,
/// [`Error::Server`] if the server cannot be reached, or there is no such fleet. It waits for as long as the client does for each
/// request: use a `timeout` if somebody waits for it.
///
/// ```no_run
/// # async fn show(client: async_nats::Client) -> Result<(), keyqueue_nats::Error> {
/// use keyqueue_nats::{Config, status};
///
/// let fleet = status(&client, &Config::default()).await?;
/// for partition in fleet.partitions.iter().filter(|partition| !partition.is_owned()) {
///     println!("nobody owns partition {}: {:?} messages wait", partition.partition, partition.messages);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn status(client: &Client, config: &Config) -> Result<Status, Error> {
    config.check()?;
    let context = jetstream::new(client.clone());
    let stores = stream::buckets(&context, config).await?;
    let layout = Layout::read(&stores[0], config).await?;
    let config = &Config {
        partitions: layout.now,
        ..config.clone()
    };
    let streams = futures_util::stream::iter(0..config.partitions)
        .map(|partition| stream_of(&context, config.stream_of(partition)))
        .buffered(AT_ONCE);
    let (records, streams, dead_letters) = try_join!(
        Records::read(&stores, config),
        streams.try_collect::<Vec<_>>(),
        dead_letter::count(client, config),
    )?;
    let partitions = (0..).zip(streams).map(|(partition, (messages, consumer))| {
        let owner = records.owner(partition, config.lease);
        Partition {
            partition,
            epoch: owner.as_ref().map(|(_, epoch)| *epoch),
            owner: owner.map(|(owner, _)| owner),
            messages,
            consumer,
            failed_keys: records.failed.get(&partition).copied().unwrap_or(0),
        }
    });
    Ok(Status {
        partitions: partitions.collect(),
        changes_to: layout.next,
        dead_letters,
    })
}

/// The records of the bucket that concern the fleet with its number of partitions.
#[derive(Default)]
struct Records {
    /// The session that a partition's record names, and its epoch.
    owners: HashMap<u16, (String, u64)>,
    /// `None`: of an unknown form, which counts as missing.
    sessions: HashMap<String, (Option<SessionState>, Duration)>,
    failed: HashMap<u16, u64>,
}

impl Records {
    async fn read(stores: &[Store], config: &Config) -> Result<Self, Error> {
        let mut records = Records::default();
        for store in stores {
            let doing = format!("reading the bucket {}", store.name);
            let read = records.read_all(store, config).await;
            read.map_err(Error::server(doing))?;
        }
        Ok(records)
    }

    async fn read_all(&mut self, store: &Store, config: &Config) -> Result<(), async_nats::Error> {
        let prefix = format!("{}{}.", store.prefix, config.partitions);
        let all = DeliverPolicy::LastPerSubject;
        let scanned = scan(&store.stream, format!("{prefix}>"), all, usize::MAX).await?;
        for message in scanned.messages {
            let info = message.info()?;
            let age = Duration::try_from(scanned.began - info.published).unwrap_or_default();
            if let Some(name) = message.subject.strip_prefix(&*prefix) {
                self.add(name, &message.payload, info.stream_sequence, age);
            }
        }
        Ok(())
    }

    /// Takes in a record, whose form [`ownership`](crate::ownership) has, or that counts the failures of a key. A deleted one has no
    /// value.
    fn add(&mut self, name: &str, value: &[u8], revision: u64, age: Duration) {
        match bucket::key(name) {
            Some(Key::Session(session)) => {
                let state = match bucket::decode(value) {
                    Some(Value::Live { .. }) => Some(SessionState::Live),
                    Some(Value::Leaving { .. }) => Some(SessionState::Leaving),
                    Some(Value::Ended) => Some(SessionState::Ended),
                    _ => None,
                };
                self.sessions.insert(session, (state, age));
            }
            Some(Key::Partition(partition)) => {
                if let Some(Value::Owned { session, base }) = bucket::decode(value) {
                    self.owners.insert(partition, (session, base + revision));
                }
            }
            // A key that has succeeded has 0 for a second, and is then deleted.
            None => {
                let mut parts = name.split('.');
                let kind = parts.next();
                let partition = parts.next().and_then(|partition| partition.parse().ok());
                if let (Some("a"), Some(partition), 1..) = (kind, partition, count(value)) {
                    *self.failed.entry(partition).or_default() += 1;
                }
            }
        }
    }

    fn owner(&self, partition: u16, lease: Duration) -> Option<(Owner, u64)> {
        let (session, epoch) = self.owners.get(&partition)?;
        let (state, age) = match self.sessions.get(session) {
            Some((Some(state), age)) => (*state, Some(*age)),
            _ => (SessionState::Ended, None),
        };
        let is_late = age.is_some_and(|age| age > lease);
        let owner = Owner {
            replica: session.split('.').next().unwrap_or_default().to_owned(),
            session: session.clone(),
            session_state: match state {
                SessionState::Live | SessionState::Leaving if is_late => SessionState::Silent,
                state => state,
            },
            renewed_ago: age,
        };
        Some((owner, *epoch))
    }
}

/// Counts the messages of a partition's stream, and finds its consumer.
async fn stream_of(
    context: &Context,
    name: String,
) -> Result<(Option<u64>, Option<Consumer>), Error> {
    let Some(stream) = stream::find(context, &name).await? else {
        return Ok((None, None));
    };
    let doing = format!("listing the consumers of the stream {name}");
    let consumers = stream.consumers().try_collect::<Vec<_>>().await;
    let consumers = consumers.map_err(Error::server(doing))?;
    // For a moment there may be a former owner's, too.
    let newest = consumers
        .into_iter()
        .filter_map(|info| Some((consumer_fence(&info.name)?.epoch, info)))
        .max_by_key(|(epoch, info)| (*epoch, SystemTime::from(info.created)));
    let consumer = newest.map(|(_, info)| Consumer {
        unacknowledged: info.num_ack_pending as u64,
        undelivered: info.num_pending,
        name: info.name,
    });
    Ok((Some(stream.cached_info().state.messages), consumer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_known_by_its_records() {
        let [soon, lease, late] = [1, 2, 3].map(Duration::from_secs);
        let mut records = Records::default();
        for (name, value, age) in [
            ("s.a.x.0", "live 3", soon),
            ("s.b.x.0", "leaving 4", soon),
            ("s.c.x.0", "live 9", late),
            ("s.d.x.0", "ended", late),
            ("s.e.x.0", "", soon),
        ] {
            records.add(name, value.as_bytes(), 1, age);
        }
        let cases = [
            ("a", SessionState::Live),
            ("b", SessionState::Leaving),
            ("c", SessionState::Silent),
            ("d", SessionState::Ended),
            ("e", SessionState::Ended),
            ("f", SessionState::Ended),
        ];
        for ((replica, state), partition) in cases.into_iter().zip(0..) {
            let value = format!("owned {replica}.x.0");
            records.add(&format!("p.{partition}"), value.as_bytes(), 42, soon);
            let (owner, epoch) = records.owner(partition, lease).unwrap();
            assert_eq!((&*owner.replica, owner.session_state), (replica, state));
            assert_eq!(epoch, 42);
        }
        records.add("p.7", b"free", 43, soon);
        assert!(records.owner(7, lease).is_none() && records.owner(8, lease).is_none());
    }

    #[test]
    fn a_key_counts_as_failed_until_it_succeeds() {
        let mut records = Records::default();
        for (name, value) in [
            ("a.3.x", "2"),
            ("a.3.y", "1"),
            ("a.3.z", "0"),
            ("a.4.x", ""),
        ] {
            records.add(name, value.as_bytes(), 1, Duration::ZERO);
        }
        assert_eq!(records.failed, HashMap::from([(3, 2)]));
    }
}
