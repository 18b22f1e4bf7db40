//! What is kept in order: the keys of the queue, and the records that wait for one.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use smallvec::SmallVec;

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
    /// Orders by what a function says of a record: a part of its key, a header, a field of its payload. The thread that receives
    /// records calls it each time that it reads a record, so again for one that is read again; it has to return the same each time. If
    /// it panics, the record waits for all records for which it did. The bytes that it returns are in memory with the record, and
    /// [`Room`](crate::Room) does not count them.
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
                let of = || {
                    let (inner, attempt) = (Arc::clone(record), 0);
                    let record = Record { inner, attempt };
                    match std::panic::catch_unwind(AssertUnwindSafe(|| order(&record))) {
                        Ok(bytes) => bytes.map_or(own, |bytes| Of::Bytes(bytes.into())),
                        Err(_) => Of::Partition,
                    }
                };
                record.ordered.get_or_init(of).clone()
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

/// What is the same for records that are handled one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    Bytes(Box<[u8]>),
    Record(u64),
    Partition,
}

/// The records of a key that are not finished, in order: of nearly all keys one.
pub(crate) type Backlog = SmallVec<[Arc<Inner>; 1]>;

/// A key in a worker's hand.
pub(crate) type Job = keyqueue::worker::Job<'static, Key, Backlog>;
