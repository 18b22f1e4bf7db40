//! Letters that are read, put back and dropped.
//!
//! Nothing can be taken out of a topic. So what ends a letter is a *mark*: a record behind it, in the same partition, that names it in the
//! header [`LETTER`], and has no payload. A letter that has a mark is not there any more. The mark outlives the letter, because it is in the
//! same log.
//!
//! # Protocol
//!
//! A letter is put back by one transaction, of the record in its own topic and of the mark. Two that put back the same letter use the
//! same transactional id, one for each topic of letters:
//!
//! 1. `init_transactions` fences whoever has the id: its transaction is committed or aborted, and it can commit no other.
//! 2. The topic is read to its end. So all marks that were committed are seen: a letter that has one is not put back again. Readers do not
//!    see what is behind a transaction that is open. One of another program has another id, so it is not fenced: this ends with an error.
//! 3. The records and the marks are written, and committed. Between 1 and 3 nobody else has committed a mark, or this commit is refused.
//!
//! If the reply to the commit is lost, the log has both or none of them, and the next look says which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header as Of, Message, OwnedHeaders};
use rdkafka::metadata::{MetadataPartition, MetadataTopic};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};

use super::open::{Letter, State};
use super::{ATTEMPTS, ERROR, FIRST, GROUP, LAST, LETTER, OFFSET, PARTITION, TOPIC};
use crate::config::{Builder, Place};
use crate::record::Header;
use crate::{Error, client, lock, native};

/// The offsets at the end of each partition that are read.
const LAST_OFFSETS: i64 = 10_000;
/// What was read is as good as new for this long.
const FRESH: Duration = Duration::from_secs(1);
/// How long a reply, what is read of all partitions, and a step of a transaction may take. What was read until then is kept for the next look.
const PATIENCE: Duration = Duration::from_secs(5);

/// The dead letters of a group in their topic: [`Consumer::dead_letters`](crate::Consumer::dead_letters).
///
/// All calls of `dead_letters` of a consumer number them together, and what was read stays in memory as long as the consumer.
///
/// It has those of the last 10 000 records of each partition, at most 10 000 and 64 MiB, the newest. Every call waits for the brokers: it
/// must not be made by a task, but by `tokio::task::spawn_blocking`.
pub struct Letters {
    topic: String,
    group: String,
    reading: ClientConfig,
    writing: ClientConfig,
    state: Arc<Mutex<State>>,
}

