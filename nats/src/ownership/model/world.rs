//! The state of the model, and its moves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::bucket::{Bucket, Record};
use crate::ownership::{Action, Input, Key, Member, Revision, Settings, Time, Value, WriteEnd};

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
    runs: u32,
    /// Ticks of its clock in a unit of true time.
    rate: u64,
    pub(super) paused: bool,
    pub(super) left: bool,
    watcher: Watcher,
    reads: BTreeSet<Key>,
    /// What its driver receives messages of.
    receiving: BTreeMap<u16, Receiving>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watcher {
    stalled: bool,
    shown: Revision,
    /// The last revision when it began, until all up to there has been shown.
    snapshot: Option<Revision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Receiving {
    epoch: u64,
    handing_over: bool,
}

/// A write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    replica: usize,
    key: Key,
    value: Value,
    expect: Revision,
    held: bool,
    /// Its end on the server.
    applied: Option<WriteEnd>,
    /// Its replica does not wait for it any more.
    orphan: bool,
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Advance,
    Tick(usize),
    /// Apply a write, and acknowledge it.
    Apply(usize),
    /// Hold a write, or only its acknowledgement.
    Hold(usize),
    HoldAck(usize),
    Acknowledge(usize),
    /// End a write as unknown. It may still be applied.
    TimeOut(usize),
    Watch(usize),
    Stall(usize),
    Continue(usize),
    Rewatch(usize),
    Read(usize, Key),
    /// The read fails.
    LoseRead(usize, Key),
    HandedOver(usize, u16),
    Pause(usize),
    Wake(usize),
    Kill(usize),
    Launch(usize),
    Leave(usize),
    /// The record of an ended session vanishes, with or without a marker.
    Expire(Key, bool),
}

