//! The state of the model, the drivers of the members, and what must always hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::bucket::Bucket;
use super::moves::Move;
use crate::ownership::{Action, Input, Key, Member, Revision, Time, Value, WriteEnd};

/// Of each replica's clock, however fast it runs.
pub(super) const LEASE: u64 = 24;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) time: u64,
    pub(super) bucket: Bucket,
    pub(super) replicas: Vec<Replica>,
    pub(super) flights: Vec<Flight>,
    /// For each partition, the highest epoch under which a delivery could have begun, and the
    /// replica.
    pub(super) begun: Vec<(u64, usize)>,
    /// For each partition, the highest epoch that an owner has noted before it began: in the beginning one of a former bucket,
    /// whose revisions were higher.
    pub(super) noted: Vec<u64>,
    /// The highest epoch that a partition's record has had.
    pub(super) claimed: Vec<u64>,
    /// What is worth seeing in the last move.
    pub(super) events: BTreeSet<Event>,
    pub(super) wrong: Option<String>,
    pub(super) faults: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    /// None: killed.
    pub(super) member: Option<Member>,
    /// Processes that it has had.
    pub(super) runs: u32,
    /// Ticks of its clock in a unit of true time.
    pub(super) rate: u64,
    pub(super) paused: bool,
    pub(super) left: bool,
    pub(super) watcher: Watcher,
    pub(super) reads: BTreeSet<Key>,
    /// What its driver receives messages of.
    pub(super) receiving: BTreeMap<u16, Receiving>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Watcher {
    pub(super) stalled: bool,
    pub(super) shown: Revision,
    /// The last revision when it began, until all up to there has been shown.
    pub(super) snapshot: Option<Revision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receiving {
    pub(super) epoch: u64,
    /// Its epoch is noted, and not too low; `None`: not yet.
    pub(super) is_high: Option<bool>,
    pub(super) handing_over: bool,
}

/// A write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) replica: usize,
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) expect: Revision,
    pub(super) held: bool,
    /// Its end on the server.
    pub(super) applied: Option<WriteEnd>,
    /// Its replica does not wait for it any more.
    pub(super) orphan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Event {
    /// A partition of a killed replica was started by another.
    TakenOver,
    /// A partition was started by another replica than before, which is still there.
    Moved,
    /// A claim whose end was unknown was found to be applied.
    Adopted,
    /// A late renewal was applied.
    Resumed,
    /// A replica has begun a partition that it had claimed under an epoch that was too low.
    Raised,
}

impl World {
    /// Replicas that are not launched yet, with clocks of these rates.
    pub(super) fn new(partitions: u16, rates: &[u64]) -> World {
        let replica = |rate: &u64| Replica {
            member: None,
            runs: 0,
            rate: *rate,
            paused: false,
            left: false,
            watcher: Watcher::default(),
            reads: BTreeSet::new(),
            receiving: BTreeMap::new(),
        };
        World {
            time: 0,
            bucket: Bucket::default(),
            replicas: rates.iter().map(replica).collect(),
            flights: Vec::new(),
            begun: vec![(0, 0); partitions.into()],
            noted: vec![0; partitions.into()],
            claimed: vec![0; partitions.into()],
            events: BTreeSet::new(),
            wrong: None,
            faults: 0,
        }
    }

    pub(super) fn now(&self, replica: usize) -> Time {
        Duration::from_nanos(self.time * self.replicas[replica].rate)
    }

    pub(super) fn runs(&self, replica: usize) -> bool {
        let replica = &self.replicas[replica];
        replica.member.is_some() && !replica.paused && !replica.left
    }

    /// Watchers show at once what changes nothing, such as a replica's own acknowledged writes.
    pub(super) fn absorb(&mut self) {
        for index in 0..self.replicas.len() {
            let now = self.now(index);
            while self.runs(index)
                && !self.replicas[index].watcher.stalled
                && self.replicas[index].watcher.snapshot.is_none()
                && let Some((key, (value, revision))) =
                    (self.bucket.change_after(self.replicas[index].watcher.shown)).cloned()
            {
                let replica = &mut self.replicas[index];
                let mut after = replica.member.clone();
                let seen = Input::Seen {
                    key,
                    value,
                    revision,
                };
                let actions = after.as_mut().map(|member| member.step(now, seen));
                if after != replica.member || actions.is_some_and(|actions| !actions.is_empty()) {
                    break;
                }
                replica.watcher.shown = revision;
            }
        }
        let live = self
            .replicas
            .iter()
            .filter(|replica| replica.member.is_some());
        let shown = live.map(|replica| replica.watcher.snapshot.unwrap_or(replica.watcher.shown));
        self.bucket.forget(shown.min().unwrap_or(self.bucket.last));
    }

