//! The moves of the model, and what each does.

use std::time::Duration;

use super::bucket::Record;
use super::world::{Flight, LEASE, Watcher, World};
use crate::ownership::{Input, Key, Member, Value, WriteEnd};

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
    /// The epoch is noted.
    Note(usize, u16),
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
            let watches =
                watcher.snapshot.is_some() || self.bucket.change_after(watcher.shown).is_some();
            if !watcher.stalled && watches {
                moves.push(Move::Watch(index));
            }
            moves.extend(
                replica
                    .reads
                    .iter()
                    .map(|key| Move::Read(index, key.clone())),
            );
            let member = replica.member.as_ref();
            if member.is_some_and(|member| self.now(index) < member.may_begin_until()) {
                let new = replica.receiving.iter();
                let new = new.filter(|(_, receiving)| receiving.is_high.is_none());
                moves.extend(new.map(|(partition, _)| Move::Note(index, *partition)));
            }
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
            Move::Note(replica, partition) => self.note(replica, partition),
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

    fn apply(&mut self, index: usize) {
        let Flight {
            key, value, expect, ..
        } = self.flights[index].clone();
        let end = self.bucket.write(key.clone(), Some(value.clone()), expect);
        if let (Key::Partition(partition), Value::Owned { base, .. }, WriteEnd::Written(revision)) =
            (key, value, end)
        {
            let highest = &mut self.claimed[usize::from(partition)];
            if base + revision <= *highest {
                self.wrong = Some(format!("partition {partition} is claimed below {highest}"));
            }
            *highest = base + revision;
        }
        self.flights[index].applied = Some(end);
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
        let shown = watcher.shown;
        let next = match watcher.snapshot {
            Some(last) => self.bucket.record_after(shown, last),
            None => self.bucket.change_after(shown).cloned(),
        };
        if let Some((key, record)) = next {
            watcher.shown = record.1;
            self.show(replica, key, record);
        } else if let Some(last) = watcher.snapshot.take() {
            watcher.shown = last;
            self.step(replica, Input::Snapshot);
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
        let partitions = u16::try_from(self.begun.len()).unwrap();
        let (name, nonce) = (format!("r{replica}"), launched.runs.to_string());
        let lease = Duration::from_nanos(LEASE);
        launched.member = Some(Member::new(&name, &nonce, partitions, lease, now));
        self.rewatch(replica);
    }
}
