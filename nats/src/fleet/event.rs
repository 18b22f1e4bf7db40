//! What a membership tells.

use std::fmt;

use super::Fence;

/// What happened to a membership, from [`Fleet::events`](crate::Fleet::events). Each is also a tracing event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The replica has claimed a partition, and receives its messages.
    Acquired(Fence),
    /// The partition was given back: nothing of it runs here, and its messages are acknowledged.
    HandedOver(Fence),
    /// Another replica has taken the partition over. Deliveries of it that still run carry the
    /// lower epoch.
    Lost(Fence),
    /// The replica has had no lease, or not renewed it, for three quarters of it: no delivery begins. Or the bucket of owners was made
    /// again, or restored, and it begins anew.
    Suspended {
        /// Why the last write of the lease has failed, or why there was none, as far as it is known.
        reason: String,
    },
    /// The replica has the lease, after it was suspended: deliveries may begin. Nobody has owned its partitions meanwhile, unless they were told
    /// as [`Lost`](Event::Lost), or the bucket was made again.
    Resumed,
    /// The messages of a partition do not come: its stream or its consumer cannot be used, was deleted or is paused, or the server does
    /// not reply. The replica goes on trying. Or another replica owns the partition and does not renew its lease: the first of those
    /// that do, by their names, tells it. Told once, until [`Event::Receiving`].
    Stalled {
        /// The partition, with its owner's epoch.
        fence: Fence,
        /// What the server says, or what the partition waits for.
        reason: String,
    },
    /// The messages of a partition that was stalled come again, or it has another owner, or its owner renews its lease.
    Receiving(Fence),
    /// A message that belongs to no key of its partition was found, and removed: it was not published by a
    /// [`Producer`](crate::Producer) of this crate. With [`Config::dead_letters`](crate::Config::dead_letters) it is a dead letter.
    Stranger {
        /// The subject of the message.
        subject: String,
        /// Its sequence in the partition's stream.
        sequence: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The dead letter of a key that is given up, or of a message that is to be removed ([`Event::Stranger`]), cannot be stored. It is kept, and
    /// the replica goes on trying. Told once.
    DeadLetterRefused {
        /// The key, or the subject of the message.
        key: String,
        /// What the server says.
        reason: String,
    },
    /// A key was given up. Its messages are dead letters, if the configuration has a subject for them. If some of them are refused, it is
    /// told of the others, and again of these when they are dead letters, too.
    GivenUp {
        /// The key.
        key: String,
        /// The last error.
        error: String,
        /// The number of tries.
        attempts: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Acquired(fence) => write!(f, "acquired {fence}"),
            Event::HandedOver(fence) => write!(f, "handed over {fence}"),
            Event::Lost(fence) => write!(f, "lost {fence}"),
            Event::Suspended { reason } => write!(f, "suspended: {reason}"),
            Event::Stalled { fence, reason } => {
                write!(f, "the messages of {fence} do not come: {reason}")
            }
            Event::Receiving(fence) => write!(f, "the messages of {fence} come again"),
            Event::Stranger {
                subject,
                sequence,
                reason,
            } => write!(f, "removed {subject}, message {sequence}: {reason}"),
            Event::DeadLetterRefused { key, reason } => {
                write!(f, "the dead letter of {key} is not stored: {reason}")
            }
            Event::Resumed => f.write_str("resumed"),
            Event::GivenUp {
                key,
                error,
                attempts,
            } => write!(f, "gave up {key} after {attempts} tries: {error}"),
        }
    }
}

/// How a membership has ended: what [`Fleet::leave`](crate::Fleet::leave) returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// The number of partitions that were released since the call.
    pub handed_over: usize,
    /// The partitions whose handlers still ran at the deadline, or that could not be released. Others
    /// take them when the lease has run out.
    pub abandoned: Vec<Fence>,
}
