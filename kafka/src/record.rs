//! A record, as a handler gets it.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime};

use rdkafka::message::{BorrowedMessage, Message};

use crate::config::Place;
use crate::key::Of;
use crate::lock;
use crate::native;
use crate::tenure::Tenure;

/// A record of a topic. A clone is the same record; it is cheap.
///
/// A clone that is kept beyond the handler keeps the record's memory, which no bound counts any more.
#[derive(Clone)]
pub struct Record {
    pub(crate) inner: Arc<Inner>,
    pub(crate) attempt: u32,
}

pub(crate) type Header = (Box<str>, Option<Box<[u8]>>);

pub(crate) struct Inner {
    /// The assignment under which it was read.
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) offset: u64,
    pub(crate) timestamp: Option<i64>,
    /// The key, then the payload.
    bytes: Box<[u8]>,
    key: Option<usize>,
    has_payload: bool,
    pub(crate) headers: Box<[Header]>,
    pub(crate) read: Instant,
    /// What the function of the order has said of it: that is called once.
    pub(crate) ordered: OnceLock<Of>,
    /// Whether a handler has it. Only for `status`.
    pub(crate) running: AtomicBool,
    /// Whether `trouble` has something: so that a record that never failed costs no lock.
    troubled: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
}

/// How a record has failed until now.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) attempts: u32,
    pub(crate) error: String,
    pub(crate) first: SystemTime,
    pub(crate) last: SystemTime,
    /// There is no other attempt: what is left is its dead letter.
    pub(crate) is_dead: bool,
    /// That is on its way to the brokers.
    pub(crate) is_sent: bool,
    /// Why it was refused.
    pub(crate) refused: Option<String>,
}

impl Trouble {
    /// Of a record that has not failed.
    pub(crate) fn none() -> Self {
        let now = SystemTime::now();
        Trouble {
            attempts: 0,
            error: "not yet".to_owned(),
            first: now,
            last: now,
            is_dead: false,
            is_sent: false,
            refused: None,
        }
    }
}

impl Inner {
    pub(crate) fn read(message: &BorrowedMessage<'_>, tenure: &Arc<Tenure>, now: Instant) -> Self {
        let offset = u64::try_from(message.offset()).unwrap_or(0);
        Inner {
            timestamp: message.timestamp().to_millis(),
            headers: native::headers(message),
            ..Self::of(tenure, offset, message.key(), message.payload(), now)
        }
    }

    /// A record without a time and headers.
    pub(crate) fn of(
        tenure: &Arc<Tenure>,
        offset: u64,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        read: Instant,
    ) -> Self {
        let bytes = [key.unwrap_or_default(), payload.unwrap_or_default()].concat();
        Inner {
            tenure: Arc::clone(tenure),
            offset,
            timestamp: None,
            bytes: bytes.into(),
            key: key.map(<[u8]>::len),
            has_payload: payload.is_some(),
            headers: Box::default(),
            read,
            ordered: OnceLock::new(),
            running: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key.map(|length| &self.bytes[..length])
    }

    pub(crate) fn payload(&self) -> Option<&[u8]> {
        self.has_payload
            .then(|| &self.bytes[self.key.unwrap_or(0)..])
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            topic: Arc::clone(&self.tenure.topic),
            partition: self.tenure.partition,
            offset: i64::try_from(self.offset).unwrap_or(i64::MAX),
        }
    }

    /// The bytes that it takes in memory, nearly.
    pub(crate) fn weight(&self) -> usize {
        let header = |(name, value): &Header| {
            mem::size_of::<Header>() + name.len() + value.as_ref().map_or(0, |value| value.len())
        };
        let headers: usize = self.headers.iter().map(header).sum();
        mem::size_of::<Self>() + self.bytes.len() + headers
    }

    /// Whether it has failed, or was delayed.
    pub(crate) fn is_troubled(&self) -> bool {
        // Ordering: Acquire; pairs with the Release store in `fail`. The lock has the rest.
        self.troubled.load(Ordering::Acquire)
    }

    /// Whether it has failed, since its handler had that forgotten.
    pub(crate) fn has_failed(&self) -> bool {
        let failed = |trouble: &Trouble| trouble.attempts > 0;
        self.is_troubled() && lock(&self.trouble).as_ref().is_some_and(failed)
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.is_troubled().then(|| lock(&self.trouble).clone())?
    }

    /// Notes a failure, or a delay.
    pub(crate) fn fail(&self, trouble: Trouble) {
        *lock(&self.trouble) = Some(trouble);
        // Ordering: Release; pairs with the Acquire load in `is_troubled`.
        self.troubled.store(true, Ordering::Release);
    }
}

impl Record {
    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.inner.tenure.topic
    }

    /// Returns the partition.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.inner.tenure.partition
    }

    /// Returns the offset in the partition.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.inner.offset as i64
    }

    /// Returns the key; `None` if the record has none.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.key()
    }

    /// Returns the payload; `None` for a tombstone.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        self.inner.payload()
    }

    /// Returns the time of the record in milliseconds since 1970, as its producer or the broker has set it.
    #[must_use]
    pub fn timestamp(&self) -> Option<i64> {
        self.inner.timestamp
    }

    /// Returns the headers, in order: names, and values if there are some. What is not UTF-8 in a name is replaced.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let headers = self.inner.headers.iter();
        headers.map(|(name, value)| (&**name, value.as_deref()))
    }

    /// Returns the number of the attempt, from 1, in this process.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("topic", &self.topic())
            .field("partition", &self.partition())
            .field("offset", &self.offset())
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
