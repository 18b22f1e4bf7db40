//! What a handler gets: the key, its messages, and the right under which it works on them.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;

use keyqueue::KeyHandle;

use super::lease::Lease;
use super::load::{Load, Message};
use super::tenure::Tenure;

/// The fencing token of a delivery: give it to whatever the handler writes to.
///
/// The epoch of a partition rises with each change of its owner, and a key stays in its partition. So
/// a resource that keeps the highest epoch that it has seen for a key, and refuses lower ones, is
/// never changed by a replica that has lost the partition without knowing it yet. Nothing else
/// gives that: a process may be stopped between its last check and its write.
///
/// Ordered by epoch first. Written as `partition.epoch`.
///
/// ```
/// use keyqueue_nats::Fence;
///
/// let fence = Fence { partition: 7, epoch: 42 };
/// assert_eq!(fence.to_string(), "7.42");
/// assert_eq!("7.42".parse(), Ok(fence));
/// assert!(fence < Fence { partition: 7, epoch: 43 });
/// ```
// The derived order is by the fields as they stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The revision of the record by which this replica has claimed the partition, or a higher number if the bucket's revisions were higher
    /// once.
    pub epoch: u64,
    /// The partition of the key, from 0.
    pub partition: u16,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.partition, self.epoch)
    }
}

impl FromStr for Fence {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (partition, epoch) = text.split_once('.').unwrap_or((text, ""));
        Ok(Fence {
            partition: partition.parse()?,
            epoch: epoch.parse()?,
        })
    }
}

/// One delivery of a key: what the handler of [`Fleet::run`](crate::Fleet::run) gets.
///
/// No other delivery of the key begins, in this replica or in another, while the replica keeps the
/// partition; [`lost`](Self::lost) tells when it may have lost it.
pub struct Delivery {
    pub(super) key: KeyHandle<String, Load>,
    pub(super) tenure: Arc<Tenure>,
    pub(super) messages: Vec<Message>,
    pub(super) covered: usize,
    pub(super) lease: Arc<Lease>,
    pub(super) attempt: u32,
}

impl Delivery {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.key()
    }

    /// Returns the last message of the key, or of those that [`messages`](Self::messages) has.
    #[must_use]
    pub fn latest(&self) -> &Message {
        // A load is never empty.
        &self.messages[self.messages.len() - 1]
    }

    /// Returns the messages that this delivery covers and has, in the order of the stream: all of them with
    /// [`Coalesce::Never`](crate::Coalesce::Never), otherwise the last one. Of a key that has waited, for a retry or as the handler has asked,
    /// it has the first ones, as many as are read again at once ([`Config::window`](crate::Config::window), and the server's `max_payload` in bytes).
    /// Newer ones come when the handler has succeeded with these.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns how many messages of the key this delivery stands for, of those that this replica has received. The
    /// server replaces others before a replica receives them, with
    /// [`Coalesce::Server`](crate::Coalesce::Server).
    #[must_use]
    pub fn covered(&self) -> usize {
        self.covered
    }

    /// Returns the fencing token.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.tenure.fence
    }

    /// Returns the number of this try, from 1: one more than the failures since the key last succeeded, in any replica. With
    /// [`Config::max_retries`](crate::Config::max_retries), a try whose process has died counts from the second one on, until one has ended.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns whether this replica still owns the key: its lease holds, by its own clock, no other has taken the partition over, and it has not
    /// handed it over: a hand-over waits for a handler, for [`Config::max_handover`](crate::Config::max_handover), and not for a task that the handler
    /// has left behind.
    ///
    /// Ask at the moment of the effect. After `true` the process may be stopped before it writes, and another replica may begin
    /// meanwhile: give the [`fence`](Self::fence) to what is written to, which refuses a lower one.
    ///
    /// ```no_run
    /// # async fn compute(_: &str) -> Vec<u8> { Vec::new() }
    /// # async fn put(_: &str, _: Vec<u8>, _: keyqueue_nats::Fence) -> Result<(), String> { Ok(()) }
    /// async fn handle(delivery: keyqueue_nats::Delivery) -> Result<(), String> {
    ///     let state = compute(delivery.key()).await;
    ///     if !delivery.still_owned() {
    ///         return Err("another replica has the key".into()); // nobody reads it: the next owner delivers the key
    ///     }
    ///     put(delivery.key(), state, delivery.fence()).await
    /// }
    /// ```
    #[must_use]
    pub fn still_owned(&self) -> bool {
        !self.tenure.is_lost() && self.lease.holds()
    }

    /// Waits until this replica may have lost the partition: it could not renew its lease for
    /// three quarters of it, or another replica has taken the partition over. A handler that stops
    /// then has stopped before the next owner begins, unless the process itself was stopped. Ready also when the partition is handed over,
    /// for what a handler has left behind: that stops while the next owner begins.
    ///
    /// Never ready while the lease is renewed, so use it in a `select!`. What the handler returns
    /// after it is ignored if the partition is lost: its next owner delivers the key again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn lost(&self) {
        tokio::select! {
            () = self.tenure.lost() => {}
            () = self.lease.lapsed() => {}
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("key", &self.key())
            .field("fence", &self.fence())
            .field("attempt", &self.attempt)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}
