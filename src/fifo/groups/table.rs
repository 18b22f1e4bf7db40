//! The table of groups: by number, and by the hash of the name.
//!
//! Each group is in a slot, whose index is its number, and has a stamp that no other group of the queue
//! ever has. A key keeps both in its seat; a number whose slot has another stamp is that of a group that
//! was forgotten. So nothing counts the keys that refer to a group.
//!
//! Groups wait in lines, which link their slots. A group is in one line at most.

use crate::sync::Arc;
use std::collections::HashMap;

use super::group::{Group, Rules};
use crate::DefaultHasher;
use crate::keys::seat::GroupId;

/// No group.
const NONE: u32 = u32::MAX;

/// The slots of a chunk. A chunk without groups is freed.
const CHUNK: usize = 64;

type Chunk<K, G> = [Option<Group<K, G>>; CHUNK];

pub(super) struct Table<K, G> {
    chunks: Vec<Option<Box<Chunk<K, G>>>>,
    /// The numbers of groups in each chunk.
    counts: Vec<u8>,
    /// The chunks that are not full, each once. The last one takes the next group.
    open: Vec<u32>,
    /// The first group for each hash; the others follow by [`Group::same`].
    names: HashMap<u32, u32, DefaultHasher>,
    stamp: u64,
    len: usize,
}

/// A line of groups, first in, first out, from which each can be taken out.
pub(super) struct Line {
    first: u32,
    last: u32,
    pub(super) len: usize,
}

/// The neighbours of a group in its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Default for Links {
    fn default() -> Self {
        Links {
            before: NONE,
            after: NONE,
        }
    }
}

