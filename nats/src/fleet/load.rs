//! The value that a key carries in the queue: the messages that its next delivery covers.

use std::cmp::Ordering;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use tokio::time::Instant;

use super::Shared;
use super::acks::Acks;
use super::attempts::LONGEST;
use super::room::Held;
use super::tenure::Tenure;
use crate::Coalesce;

/// A message, as a producer has published it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// What the producer has passed to [`Producer::add`](crate::Producer::add).
    pub payload: Bytes,
    /// The headers: at least the message's id, if a [`Producer`](crate::Producer) has sent it without a delay.
    pub headers: Option<Arc<HeaderMap>>,
    /// The message's sequence in the stream: what [`Producer::add`](crate::Producer::add) returned
    /// for it, unless it was delayed.
    pub sequence: u64,
    /// Where it is acknowledged.
    pub(crate) reply: Subject,
    /// When the server has stored it, in nanoseconds since 1970.
    pub(crate) stored: i128,
    /// When its stream was made, as well.
    pub(crate) made: i128,
    pub(crate) held: Held,
}

impl Message {
    /// Reads its payload again, which it has dropped, and takes room for it. Returns the bytes. `None`: it is not in the stream any more, or the
    /// stream was made again.
    pub(super) async fn fetch(
        &mut self,
        shared: &Shared,
        tenure: &Tenure,
    ) -> Result<Option<usize>, async_nats::Error> {
        let stream = shared.stream(tenure.fence);
        let stored = match stream.get_raw_message(self.sequence).await {
            Ok(stored) if stored.time.unix_timestamp_nanos() == self.stored => stored,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = size(&stored);
        self.held.unpark(&tenure.room, &shared.memory, size);
        self.payload = stored.payload;
        self.headers = (!stored.headers.is_empty()).then(|| Arc::new(stored.headers));
        Ok(Some(size))
    }

    /// Drops the payload, and gives back the room.
    pub(super) fn park(&mut self) {
        self.payload = Bytes::new();
        self.headers = None;
        self.held.park();
    }
}

/// The bytes of the payload and the headers.
fn size(message: &StreamMessage) -> usize {
    let headers = message.headers.iter().flat_map(|(name, values)| {
        let name: &[u8] = name.as_ref();
        values
            .iter()
            .map(move |value| name.len() + value.as_str().len())
    });
    message.payload.len() + headers.sum::<usize>()
}

/// Why a key was given up whose dead letter is not stored yet.
#[derive(Clone)]
pub(crate) struct GivenUp {
    pub(crate) error: String,
    pub(crate) attempts: u32,
    /// The sequence of the last message of that delivery.
    pub(crate) last: u64,
}

impl GivenUp {
    /// Of a delivery of the first messages of this.
    pub(super) fn new(error: String, attempts: u32, load: &Load, delivered: usize) -> Self {
        GivenUp {
            error,
            attempts,
            last: load.messages[..delivered]
                .last()
                .map_or(0, |last| last.sequence),
        }
    }
}

/// Messages of one key that are not acknowledged. Never empty.
pub(crate) struct Load {
    /// Under which they were received.
    pub(crate) tenure: Arc<Tenure>,
    /// In the order of their sequences. Only the last one, unless every payload counts.
    pub(crate) messages: Vec<Message>,
    /// How many messages it stands for, of those that this replica has received: at least those that it has.
    pub(crate) covered: usize,
    /// When the server has stored the last of those, which is not the one of the highest sequence if its clock went back.
    pub(crate) stored: i128,
    /// The handler has asked that the key is not tried before this instant.
    pub(crate) not_before: Option<Instant>,
    /// Unless a new message comes.
    pub(crate) until_new: bool,
    /// The handler is not called any more, unless a new message comes.
    pub(crate) given_up: Option<GivenUp>,
    /// A former owner may have died of the key, and no delivery of it has come to an end in this tenure.
    pub(crate) suspect: bool,
    /// It was put back at another level, so that what has come meanwhile is newer.
    pub(crate) moved: bool,
}

impl Load {
    pub(crate) fn new(tenure: &Arc<Tenure>, message: Message, suspect: bool) -> Self {
        Load {
            suspect,
            stored: message.stored,
            tenure: Arc::clone(tenure),
            messages: vec![message],
            covered: 1,
            not_before: None,
            until_new: false,
            given_up: None,
            moved: false,
        }
    }

    /// The key waits for this long, or with `until_new` until a new message comes.
    pub(crate) fn wait(&mut self, delay: Duration, until_new: bool) {
        self.not_before = Instant::now().checked_add(delay.min(LONGEST));
        self.until_new = until_new;
        self.park();
    }

