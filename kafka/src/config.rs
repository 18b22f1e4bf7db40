//! The settings of a consumer.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keyqueue::limiter::{ItemExponentialFailure, NoLimit, RateLimiter};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use crate::consumer::Consumer;
use crate::metadata::Metadata;
use crate::{Error, OrderBy};

/// What becomes of a record that has no retries left, or that its handler gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exhausted {
    /// It is written to the topic of [`Builder::dead_letters`], and finished when the brokers have acknowledged that. Until then
    /// its key waits.
    DeadLetter,
    /// It is finished, and counted.
    Skip,
    /// It is retried until it succeeds; the records behind it that have its key wait, others go on.
    Block,
}

/// How much of what was received and is not finished is in memory.
///
/// What counts is what waits, runs and waits for a retry. A record that is on its way comes on top, and so do the error of one that has
/// failed, up to 512 characters, or 8192 of one that is given up, until brokers have its letter; and what librdkafka prefetches: its property `queued.max.messages.kbytes`, 8192 here, for each partition. While brokers are slow to take dead letters,
/// librdkafka has a copy of each record whose letter is on its way: its property `queue.buffering.max.kbytes`, 1 GiB by default.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
    pub(crate) of_partition: Option<usize>,
}

impl Room {
    /// At most this many records in all, at least 1. A partition of which none is in memory may have one beyond that, within twice the
    /// [bytes](Self::bytes).
    #[must_use]
    pub fn records(records: usize) -> Self {
        let (bytes, of_partition) = (256 << 20, None);
        Room {
            records,
            bytes,
            of_partition,
        }
    }

    /// At most this many bytes in all, at least 1: keys, payloads, headers, and what the process keeps for each record.
    /// Default: 256 MiB.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// At most this many records of one partition. Of bytes, a partition has the same part as of records. Default: an equal share
    /// of the records among the partitions that the member has, so that a partition that waits takes no room from others. A partition that has
    /// taken more before others came keeps that: if one of its keys [blocks](Exhausted::Block) then, each of the others has one record
    /// in memory at a time. Where a key may block for long, set this to what a partition is to have in the largest assignment.
    #[must_use]
    pub fn of_partition(mut self, records: usize) -> Self {
        self.of_partition = Some(records);
        self
    }
}

/// A record's place, by which limiters tell records apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
}

/// The settings of a [`Consumer`]. Each has its default in the text of its method.
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    pub(crate) group: String,
    pub(crate) client: ClientConfig,
    /// Of the producer of dead letters.
    pub(crate) producer: ClientConfig,
    own: Vec<(String, String)>,
    pub(crate) topics: Vec<String>,
    pub(crate) order: OrderBy,
    pub(crate) concurrency: usize,
    pub(crate) room: Room,
    pub(crate) retries: u32,
    pub(crate) backoff: Box<dyn RateLimiter<Place>>,
    pub(crate) dead_letters: Option<String>,
    pub(crate) exhausted: HashMap<String, Exhausted>,
    pub(crate) otherwise: Option<Exhausted>,
    pub(crate) revoke_within: Duration,
    pub(crate) commit_every: Duration,
    pub(crate) metadata: Metadata,
    pub(crate) stalled_after: Duration,
    pub(crate) linger: Duration,
    pub(crate) brokers_session: Duration,
}

/// Where a partition begins whose committed offset is out of range. Without a committed offset, `Error` counts as `Earliest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    Earliest,
    Latest,
    Error,
}

/// Properties that would take from the consumer what it does itself, and what is wrong with setting them.
const RESERVED: [(&str, &str); 4] = [
    ("bootstrap.servers", OF_BUILDER),
    ("metadata.broker.list", OF_BUILDER),
    ("group.id", OF_BUILDER),
    (
        "transactional.id",
        "must not be set: each dead letter is written alone",
    ),
];
/// The same, if they are on.
const OFF: [(&str, &str); 5] = [
    ("enable.auto.commit", "must stay off: the consumer commits"),
    (
        "enable.auto.offset.store",
        "must stay off: the consumer commits",
    ),
    ("enable.partition.eof", "must stay off"),
    (
        "check.crcs",
        "must stay off: librdkafka skips what has a wrong sum, and its records would count as finished",
    ),
    (
        "delivery.report.only.error",
        "must stay off: a dead letter is written when its report says so",
    ),
];
/// Other names of properties that are set here, too. Of two names of one, chance would say which librdkafka takes.
const ALIASES: [(&str, &str); 2] = [
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("request.required.acks", "acks"),
];
const OF_BUILDER: &str = "is an argument of `Consumer::builder`";

