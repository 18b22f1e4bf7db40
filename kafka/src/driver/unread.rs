//! Partitions of which it cannot be read where they begin: one has no leader, or its broker does not reply.
//!
//! They are assigned with the others, so that those begin, and stay paused. The clerk reads them again, one at a time.

use std::collections::VecDeque;
use std::time::Instant;

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;

use super::Driver;
use super::intake::SEEK;
use super::rebalance::AGAIN;
use crate::Error;
use crate::clerk::{Job, Loaded};
use crate::client::Partition;

#[derive(Default)]
pub(super) struct Unread {
    pub(super) partitions: VecDeque<Partition>,
    /// The number with which the clerk reads the first of them.
    pub(super) asked: Option<u64>,
    /// After a failure: not before this time.
    again: Option<Instant>,
}

impl Driver {
    pub(super) fn read_unread(&mut self, now: Instant) {
        if self.unread.asked.is_some() || self.unread.again.is_some_and(|time| now < time) {
            return;
        }
        if let Some(first) = self.unread.partitions.front().cloned() {
            let id = self.next_id();
            self.clerk.ask(Job::Load(id, vec![first]));
            self.unread.asked = Some(id);
        }
    }

    /// Begins the tenure of the first, or puts it behind the others.
    pub(super) fn begin_unread(&mut self, loaded: Result<Loaded, KafkaError>) -> Result<(), Error> {
        let unread = &mut self.unread;
        (unread.asked, unread.again) = (None, None);
        let Some(first) = unread.partitions.pop_front() else {
            return Ok(());
        };
        let begun = loaded.and_then(|(mut loaded, _)| {
            let Some((_, start)) = loaded.pop() else {
                return Ok(None);
            };
            let (topic, partition) = &first;
            let offset = start.offset();
            self.client.seek(topic, *partition, offset, SEEK)?;
            Ok(Some(start))
        });
        if let Ok(Some(start)) = begun {
            return self.begin(vec![(first, start)]);
        }
        self.unread.partitions.push_back(first);
        self.unread.again = Some(Instant::now() + AGAIN);
        begun.map_or_else(|error| self.note_error(error), |_| Ok(()))
    }
}
