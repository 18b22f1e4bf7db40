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
use crate::tenure::Start;

/// How many are read together.
const SOME: usize = 64;
/// How long that takes at most: each eighth time longer, for a broker that is slow to reply.
const BRIEFLY: Duration = Duration::from_millis(800);
const LONGER: Duration = Duration::from_secs(5);

/// Each partition is in one of the lists, until it begins or is given back.
#[derive(Default)]
pub(super) struct Unread {
    /// Those that were not tried, and behind them those that have failed.
    waiting: VecDeque<Partition>,
    /// Those that the clerk reads, and with which numbers.
    asked: Vec<(u64, Vec<Partition>)>,
    rounds: u64,
    /// After a failure: not before this time.
    again: Option<Instant>,
}

impl Unread {
    pub(super) fn all(&self) -> Vec<Partition> {
        let asked = self.asked.iter().flat_map(|(_, asked)| asked);
        asked.chain(&self.waiting).cloned().collect()
    }

    /// Whether this is the number with which the clerk reads some of them.
    pub(super) fn is_asked(&self, id: u64) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == id)
    }

    /// Keeps those that are not given back.
    pub(super) fn retain(&mut self, keeps: impl Fn(&Partition) -> bool) {
        self.waiting.retain(&keeps);
        for (_, asked) in &mut self.asked {
            asked.retain(&keeps);
        }
    }

    pub(super) fn add(&mut self, untried: Vec<Partition>, failed: Vec<Partition>) {
        let waits = untried.is_empty() && !failed.is_empty();
        self.again = waits.then(|| Instant::now() + AGAIN);
        for partition in untried.into_iter().rev() {
            self.waiting.push_front(partition);
        }
        self.waiting.extend(failed);
    }

    /// Returns some that the clerk is to read with this number.
    fn ask(&mut self, id: u64) -> Vec<Partition> {
        let count = self.waiting.len().min(SOME);
        let some: Vec<_> = self.waiting.drain(..count).collect();
        self.asked.push((id, some.clone()));
        some
    }

    /// Notes that the clerk reads those of these that wait, with this number.
    pub(super) fn are_asked(&mut self, id: u64, partitions: &[Partition]) {
        let is_asked = |partition: &Partition| partitions.contains(partition);
        let asked;
        (asked, self.waiting) = self.waiting.drain(..).partition(is_asked);
        self.asked.push((id, Vec::from(asked)));
    }

    /// Those that the clerk has read with this number, and that were not given back meanwhile.
    fn take_asked(&mut self, id: u64) -> Vec<Partition> {
        let place = self.asked.iter().position(|(asked, _)| *asked == id);
        place.map_or_else(Vec::new, |place| self.asked.remove(place).1)
    }

    /// Takes in what the clerk has read, and returns the starts of those that were not given back meanwhile.
    fn answer(&mut self, id: u64, mut loaded: Loaded) -> Vec<(Partition, Start)> {
        let asked = self.take_asked(id);
        let is_kept = |partition: &Partition| asked.contains(partition);
        loaded.starts.retain(|(partition, _)| is_kept(partition));
        loaded.failed.retain(is_kept);
        loaded.untried.retain(is_kept);
        self.add(loaded.untried, loaded.failed);
        loaded.starts
    }
}

impl Driver {
    pub(super) fn read_unread(&mut self, now: Instant) {
        let unread = &self.unread;
        if unread.waiting.is_empty()
            || !unread.asked.is_empty()
            || self.commits()
            || unread.again.is_some_and(|time| now < time)
        {
            return;
        }
        let id = self.next_id();
        self.unread.rounds += 1;
        let limit = match self.unread.rounds % 8 {
            0 => LONGER,
            _ => BRIEFLY,
        };
        let some = self.unread.ask(id);
        self.clerk.ask(Job::Load(id, some, Of::Unread(limit)));
    }

    /// Begins the tenures of those that were read.
    pub(super) fn begin_unread(
        &mut self,
        of: u64,
        loaded: Result<Loaded, KafkaError>,
    ) -> Result<(), Error> {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let failed = self.unread.take_asked(of);
                self.unread.add(Vec::new(), failed);
                return self.note_error(error);
            }
        };
        let mut starts = Vec::new();
        for ((topic, partition), start) in self.unread.answer(of, loaded) {
            let sought = self.client.seek(&topic, partition, start.offset(), SEEK);
            match sought {
                Ok(()) => starts.push(((topic, partition), start)),
                Err(error) => {
                    self.unread.add(Vec::new(), vec![(topic, partition)]);
                    self.note_error(error)?;
                }
            }
        }
        self.begin(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: i32) -> Partition {
        ("topic".to_owned(), number)
    }

    fn starts(numbers: &[i32]) -> Vec<(Partition, Start)> {
        let start = |number: &i32| (partition(*number), Start::default());
        numbers.iter().map(start).collect()
    }

    fn numbers(unread: &Unread) -> Vec<i32> {
        unread.all().iter().map(|(_, number)| *number).collect()
    }

    /// R7: those of an assignment that comes meanwhile go before what waits.
    #[test]
    fn what_comes_before_the_reply_is_kept_and_what_was_read_begins_once() {
        let mut unread = Unread::default();
        unread.add(vec![], vec![partition(1)]);
        assert_eq!(unread.ask(7), [partition(1)]);
        unread.add(vec![partition(2)], vec![partition(3)]);
        assert_eq!(numbers(&unread), [1, 2, 3]);
        let begun = unread.answer(
            7,
            Loaded {
                starts: starts(&[1]),
                ..Loaded::default()
            },
        );
        assert_eq!((begun.len(), numbers(&unread)), (1, vec![2, 3]));
        // None has failed, so the next ones are read at once.
        assert_eq!(unread.again, None);
    }

    /// R7: of an assignment that was ended early.
    #[test]
    fn what_the_clerk_reads_already_is_not_asked_for_again() {
        let mut unread = Unread::default();
        unread.add(vec![1, 2, 3].into_iter().map(partition).collect(), vec![]);
        unread.are_asked(7, &[2, 3, 4].map(partition));
        assert_eq!(unread.ask(8), [partition(1)]);
        let begun = unread.answer(
            7,
            Loaded {
                starts: starts(&[1, 3, 4]),
                untried: vec![partition(2)],
                ..Loaded::default()
            },
        );
        assert_eq!(begun.len(), 1);
        assert_eq!(numbers(&unread), [1, 2]);
        assert!(unread.is_asked(8) && !unread.is_asked(7));
    }

    /// R1: it may be assigned again, and what was read before that is outdated.
    #[test]
    fn what_is_given_back_before_the_reply_does_not_begin() {
        let mut unread = Unread::default();
        unread.add(vec![1, 2, 3].into_iter().map(partition).collect(), vec![]);
        assert_eq!(unread.ask(7).len(), 3);
        unread.retain(|(_, number)| *number == 3);
        let begun = unread.answer(
            7,
            Loaded {
                starts: starts(&[1]),
                failed: vec![partition(2)],
                untried: vec![partition(3)],
            },
        );
        assert_eq!((begun.len(), numbers(&unread)), (0, vec![3]));
    }
}
