//! The threads for requests that wait for a reply: one for commits, and one that reads what is committed.
//!
//! Each does one after the other, in the order in which the driver asks. So the driver never waits for a broker, a later commit
//! never arrives before an earlier one, and the reply to the last commit of a tenure says that none is on its way. No commit waits
//! while an assignment is read, which takes a round trip for each of some hundreds of partitions: commits renew the [lease](crate::lease).
//! The driver has nothing read while a commit is on its way: it may be of an earlier tenure of the same partition.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};

use crate::caught;
use crate::client::{self, Client, Partition};
use crate::config::Reset;
use crate::metadata;
use crate::native;
use crate::shared::Shared;
use crate::tenure::{Snapshot, Start, Tenure};

/// How long it may take to read where the partitions of an assignment begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// With less time than this left, none is tried.
const LEAST: Duration = Duration::from_millis(100);
/// After which time a last commit is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// For how long lists of which brokers refuse some partitions are halved.
const APART: Duration = Duration::from_secs(2);
/// The bytes of a commit, nearly. Brokers write one to their log as a batch, and refuse all of one that is larger than a message may be:
/// 1 MiB by default. What they write has the name of the group for each partition, too.
const BYTES: usize = 256 << 10;
/// How long it may take to end.
const NOTICE: Duration = Duration::from_secs(1);

pub(crate) enum Job {
    /// Reads where partitions begin: those of an assignment, or some that could not be read.
    Load(u64, Vec<Partition>, Of),
    /// Commits these. With a number it is the last commit of these tenures: it is tried again until this time.
    Commit(Option<(u64, Instant)>, Vec<Ended>),
}

pub(crate) enum Of {
    Assignment,
    /// For this long at most, as another assignment waits for it, and the end.
    Unread(Duration),
}

pub(crate) enum Reply {
    Loaded(u64, Result<Loaded, KafkaError>),
    /// The number of a commit that is the last one, and how many of its partitions failed.
    Committed(Option<u64>, usize),
    /// The job has panicked, with this message.
    Panicked(String),
}

/// Of each partition that was to be read, one of these.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) starts: Vec<(Partition, Start)>,
    /// Their leader does not say where they begin, or there is none.
    pub(crate) failed: Vec<Partition>,
    /// There was no time left for them.
    pub(crate) untried: Vec<Partition>,
}

/// Ends when it is dropped, and waits for that, but not long: librdkafka can wait for a coordinator for a session. Then the client is
/// closed by a thread of the clerk, once that is over.
pub(crate) struct Clerk {
    /// For commits, and for loads.
    jobs: Vec<Sender<Job>>,
    pub(crate) replies: Receiver<Reply>,
    threads: Vec<JoinHandle<()>>,
}

impl Clerk {
    pub(crate) fn start(client: &Arc<Client>, shared: &Arc<Shared>) -> std::io::Result<Self> {
        let (to_driver, replies) = channel();
        let (mut jobs, mut threads) = (Vec::new(), Vec::new());
        for name in ["keyqueue-kafka-clerk", "keyqueue-kafka-loads"] {
            let (to_thread, of_driver) = channel();
            let (client, shared) = (Arc::clone(client), Arc::clone(shared));
            let to_driver = to_driver.clone();
            let work = move || {
                for job in of_driver {
                    let reply = caught(|| match job {
                        Job::Load(id, partitions, of) => {
                            Reply::Loaded(id, load(&client, &shared, &partitions, of))
                        }
                        Job::Commit(last, snapshots) => {
                            let failed = store(&client, &shared, last, &snapshots);
                            Reply::Committed(last.map(|(id, _)| id), failed)
                        }
                    });
                    let reply = reply.unwrap_or_else(Reply::Panicked);
                    // An error: the driver has ended.
                    _ = to_driver.send(reply);
                    shared.bell.ring();
                }
            };
            jobs.push(to_thread);
            threads.push(thread::Builder::new().name(name.into()).spawn(work)?);
        }
        Ok(Clerk {
            jobs,
            replies,
            threads,
        })
    }