impl Letters {
    pub(crate) fn new(settings: &Builder, state: &Arc<Mutex<State>>) -> Option<Self> {
        let topic = settings.dead_letters.clone()?;
        let (mut reading, mut writing) = (settings.client.clone(), settings.producer.clone());
        reading
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "10");
        let id = format!("keyqueue-{topic}");
        // Its offsets are those with what is not committed.
        writing
            .set("transactional.id", id)
            .set("isolation.level", "read_uncommitted")
            // For that long a topic that brokers do not know is asked for again. Then its records are refused.
            .set("topic.metadata.propagation.max.ms", "100")
            // Or brokers would create it, and the next try would find it.
            .set("allow.auto.create.topics", "false");
        for limit in ["transaction", "message", "socket"] {
            writing.set(format!("{limit}.timeout.ms"), "10000");
        }
        Some(Letters {
            topic,
            group: settings.group.clone(),
            reading,
            writing,
            state: Arc::clone(state),
        })
    }

    /// Returns the letters, in the order in which they were found. What was read in the last second is not read again, and a
    /// call that has failed in that second is not repeated.
    ///
    /// # Errors
    ///
    /// [`Error::Client`]: the brokers do not respond, or refuse.
    pub fn read(&self) -> Result<Vec<Arc<Letter>>, Error> {
        let state = &mut *lock(&self.state);
        let looked = match &state.looked {
            Some((at, looked)) if at.elapsed() < FRESH => looked.clone(),
            _ => {
                let looked = self.catch_up(state, None);
                // Those who have waited for this look need no other one.
                state.looked = Some((Instant::now(), looked.clone()));
                looked
            }
        };
        looked.map_err(Error::client("reading the dead letters"))?;
        let mut letters: Vec<_> = state.open.values().cloned().collect();
        letters.sort_unstable_by_key(|letter| letter.number);
        Ok(letters)
    }

    /// Produces the records of the letters with these numbers again, in this order, and returns for each whether it was there: it is
    /// not if it was put back or dropped before, by whatever process; or if newer letters have taken its room in memory, after which it
    /// has another number.
    ///
    /// A record goes to the end of the partition that it is from, with its key, payload and headers, and [`LETTER`]. So it is handled after
    /// what its key has now, and by each group that reads the topic. All of it is one transaction: either all are put back, or none is.
    /// If there are two letters of a record, both end.
    ///
    /// # Errors
    ///
    /// [`Error::Client`]: the brokers do not respond, or refuse; or a program has an open transaction in the topic of the letters. None is put
    /// back. [`Error::Unconfirmed`]: the brokers have not confirmed it, or another process did the same at the same time; all are put back, or
    /// none. Read the letters again.
    pub fn put_back(&self, numbers: &[u64]) -> Result<Vec<bool>, Error> {
        self.end(numbers, true, "putting dead letters back")
    }

    /// Drops the letters with these numbers, as [`put_back`](Self::put_back) does, but without their records.
    ///
    /// # Errors
    ///
    /// As for `put_back`.
    pub fn discard(&self, numbers: &[u64]) -> Result<Vec<bool>, Error> {
        self.end(numbers, false, "dropping dead letters")
    }

    fn end(
        &self,
        numbers: &[u64],
        is_put_back: bool,
        doing: &'static str,
    ) -> Result<Vec<bool>, Error> {
        let refused = || Error::client(doing);
        let state = &mut *lock(&self.state);
        let producer = self.begin(state).map_err(refused())?;
        let written = self.write(&producer, state, numbers, is_put_back);
        let ended = written.map_err(refused()).and_then(|ended| {
            producer.flush(PATIENCE).map_err(refused())?;
            // Ordering: Relaxed; the thread that flushes is told.
            let has_failed = producer.context().0.load(Ordering::Relaxed);
            let committed = producer.commit_transaction(PATIENCE);
            committed.map_err(|error| match has_failed {
                true => refused()(error),
                false => Error::Unconfirmed {
                    doing: doing.into(),
                    source: error.into(),
                },
            })?;
            Ok(ended)
        });
        let (is_there, marked) = ended.inspect_err(|_| {
            // If that fails, too, the brokers do it after the transaction's limit.
            _ = producer.abort_transaction(PATIENCE);
        })?;
        state.open.retain(|name, _| !marked.contains(name));
        Ok(is_there)
    }

    /// Steps 1 and 2 of the protocol.
    fn begin(&self, state: &mut State) -> Result<BaseProducer<Deliveries>, KafkaError> {
        let deliveries = Deliveries::default();
        let producer: BaseProducer<_> = self.writing.create_with_context(deliveries)?;
        producer.init_transactions(PATIENCE)?;
        self.catch_up(state, Some(&producer))?;
        producer.begin_transaction()?;
        // Whatever comes of it, the log says it.
        state.looked = None;
        Ok(producer)
    }

    /// Writes the records and the marks, and returns for each number whether it was there, and the names of the letters that have marks.
    fn write(
        &self,
        producer: &BaseProducer<Deliveries>,
        state: &State,
        numbers: &[u64],
        is_put_back: bool,
    ) -> Result<(Vec<bool>, BTreeSet<String>), KafkaError> {
        let (mut is_there, mut marked) = (Vec::new(), BTreeSet::new());
        for number in numbers {
            let letter = state.open.values().find(|of| of.number == *number);
            let letter = letter.filter(|letter| !marked.contains(&letter.name));
            is_there.push(letter.is_some());
            let Some(letter) = letter else { continue };
            if is_put_back {
                let headers = own_headers(&letter.headers);
                let headers = headers.fold(OwnedHeaders::new(), |headers, (key, value)| {
                    let value = value.as_deref();
                    headers.insert(Of { key, value })
                });
                let mut record = BaseRecord::<[u8], [u8]>::to(&letter.place.topic)
                    .partition(letter.place.partition)
                    .headers(headers.insert(letter.named()));
                (record.key, record.payload) = (letter.key.as_deref(), letter.payload.as_deref());
                producer.send(record).map_err(|(error, _)| error)?;
            }
            let is_twin = |of: &&Arc<Letter>| {
                // The topic of the record may have been made again.
                (&of.place, &of.key, &of.payload) == (&letter.place, &letter.key, &letter.payload)
            };
            for twin in state.open.values().filter(is_twin) {
                let mut mark = BaseRecord::<[u8], [u8]>::to(&self.topic)
                    .partition(twin.partition)
                    .headers(OwnedHeaders::new().insert(twin.named()));
                mark.key = twin.key.as_deref();
                producer.send(mark).map_err(|(error, _)| error)?;
                marked.insert(twin.name.clone());
            }
        }
        Ok((is_there, marked))
    }

    /// Reads on to the end of each partition; with a producer, to that of what is committed or not.
    ///
    /// The client ends with the look: between two looks nobody would poll it, and each connection that fails would stay in its queue.
    fn catch_up(
        &self,
        state: &mut State,
        producer: Option<&BaseProducer<Deliveries>>,
    ) -> Result<(), KafkaError> {
        state.begin();
        let client: BaseConsumer = self.reading.create()?;
        let metadata = client.fetch_metadata(Some(&self.topic), PATIENCE)?;
        if let Some(error) = metadata.topics().iter().find_map(MetadataTopic::error) {
            let code = RDKafkaErrorCode::from(error);
            let is_absent = matches!(
                code,
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::LeaderNotAvailable
            );
            if !is_absent || producer.is_some() {
                return Err(KafkaError::MetadataFetch(code));
            }
            // The first letter, or this look, may create the topic. Of one that is deleted no letter is left.
            state.restart();
            return Ok(());
        }
        let (mut list, mut left) = (TopicPartitionList::new(), BTreeSet::new());
        // Of each partition that was read before, where the record is that was read last, which is read again, and its timestamp.
        let mut known = BTreeMap::new();
        let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
        let partitions: Vec<i32> = partitions.map(MetadataPartition::id).collect();
        state.keep(&partitions);
        for id in partitions {
            let all = producer.map(|producer| {
                let ends = producer.client();
                ends.fetch_watermarks(&self.topic, id, PATIENCE)
            });
            let (low, high) = client.fetch_watermarks(&self.topic, id, PATIENCE)?;
            if let Some(all) = all
                && high < all?.1
            {
                let open = RDKafkaErrorCode::ConcurrentTransactions;
                return Err(KafkaError::MessageConsumption(open));
            }
            let at = state.next.entry(id).or_insert((high - LAST_OFFSETS, None));
            // A shorter log is another one. Of letters that retention has passed the marks may be gone, too.
            let is_other = at.0 > high;
            if is_other || at.0 <= low {
                *at = (low, None);
            }
            let (mut next, last) = *at;
            state.forget(id, if is_other { i64::MAX } else { low });
            if let Some(last) = last {
                next -= 1;
                known.insert(id, (next, Some(last)));
            }
            if next < high {
                list.add_partition_offset(&self.topic, id, Offset::Offset(next))?;
                left.insert(id);
            }
        }
        client.assign(&list)?;
        let end = Instant::now() + PATIENCE;
        let mut last = KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut);
        while !left.is_empty() {
            let within = end.saturating_duration_since(Instant::now());
            let Some(polled) = client.poll(within) else {
                return Err(last);
            };
            match polled {
                Ok(message) => {
                    let (id, offset) = (message.partition(), message.offset());
                    let time = message.timestamp().to_millis();
                    match known.remove(&id) {
                        Some(last) if last == (offset, time) => continue,
                        // The topic was made again.
                        Some(_) => {
                            state.restart();
                            drop(message);
                            drop(client);
                            return self.catch_up(state, producer);
                        }
                        None => {}
                    }
                    state.next.insert(id, (offset + 1, time));
                    self.note(&message, state);
                }
                Err(KafkaError::PartitionEOF(partition)) => _ = left.remove(&partition),
                Err(fatal @ KafkaError::MessageConsumptionFatal(_)) => return Err(fatal),
                // Of a broker that is down, for example: that of the partition may be another one.
                Err(error) => last = error,
            }
        }
        Ok(())
    }

    /// Notes a record of the topic: a letter of this group, a mark, or neither.
    fn note(&self, message: &BorrowedMessage<'_>, state: &mut State) {
        let headers = native::headers(message);
        // The last of a name: a record may have those of its last letter.
        let text = |name: &str| {
            let header = headers.iter().rfind(|(of, _)| **of == *name);
            header.and_then(|(_, value)| std::str::from_utf8(value.as_deref()?).ok())
        };
        let number = |name| text(name).and_then(|text| text.parse().ok());
        let Some(topic) = text(TOPIC) else {
            if let Some(name) = text(LETTER) {
                state.mark(name);
            }
            return;
        };
        let (Some(partition), Some(offset)) = (number(PARTITION), number(OFFSET)) else {
            return;
        };
        // Behind the headers of a letter that was put back into this topic: the letter stands for it, as it does elsewhere.
        let is_back = headers.last().is_some_and(|(name, _)| **name == *LETTER);
        if is_back || text(GROUP) != Some(&self.group) {
            return;
        }
        let millis = |name| number(name).and_then(|millis| u64::try_from(millis).ok());
        let time = |name| SystemTime::UNIX_EPOCH + Duration::from_millis(millis(name).unwrap_or(0));
        let place = (message.partition(), message.offset());
        state.found += 1;
        let name = format!(
            "{}/{}/{}/{}",
            self.topic,
            place.0,
            place.1,
            millis(LAST).unwrap_or(0)
        );
        let letter = Letter {
            number: state.found,
            name,
            place: Place {
                topic: topic.into(),
                partition: i32::try_from(partition).unwrap_or(-1),
                offset,
            },
            key: message.key().map(Into::into),
            payload: message.payload().map(Into::into),
            error: text(ERROR).unwrap_or_default().to_owned(),
            attempts: millis(ATTEMPTS).unwrap_or(0),
            first: time(FIRST),
            last: time(LAST),
            partition: place.0,
            offset: place.1,
            headers,
        };
        state.add(letter);
    }
}