impl Builder {
    pub(crate) fn new(servers: &str, group: &str) -> Self {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", servers);
        let mut producer = client.clone();
        // A letter that is refused for this long is tried again by its worker.
        producer.set("message.timeout.ms", "30000");
        client
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // A new group begins with the first record: none is lost.
            .set("auto.offset.reset", "earliest")
            // Members join and leave without a stop of the others.
            .set("partition.assignment.strategy", "cooperative-sticky")
            // The default, 1 s, is how long a queue that was full waits before it fetches.
            .set("fetch.queue.backoff.ms", "5")
            .set("queued.max.messages.kbytes", "8192");
        let (least, most) = (Duration::from_millis(100), Duration::from_secs(60));
        let limiter = ItemExponentialFailure::new(least, most);
        Builder {
            group: group.to_owned(),
            client,
            producer,
            own: Vec::new(),
            topics: Vec::new(),
            order: OrderBy::Key,
            concurrency: 64,
            room: Room::records(20_000),
            retries: 5,
            // These times are in range.
            backoff: limiter.map_or_else(|_| Box::new(NoLimit) as _, |of| Box::new(of) as _),
            dead_letters: None,
            exhausted: HashMap::new(),
            otherwise: None,
            revoke_within: Duration::from_secs(20),
            commit_every: Duration::from_millis(500),
            metadata: Metadata::default(),
            stalled_after: Duration::from_secs(60),
            linger: Duration::ZERO,
            brokers_session: Duration::from_secs(45),
        }
    }

    /// Sets a property of [librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md), for the consumer and
    /// for the producer of dead letters.
    ///
    /// Other than librdkafka's are the defaults of `auto.offset.reset` (`earliest`; `error` counts as that for a group that has committed nothing), `partition.assignment.strategy`
    /// (`cooperative-sticky`), `fetch.queue.backoff.ms` (5) and `queued.max.messages.kbytes` (8192); and, of the producer, `message.timeout.ms`
    /// (30 000). That producer has `acks=all` and `enable.idempotence=true`, whatever is set here. What the consumer needs otherwise, as
    /// `enable.auto.commit` or `check.crcs`, [`build`](Self::build) refuses.
    pub fn set(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.own.push((property.into(), value.into()));
        self
    }

    /// Sets the topics to subscribe to, at least one, and each once. A name that begins with `^` is a regular expression.
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// Sets which records are handled one after the other. Default: those of a key.
    pub fn order_by(mut self, order: OrderBy) -> Self {
        self.order = order;
        self
    }

