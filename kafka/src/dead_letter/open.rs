//! The letters in memory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rdkafka::error::KafkaError;
use rdkafka::message::Header as Of;

use super::LETTER;
use crate::config::Place;
use crate::record::Header;

/// The letters and bytes in memory, of which the oldest are left out.
const MOST: usize = 10_000;
const BYTES: usize = 64 << 20;

/// A letter that is neither put back nor dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Letter {
    /// Its number for this consumer: letters that are found later have higher ones.
    pub number: u64,
    /// What names it in [`LETTER`]: the letter's topic, partition, offset, and when the record has failed last.
    pub name: String,
    /// Where its record is.
    pub place: Place,
    /// The key of the record.
    pub key: Option<Box<[u8]>>,
    /// The payload of the record.
    pub payload: Option<Box<[u8]>>,
    /// The last error.
    pub error: String,
    /// How often a handler has tried.
    pub attempts: u64,
    /// When the record failed first.
    pub first: SystemTime,
    /// When the record failed last.
    pub last: SystemTime,
    /// Where the letter is.
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) headers: Box<[Header]>,
}

/// What was read until now.
#[derive(Default)]
pub(crate) struct State {
    /// Of each partition, the offset that is read next, and the timestamp of the record before it, if that was read.
    pub(super) next: HashMap<i32, (i64, Option<i64>)>,
    /// By their names.
    pub(super) open: HashMap<String, Arc<Letter>>,
    /// Letters until now.
    pub(super) found: u64,
    /// At least those of the open letters.
    bytes: usize,
    /// Where those are that were left out, as there were too many, and have no mark; by a hash of their names.
    left_out: HashMap<u64, (i32, i64)>,
    /// When the last look ended, and how.
    pub(super) looked: Option<(Instant, Result<(), KafkaError>)>,
}

impl Letter {
    pub(super) fn named(&self) -> Of<'_, &String> {
        let value = Some(&self.name);
        Of { key: LETTER, value }
    }

    fn bytes(&self) -> usize {
        let size = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + size(value));
        mem::size_of::<Self>() + size(&self.key) + size(&self.payload) + headers.sum::<usize>()
    }
}

impl State {
    /// Begins a look: once no letter is open, those that were left out are read again.
    pub(super) fn begin(&mut self) {
        if self.open.is_empty() && !self.left_out.is_empty() {
            (self.next, self.left_out, self.bytes) = Default::default();
        }
    }

    /// Forgets all letters.
    pub(super) fn restart(&mut self) {
        let found = self.found;
        *self = State {
            found,
            ..State::default()
        };
    }

    pub(super) fn add(&mut self, letter: Letter) {
        self.bytes += letter.bytes();
        self.open.insert(letter.name.clone(), Arc::new(letter));
        if self.open.len() > MOST || self.bytes > BYTES {
            self.leave_out();
        }
    }

    /// Forgets the letters of a partition that are not there any more: those below this offset.
    pub(super) fn forget(&mut self, partition: i32, below: i64) {
        let is_there = |at: (i32, i64)| at.0 != partition || at.1 >= below;
        let letters = &mut self.open;
        letters.retain(|_, letter| is_there((letter.partition, letter.offset)));
        self.left_out.retain(|_, at| is_there(*at));
    }

    /// Forgets all partitions but these.
    pub(super) fn keep(&mut self, partitions: &[i32]) {
        self.next.retain(|id, _| partitions.contains(id));
        let letters = &mut self.open;
        letters.retain(|_, letter| partitions.contains(&letter.partition));
        self.left_out.retain(|_, at| partitions.contains(&at.0));
    }

    /// Notes that this letter has a mark.
    pub(super) fn mark(&mut self, name: &str) {
        if self.open.remove(name).is_none() {
            self.left_out.remove(&hash(name));
        }
    }

    /// Forgets the oldest, a tenth more than has to be.
    fn leave_out(&mut self) {
        let mut all: Vec<_> = self
            .open
            .values()
            .map(|of| (of.number, of.bytes()))
            .collect();
        all.sort_unstable();
        self.bytes = 0;
        let newest = all.iter().rev().take(MOST / 10 * 9);
        let kept = newest.take_while(|(_, bytes)| {
            self.bytes += bytes;
            self.bytes <= BYTES / 10 * 9
        });
        let first = kept.last().map_or(u64::MAX, |(number, _)| *number);
        let left_out = &mut self.left_out;
        self.open.retain(|name, letter| {
            let is_kept = letter.number >= first;
            if !is_kept {
                left_out.insert(hash(name), (letter.partition, letter.offset));
            }
            is_kept
        });
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // R8
    fn letters_are_read_again_if_some_were_left_out_that_have_no_mark() {
        let count = MOST as u64 + 200;
        for (without_mark, reads_again) in [(None, false), (Some(1), true)] {
            let mut state = State::default();
            state.next.insert(0, (7, None));
            for number in 1..=count {
                state.add(Letter {
                    number,
                    name: number.to_string(),
                    place: Place {
                        topic: "topic".into(),
                        partition: 0,
                        offset: 0,
                    },
                    key: None,
                    payload: None,
                    error: String::new(),
                    attempts: 1,
                    first: SystemTime::UNIX_EPOCH,
                    last: SystemTime::UNIX_EPOCH,
                    partition: 0,
                    offset: 0,
                    headers: Box::default(),
                });
            }
            assert!(state.open.len() <= MOST && state.open.contains_key(&count.to_string()));
            let marked = (1..=count).filter(|number| Some(*number) != without_mark);
            marked.for_each(|number| state.mark(&number.to_string()));
            assert!(state.open.is_empty());
            state.begin();
            assert_eq!(state.next.is_empty(), reads_again, "{without_mark:?}");
            // Once.
            state.next.insert(0, (7, None));
            state.begin();
            assert!(!state.next.is_empty());
        }
    }

    #[test] // R8
    fn letters_that_were_left_out_are_forgotten_with_their_log() {
        let mut state = State::default();
        state.left_out.insert(1, (0, 6));
        state.left_out.insert(2, (1, 6));
        state.next.insert(0, (9, None));
        state.forget(0, 7);
        assert_eq!(state.left_out.len(), 1);
        state.forget(1, 7);
        state.begin();
        assert!(!state.next.is_empty(), "there is nothing to read again");
    }
}
