//! What has been requested of the server and has not ended: at most one thing for each key.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Action, Key, Revision, Time, Value};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requests {
    pending: BTreeMap<Key, Request>,
    /// Between attempts.
    pause: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    Write {
        value: Value,
        expect: Revision,
        sent: Time,
    },
    /// After a conflict. It is repeated after a pause.
    Read { sent: Time },
    /// A write with unknown end. A pause after it was sent, the key may be written again.
    Unknown { sent: Time },
}

impl Requests {
    pub(super) fn new(pause: Duration) -> Requests {
        let pending = BTreeMap::new();
        Requests { pending, pause }
    }

    /// Whether the key can be written now.
    pub(super) fn idle(&self, key: &Key) -> bool {
        !self.pending.contains_key(key)
    }

    /// Whether a partition may be written by what has been requested.
    pub(super) fn has_partitions(&self) -> bool {
        let mut keys = self.pending.keys();
        keys.any(|key| matches!(key, Key::Partition(_)))
    }

    pub(super) fn is_reading(&self, key: &Key) -> bool {
        matches!(self.pending.get(key), Some(Request::Read { .. }))
    }

    /// Writes the key if it is idle.
    pub(super) fn write(
        &mut self,
        now: Time,
        key: Key,
        value: Value,
        expect: Revision,
        out: &mut Vec<Action>,
    ) {
        if self.idle(&key) {
            let request = Request::Write {
                value: value.clone(),
                expect,
                sent: now,
            };
            self.pending.insert(key.clone(), request);
            out.push(Action::Write { key, value, expect });
        }
    }

    pub(super) fn read(&mut self, now: Time, key: Key, out: &mut Vec<Action>) {
        let request = Request::Read { sent: now };
        self.pending.insert(key.clone(), request);
        out.push(Action::Read { key });
    }

    /// Ends the write of this key. Returns what it was.
    pub(super) fn wrote(&mut self, key: &Key, unknown: bool) -> Option<(Value, Revision)> {
        let Some(Request::Write {
            value,
            expect,
            sent,
        }) = self.pending.get(key)
        else {
            return None;
        };
        let (sent, written) = (*sent, (value.clone(), *expect));
        if unknown {
            let request = Request::Unknown { sent };
            self.pending.insert(key.clone(), request);
        } else {
            self.pending.remove(key);
        }
        Some(written)
    }

    /// The record was seen: what a read was for, or a write with unknown end has not done yet.
    pub(super) fn seen(&mut self, key: &Key) {
        if let Some(Request::Read { .. } | Request::Unknown { .. }) = self.pending.get(key) {
            self.pending.remove(key);
        }
    }

    /// Ends pauses, and repeats reads.
    pub(super) fn repeat(&mut self, now: Time, out: &mut Vec<Action>) {
        let pause = self.pause;
        self.pending.retain(|key, request| match request {
            Request::Write { .. } => true,
            Request::Unknown { sent } => now < *sent + pause,
            Request::Read { sent } => {
                if now >= *sent + pause {
                    *sent = now;
                    out.push(Action::Read { key: key.clone() });
                }
                true
            }
        });
    }

    /// When [`Requests::repeat`] has something to do.
    pub(super) fn next(&self) -> Option<Time> {
        let due = |request: &Request| match request {
            Request::Write { .. } => None,
            Request::Read { sent } | Request::Unknown { sent } => Some(*sent + self.pause),
        };
        self.pending.values().filter_map(due).min()
    }
}