    /// Sets how many records are handled at the same time, each by a task of the runtime: 1 to 65 536. Default: 64.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// Sets how much is in memory. Default: 20 000 records and 256 MiB.
    pub fn room(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// Sets how many times a record is retried before it is [`Exhausted`]. Default: 5. Then it is a dead letter, or what
    /// [`exhausted`](Self::exhausted) says. With neither it blocks its key, and is retried until it succeeds. There are fewer while keys that fail
    /// take more than half of the records or of the bytes of their partition's [`room`](Self::room): a record that fails then, after others
    /// of the partition have succeeded since its key began to fail, is exhausted, unless it [blocks](Exhausted::Block).
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the limiter that delays retries, of records by their [`Place`]. Default: 100 ms, doubled with each failure, up to a minute.
    pub fn backoff(mut self, limiter: impl RateLimiter<Place> + 'static) -> Self {
        self.backoff = Box::new(limiter);
        self
    }

    /// Sets the topic for records that are given up, which is then the default for all topics. Headers say where a letter is from:
    /// [`dead_letter`](crate::dead_letter). Without such a topic the default is [`Exhausted::Block`]. It must not be one of the
    /// [topics](Self::topics) that are read: if a regular expression matches it, the run ends with an error.
    pub fn dead_letters(mut self, topic: impl Into<String>) -> Self {
        self.dead_letters = Some(topic.into());
        self
    }

    /// Sets what becomes of the exhausted records of all topics.
    pub fn exhausted(mut self, exhausted: Exhausted) -> Self {
        self.otherwise = Some(exhausted);
        self
    }

    /// The same for one topic: for its name, also where [`topics`](Self::topics) has a regular expression that matches it.
    pub fn exhausted_of(mut self, topic: impl Into<String>, exhausted: Exhausted) -> Self {
        self.exhausted.insert(topic.into(), exhausted);
        self
    }

    /// Sets how long a revocation waits for handlers that run. Then it cancels them at their next await point, and their records
    /// are repeated by the next owner. With the 10 s that the last commit is tried for, it must be less than `max.poll.interval.ms` (five
    /// minutes): brokers remove a member that takes longer from its group, and others begin while its handlers run. Default: 20 s.
    pub fn revoke_within(mut self, limit: Duration) -> Self {
        self.revoke_within = limit;
        self
    }

    /// Sets how long after a change offsets are committed: at least 1 ms. Default: 500 ms.
    pub fn commit_every(mut self, interval: Duration) -> Self {
        self.commit_every = interval;
        self
    }

    /// Sets how what is finished beyond an offset is stored: in at most 10 922 wide characters, or 32 767 of ASCII. Default: 4096
    /// wide ones.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets after how long an unfinished record is a stall: a warning, and a row in [`Status`](crate::Status). Default: a minute.
    pub fn stalled_after(mut self, age: Duration) -> Self {
        self.stalled_after = age;
        self
    }

    /// Sets how long a batch waits until as many keys are there as it may have records. It counts keys, not their records: where there
    /// are fewer keys, as with [`OrderBy::Partition`], or where the [room](Self::room) is smaller than a batch, each batch waits for this long.
    /// Default: not at all.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the session that the brokers give members with `group.protocol=consumer`: their `group.consumer.session.timeout.ms`, or
    /// what the group has of its own, from 1 s to an hour. A member begins nothing unless brokers have taken a commit of it within half of
    /// that. Default: 45 s, which is also the brokers'. Other protocols ignore it: there a member begins nothing unless brokers have taken
    /// a commit of it within `session.timeout.ms`.
    pub fn brokers_session(mut self, session: Duration) -> Self {
        self.brokers_session = session;
        self
    }

    /// Checks the settings, and creates the client. It connects in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the first setting that is wrong, and its value. [`Error::Client`] is what librdkafka says of settings that
    /// it refuses together, such as a session that is longer than `max.poll.interval.ms`.
    ///
    /// ```
    /// use keyqueue_kafka::Consumer;
    ///
    /// let error = Consumer::builder("localhost:9092", "billing").topics(["orders"]).concurrency(0).build();
    /// assert_eq!(error.unwrap_err().to_string(), "concurrency = \"0\": from 1 to 65536");
    /// let error = Consumer::builder("localhost:9092", "billing").topics(["orders"]).set("no.such", "1").build();
    /// assert!(error.unwrap_err().to_string().starts_with("no.such = \"1\": "));
    /// ```
    pub fn build(mut self) -> Result<Consumer, Error> {
        self.check()?;
        for (mut property, value) in std::mem::take(&mut self.own) {
            if let Some((_, name)) = ALIASES.iter().find(|(alias, _)| *alias == property) {
                property = (*name).to_owned();
            }
            // As librdkafka reads them.
            let is_off = ["false", "f", "0"].contains(&&*value.to_lowercase());
            let off = OFF.iter().filter(|_| !is_off);
            if let Some((_, reason)) = RESERVED.iter().chain(off).find(|(of, _)| *of == property) {
                return Err(Error::config(property, value, *reason));
            }
            let is_consumer = value.trim_start().eq_ignore_ascii_case("consumer");
            if property == "group.protocol" && is_consumer {
                // The brokers assign then, and librdkafka refuses the setting.
                self.client.remove("partition.assignment.strategy");
            }
            self.producer.set(&property, &value);
            self.client.set(property, value);
        }
        self.producer
            .set("enable.idempotence", "true")
            .set("acks", "all");
        Consumer::create(self)
    }

    fn check(&self) -> Result<(), Error> {
        let (topics, room, tasks) = (&self.topics, self.room, self.concurrency);
        let of_partition = room.of_partition.unwrap_or(1);
        let letters = self.dead_letters.as_ref();
        let needs = |then: &Exhausted| *then == Exhausted::DeadLetter;
        let needs_letters = self.exhausted.values().chain(&self.otherwise).any(needs);
        let is_name = |topic: &String| !topic.is_empty() && !topic.starts_with('^');
        let has_letters = letters.map_or(!needs_letters, is_name);
        let has_pattern = topics.iter().any(|topic| topic.starts_with('^'));
        let is_known = |topic: &String| is_name(topic) && (has_pattern || topics.contains(topic));
        let unknown = self.exhausted.keys().find(|topic| !is_known(topic));
        let is_read = letters.is_some_and(|topic| topics.contains(topic));
        let letters = letters.map_or("", String::as_str);
        let distinct: HashSet<_> = topics.iter().collect();
        let has_topics = !topics.is_empty()
            && distinct.len() == topics.len()
            && !topics.iter().any(String::is_empty);
        let every = self.commit_every;
        let check =
            |field: &'static str, value: &dyn ToString, holds, rule: &'static str| match holds {
                true => Ok(()),
                false => Err(Error::config(field, value.to_string(), rule)),
            };
        let names = "at least one name, none of them empty, none twice";
        check("topics", &topics.join(","), has_topics, names)?;
        check("group", &self.group, !self.group.is_empty(), "a name")?;
        let holds = (1..=1 << 16).contains(&tasks);
        check("concurrency", &tasks, holds, "from 1 to 65536")?;
        check(
            "room.records",
            &room.records,
            room.records > 0,
            "at least 1",
        )?;
        check("room.bytes", &room.bytes, room.bytes > 0, "at least 1")?;
        let holds = (1..=room.records).contains(&of_partition);
        let rule = "from 1 to room.records";
        check("room.of_partition", &of_partition, holds, rule)?;
        let holds = every.as_millis() > 0;
        check(
            "commit_every",
            &format!("{every:?}"),
            holds,
            "at least 1 ms",
        )?;
        let session = self.brokers_session;
        check(
            "brokers_session",
            &format!("{session:?}"),
            (1..=3600).contains(&session.as_secs()),
            "from 1 s to an hour",
        )?;
        let (holds, rule) = match self.metadata {
            Metadata::Wide(most) => (most <= 10_922, "at most 10922 wide characters"),
            Metadata::Ascii(most) => (most <= 32_767, "at most 32767 characters"),
            Metadata::Off => (true, ""),
        };
        let metadata = format!("{:?}", self.metadata);
        check("metadata", &metadata, holds, rule)?;
        check("dead_letters", &letters, has_letters, "the name of a topic")?;
        let rule = "not one of the topics that are read";
        check("dead_letters", &letters, !is_read, rule)?;
        let topic = unknown.map_or("", String::as_str);
        let rule = "the name of a topic that is read, not a pattern";
        check("exhausted_of", &topic, unknown.is_none(), rule)
    }

    /// For how long a commit that brokers have taken shows that this member is in its group; and where partitions begin. By the settings
    /// as librdkafka reads them: it takes `6000ms`, and many spellings of `auto.offset.reset`.
    pub(crate) fn lease_and_reset(&self) -> Result<(Duration, Reset), KafkaError> {
        let native = self.client.create_native_config()?;
        let lease = if native.get("group.protocol")? == "consumer" {
            self.brokers_session / 2
        } else {
            let session = native.get("session.timeout.ms")?;
            Duration::from_millis(session.parse().unwrap_or(45_000))
        };
        let reset = match native.get("auto.offset.reset")?.as_str() {
            "largest" => Reset::Latest,
            "error" => Reset::Error,
            _ => Reset::Earliest,
        };
        Ok((lease, reset))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("group", &self.group)
            .field("topics", &self.topics)
            .field("order", &self.order)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // R2
    fn a_lease_is_as_long_as_the_session_that_librdkafka_reads() {
        let lease = |property: &str, value: &str| {
            let builder = Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
            let consumer = builder.set(property, value).build();
            consumer.expect("settings").shared.lease.limit.as_millis()
        };
        for session in ["6000", "6000 ", " 6000", "6000ms", "0x1770"] {
            assert_eq!(lease("session.timeout.ms", session), 6000, "{session:?}");
        }
        assert_eq!(lease("client.id", "one"), 45_000);
        assert_eq!(lease("group.protocol", " Consumer"), 22_500);
    }

    #[test] // R1, R4: records would be skipped, or no dead letter could be written
    fn a_property_that_breaks_a_promise_is_refused() {
        for (property, value) in [("check.crcs", "true"), ("transactional.id", "one")] {
            let builder = Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
            let error = builder.set(property, value).build().unwrap_err();
            assert!(error.to_string().starts_with(property), "{error}");
        }
        for (property, _) in OFF {
            let builder = Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
            let built = builder.set(property, "False").build();
            assert!(built.is_ok(), "{property} stays off");
        }
    }

    #[test] // R4
    fn a_property_has_one_name() {
        let builder = Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
        let builder = builder.set("delivery.timeout.ms", "7000");
        let consumer = builder.set("request.required.acks", "1").build();
        let producer = &consumer.expect("settings").shared.settings.producer;
        assert_eq!(producer.get("message.timeout.ms"), Some("7000"));
        assert_eq!(producer.get("acks"), Some("all"));
        for alias in ["delivery.timeout.ms", "request.required.acks"] {
            assert_eq!(producer.get(alias), None, "{alias}");
        }
    }
}
