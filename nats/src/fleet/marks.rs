//! How far the keys of a partition are handled: nothing older than that is delivered, whatever the server sends again.
//!
//! An acknowledgement may be lost with its connection, and a server that was killed may have forgotten that it has processed one. Then a
//! message comes again whose key has had later ones. Each replica notes the last message of each key that it has handled,
//! when the handler has succeeded or the key was given up, and before it acknowledges. A message that is not later than the
//! note is acknowledged again instead of delivered.
//!
//! A note is kept until the server has confirmed the acknowledgement and for one confirmation more (`Acks::settled`,
//! each [`CONFIRM`](super::receive::CONFIRM)), because a server that is killed loses what it has written in the last
//! moments; as long as the consumer has not sent as much as was noted, because it is a new one that sends it again; and as long as the key
//! is in the queue, because a copy may wait there. The notes outlive the tenure, because this replica may own
//! the partition again. What they cover and has not come again is deleted before a hand-over is over (`handled`).
//!
//! That a later message is handled says nothing of an earlier one that has never come. So `receive` takes the messages of a consumer only
//! as long as none is missing.
//!
//! A stream that was deleted and made again, or restored, gives sequences again that it has given before. So a message is older
//! only if both its sequence and the time at which the server has stored it say so.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::load::Message;

/// How many notes are made before the server is asked to confirm at the next look.
const MANY: usize = 50_000;

/// Of one partition.
#[derive(Default)]
pub(crate) struct Marks {
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// Since the last confirmation.
    recent: HashMap<String, Mark>,
    /// Between the last two.
    confirmed: HashMap<String, Mark>,
    /// The highest sequences of both.
    highest: [u64; 2],
}

impl Notes {
    fn of(&self, key: &str) -> Option<Mark> {
        let mark = self.recent.get(key).or_else(|| self.confirmed.get(key));
        mark.copied()
    }
}

/// The last message of a key that was handled.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) sequence: u64,
    stored: i128,
}

impl Mark {
    /// Whether a message of the key is not later than this one.
    pub(crate) fn covers(&self, sequence: u64, stored: i128) -> bool {
        sequence <= self.sequence && stored <= self.stored
    }
}

impl Marks {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a key is handled up to the message of this sequence, and when the server has stored the last of those that were handled.
    pub(crate) fn note(&self, key: &str, sequence: u64, stored: i128) {
        let mut notes = self.notes();
        // If the server's clock went back, an earlier message was stored later. A lower sequence is of a stream that was made again.
        let earlier = notes.of(key).filter(|former| former.sequence < sequence);
        let stored = earlier.map_or(stored, |former| former.stored.max(stored));
        let mark = Mark { sequence, stored };
        notes.highest[0] = notes.highest[0].max(mark.sequence);
        notes.recent.insert(key.into(), mark);
    }

    /// The highest sequence that is handled, of those that are not confirmed twice.
    pub(crate) fn highest(&self) -> u64 {
        let [recent, confirmed] = self.notes().highest;
        recent.max(confirmed)
    }

    /// Whether this message of the key, or a later one, is handled.
    pub(crate) fn covers(&self, key: &str, message: &Message) -> bool {
        let mark = self.notes().of(key);
        mark.is_some_and(|mark| mark.covers(message.sequence, message.stored))
    }

    /// The note of a key.
    pub(crate) fn of(&self, key: &str) -> Option<Mark> {
        self.notes().of(key)
    }

    /// The keys that have notes.
    pub(crate) fn keys(&self) -> HashSet<String> {
        let notes = self.notes();
        let keys = notes.recent.keys().chain(notes.confirmed.keys());
        keys.cloned().collect()
    }

    /// Whether there are notes that are not confirmed, and whether they are many.
    pub(crate) fn unconfirmed(&self) -> (bool, bool) {
        let count = self.notes().recent.len();
        (count > 0, count >= MANY)
    }

    /// The server has processed the acknowledgements of all notes that were there when it was asked. What was noted since is
    /// confirmed by the next time. Keys for which this returns true are kept.
    pub(crate) fn confirmed(&self, is_queued: impl Fn(&String) -> bool) {
        let mut notes = self.notes();
        let recent = std::mem::take(&mut notes.recent);
        let twice = std::mem::replace(&mut notes.confirmed, recent);
        for (key, mark) in twice {
            if is_queued(&key) {
                notes.confirmed.entry(key).or_insert(mark);
            }
        }
        notes.highest = [0, notes.highest[0]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N7: also if the server's clock goes back, and not of a stream that was made again.
    #[test]
    fn an_older_message_is_known_although_it_was_stored_later() {
        let (marks, at) = (Marks::default(), Message::of);
        marks.note("a", 5, 50);
        marks.note("a", 6, 40);
        assert!(marks.covers("a", &at(5, 50)) && marks.covers("a", &at(6, 40)));
        marks.note("a", 1, 30);
        assert!(!marks.covers("a", &at(1, 50)));
    }

    /// N7: what is handled is known for two confirmations, also if the sequences begin again meanwhile.
    #[test]
    fn an_older_message_is_known_until_it_was_confirmed_twice() {
        let marks = Marks::default();
        let at = |sequence, stored| Message::of(sequence, stored);
        assert!(!marks.covers("a", &at(1, 10)));
        marks.note("a", 5, 50);
        for _ in 0..2 {
            assert!(marks.covers("a", &at(5, 50)));
            assert!(marks.covers("a", &at(4, 40)));
            assert!(!marks.covers("a", &at(6, 60)));
            assert!(!marks.covers("a", &at(4, 60)), "of a stream made again");
            assert!(!marks.covers("b", &at(4, 40)));
            marks.confirmed(|_| false);
        }
        assert!(!marks.covers("a", &at(4, 40)));
        marks.note("b", 7, 70);
        for _ in 0..5 {
            marks.confirmed(|key| key == "b");
        }
        assert!(marks.covers("b", &at(7, 70)), "a copy may be in the queue");
    }
}
