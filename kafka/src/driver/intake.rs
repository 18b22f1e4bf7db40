//! Receiving records.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{BorrowedMessage, Message};
use smallvec::smallvec;

use super::{Driver, Turn};
use crate::record::Inner;
use crate::tenure::{Intake, Start};

/// The records of a partition that are taken before it is another one's turn, and how many of them together.
const TURN: usize = 1024;
const TOGETHER: usize = 128;
/// How long a seek may take.
pub(super) const SEEK: Duration = Duration::from_secs(5);

/// Whether it is certain that librdkafka cannot read on after this error. After others, as of a broker that is busy, it mostly goes on,
/// and says so only by a record.
fn stays(error: RDKafkaErrorCode) -> bool {
    matches!(
        error,
        RDKafkaErrorCode::AutoOffsetReset
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::MessageSizeTooLarge
    )
}

impl Driver {
    /// The records and bytes of a partition that have room.
    pub(super) fn room_of_partition(&self) -> (usize, usize) {
        let room = self.shared.settings.room;
        let share = room.records / self.partitions.len().max(1);
        let records = room.of_partition.unwrap_or(share).max(1);
        // In the same part as the records.
        let bytes = (room.bytes as u128 * records as u128 / room.records as u128).max(1);
        (records, bytes as usize)
    }

    /// Takes records of each partition, as far as there is room.
    pub(super) fn intake(&mut self, now: Instant) -> Turn {
        let room = self.shared.settings.room;
        let (of_partition, bytes_of_partition) = self.room_of_partition();
        let (mut records, mut bytes, mut empty) = (0, 0, 0);
        for assigned in self.partitions.values() {
            let held = assigned.tenure.held();
            (records, bytes) = (records + held.0, bytes + held.1);
            empty += usize::from(held.0 == 0);
        }
        // A record for each partition that holds none, of half of the room at most: others have the rest.
        records += empty.min(room.records / 2);
        let (mut busy, mut full) = (false, false);
        let mut read = Vec::new();
        let mut seeks = Vec::new();
        let mut has_changed = false;
        // Each turn begins with another one: the first takes what has become free.
        let mut partitions: Vec<_> = self.partitions.iter_mut().collect();
        let first = self.turns % partitions.len().max(1);
        partitions.rotate_left(first);
        for (slot, assigned) in partitions {
            if assigned.tenure.is_revoked() {
                continue;
            }
            if assigned.tenure.waits_for_commit() {
                continue;
            }
            if assigned.seek.is_some() {
                seeks.push((*slot, None));
                continue;
            }
            let (mut of_this, mut bytes_of_this) = assigned.tenure.held();
            let mut is_over = false;
            for _ in 0..TURN / TOGETHER {
                while !is_over && read.len() < TOGETHER {
                    // A partition that finds the room full has room for one record, within twice the bytes.
                    let has_room = match of_this {
                        0 => bytes / 2 < room.bytes,
                        _ => records < room.records && bytes < room.bytes,
                    };
                    if !has_room || of_this >= of_partition || bytes_of_this >= bytes_of_partition {
                        (full, is_over) = (true, true);
                        break;
                    }
                    match assigned.queue.poll(Duration::ZERO) {
                        None => is_over = true,
                        Some(Ok(message)) => {
                            has_changed |= mem::take(&mut assigned.stands);
                            let record = Arc::new(Inner::read(&message, &assigned.tenure, now));
                            let weight = record.weight();
                            (records, bytes) = (records + of_this.min(1), bytes + weight);
                            (of_this, bytes_of_this) = (of_this + 1, bytes_of_this + weight);
                            read.push(record);
                        }
                        Some(Err(error)) => {
                            let of = &assigned.tenure;
                            let text = format!("{} [{}]: {error}", of.topic, of.partition);
                            self.shared.errors.note(text);
                            assigned.stands |= error.rdkafka_error_code().is_some_and(stays);
                            has_changed = true;
                        }
                    }
                }
                busy |= !read.is_empty();
                let found = assigned.tenure.begin(&read);
                if found.last() == Some(&Intake::Disorder) {
                    seeks.push((*slot, Some(read[found.len() - 1].offset)));
                    is_over = true;
                }
                let is_finished = |intake: &&Intake| **intake == Intake::Finished;
                let finished = found.iter().filter(is_finished).count();
                self.shared.counts.remembered.add(finished as u64);
                let new = read
                    .drain(..)
                    .zip(&found)
                    .filter(|(_, intake)| **intake == Intake::New);
                let order = &self.shared.settings.order;
                let keyed = new.map(|(record, _)| (order.key(&record), smallvec![record]));
                self.shared.queue.put_all(keyed);
                if is_over {
                    break;
                }
            }
        }
        self.turns = self.turns.wrapping_add(busy.into());
        for (slot, from) in seeks {
            self.read_again(slot, from);
        }
        if has_changed {
            // A fatal error is found by the next look.
            self.next_look = now;
            self.show_tenures();
        }
        match (busy, full) {
            (true, _) => Turn::Busy,
            (false, true) => Turn::Full,
            (false, false) => Turn::Idle,
        }
    }

    /// A record that came by the main queue: its partition is read again from there, as those behind it are in its own queue.
    pub(super) fn stray(&mut self, message: &BorrowedMessage<'_>) {
        let place = (message.topic().to_owned(), message.partition());
        if let (Some(slot), Ok(offset)) = (self.slot(&place), u64::try_from(message.offset())) {
            self.read_again(slot, Some(offset));
        }
    }

    /// Ends a tenure whose records came out of order, and begins another one that reads from the lowest of them. Nothing is
    /// committed by the new one until it has read that record, and what was in hand is repeated. The queue keeps the order of keys.
    fn read_again(&mut self, slot: u32, from: Option<u64>) {
        let Some(assigned) = self.partitions.get_mut(&slot) else {
            // It was given back.
            return;
        };
        let old = Arc::clone(&assigned.tenure);
        if old.is_revoked() {
            return;
        }
        let seen = old.seen();
        let lowest = seen.progress.first_unfinished();
        let from = from.or(assigned.seek).unwrap_or(lowest).min(lowest);
        if assigned.seek.is_none() {
            self.shared.counts.disorders.add(1);
            tracing::warn!(target: "keyqueue_kafka", topic = &*old.topic, partition = old.partition, from, next = seen.next, "a record came out of order: the partition is read again");
        }
        let start = Start {
            base: from,
            is_end: old.waits_for_commit(),
            ..Start::default()
        };
        let place = (Arc::clone(&old.topic), old.partition, slot);
        let offset = start.offset();
        // Before a look at what runs, so that no other handler of it begins after that.
        old.revoke();
        assigned.tenure = Arc::new(self.shared.tenure(place, start).behind(&old));
        let sought = self.client.seek(&old.topic, old.partition, offset, SEEK);
        assigned.seek = sought.is_err().then_some(from);
        if let Err(error) = sought {
            tracing::warn!(target: "keyqueue_kafka", %error, "a seek is refused, and tried again");
        }
        self.forget(&old);
        self.show_tenures();
    }
}