    pub(crate) fn ask(&self, job: Job) {
        let thread = usize::from(matches!(job, Job::Load(..)));
        // It receives until this is dropped.
        _ = self.jobs.get(thread).map(|jobs| jobs.send(job));
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.jobs.clear();
        let end = Instant::now() + NOTICE;
        let over = loop {
            let rest = end.saturating_duration_since(Instant::now());
            if let Err(over) = self.replies.recv_timeout(rest) {
                break over;
            }
        };
        if over == RecvTimeoutError::Disconnected {
            self.threads.drain(..).for_each(|thread| _ = thread.join());
        }
    }
}

/// Commits, and returns how many partitions failed.
fn store(
    client: &Client,
    shared: &Shared,
    last: Option<(u64, Instant)>,
    snapshots: &[Ended],
) -> usize {
    // A tenure that ends gets a last commit, and none before that from a moment that has passed. A lost assignment is another member's.
    let is_due = |(tenure, _): &&Ended| match last {
        Some(_) => !tenure.is_lost(),
        None => !tenure.is_revoked(),
    };
    let mut due: Vec<_> = snapshots.iter().collect();
    let mut with_metadata = true;
    // Not if it has waited for its turn for too long.
    let is_over = || last.is_some_and(|(_, until)| Instant::now() >= until);
    let mut refused = 0;
    loop {
        due.retain(is_due);
        if due.is_empty() || is_over() {
            break;
        }
        shared.counts.commits.add(1);
        let sent = Instant::now();
        let may_go = |part: &[&Ended]| !is_over() && part.iter().all(is_due);
        let results = commit(client, &due, with_metadata, may_go);
        // Of an assignment that is lost it is not sure with which epoch it was sent.
        if results.iter().any(|(result, _)| result.is_ok()) && !client.assignment_lost() {
            shared.lease.renew(sent);
        }
        let is_unknown = |(result, _): &(Result<(), KafkaError>, bool)| {
            let code = result
                .as_ref()
                .err()
                .and_then(KafkaError::rdkafka_error_code);
            code == Some(RDKafkaErrorCode::UnknownMemberId)
        };
        if results.iter().any(is_unknown) {
            shared.lease.refuse(sent);
        }
        let (mut again, mut is_too_large) = (Vec::new(), false);
        for (ended, (result, is_own)) in due.iter().copied().zip(results) {
            let (tenure, snapshot) = ended;
            match result {
                Ok(()) if with_metadata => {
                    tenure.committed(snapshot);
                    shared.counts.left_out.add(snapshot.written.left_out);
                }
                // Without its metadata it is not all that has to be committed.
                Ok(()) => {}
                Err(error) => {
                    is_too_large |= match error.rdkafka_error_code() {
                        Some(RDKafkaErrorCode::OffsetMetadataTooLarge) => true,
                        Some(RDKafkaErrorCode::InvalidCommitOffsetSize) => is_own,
                        _ => false,
                    };
                    // That does not pass in a moment, and commits of others, which renew the lease, wait for this thread.
                    match is_own && is_of_topic(&error) {
                        true => refused += 1,
                        false => again.push(ended),
                    }
                    shared.counts.commit_errors.add(1);
                    let (topic, partition) = (&*tenure.topic, tenure.partition);
                    let offset = snapshot.offset;
                    tracing::info!(target: "keyqueue_kafka", topic, partition, offset, %error, "an offset is not committed");
                    if shared.lease.ended(Instant::now()).is_some() || tenure.waits_for_commit() {
                        shared
                            .errors
                            .note(format!("an offset is not committed: {error}"));
                    }
                }
            }
        }
        due = again;
        if is_too_large && with_metadata {
            // The brokers take less than they were given. Once without, and with less from now on.
            shared.shrink_metadata();
            with_metadata = false;
            continue;
        }
        // While the group is between two generations, brokers refuse what they take a moment later.
        let again = last.is_some_and(|(_, until)| Instant::now() + AGAIN < until);
        if due.is_empty() || !again || client.client().fatal_error().is_some() {
            break;
        }
        thread::sleep(AGAIN);
    }
    refused + due.len()
}

