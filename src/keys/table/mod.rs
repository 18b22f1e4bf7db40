//! A hash table of cache lines: from the hash of a key to the index of its node.
//!
//! The design is that of F14, Facebook's hash table: groups with a tag for each place, and an
//! overflow count instead of tombstones. In a table that does not fit in the caches, each line that
//! a lookup reads costs a cache miss, which takes longer than the rest of the lookup. So everything
//! that a lookup needs is in one line, a *group*:
//!
//! ```text
//! bytes  0..12   a tag for each of its 12 places: 8 bits of the key's hash, or 0 for a free place
//!       12..16   the overflow count: the number of keys passed on to other groups
//!       16..64   a value for each of its places, 4 bytes
//! ```
//!
//! A key's *home* is the group that its hash selects. If the home is full, the key is passed on to
//! the next group on a path that depends on its tag, so that the keys of a crowded home spread out.
//! Each full group on the path counts it, and a lookup continues past a group only if its overflow
//! count is not 0. When a key is removed, the groups on its path are decremented again. So there
//! are no tombstones, and a table does not degrade as keys come and go.
//!
//! The table stores eight bits of each hash, and gets the others from its owner when it grows. The
//! owner reads them from the node, which is a cache miss as well, so the table announces these
//! nodes in advance and the owner prefetches them. (Storing the hash in the table would take four
//! more bytes per place, and there are up to twice as many places as keys.)
//!
//! Nothing here is concurrent: a table belongs to a shard, whose lock guards it.

mod group;
mod short_hash;

use std::mem::replace;

use group::{Group, PLACES};
pub(crate) use short_hash::ShortHash;

/// A table grows when its groups hold this many keys on average.
const FULL: usize = 10;

/// A walk over the whole table prefetches the nodes that are this many groups ahead.
const AHEAD: usize = 2;

/// The owner of a table, which knows the hashes of its values.
pub(crate) trait Hashes<T> {
    /// Returns the hash that the value was inserted with.
    ///
    /// # Safety
    ///
    /// The value is in the owner's table.
    unsafe fn hash(&self, value: T) -> ShortHash;

    /// Announces that the table will soon call `hash` for the value.
    ///
    /// # Safety
    ///
    /// The value is in the owner's table.
    unsafe fn expect(&self, value: T);
}

pub(crate) struct Table<T> {
    groups: Box<[Group<T>]>,
    len: usize,
}

impl<T: Copy + Default> Table<T> {
    /// Creates an empty table, which allocates nothing.
    pub(crate) fn new() -> Self {
        Table {
            groups: Box::default(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns how many values fit before the table grows.
    pub(crate) fn capacity(&self) -> usize {
        self.groups.len() * FULL
    }

    /// Returns the value with this hash for which `eq` holds. `eq` is also called with some values
    /// that have other hashes.
    #[inline]
    pub(crate) fn find(&self, hash: ShortHash, mut eq: impl FnMut(T) -> bool) -> Option<T> {
        let home = self.groups.get(hash.home(self.groups.len()))?;
        let found = home.tagged(hash.tag()).find(|value| eq(*value));
        if found.is_some() || home.overflow_count() == 0 {
            return found;
        }
        self.find_away(hash, eq)
    }

    /// Continues `find` in all groups but the home.
    #[cold]
    fn find_away(&self, hash: ShortHash, mut eq: impl FnMut(T) -> bool) -> Option<T> {
        for group in hash.path(self.groups.len()).skip(1) {
            let group = &self.groups[group];
            let found = group.tagged(hash.tag()).find(|value| eq(*value));
            if found.is_some() || group.overflow_count() == 0 {
                return found;
            }
        }
        None
    }

    /// Inserts `value`, which must not be in the table.
    #[inline]
    pub(crate) fn insert(&mut self, hash: ShortHash, value: T, hashes: &impl Hashes<T>) {
        if self.len == self.capacity() {
            self.resize((2 * self.groups.len()).max(1), hashes);
        }
        self.put(hash, value);
        self.len += 1;
    }

    /// Puts a value into the first group on its path that is not full. At least one group is not
    /// full.
    #[inline]
    fn put(&mut self, hash: ShortHash, value: T) {
        for group in hash.path(self.groups.len()) {
            let group = &mut self.groups[group];
            if group.put(hash.tag(), value) {
                return;
            }
            group.set_overflow_count(group.overflow_count() + 1);
        }
        unreachable!("at most {FULL} of {PLACES} places are in use on average");
    }

    /// Removes the values for which `leaves` returns their hash.
    pub(crate) fn remove_if<H: Hashes<T>>(
        &mut self,
        hashes: &mut H,
        mut leaves: impl FnMut(&mut H, T) -> Option<ShortHash>,
    ) {
        for at in 0..self.groups.len() {
            expect(&self.groups, at + AHEAD, hashes);
            for place in 0..PLACES {
                let value = self.groups[at].get(place);
                if let Some(hash) = value.and_then(|value| leaves(hashes, value)) {
                    self.remove(at, place, hash);
                }
            }
        }
    }

    /// Frees a place, and decrements the overflow counts on its key's path.
    fn remove(&mut self, at: usize, place: usize, hash: ShortHash) {
        let path = hash.path(self.groups.len());
        for passed in path.take_while(|group| *group != at) {
            let group = &mut self.groups[passed];
            group.set_overflow_count(group.overflow_count() - 1);
        }
        self.groups[at].clear(place);
        self.len -= 1;
    }

    pub(crate) fn for_each(&self, f: impl FnMut(T)) {
        self.groups.iter().flat_map(Group::values).for_each(f);
    }

    /// Calls `f` with the values of about `most` places, in whole groups, starting at group `from`.
    /// Returns the next group, if there is one, which is valid until the table changes.
    pub(crate) fn for_some(&self, from: usize, most: usize, f: impl FnMut(T)) -> Option<usize> {
        let from = from.min(self.groups.len());
        let end = from.saturating_add(most.div_ceil(PLACES));
        let end = end.min(self.groups.len());
        let groups = &self.groups[from..end];
        groups.iter().flat_map(Group::values).for_each(f);
        (end < self.groups.len()).then_some(end)
    }

    /// Shrinks the table to room for `len` values, or for its values if they are more.
    pub(crate) fn shrink_to(&mut self, len: usize, hashes: &impl Hashes<T>) {
        let groups = match len.max(self.len).div_ceil(FULL) {
            0 => 0,
            groups => groups.next_power_of_two(),
        };
        if groups < self.groups.len() {
            self.resize(groups, hashes);
        }
    }

    /// Moves all values to `groups` new groups, which must have room for them.
    #[cold]
    fn resize(&mut self, groups: usize, hashes: &impl Hashes<T>) {
        let old = replace(&mut self.groups, vec![Group::empty(); groups].into());
        for (at, group) in old.iter().enumerate() {
            expect(&old, at + AHEAD, hashes);
            for value in group.values() {
                // SAFETY: the value was in the table, and stays there.
                self.put(unsafe { hashes.hash(value) }, value);
            }
        }
    }
}

/// Announces the values of a group to the owner, if there is such a group.
#[inline]
fn expect<T: Copy + Default>(groups: &[Group<T>], at: usize, hashes: &impl Hashes<T>) {
    if let Some(group) = groups.get(at) {
        for value in group.values() {
            // SAFETY: the value is in the table, or is about to be moved to its new groups.
            unsafe { hashes.expect(value) };
        }
    }
}

#[cfg(test)]
mod tests;