    /// Returns how many of these first messages are given up, or all of them, if the first one is not.
    pub(crate) fn given_up_of(&mut self, ready: usize) -> usize {
        let is_of = |message: &Message, given_up: &GivenUp| message.sequence <= given_up.last;
        self.given_up
            .take_if(|given_up| !is_of(&self.messages[0], given_up));
        self.given_up.as_ref().map_or(ready, |given_up| {
            self.messages[..ready].partition_point(|message| is_of(message, given_up))
        })
    }

    /// Drops the first messages, which are handled.
    pub(crate) fn drop_first(&mut self, handled: usize) {
        if handled > 0 {
            self.messages.drain(..handled);
            self.covered = self.messages.len();
        }
    }

    /// Keeps no payloads while the key is in back-off.
    pub(crate) fn park(&mut self) {
        self.messages.iter_mut().for_each(Message::park);
    }

    /// Merges what came later into this. A message that a later one stands for is acknowledged: the
    /// later one is in the stream, and not acknowledged, so the key is delivered again whatever
    /// happens here. Returns how many were acknowledged.
    pub(crate) fn merge(&mut self, mut newer: Load, coalesce: Coalesce, acks: &Acks) -> usize {
        if newer.moved {
            mem::swap(self, &mut newer);
        }
        let epochs = (self.tenure.fence.epoch, newer.tenure.fence.epoch);
        if epochs.1 > epochs.0 {
            // The new consumer delivers again what this tenure had not acknowledged.
            *self = newer;
            return 0;
        }
        if epochs.1 < epochs.0 {
            return 0;
        }
        // The later one may be a copy, which makes a key a suspect once more for nothing.
        self.suspect |= newer.suspect;
        let last = |load: &Load| load.messages.last().map(|it| (it.made, it.sequence));
        let (held, new) = (last(self), last(&newer));
        match held.cmp(&new) {
            Ordering::Less => {
                self.given_up = newer.given_up;
                if self.until_new {
                    (self.not_before, self.until_new) = (None, false);
                }
            }
            // It comes again.
            Ordering::Equal | Ordering::Greater => {}
        }
        if held.map(|(made, _)| made) != new.map(|(made, _)| made) {
            // The stream was deleted and made again: what was in the former one is gone, and sequences begin anew.
            if held < new {
                (self.messages, self.covered) = (newer.messages, newer.covered);
                self.stored = newer.stored;
            }
            return 0;
        }
        let messages = &mut self.messages;
        self.covered += newer.covered;
        self.stored = self.stored.max(newer.stored);
        for message in newer.messages {
            match messages.binary_search_by_key(&message.sequence, |held| held.sequence) {
                // The server delivered it again, since `ack_wait` has passed.
                Ok(same) => {
                    messages[same] = message;
                    self.covered -= 1;
                }
                Err(place) => messages.insert(place, message),
            }
        }
        if coalesce == Coalesce::Never {
            return 0;
        }
        let superseded = messages.len() - 1;
        for message in messages.drain(..superseded) {
            acks.send(&self.tenure, message.reply);
        }
        superseded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fence;

    impl Message {
        pub(crate) fn of(sequence: u64, stored: i128) -> Self {
            Message {
                payload: Bytes::from_static(b"payload"),
                headers: None,
                sequence,
                reply: "".into(),
                stored,
                made: 0,
                held: Held::default(),
            }
        }
    }

    fn tenure(epoch: u64) -> Arc<Tenure> {
        let fence = Fence {
            partition: 0,
            epoch,
        };
        Arc::new(Tenure::new(fence, 10, Arc::default()))
    }

    fn load(tenure: &Arc<Tenure>, sequence: u64, reply: &str) -> Load {
        let message = Message {
            reply: reply.into(),
            ..Message::of(sequence, 0)
        };
        Load::new(tenure, message, false)
    }

    fn replies(load: &Load) -> Vec<&str> {
        let messages = load.messages.iter();
        messages.map(|message| &*message.reply).collect()
    }

    #[test]
    fn the_last_message_stands_for_the_others_which_are_acknowledged() {
        let (acks, mut outbox) = Acks::new();
        let tenure = tenure(1);
        let mut held = load(&tenure, 5, "five");
        let (mut six, four) = (load(&tenure, 6, "six"), load(&tenure, 4, "four"));
        six.stored = 50;
        for (newer, coalesce) in [(six, Coalesce::Client), (four, Coalesce::Server)] {
            assert_eq!(held.merge(newer, coalesce, &acks), 1);
        }
        assert_eq!((replies(&held), held.covered), (vec!["six"], 3));
        assert_eq!(held.stored, 50, "the clock went back");
        assert_eq!(outbox.sent(), ["five +ACK", "four +ACK"]);
    }

    #[test]
    fn every_payload_is_kept_in_the_order_of_the_stream() {
        let (acks, mut outbox) = Acks::new();
        let tenure = tenure(1);
        let mut held = load(&tenure, 5, "five");
        for (sequence, reply) in [(7, "seven"), (6, "six")] {
            let newer = load(&tenure, sequence, reply);
            assert_eq!(held.merge(newer, Coalesce::Never, &acks), 0);
        }
        assert_eq!(replies(&held), ["five", "six", "seven"]);
        assert!(outbox.sent().is_empty());
    }

    #[test]
    fn a_message_that_the_server_delivers_again_is_not_counted_twice() {
        let (acks, mut outbox) = Acks::new();
        let tenure = tenure(1);
        for coalesce in [Coalesce::Server, Coalesce::Never] {
            let mut held = load(&tenure, 5, "first");
            assert_eq!(held.merge(load(&tenure, 5, "again"), coalesce, &acks), 0);
            assert_eq!((replies(&held), held.covered), (vec!["again"], 1));
            assert!(outbox.sent().is_empty());
        }
    }

    /// The last message is new to a key, or the key stays as it is: given up, or waiting.
    #[test]
    fn only_a_later_message_is_new() {
        let (acks, _outbox) = Acks::new();
        let tenure = tenure(1);
        let given_up = || GivenUp {
            error: String::new(),
            attempts: 1,
            last: 5,
        };
        for coalesce in [Coalesce::Server, Coalesce::Client, Coalesce::Never] {
            let mut held = load(&tenure, 5, "");
            held.given_up = Some(given_up());
            (held.not_before, held.until_new) = (Some(Instant::now()), true);
            for sequence in [4, 5, 6] {
                held.merge(load(&tenure, sequence, ""), coalesce, &acks);
                let is_as_before = [held.given_up.is_some(), held.not_before.is_some()];
                assert_eq!(is_as_before, [sequence < 6; 2], "{sequence}");
            }
            let mut copy = load(&tenure, 5, "copy");
            let mut moved = load(&tenure, 5, "former");
            (moved.given_up, moved.moved) = (Some(given_up()), true);
            copy.merge(moved, coalesce, &acks);
            assert!(copy.given_up.is_some());
            // The former consumer takes no acknowledgement.
            assert_eq!(replies(&copy), ["copy"]);
        }
    }

    #[test]
    fn what_comes_behind_the_messages_that_are_given_up_is_tried() {
        let (acks, _outbox) = Acks::new();
        let tenure = tenure(1);
        let mut held = load(&tenure, 5, "");
        for sequence in [7, 9] {
            held.merge(load(&tenure, sequence, ""), Coalesce::Never, &acks);
        }
        let given_up = GivenUp::new("bad".to_owned(), 1, &held, 2);
        assert_eq!((given_up.last, held.given_up_of(3)), (7, 3));
        held.given_up = Some(given_up);
        assert_eq!([1, 2, 3].map(|ready| held.given_up_of(ready)), [1, 2, 2]);
        held.messages.drain(..2);
        assert_eq!(held.given_up_of(1), 1);
        assert!(held.given_up.is_none());
    }

    #[test]
    fn a_key_stays_a_suspect_whatever_comes() {
        let (acks, _outbox) = Acks::new();
        let tenure = tenure(1);
        for (first, second) in [(5, 6), (6, 5)] {
            let [mut held, mut newer] = [first, second].map(|of| load(&tenure, of, ""));
            (held.suspect, newer.suspect) = (first == 5, second == 5);
            held.merge(newer, Coalesce::Server, &acks);
            assert!(held.suspect);
        }
    }

    #[test]
    fn messages_of_an_earlier_tenure_are_dropped_without_an_acknowledgement() {
        let (acks, mut outbox) = Acks::new();
        let (earlier, later) = (tenure(1), tenure(2));
        let mut held = load(&earlier, 5, "earlier");
        held.merge(load(&later, 5, "later"), Coalesce::Never, &acks);
        assert_eq!(
            (held.tenure.fence.epoch, replies(&held)),
            (2, vec!["later"])
        );
        held.merge(load(&earlier, 6, "straggler"), Coalesce::Never, &acks);
        assert_eq!(replies(&held), ["later"]);
        assert!(outbox.sent().is_empty());
    }
}