/// Whether brokers refuse a partition for what is wrong with its topic. librdkafka has sent it three times if they do not know that.
fn is_of_topic(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::TopicAuthorizationFailed
        )
    )
}

/// Whether brokers may take a commit of some of its partitions. Other errors are of the group.
fn is_of_some(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    // Kafka 4.2 has no reason for a commit that is too large.
    let is_large = matches!(
        code,
        Some(
            RDKafkaErrorCode::OffsetMetadataTooLarge
                | RDKafkaErrorCode::InvalidCommitOffsetSize
                | RDKafkaErrorCode::Unknown
        )
    );
    is_of_topic(error) || is_large || code == Some(RDKafkaErrorCode::AssignmentLost)
}

/// Cuts a list of partitions with these bytes into parts of `BYTES` at most, or of one partition.
fn cut(sizes: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let (mut parts, mut bytes) = (Vec::<Range<usize>>::new(), 0);
    for (index, size) in sizes.enumerate() {
        bytes += size;
        match parts.last_mut() {
            Some(last) if bytes <= BYTES => last.end = index + 1,
            _ => {
                parts.push(index..index + 1);
                bytes = size;
            }
        }
    }
    parts
}

/// Commits these, in parts that are not too large, and returns the result of each, and whether that is its own.
///
/// If brokers refuse some partitions and take others, librdkafka gives all of them the error of one. So a list is committed again in
/// halves if the reason for the refusal may be that of some. One that may not go any more, because a partition of it is lost meanwhile for example, is
/// not sent. There is a limit,
/// as librdkafka sends a list three times if brokers know none of its partitions. librdkafka limits each wait: by the time of a request
/// if the coordinator is known, otherwise by the session's. So nothing is sent behind an error of the group.
fn commit(
    client: &Client,
    due: &[&Ended],
    with_metadata: bool,
    may_go: impl Fn(&[&Ended]) -> bool,
) -> Vec<(Result<(), KafkaError>, bool)> {
    let end = Instant::now() + APART;
    let mut results = vec![(Ok(()), false); due.len()];
    let size = |of: &&Ended| of.1.written.text.len() + of.0.topic.len() + 64;
    // Each with the error for which it was cut off.
    let whole = cut(due.iter().map(size)).into_iter();
    let mut parts: VecDeque<_> = whole.map(|part| (part, None)).collect();
    while let Some((part, refused)) = parts.pop_front() {
        let of_part = &due[part.clone()];
        let unsent = match refused {
            _ if !may_go(of_part) => {
                let lost = RDKafkaErrorCode::AssignmentLost;
                Some(KafkaError::ConsumerCommit(lost))
            }
            Some(error) if Instant::now() >= end => Some(error),
            _ => None,
        };
        let is_own = unsent.is_none() && part.len() == 1;
        let send = || client.commit(&list(of_part, with_metadata), CommitMode::Sync);
        match unsent.map_or_else(send, Err) {
            Err(error) if !is_of_some(&error) => {
                for (part, _) in parts.drain(..).chain([(part, None)]) {
                    results[part].fill((Err(error.clone()), false));
                }
            }
            Err(error) if part.len() > 1 && Instant::now() < end => {
                let middle = usize::midpoint(part.start, part.end);
                let halves = [part.start..middle, middle..part.end];
                parts.extend(halves.map(|half| (half, Some(error.clone()))));
            }
            result => results[part].fill((result, is_own)),
        }
    }
    results
}

pub(crate) type Ended = (Arc<Tenure>, Snapshot);

fn list(commits: &[&Ended], with_metadata: bool) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(commits.len());
    for (tenure, snapshot) in commits {
        let mut element = list.add_partition(&tenure.topic, tenure.partition);
        // It is not negative.
        _ = element.set_offset(Offset::Offset(snapshot.offset));
        if with_metadata && !snapshot.written.text.is_empty() {
            element.set_metadata(&snapshot.written.text);
        }
    }
    list
}

