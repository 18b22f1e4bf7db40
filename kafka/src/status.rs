//! What a consumer is doing, for people and for the series.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metrics::{counter, gauge};

use crate::lock;
use crate::shared::Shared;
use crate::tenure::Tenure;

/// A first commit takes less.
const HELD_UP: Duration = Duration::from_millis(500);

/// What a consumer is doing: [`Consumer::status`](crate::Consumer::status).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Its group.
    pub group: String,
    /// The topic of its dead letters.
    pub dead_letter_topic: Option<String>,
    /// The partitions that it has.
    pub partitions: Vec<PartitionStatus>,
    /// Records whose handlers succeeded.
    pub finished: u64,
    /// Retries of records.
    pub retries: u64,
    /// Records that were written as dead letters.
    pub dead_letters: u64,
    /// Records that were skipped, as their topic says.
    pub skipped: u64,
    /// Records that were read again after a restart, and not repeated, because the metadata said that they were finished.
    pub remembered: u64,
    /// Commits of partitions that failed.
    pub commit_errors: u64,
    /// Partitions, with their topics, of which it cannot be read where they begin: they have no leader, it does not reply, or the
    /// committed offset is out of range and `auto.offset.reset` is `error`. They begin when it can be; one whose offset goes out of range
    /// later, when it is assigned again. Also those that could not be read on, until a record of them is read: one has a batch that
    /// librdkafka cannot read, such as one in zstd without the feature `zstd`, or this user must not read its topic. `last_error` may say
    /// why. A broker's own error, such as of a damaged log, is in `last_error` alone.
    pub unread: Vec<(String, i32)>,
    /// The last error that the client has reported.
    pub last_error: Option<String>,
    /// Nothing begins, for this long, which is half a second at least: brokers have taken no commit for `session.timeout.ms`, or with
    /// `group.protocol=consumer` for half of [`Builder::brokers_session`](crate::Builder::brokers_session), so another member may have these
    /// partitions by now. `last_error` may say why.
    pub held_up: Option<Duration>,
}

/// A partition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The lowest offset that is not finished.
    pub base: u64,
    /// The offset that is read next; `None` if nothing was read since the assignment, and it did not begin at the end of the log.
    pub next: Option<u64>,
    /// The offset that was committed last.
    pub committed: Option<i64>,
    /// Offsets beyond `base` that are finished, or gaps.
    pub finished_beyond: u64,
    /// Records in memory.
    pub records: usize,
    /// The bytes of these.
    pub bytes: usize,
    /// Records that handlers have, and those whose dead letters are on their way.
    pub running: usize,
    /// Records in memory that have failed.
    pub failing: usize,
    /// It is given back: nothing begins any more.
    pub is_leaving: bool,
    /// The record at `base`, which keeps the offset from rising.
    pub oldest: Option<Oldest>,
}

/// The oldest record of a partition that is not finished.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Oldest {
    /// Its offset.
    pub offset: u64,
    /// Its key; what is not UTF-8 is replaced.
    pub key: Option<String>,
    /// For how long it has been in memory.
    pub age: Duration,
    /// Why it is not finished.
    pub doing: Doing,
    /// How many attempts have failed.
    pub attempts: u32,
    /// The last error.
    pub error: Option<String>,
    /// It has been there for longer than [`Builder::stalled_after`](crate::Builder::stalled_after).
    pub is_stalled: bool,
}

/// Why a record is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// It waits for a worker, for a record of its key, or for the end of a delay that its handler wanted.
    Waiting,
    /// Its handler runs.
    Running,
    /// It has failed, and waits for its next attempt.
    BackingOff,
    /// It is given up, and brokers have not taken its dead letter yet; or they have refused it, and that is tried again.
    Unburied,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doing::Waiting => "waits",
            Doing::Running => "runs",
            Doing::BackingOff => "waits for a retry",
            Doing::Unburied => "waits for its dead letter",
        })
    }
}