impl<K, G> Table<K, G> {
    pub(super) fn new() -> Self {
        Table {
            chunks: Vec::new(),
            counts: Vec::new(),
            open: Vec::new(),
            names: HashMap::default(),
            stamp: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns a group that is in the table.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> &mut Group<K, G> {
        let at = number as usize;
        let chunk = self.chunks[at / CHUNK].as_mut();
        let group = chunk.and_then(|chunk| chunk[at % CHUNK].as_mut());
        group.expect("the number of a group that has keys, waits or is swept is that of a group")
    }

    /// Returns the number of a group, unless it was forgotten.
    #[inline]
    pub(super) fn number_of(&self, id: GroupId) -> Option<u32> {
        (self.find(id.number)?.stamp == id.stamp).then_some(id.number)
    }

    /// Returns the group with this number, if there is one.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&Group<K, G>> {
        let at = number as usize;
        self.chunks.get(at / CHUNK)?.as_ref()?[at % CHUNK].as_ref()
    }

    pub(super) fn slots(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Returns the slot after this one, without those of a chunk that has no group; 0 after the last.
    pub(super) fn slot_after(&self, number: u32) -> u32 {
        let at = number as usize;
        let after = match self.chunks.get(at / CHUNK) {
            Some(Some(_)) => at + 1,
            _ => (at / CHUNK + 1) * CHUNK,
        };
        match after < self.slots() {
            true => after as u32,
            false => 0,
        }
    }

    /// Returns the first group of this hash, with its name.
    pub(super) fn first(&self, hash: u32) -> Option<(GroupId, Arc<G>)> {
        self.named(*self.names.get(&hash)?)
    }

    /// Returns the group that follows one of the same hash; `Err` if that one was forgotten.
    pub(super) fn after(&mut self, id: GroupId) -> Result<Option<(GroupId, Arc<G>)>, ()> {
        let number = self.number_of(id).ok_or(())?;
        let same = self.get(number).same;
        Ok(self.named(same))
    }

    fn named(&self, number: u32) -> Option<(GroupId, Arc<G>)> {
        let group = self.find(number)?;
        let id = GroupId {
            number,
            stamp: group.stamp,
        };
        Some((id, Arc::clone(group.name.as_ref()?)))
    }

    /// Creates a group. One without a name is found by its number alone.
    pub(super) fn insert(&mut self, name: Option<(u32, G)>, weight: u32, rules: &Rules) -> GroupId {
        let chunk = match self.open.last() {
            Some(&chunk) => chunk as usize,
            None => {
                self.chunks.push(None);
                self.counts.push(0);
                self.open.push(self.chunks.len() as u32 - 1);
                self.chunks.len() - 1
            }
        };
        let slots = self.chunks[chunk].get_or_insert_with(|| Box::new([const { None }; CHUNK]));
        let slot = slots.iter().position(Option::is_none);
        let slot = slot.expect("an open chunk has a free slot");
        self.counts[chunk] += 1;
        if usize::from(self.counts[chunk]) == CHUNK {
            self.open.pop();
        }
        let number = (chunk * CHUNK + slot) as u32;
        let (hash, name) = match name {
            Some((hash, name)) => (hash, Some(Arc::new(name))),
            None => (0, None),
        };
        let same = match &name {
            Some(_) => self.names.insert(hash, number).unwrap_or(NONE),
            None => NONE,
        };
        self.stamp += 1;
        slots[slot] = Some(Group::new(name, hash, self.stamp, same, weight, rules));
        self.len += 1;
        GroupId {
            number,
            stamp: self.stamp,
        }
    }

    /// Takes out a group that has a name and is in no line. Returns the name, whose drop is user code.
    pub(super) fn remove(&mut self, number: u32) -> Option<Arc<G>> {
        let (hash, same) = (self.get(number).hash, self.get(number).same);
        if self.names.get(&hash) != Some(&number) {
            let mut other = self.names[&hash];
            while self.get(other).same != number {
                other = self.get(other).same;
            }
            self.get(other).same = same;
        } else if same == NONE {
            self.names.remove(&hash);
        } else {
            self.names.insert(hash, same);
        }
        let (chunk, slot) = (number as usize / CHUNK, number as usize % CHUNK);
        let removed = self.chunks[chunk].as_mut()?[slot].take();
        if usize::from(self.counts[chunk]) == CHUNK {
            self.open.push(chunk as u32);
        }
        self.counts[chunk] -= 1;
        if self.counts[chunk] == 0 {
            self.chunks[chunk] = None;
        }
        self.len -= 1;
        removed?.name
    }

    /// Frees what the table has room for beyond its groups, if that is much.
    pub(super) fn shrink(&mut self) {
        if self.names.capacity() > 4 * self.names.len().max(CHUNK) {
            self.names.shrink_to_fit();
            while self.chunks.last().is_some_and(Option::is_none) {
                self.chunks.pop();
                self.counts.pop();
            }
            self.open
                .retain(|&chunk| (chunk as usize) < self.chunks.len());
            self.open.shrink_to_fit();
            self.chunks.shrink_to_fit();
            self.counts.shrink_to_fit();
        }
    }

    /// Returns the numbers of all groups.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(self.len);
        for (at, chunk) in self.chunks.iter().enumerate() {
            for (slot, group) in chunk.iter().flat_map(|chunk| chunk.iter().enumerate()) {
                if group.is_some() {
                    numbers.push((at * CHUNK + slot) as u32);
                }
            }
        }
        numbers
    }
}

impl Line {
    pub(super) fn new() -> Self {
        Line {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Returns what comes after a group of this line.
    pub(super) fn after<K, G>(table: &mut Table<K, G>, number: u32) -> Option<u32> {
        let after = table.get(number).links.after;
        (after != NONE).then_some(after)
    }

    pub(super) fn push_back<K, G>(&mut self, table: &mut Table<K, G>, number: u32) {
        self.insert(table, self.last, number, NONE);
    }

    pub(super) fn push_front<K, G>(&mut self, table: &mut Table<K, G>, number: u32) {
        self.insert(table, NONE, number, self.first);
    }

    fn insert<K, G>(&mut self, table: &mut Table<K, G>, before: u32, number: u32, after: u32) {
        table.get(number).links = Links { before, after };
        self.set_after(table, before, number);
        self.set_before(table, after, number);
        self.len += 1;
    }

    /// Takes a group out that is in this line.
    pub(super) fn remove<K, G>(&mut self, table: &mut Table<K, G>, number: u32) {
        let Links { before, after } = std::mem::take(&mut table.get(number).links);
        self.set_after(table, before, after);
        self.set_before(table, after, before);
        self.len -= 1;
    }

    /// Sets what comes after a group; first of all, if that is `NONE`.
    fn set_after<K, G>(&mut self, table: &mut Table<K, G>, number: u32, after: u32) {
        match number {
            NONE => self.first = after,
            number => table.get(number).links.after = after,
        }
    }

    /// Sets what comes before a group; last of all, if that is `NONE`.
    fn set_before<K, G>(&mut self, table: &mut Table<K, G>, number: u32, before: u32) {
        match number {
            NONE => self.last = before,
            number => table.get(number).links.before = before,
        }
    }
}
