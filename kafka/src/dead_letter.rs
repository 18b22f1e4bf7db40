//! Records that were given up, in a topic of their own.
//!
//! A letter has the key, the payload and the headers of its record, and these headers more: [`TOPIC`], [`PARTITION`], [`OFFSET`],
//! [`ERROR`], [`ATTEMPTS`], [`FIRST`], [`LAST`] and [`GROUP`].
//!
//! The record is finished when all in-sync replicas have the letter. A process that is killed in between writes it again, so there
//! may be two letters of a record, but no record without one.
//!
//! [`Consumer::dead_letters`](crate::Consumer::dead_letters) reads the letters, and puts them back.

mod letters;
mod open;

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

pub use letters::Letters;
pub use open::Letter;
pub(crate) use open::State as Read;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::Logs;
use crate::record::{Inner, Trouble};
use crate::{Error, lock};

/// The topic of the record.
pub const TOPIC: &str = "keyqueue-topic";
/// The partition of the record.
pub const PARTITION: &str = "keyqueue-partition";
/// The offset of the record.
pub const OFFSET: &str = "keyqueue-offset";
/// The last error, or the message of a panic: its first 8192 characters.
pub const ERROR: &str = "keyqueue-error";
/// How often a handler has tried, in the last process.
pub const ATTEMPTS: &str = "keyqueue-attempts";
/// When the record failed first, in milliseconds since 1970.
pub const FIRST: &str = "keyqueue-first-failure";
/// When the record failed last, in milliseconds since 1970.
pub const LAST: &str = "keyqueue-last-failure";
/// The group that has given the record up.
pub const GROUP: &str = "keyqueue-group";
/// Which letter it is: in a record that was put back, and in the mark that a letter was put back or dropped.
pub const LETTER: &str = "keyqueue-letter";

/// How long a letter may wait for room in the producer's queue. It is tried again.
const ENQUEUE: Duration = Duration::from_secs(10);
/// How long a worker waits for a letter before it goes on with other keys.
const PROMPT: Duration = Duration::from_secs(1);
/// Between two producers.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Writer {
    client: ClientConfig,
    /// And when it was made.
    producer: Mutex<(FutureProducer<Logs>, Instant)>,
    /// Has another reference for each letter on its way that has taken longer than `PROMPT`: while there are some, no worker waits for
    /// others.
    late: Arc<()>,
    topic: String,
    group: String,
}

impl Writer {
    pub(crate) fn new(client: &ClientConfig, topic: &str, group: &str) -> Result<Self, Error> {
        let producer = client.create_with_context(Logs);
        let producer = producer.map_err(Error::client("creating the producer of dead letters"))?;
        Ok(Writer {
            client: client.clone(),
            producer: Mutex::new((producer, Instant::now())),
            late: Arc::default(),
            topic: topic.to_owned(),
            group: group.to_owned(),
        })
    }

    /// The producer. One that has had a fatal error writes nothing any more: then another one, each second at most.
    fn producer(&self) -> Result<FutureProducer<Logs>, KafkaError> {
        let (producer, made) = &mut *lock(&self.producer);
        if let Some((code, _)) = producer.client().fatal_error() {
            if made.elapsed() < PAUSE {
                return Err(KafkaError::MessageProduction(code));
            }
            *made = Instant::now();
            let failed = mem::replace(producer, self.client.create_with_context(Logs)?);
            drop_apart(failed);
        }
        Ok(producer.clone())
    }

    /// Waits for a letter that a task writes, but not for brokers that are late.
    pub(crate) async fn wait(&self, letter: JoinHandle<()>) {
        // A hint. If it is outdated, a worker waits for one letter more or less.
        if Arc::strong_count(&self.late) == 1 {
            _ = timeout(PROMPT, letter).await;
        }
    }

    /// Writes a letter, and waits until the brokers have acknowledged it.
    pub(crate) async fn write(&self, record: &Inner, trouble: &Trouble) -> Result<(), KafkaError> {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len() + 8);
        for (key, value) in &record.headers {
            let value = value.as_deref();
            headers = headers.insert(Header { key, value });
        }
        let millis = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            since.map_or(0, |since| since.as_millis()).to_string()
        };
        let own = [
            (TOPIC, record.tenure.topic.to_string()),
            (PARTITION, record.tenure.partition.to_string()),
            (OFFSET, record.offset.to_string()),
            (ERROR, trouble.error.clone()),
            (ATTEMPTS, trouble.attempts.to_string()),
            (FIRST, millis(trouble.first)),
            (LAST, millis(trouble.last)),
            (GROUP, self.group.clone()),
        ];
        for (key, value) in &own {
            let value = Some(value);
            headers = headers.insert(Header { key, value });
        }
        let mut letter = FutureRecord::<[u8], [u8]>::to(&self.topic).headers(headers);
        letter.key = record.key();
        letter.payload = record.payload();
        let producer = self.producer()?;
        let sent = {
            let mut sent = pin!(producer.send(letter, ENQUEUE));
            match timeout(PROMPT, &mut sent).await {
                Ok(sent) => sent,
                Err(_) => {
                    let _late = Arc::clone(&self.late);
                    sent.await
                }
            }
        };
        if producer.client().fatal_error().is_some() {
            drop_apart(producer);
        }
        sent.map(drop).map_err(|(error, _)| error)
    }
}

/// Drops a producer, perhaps the last of its kind, which waits for its threads.
fn drop_apart(producer: FutureProducer<Logs>) {
    tokio::task::spawn_blocking(|| drop(producer));
}
