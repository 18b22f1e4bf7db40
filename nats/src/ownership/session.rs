//! The session of this replica, and the count of its lease.

use std::time::Duration;

use super::{Key, Revision, Time};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    /// `<prefix>.<number>`.
    pub(super) name: String,
    prefix: String,
    number: u64,
    /// Of the last version of its record that is known.
    pub(super) revision: Revision,
    pub(super) began: Time,
    /// Of the last renewal that was sent; 0: none.
    pub(super) beat: u64,
    /// Of the last renewal that is known to have been applied.
    pub(super) adopted: u64,
    /// When it was sent.
    pub(super) renewed: Option<Time>,
    /// When the next renewal is sent.
    pub(super) renew_at: Time,
    /// The renewals since the last one that is known to have been applied, and when they were
    /// sent. At most one of them can be applied: they expect the same revision.
    sent: Vec<(u64, Time)>,
}

impl Session {
    pub(super) fn new(prefix: String, now: Time) -> Session {
        let name = format!("{prefix}.0");
        Session {
            name,
            prefix,
            number: 0,
            revision: 0,
            began: now,
            beat: 0,
            adopted: 0,
            renewed: None,
            renew_at: now,
            sent: Vec::new(),
        }
    }

    /// Goes on under a new name, and returns the old one.
    pub(super) fn next(&mut self, now: Time) -> String {
        let number = self.number + 1;
        let name = format!("{}.{number}", self.prefix);
        let next = Session {
            name,
            number,
            ..Session::new(self.prefix.clone(), now)
        };
        std::mem::replace(self, next).name
    }

    pub(super) fn key(&self) -> Key {
        Key::Session(self.name.clone())
    }

    /// The beat of a renewal that is sent now.
    pub(super) fn beat(&mut self, now: Time, lease: Duration) -> u64 {
        self.beat += 1;
        self.renew_at = now + lease / 4;
        // A renewal that is older than the lease would extend nothing.
        self.sent.retain(|(_, sent)| now < *sent + lease);
        self.sent.push((self.beat, now));
        self.beat
    }

    /// The renewal with this beat has been applied. The lease counts from when that one was sent.
    pub(super) fn adopt(&mut self, beat: u64, revision: Revision) {
        self.revision = revision;
        self.adopted = beat;
        let sent = self.sent.iter().find(|(number, _)| *number == beat);
        if let Some((_, sent)) = sent {
            self.renewed = Some(*sent);
        }
        self.sent.clear();
    }
}