impl Move {
    pub(super) fn is_fault(&self) -> bool {
        use Move::{Expire, Hold, HoldAck, Kill, Leave, LoseRead, Pause, Rewatch, Stall};
        matches!(
            self,
            Hold(_)
                | HoldAck(_)
                | Stall(_)
                | Rewatch(_)
                | Pause(_)
                | Kill(_)
                | Leave(_)
                | Expire(..)
                | LoseRead(..)
        )
    }
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
            events: BTreeSet::new(),
            wrong: None,
            faults: 0,
        }
    }

    fn now(&self, replica: usize) -> Time {
        Duration::from_nanos(self.time * self.replicas[replica].rate)
    }

    fn runs(&self, replica: usize) -> bool {
        let replica = &self.replicas[replica];
        replica.member.is_some() && !replica.paused && !replica.left
    }

    /// The moves that are made before time advances.
    pub(super) fn prompt(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, flight) in self.flights.iter().enumerate() {
            match flight.applied {
                _ if flight.held => {}
                None => moves.push(Move::Apply(index)),
                Some(_) if self.runs(flight.replica) => moves.push(Move::Acknowledge(index)),
                Some(_) => {}
            }
        }
        for (index, replica) in self.replicas.iter().enumerate() {
            if !self.runs(index) {
                continue;
            }
            let member = replica.member.as_ref();
            if member.is_some_and(|member| member.next_tick() <= self.now(index)) {
                moves.push(Move::Tick(index));
            }
            let watcher = &replica.watcher;
            let watches = watcher.snapshot.is_some() || self.bucket.after(watcher.shown).is_some();
            if !watcher.stalled && watches {
                moves.push(Move::Watch(index));
            }
            moves.extend(
                replica
                    .reads
                    .iter()
                    .map(|key| Move::Read(index, key.clone())),
            );
        }
        moves
    }

    /// The moves that nothing waits for, other than faults.
    pub(super) fn free(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, flight) in self.flights.iter().enumerate() {
            if !flight.held {
                continue;
            }
            if flight.applied.is_none() {
                moves.push(Move::Apply(index));
            } else if self.runs(flight.replica) {
                moves.push(Move::Acknowledge(index));
            }
            if !flight.orphan && self.runs(flight.replica) {
                moves.push(Move::TimeOut(index));
            }
        }
        for (index, replica) in self.replicas.iter().enumerate() {
            if replica.paused {
                moves.push(Move::Wake(index));
            } else if self.runs(index) {
                if replica.watcher.stalled {
                    moves.push(Move::Continue(index));
                }
                for (partition, receiving) in &replica.receiving {
                    if receiving.handing_over {
                        moves.push(Move::HandedOver(index, *partition));
                    }
                }
            } else {
                moves.push(Move::Launch(index));
            }
        }
        moves
    }

    pub(super) fn faults(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, flight) in self.flights.iter().enumerate() {
            if !flight.held && flight.applied.is_none() {
                moves.extend([Move::Hold(index), Move::HoldAck(index)]);
            }
        }
        for (index, replica) in self.replicas.iter().enumerate() {
            if self.runs(index) {
                moves.extend([Move::Pause(index), Move::Kill(index), Move::Leave(index)]);
                moves.push(match replica.watcher.stalled {
                    true => Move::Rewatch(index),
                    false => Move::Stall(index),
                });
            }
        }
        for (index, replica) in self.replicas.iter().enumerate() {
            moves.extend(
                replica
                    .reads
                    .iter()
                    .map(|key| Move::LoseRead(index, key.clone())),
            );
        }
        for (key, (value, _)) in &self.bucket.records {
            if *value == Some(Value::Ended) {
                moves.push(Move::Expire(key.clone(), false));
                moves.push(Move::Expire(key.clone(), true));
            }
        }
        moves
    }

    pub(super) fn make(&mut self, what: Move) {
        self.events.clear();
        self.faults += u32::from(what.is_fault());
        match what {
            Move::Advance => self.time += 1,
            Move::Tick(replica) => self.step(replica, Input::Tick),
            Move::Apply(index) => {
                self.apply(index);
                let flight = &self.flights[index];
                if flight.orphan {
                    self.flights.remove(index);
                } else if self.runs(flight.replica) {
                    self.acknowledge(index);
                }
            }
            Move::Hold(index) => self.flights[index].held = true,
            Move::HoldAck(index) => {
                self.apply(index);
                self.flights[index].held = true;
            }
            Move::Acknowledge(index) => self.acknowledge(index),
            Move::TimeOut(index) => self.time_out(index),
            Move::Watch(replica) => self.watch(replica),
            Move::Stall(replica) => self.replicas[replica].watcher.stalled = true,
            Move::Continue(replica) => self.replicas[replica].watcher.stalled = false,
            Move::Rewatch(replica) => self.rewatch(replica),
            Move::Read(replica, key) => {
                self.replicas[replica].reads.remove(&key);
                let record = self.bucket.get(&key);
                self.show(replica, key, record);
            }
            Move::LoseRead(replica, key) => {
                self.replicas[replica].reads.remove(&key);
            }
            Move::HandedOver(replica, partition) => {
                if let Some(was) = self.replicas[replica].receiving.remove(&partition) {
                    let epoch = was.epoch;
                    self.step(replica, Input::HandedOver { partition, epoch });
                }
            }
            Move::Pause(replica) => self.replicas[replica].paused = true,
            Move::Wake(replica) => self.replicas[replica].paused = false,
            Move::Kill(replica) => self.kill(replica),
            Move::Launch(replica) => self.launch(replica),
            Move::Leave(replica) => self.step(replica, Input::Leave),
            Move::Expire(key, marked) => {
                let revision = self.bucket.get(&key).1;
                self.bucket.write(key.clone(), None, revision);
                if !marked {
                    self.bucket.records.remove(&key);
                }
            }
        }
        self.flights
            .sort_by_key(|flight| (flight.replica, flight.key.clone(), flight.expect));
        self.absorb();
        self.check();
    }

    /// Watchers show at once what changes nothing, such as a replica's own acknowledged writes.
    fn absorb(&mut self) {
        for index in 0..self.replicas.len() {
            let now = self.now(index);
            while self.runs(index)
                && !self.replicas[index].watcher.stalled
                && self.replicas[index].watcher.snapshot.is_none()
                && let Some((key, (value, revision))) =
                    self.bucket.after(self.replicas[index].watcher.shown)
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
    }

    fn apply(&mut self, index: usize) {
        let Flight {
            key, value, expect, ..
        } = self.flights[index].clone();
        self.flights[index].applied = Some(self.bucket.write(key, Some(value), expect));
    }

    fn acknowledge(&mut self, index: usize) {
        let Flight {
            replica,
            key,
            applied,
            ..
        } = self.flights.remove(index);
        if let Some(end) = applied {
            self.step(replica, Input::Wrote { key, end });
        }
    }

    fn time_out(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (replica, key) = (flight.replica, flight.key.clone());
        flight.orphan = true;
        if flight.applied.is_some() {
            self.flights.remove(index);
        }
        let end = WriteEnd::Unknown;
        self.step(replica, Input::Wrote { key, end });
    }

    fn watch(&mut self, replica: usize) {
        let watcher = &mut self.replicas[replica].watcher;
        let next = self.bucket.after(watcher.shown);
        let begins = |last| next.as_ref().is_none_or(|(_, record)| record.1 > last);
        if watcher.snapshot.is_some_and(begins) {
            watcher.snapshot = None;
            self.step(replica, Input::Snapshot);
        } else if let Some((key, record)) = next {
            watcher.shown = record.1;
            self.show(replica, key, record);
        }
    }

    fn rewatch(&mut self, replica: usize) {
        self.replicas[replica].watcher = Watcher {
            snapshot: Some(self.bucket.last),
            ..Watcher::default()
        };
    }

    fn show(&mut self, replica: usize, key: Key, (value, revision): Record) {
        self.step(
            replica,
            Input::Seen {
                key,
                value,
                revision,
            },
        );
    }

    fn kill(&mut self, replica: usize) {
        let killed = &mut self.replicas[replica];
        killed.member = None;
        killed.reads.clear();
        killed.receiving.clear();
        self.flights
            .retain(|flight| flight.replica != replica || flight.applied.is_none());
        for flight in self
            .flights
            .iter_mut()
            .filter(|flight| flight.replica == replica)
        {
            flight.orphan = true;
        }
    }

    fn launch(&mut self, replica: usize) {
        self.kill(replica);
        let now = self.now(replica);
        let launched = &mut self.replicas[replica];
        launched.runs += 1;
        launched.left = false;
        let settings = Settings {
            partitions: u16::try_from(self.begun.len()).unwrap(),
            lease: Duration::from_nanos(LEASE),
        };
        let (name, nonce) = (format!("r{replica}"), launched.runs.to_string());
        launched.member = Some(Member::new(&name, &nonce, settings, now));
        self.rewatch(replica);
    }

    /// A step of a member, and what its driver does then.
    fn step(&mut self, index: usize, input: Input) {
        let now = self.now(index);
        let seen = matches!(input, Input::Seen { .. });
        let Some(member) = &mut self.replicas[index].member else {
            return;
        };
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

    /// What must always hold: see the properties of `explore`.
    fn check(&mut self) {
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
                if receiving.handing_over {
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
        while self.wrong.is_none()
            && let Some(next) = next(self)
        {
            self.make(next);
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
            let handing_over = replica.receiving.values().any(|was| was.handing_over);
            if handing_over
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