/// Reads where partitions begin, one after the other.
fn load(
    client: &Client,
    shared: &Shared,
    partitions: &[Partition],
    of: Of,
) -> Result<Loaded, KafkaError> {
    let (patience, each) = match of {
        Of::Assignment => (PATIENCE, Duration::from_secs(1)),
        Of::Unread(limit) => (limit, limit),
    };
    let end = Instant::now() + patience;
    let list = client.committed_offsets(client::list(partitions), patience)?;
    // In the order in which they were asked for: librdkafka sorts them.
    let mut committed: HashMap<_, _> = (list.elements().into_iter())
        .zip(native::metadata(&list))
        .map(|(element, text)| (client::partition(&element), (element, text)))
        .collect();
    let mut loaded = Loaded::default();
    for partition in partitions.iter().cloned() {
        let left = end.saturating_duration_since(Instant::now());
        let Some((element, text)) = committed.remove(&partition).filter(|_| left >= LEAST) else {
            loaded.untried.push(partition);
            continue;
        };
        match start(client, shared, &element, text, left.min(each)) {
            Ok(start) => loaded.starts.push((partition, start)),
            Err(error) => {
                let (topic, number) = &partition;
                let error = format!("{topic} [{number}] does not begin: {error}");
                shared.errors.note(error);
                loaded.failed.push(partition);
            }
        }
    }
    Ok(loaded)
}

/// Where a partition begins: at what is committed, or at an end of the log.
///
/// A committed offset that is out of range is left to librdkafka only if it begins at the start then. It would go on at the end
/// without a commit of where that is, or stop.
fn start(
    client: &Client,
    shared: &Shared,
    committed: &TopicPartitionListElem<'_>,
    text: Option<String>,
    within: Duration,
) -> Result<Start, KafkaError> {
    committed.error()?;
    let (topic, partition) = (committed.topic(), committed.partition());
    let watermarks = || client.fetch_watermarks(topic, partition, within);
    let begins_at = |base: i64, is_end| Start {
        base: u64::try_from(base).unwrap_or(0),
        is_end,
        ..Start::default()
    };
    let offset = match committed.offset() {
        Offset::Offset(offset) if offset >= 0 => Some(offset),
        _ => None,
    };
    let offset = match (offset, shared.reset) {
        (Some(offset), Reset::Earliest) => offset,
        (offset, reset) => {
            let (low, high) = watermarks()?;
            match (offset, reset) {
                (Some(offset), _) if (low..=high).contains(&offset) => offset,
                (Some(_), Reset::Error) => {
                    let error = RDKafkaErrorCode::OffsetOutOfRange;
                    return Err(KafkaError::OffsetFetch(error));
                }
                (offset, Reset::Latest) => {
                    if let Some(offset) = offset {
                        tracing::warn!(target: "keyqueue_kafka", topic, partition, offset, high, "the committed offset is out of range: the partition begins at the end");
                    }
                    return Ok(begins_at(high, true));
                }
                (_, Reset::Earliest | Reset::Error) => return Ok(begins_at(low, false)),
            }
        }
    };
    let base = offset as u64;
    // Beyond the end: the log was cut, or is another one.
    let stored = match text.as_ref().and_then(|text| metadata::read(base, text)) {
        Some(stored) => {
            let (_, high) = watermarks()?;
            Some(stored).filter(|stored| stored.beyond.end() <= high as u64)
        }
        None => None,
    };
    if stored.is_none() && text.is_none_or(|text| !text.is_empty()) {
        shared.counts.metadata_ignored.add(1);
        tracing::warn!(target: "keyqueue_kafka", topic, partition, offset, "metadata of an offset is ignored: it is foreign, damaged, or of another log");
    }
    Ok(Start {
        base,
        is_committed: true,
        is_end: false,
        stored,
    })
}