    /// A step of a member, and what its driver does then.
    pub(super) fn step(&mut self, index: usize, input: Input) {
        let now = self.now(index);
        let seen = matches!(input, Input::Seen { .. });
        let Some(member) = &mut self.replicas[index].member else {
            return;
        };
        if member.is_of_another_bucket(&input) {
            self.wrong = Some(format!("replica {index} takes {input:?} for a copy"));
        }
        let actions = member.step(now, input);
        if member.next_tick() <= now {
            self.wrong = Some(format!("replica {index} has to tick again at once"));
        }
        for action in actions {
            let replica = &mut self.replicas[index];
            match action {
                Action::Write { key, value, expect } => {
                    let waits = |flight: &Flight| {
                        flight.replica == index && flight.key == key && !flight.orphan
                    };
                    if self.flights.iter().any(waits) {
                        self.wrong = Some(format!("two writes of {key:?} by replica {index}"));
                    }
                    self.flights.push(Flight {
                        replica: index,
                        key,
                        value,
                        expect,
                        held: false,
                        applied: None,
                        orphan: false,
                    });
                }
                Action::Read { key } => {
                    replica.reads.insert(key);
                }
                Action::Start { partition, epoch } => {
                    let handing_over = false;
                    let receiving = Receiving {
                        epoch,
                        is_high: None,
                        handing_over,
                    };
                    if replica.receiving.insert(partition, receiving).is_some() {
                        self.wrong = Some(format!("partition {partition} is started twice"));
                    }
                    self.started(index, partition, seen);
                }
                Action::HandOver { partition, epoch } => {
                    match replica.receiving.get_mut(&partition) {
                        Some(was) if was.epoch == epoch && !was.handing_over => {
                            was.handing_over = true;
                        }
                        was => self.wrong = Some(format!("hand-over of {partition}: {was:?}")),
                    }
                }
                Action::Lost { partition, epoch } => {
                    let was = replica.receiving.remove(&partition);
                    if was.is_none_or(|was| was.epoch != epoch) {
                        self.wrong = Some(format!("loss of {partition}: {was:?}"));
                    }
                }
                Action::Suspended => {}
                Action::Resumed => {
                    self.events.insert(Event::Resumed);
                }
                Action::Left => {
                    replica.left = true;
                    if !replica.receiving.is_empty() {
                        self.wrong = Some(format!("replica {index} left and goes on"));
                    }
                }
            }
        }
    }

    fn started(&mut self, index: usize, partition: u16, seen: bool) {
        let (epoch, before) = self.begun[usize::from(partition)];
        let key = Key::Partition(partition);
        let claims = |flight: &Flight| flight.replica == index && flight.key == key;
        if seen
            && !self
                .flights
                .iter()
                .any(|flight| claims(flight) && !flight.orphan)
        {
            self.events.insert(Event::Adopted);
        }
        if epoch > 0 && before != index {
            let before = &self.replicas[before];
            self.events.insert(match before.member {
                Some(_) => Event::Moved,
                None => Event::TakenOver,
            });
        }
    }

    /// A driver notes the epoch of a partition before it receives.
    pub(super) fn note(&mut self, index: usize, partition: u16) {
        let noted = &mut self.noted[usize::from(partition)];
        let Some(receiving) = self.replicas[index].receiving.get_mut(&partition) else {
            return;
        };
        let is_high = receiving.epoch >= *noted;
        receiving.is_high = Some(is_high);
        if is_high {
            *noted = receiving.epoch;
            return;
        }
        self.events.insert(Event::Raised);
        let above = *noted;
        self.step(index, Input::Outranked { partition, above });
    }

    /// What must always hold: see the properties of `explore`.
    pub(super) fn check(&mut self) {
        for partition in 0..self.begun.len() {
            let mut owners = Vec::new();
            for (index, replica) in self.replicas.iter().enumerate() {
                let number = u16::try_from(partition).unwrap();
                let Some(receiving) = replica.receiving.get(&number) else {
                    continue;
                };
                let until = replica.member.as_ref().map(Member::may_begin_until);
                if until.is_none_or(|until| self.now(index) >= until) {
                    continue;
                }
                owners.push(index);
                let (highest, _) = self.begun[partition];
                if receiving.handing_over || receiving.is_high != Some(true) {
                    continue;
                }
                if receiving.epoch < highest {
                    self.wrong = Some(format!("replica {index} begins below epoch {highest}"));
                } else {
                    self.begun[partition] = (receiving.epoch, index);
                }
            }
            if owners.len() > 1 {
                self.wrong = Some(format!("{owners:?} own partition {partition}"));
            }
        }
    }

    /// Makes prompt moves and ends hand-overs until there are none.
    pub(super) fn settle(&mut self) {
        let over = |over: &Move| matches!(over, Move::HandedOver(..));
        let next = |world: &World| {
            let prompt = world.prompt().into_iter().next();
            prompt.or_else(|| world.free().into_iter().find(over))
        };
        let mut moves = 0;
        while self.wrong.is_none()
            && let Some(next) = next(self)
        {
            self.make(next);
            moves += 1;
            if moves > 1000 {
                self.wrong = Some("no end".to_owned());
            }
        }
    }

    /// The server is away: every write ends as unknown, and is not applied.
    pub(super) fn lose_writes(&mut self) {
        while let Some(Flight { replica, key, .. }) = self.flights.pop() {
            let end = WriteEnd::Unknown;
            self.step(replica, Input::Wrote { key, end });
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        for flight in &mut self.flights {
            flight.held = false;
        }
        for replica in &mut self.replicas {
            replica.paused = false;
            replica.watcher.stalled = false;
        }
    }

    /// Whether each partition is received by a replica that may begin its deliveries, and no
    /// replica has more than its share.
    pub(super) fn is_quiet(&self) -> bool {
        let live = |index: &usize| self.runs(*index);
        let live: Vec<usize> = (0..self.replicas.len()).filter(live).collect();
        let mut owned = 0;
        for index in &live {
            let replica = &self.replicas[*index];
            let Some(member) = &replica.member else {
                continue;
            };
            let receiving = replica.receiving.len();
            let begins = |was: &Receiving| !was.handing_over && was.is_high == Some(true);
            if !replica.receiving.values().all(begins)
                || self.now(*index) >= member.may_begin_until()
                || receiving > self.begun.len().div_ceil(live.len())
                || member.owned().count() != receiving
            {
                return false;
            }
            owned += receiving;
        }
        owned == self.begun.len() || live.is_empty()
    }
}