/// Those that the record of a letter had: without the last of each name that a letter has, and without those of former letters of it.
fn own_headers(headers: &[Header]) -> impl Iterator<Item = &Header> {
    let of_letter = [
        TOPIC, PARTITION, OFFSET, ERROR, ATTEMPTS, FIRST, LAST, GROUP,
    ];
    let is_own = move |(at, (name, _)): &(usize, &Header)| {
        let is_last = || !headers[at + 1..].iter().any(|(of, _)| of == name);
        **name != *LETTER && !(of_letter.contains(&&**name) && is_last())
    };
    headers.iter().enumerate().filter(is_own).map(|(_, of)| of)
}

/// Whether a record of the transaction has failed: then the client does not ask for the commit.
#[derive(Default)]
struct Deliveries(AtomicBool);

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        // Ordering: Relaxed, as above.
        self.0.fetch_or(result.is_err(), Ordering::Relaxed);
    }
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letters")
            .field("topic", &self.topic)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // R8
    fn a_record_that_is_put_back_keeps_its_own_headers() {
        // A record of a topic of letters, that another group has given up after it was put back.
        let own = [TOPIC, ERROR, "trace", "keyqueue-trace"];
        let more = [
            LETTER, TOPIC, PARTITION, OFFSET, ERROR, ATTEMPTS, FIRST, LAST, GROUP,
        ];
        let header = |(value, name): (u8, &&str)| {
            let value: Option<Box<[u8]>> = Some([value].into());
            ((*name).into(), value)
        };
        let headers = (0..).zip(own.iter().chain(&more)).map(header);
        let headers: Vec<Header> = headers.collect();
        let kept: Vec<_> = own_headers(&headers).collect();
        assert_eq!(kept, headers[..own.len()].iter().collect::<Vec<_>>());
    }
}
