//! What a replica has seen of the records, other than that of its own session.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assign::deal;
use super::{Late, Revision, Time, Value};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct View {
    /// The watcher has shown the whole bucket: what has not been seen is missing.
    complete: bool,
    /// The sessions of others, and the earlier ones of this replica.
    sessions: BTreeMap<String, Observed>,
    partitions: Vec<Partition>,
}

/// The record of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observed {
    state: State,
    revision: Revision,
    /// Since when this version has been observed.
    since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// A partition names it.
    Missing,
    Live,
    Leaving,
    Ended,
}

/// The record of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Partition {
    owner: Option<String>,
    revision: Revision,
    base: u64,
    /// The highest epoch that is known otherwise.
    floor: u64,
}

impl Partition {
    /// The highest epoch that there was, by the record.
    fn epoch(&self) -> u64 {
        self.base + self.revision
    }
}

impl View {
    pub(super) fn new(partitions: u16) -> View {
        View {
            complete: false,
            sessions: BTreeMap::new(),
            partitions: vec![Partition::default(); partitions.into()],
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn session_revision(&self, name: &str) -> Revision {
        self.sessions.get(name).map_or(0, |seen| seen.revision)
    }

    pub(super) fn partition_revision(&self, partition: u16) -> Revision {
        self.partitions[usize::from(partition)].revision
    }

    pub(super) fn complete(&mut self, now: Time, own: &str) {
        self.complete = true;
        for partition in 0..self.partitions.len() {
            self.observe_owner(now, partition, own);
        }
    }

    /// Starts all observations again.
    pub(super) fn observe_again(&mut self, now: Time) {
        for session in self.sessions.values_mut() {
            session.since = now;
        }
    }

    /// Takes in a new version of a session's record.
    pub(super) fn session(
        &mut self,
        now: Time,
        name: String,
        value: Option<&Value>,
        revision: Revision,
    ) {
        let state = match value {
            Some(Value::Live { .. }) => State::Live,
            Some(Value::Leaving { .. }) => State::Leaving,
            Some(_) => State::Ended,
            None => State::Missing,
        };
        if state == State::Missing && !self.is_named(&name) {
            self.sessions.remove(&name);
            return;
        }
        let observed = Observed {
            state,
            revision,
            since: now,
        };
        self.sessions.insert(name, observed);
    }

    /// Takes in a new version of a partition's record. Returns whether this replica's session owns
    /// it.
    pub(super) fn partition(
        &mut self,
        now: Time,
        partition: u16,
        value: Option<Value>,
        revision: Revision,
        own: &str,
    ) -> bool {
        let partition = usize::from(partition);
        let record = &mut self.partitions[partition];
        record.revision = revision;
        (record.owner, record.base) = match value {
            Some(Value::Owned { session, base }) => (Some(session), base),
            Some(Value::Free { base }) => (None, base),
            _ => (None, record.base),
        };
        let ours = record.owner.as_deref() == Some(own);
        self.observe_owner(now, partition, own);
        ours
    }

    /// The base and the epoch of a partition's record.
    pub(super) fn epoch(&self, partition: u16) -> (u64, u64) {
        let record = &self.partitions[usize::from(partition)];
        (record.base, record.epoch())
    }

    /// There was this epoch of the partition.
    pub(super) fn raise(&mut self, partition: u16, above: u64) {
        let record = &mut self.partitions[usize::from(partition)];
        record.floor = record.floor.max(above);
    }

    /// Begins the observation of a partition's owner if its record is missing.
    fn observe_owner(&mut self, now: Time, partition: usize, own: &str) {
        if self.complete
            && let Some(owner) = &self.partitions[partition].owner
            && owner != own
            && !self.sessions.contains_key(owner)
        {
            let observed = Observed {
                state: State::Missing,
                revision: 0,
                since: now,
            };
            self.sessions.insert(owner.clone(), observed);
        }
    }

    fn is_named(&self, session: &str) -> bool {
        let mut owners = self.partitions.iter().map(|record| record.owner.as_deref());
        owners.any(|owner| owner == Some(session))
    }

    /// The sessions that can be fenced, with the revisions to expect.
    pub(super) fn fences(&mut self, now: Time, lease: Duration) -> Vec<(String, Revision)> {
        let mut fences = Vec::new();
        let mut unnamed = Vec::new();
        for (name, session) in self.sessions.iter() {
            if session.state == State::Ended || now < session.since + lease {
                continue;
            }
            // The partition that named it has another owner since.
            if session.state == State::Missing && !self.is_named(name) {
                unnamed.push(name.clone());
            } else {
                fences.push((name.clone(), session.revision));
            }
        }
        for name in unnamed {
            self.sessions.remove(&name);
        }
        fences
    }

    /// Since when each session has been observed that has not ended.
    pub(super) fn observed(&self) -> impl Iterator<Item = (&String, Time)> {
        let sessions = self.sessions.iter();
        sessions
            .filter(|(_, seen)| seen.state != State::Ended)
            .map(|(name, seen)| (name, seen.since))
    }

    /// The partitions whose owner's record was observed unchanged for this long. None for a replica that is not the first by name of those
    /// that are not late: one tells of them.
    pub(super) fn late(&self, now: Time, after: Duration, own: &str) -> Vec<Late> {
        let is_late = |seen: &Observed| now >= seen.since + after;
        let mut others = self.sessions.iter();
        if others.any(|(name, seen)| &**name < own && seen.state != State::Ended && !is_late(seen))
        {
            return Vec::new();
        }
        let records = (0..).zip(&self.partitions);
        let late = records.filter_map(|(partition, record)| {
            let owner = record.owner.clone()?;
            let seen = self.sessions.get(&owner).filter(|seen| is_late(seen))?;
            Some(Late {
                partition,
                epoch: record.epoch(),
                owner,
                renewed: seen.revision,
                since: seen.since,
            })
        });
        late.collect()
    }

    /// Whether a partition still has the owner of this epoch, whose record is the one of this revision, or says that the owner has ended.
    pub(super) fn is_late(&self, partition: u16, epoch: u64, renewed: Revision) -> bool {
        let record = &self.partitions[usize::from(partition)];
        let owner = record.owner.as_ref();
        let seen = owner.and_then(|owner| self.sessions.get(owner));
        record.epoch() == epoch
            && seen.is_some_and(|seen| seen.state == State::Ended || seen.revision == renewed)
    }

    /// The partitions that this replica should claim of those that are dealt to it, with the revisions to expect and the bases: what is
    /// free, and what it owns under an epoch that is too low.
    pub(super) fn claims(&self, own: &str, dealt: &[bool]) -> Vec<(u16, Revision, u64)> {
        let records = (0..).zip(&self.partitions).zip(dealt);
        let free = |record: &Partition| {
            let is_low = record.epoch() < record.floor;
            record.owner.as_ref().is_none_or(|owner| {
                if owner == own {
                    return is_low;
                }
                let session = self.sessions.get(owner);
                session.is_some_and(|session| session.state == State::Ended)
            })
        };
        records
            .filter(|((_, record), dealt)| **dealt && free(record))
            .map(|((partition, record), _)| {
                let base = match record.epoch() < record.floor {
                    true => record.floor,
                    false => record.base,
                };
                (partition, record.revision, base)
            })
            .collect()
    }

    /// Whether each partition is dealt to this replica, whose own session is live.
    pub(super) fn deal(&self, own: &str) -> Vec<bool> {
        let live = self
            .sessions
            .iter()
            .filter(|(_, seen)| seen.state == State::Live);
        let mut members: Vec<&str> = live.map(|(name, _)| &**name).collect();
        members.push(own);
        members.sort_unstable();
        let index = |name: &str| members.binary_search(&name).ok();
        let owners = self
            .partitions
            .iter()
            .map(|record| index(record.owner.as_ref()?));
        let dealt = deal(&members, &owners.collect::<Vec<_>>());
        let own = index(own);
        dealt
            .into_iter()
            .map(|member| Some(member) == own)
            .collect()
    }
}