impl Status {
    pub(crate) fn of(shared: &Shared, now: Instant) -> Self {
        let counts = &shared.counts;
        let tenures = lock(&shared.tenures).clone();
        let partition = |tenure| PartitionStatus::of(tenure, shared.settings.stalled_after, now);
        let partitions: Vec<_> = tenures.iter().map(|tenure| partition(tenure)).collect();
        // What nothing waits for holds nothing up.
        let ages = partitions
            .iter()
            .filter_map(|of| Some(of.oldest.as_ref()?.age));
        let (ended, waits) = (shared.lease.ended(now), ages.max());
        Status {
            held_up: ended.min(waits).filter(|time| *time >= HELD_UP),
            group: shared.settings.group.clone(),
            dead_letter_topic: shared.settings.dead_letters.clone(),
            partitions,
            finished: counts.finished.get(),
            retries: counts.retries.get(),
            dead_letters: counts.dead_letters.get(),
            skipped: counts.skipped.get(),
            remembered: counts.remembered.get(),
            commit_errors: counts.commit_errors.get(),
            unread: lock(&shared.unread).clone(),
            last_error: shared.errors.last(),
        }
    }

    /// Sets the series.
    pub(crate) fn show(&self, shared: &Shared) {
        let group = &shared.settings.group;
        for (name, growth) in shared.counts.growth() {
            counter!(name, "group" => group.clone()).increment(growth);
        }
        self.partitions
            .iter()
            .for_each(|partition| partition.show(group));
    }
}

impl PartitionStatus {
    pub(crate) fn of(tenure: &Tenure, stalled_after: Duration, now: Instant) -> Self {
        let seen = tenure.seen();
        let (records, bytes) = tenure.held();
        let beyond = seen
            .progress
            .finished()
            .iter()
            .map(|range| range.end - range.start);
        let oldest = seen.oldest.map(|record| {
            let trouble = record.trouble().filter(|of| of.attempts > 0);
            let age = now.saturating_duration_since(record.read);
            Oldest {
                offset: record.offset,
                key: record
                    .key()
                    .map(|key| String::from_utf8_lossy(key).into_owned()),
                age,
                // Ordering: Relaxed; a mark to show.
                doing: match &trouble {
                    _ if record.running.load(Ordering::Relaxed) => Doing::Running,
                    Some(trouble) if trouble.is_dead => Doing::Unburied,
                    Some(_) => Doing::BackingOff,
                    None => Doing::Waiting,
                },
                attempts: trouble.as_ref().map_or(0, |trouble| trouble.attempts),
                error: trouble.map(|trouble| match trouble.refused {
                    Some(refused) => format!("{} (the dead letter: {refused})", trouble.error),
                    None => trouble.error,
                }),
                is_stalled: age >= stalled_after,
            }
        });
        PartitionStatus {
            topic: tenure.topic.to_string(),
            partition: tenure.partition,
            base: seen.progress.first_unfinished(),
            next: seen.next,
            committed: seen.committed,
            finished_beyond: beyond.sum(),
            records,
            bytes,
            running: tenure.running(),
            failing: seen.failing,
            is_leaving: tenure.is_revoked(),
            oldest,
        }
    }

    /// Sets the gauges of the partition.
    fn show(&self, group: &str) {
        let labels = [
            ("group", group.to_owned()),
            ("topic", self.topic.clone()),
            ("partition", self.partition.to_string()),
        ];
        let oldest = self.oldest.as_ref().map_or(Duration::ZERO, |of| of.age);
        for (name, value) in [
            ("records", self.records as f64),
            ("bytes", self.bytes as f64),
            ("running", self.running as f64),
            ("failing", self.failing as f64),
            ("base_offset", self.base as f64),
            ("finished_beyond", self.finished_beyond as f64),
            ("committed_offset", self.committed.unwrap_or(-1) as f64),
            ("oldest_seconds", oldest.as_secs_f64()),
        ] {
            gauge!(format!("keyqueue_kafka_{name}"), &labels).set(value);
        }
    }

    /// Sets the gauges of a partition that is given back, with the offsets that it has left. What is in memory or runs of it does not
    /// count any more.
    pub(crate) fn show_gone(mut self, group: &str) {
        (self.records, self.bytes, self.running) = (0, 0, 0);
        (self.failing, self.finished_beyond, self.oldest) = (0, 0, None);
        self.show(group);
    }
}
