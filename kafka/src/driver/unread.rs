//! Partitions of which it cannot be read where they begin: one has no leader, or its broker does not reply.
//!
//! They are assigned with the others, so that those begin, and stay paused. The clerk reads some of them again at a time, and briefly, so
//! that neither another assignment nor the end waits for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;

use super::Driver;
use super::intake::SEEK;
use super::rebalance::AGAIN;
use crate::Error;
use crate::clerk::{Job, Loaded, Of};
use crate::client::Partition;

/// How many are read together.
const SOME: usize = 64;
/// How long that takes at most: each eighth time longer, for a broker that is slow to reply.
const BRIEFLY: Duration = Duration::from_millis(800);
const LONGER: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Unread {
    /// Those that were not tried, and behind them those that have failed.
    pub(super) partitions: VecDeque<Partition>,
    /// Those that the clerk reads, and with which number.
    asked: Option<(u64, Vec<Partition>)>,
    rounds: u64,
    /// What the clerk reads may have been given back meanwhile.
    is_void: bool,
    /// After a failure: not before this time.
    again: Option<Instant>,
}

impl Unread {
    /// Whether this is the number with which the clerk reads some of them.
    pub(super) fn is_asked(&self, id: u64) -> bool {
        self.asked.as_ref().is_some_and(|(asked, _)| *asked == id)
    }

    /// Keeps those that are not given back.
    pub(super) fn retain(&mut self, keeps: impl Fn(&Partition) -> bool) {
        self.is_void = self.asked.is_some();
        self.partitions.retain(keeps);
    }

    pub(super) fn add(&mut self, untried: Vec<Partition>, failed: Vec<Partition>) {
        self.again = untried.is_empty().then(|| Instant::now() + AGAIN);
        for partition in untried.into_iter().rev() {
            self.partitions.push_front(partition);
        }
        self.partitions.extend(failed);
    }
}

impl Driver {
    pub(super) fn read_unread(&mut self, now: Instant) {
        let unread = &self.unread;
        if unread.asked.is_some() || unread.again.is_some_and(|time| now < time) {
            return;
        }
        let some: Vec<_> = unread.partitions.iter().take(SOME).cloned().collect();
        if !some.is_empty() {
            let id = self.next_id();
            self.unread.rounds += 1;
            let limit = match self.unread.rounds % 8 {
                0 => LONGER,
                _ => BRIEFLY,
            };
            self.unread.asked = Some((id, some.clone()));
            self.clerk.ask(Job::Load(id, some, Of::Unread(limit)));
        }
    }

    /// Begins the tenures of those that were read.
    pub(super) fn begin_unread(&mut self, loaded: Result<Loaded, KafkaError>) -> Result<(), Error> {
        let asked = self.unread.asked.take();
        if std::mem::take(&mut self.unread.is_void) {
            return Ok(());
        }
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.unread.again = Some(Instant::now() + AGAIN);
                return self.note_error(error);
            }
        };
        let (_, asked) = asked.unwrap_or_default();
        let partitions = &mut self.unread.partitions;
        partitions.retain(|partition| !asked.contains(partition));
        let mut failed = loaded.failed;
        let mut starts = Vec::new();
        for (partition, start) in loaded.starts {
            match self
                .client
                .seek(&partition.0, partition.1, start.offset(), SEEK)
            {
                Ok(()) => starts.push((partition, start)),
                Err(error) => {
                    failed.push(partition);
                    self.note_error(error)?;
                }
            }
        }
        self.unread.add(loaded.untried, failed);
        self.begin(starts)
    }
}
