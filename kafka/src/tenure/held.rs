//! The records of a tenure that are in memory, in the order of their offsets.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::record::Inner;

/// Adding and taking one take constant time, if the offsets have few gaps. Needs a slot for each record, and at most as many and
/// 64 more for those that were taken out of the middle.
#[derive(Default)]
pub(super) struct Held {
    /// `None`: it was taken. The first is there.
    slots: VecDeque<(u64, Option<Arc<Inner>>)>,
    records: usize,
    bytes: usize,
}

impl Held {
    /// Adds a record whose offset is above all others.
    pub(super) fn push(&mut self, record: &Arc<Inner>) {
        self.records += 1;
        self.bytes += record.weight();
        let slot = (record.offset, Some(Arc::clone(record)));
        self.slots.push_back(slot);
    }

    pub(super) fn take(&mut self, offset: u64) -> Option<Arc<Inner>> {
        let index = self.index(offset)?;
        let record = self.slots[index].1.take()?;
        self.records -= 1;
        self.bytes -= record.weight();
        while let Some((_, None)) = self.slots.front() {
            self.slots.pop_front();
        }
        if self.slots.len() > 2 * self.records + 64 {
            self.slots.retain(|(_, record)| record.is_some());
        }
        Some(record)
    }

    pub(super) fn has(&self, offset: u64) -> bool {
        let index = self.index(offset);
        index.is_some_and(|index| self.slots[index].1.is_some())
    }

    /// The records and bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.records, self.bytes)
    }

    pub(super) fn first(&self) -> Option<&Arc<Inner>> {
        self.iter().next()
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Inner>> {
        self.slots.iter().filter_map(|(_, record)| record.as_ref())
    }

    fn index(&self, offset: u64) -> Option<usize> {
        let (first, _) = self.slots.front()?;
        let without_gaps = usize::try_from(offset.checked_sub(*first)?).ok()?;
        match self.slots.get(without_gaps) {
            Some((found, _)) if *found == offset => Some(without_gaps),
            _ => self.slots.binary_search_by_key(&offset, |(of, _)| *of).ok(),
        }
    }
}
