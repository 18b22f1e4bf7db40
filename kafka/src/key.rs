//! What is kept in order: the keys of the queue, and the records that wait for one.

use std::collections::{VecDeque, vec_deque};
use std::fmt;
use std::iter::Chain;
use std::option;
use std::sync::Arc;

use crate::Record;
use crate::record::Inner;

/// Which records are handled one after the other.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OrderBy {
    /// Those of a partition that have the same key. A record without a key waits for no other.
    #[default]
    Key,
    /// Those of a partition.
    Partition,
    /// None: records of the same key may be handled at the same time.
    None,
    /// Those of a partition for which the function returns the same bytes. `None` is a record that waits for no other.
    By(Arc<Order>),
}

type Order = dyn Fn(&Record) -> Option<Vec<u8>> + Send + Sync;

impl OrderBy {
    /// Orders by what a function says of a record: a part of its key, a header, a field of its payload. It is called once for each
    /// record, by the thread that receives them, and has to return the same for it each time. If it panics, the record waits for all
    /// records for which it did.
    ///
    /// ```
    /// use keyqueue_kafka::OrderBy;
    ///
    /// // The customer of a key "customer/order".
    /// let order = OrderBy::by(|record| Some(record.key()?.split(|byte| *byte == b'/').next()?.to_vec()));
    /// ```
    pub fn by(order: impl Fn(&Record) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        OrderBy::By(Arc::new(order))
    }

    /// The key of the queue for a record.
    pub(crate) fn key(&self, record: &Arc<Inner>) -> Key {
        let own = Of::Record(record.offset);
        let of = match self {
            OrderBy::Key => record.key().map_or(own, |key| Of::Bytes(key.into())),
            OrderBy::Partition => Of::Partition,
            OrderBy::None => own,
            OrderBy::By(order) => {
                let (inner, attempt) = (Arc::clone(record), 0);
                let record = Record { inner, attempt };
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| order(&record))) {
                    Ok(bytes) => bytes.map_or(own, |bytes| Of::Bytes(bytes.into())),
                    Err(_) => Of::Partition,
                }
            }
        };
        let slot = record.tenure.slot;
        Key { slot, of }
    }
}

impl fmt::Debug for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderBy::Key => "Key",
            OrderBy::Partition => "Partition",
            OrderBy::None => "None",
            OrderBy::By(_) => "By(..)",
        })
    }
}

/// A key of the queue. It does not have the assignment: a key stays in order across a re-assignment in the same process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The number that this process has given to the topic and partition.
    slot: u32,
    of: Of,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Of {
    Bytes(Box<[u8]>),
    Record(u64),
    Partition,
}

/// The records of a key that are not finished, in order.
pub(crate) enum Backlog {
    /// Nearly all are this.
    One(Arc<Inner>),
    Many(VecDeque<Arc<Inner>>),
}

impl Backlog {
    pub(crate) fn front(&self) -> Option<&Arc<Inner>> {
        match self {
            Backlog::One(record) => Some(record),
            Backlog::Many(records) => records.front(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Inner>> {
        let (one, many) = match self {
            Backlog::One(record) => (Some(record), None),
            Backlog::Many(records) => (None, Some(records)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Keeps those for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Arc<Inner>) -> bool) {
        match self {
            Backlog::One(record) if keep(record) => {}
            Backlog::One(_) => *self = Backlog::Many(VecDeque::new()),
            Backlog::Many(records) => records.retain(keep),
        }
    }

    /// Appends what came later: the merge function of the queue.
    pub(crate) fn append(&mut self, later: Backlog) {
        let records = match self {
            Backlog::Many(records) => records,
            Backlog::One(first) => {
                let records = VecDeque::from([Arc::clone(first)]);
                *self = Backlog::Many(records);
                match self {
                    Backlog::Many(records) => records,
                    Backlog::One(_) => return,
                }
            }
        };
        match later {
            Backlog::One(record) => records.push_back(record),
            Backlog::Many(more) => records.extend(more),
        }
    }
}

impl FromIterator<Arc<Inner>> for Backlog {
    fn from_iter<I: IntoIterator<Item = Arc<Inner>>>(records: I) -> Self {
        let mut records = records.into_iter();
        match (records.next(), records.next()) {
            (Some(record), None) => Backlog::One(record),
            (first, second) => {
                Backlog::Many(first.into_iter().chain(second).chain(records).collect())
            }
        }
    }
}

impl IntoIterator for Backlog {
    type Item = Arc<Inner>;
    type IntoIter = Chain<option::IntoIter<Arc<Inner>>, vec_deque::IntoIter<Arc<Inner>>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Backlog::One(record) => (Some(record), VecDeque::new()),
            Backlog::Many(records) => (None, records),
        };
        one.into_iter().chain(many)
    }
}
