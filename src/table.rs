//! A hash table made of cache lines: from the hash of a key to where its node is.
//!
//! A table that the caches do not hold costs a miss for each line that a lookup touches, and a miss
//! is longer than all the rest of the lookup. So all that a lookup needs is in one line, a *group*:
//!
//! ```text
//! bytes  0..12   a tag for each of its 12 places: 8 bits of the key's hash, or 0 for a free place
//!       12..16   how many keys were passed on to other groups
//!       16..64   a value for each of its places, 4 bytes
//! ```
//!
//! A key's *home* is the group that its hash says. If that is full, the key is passed on: to the next
//! group on a path that depends on its tag, so that the keys of a crowded home spread out. A
//! group counts those passed on, and a lookup goes on behind it only if there are any. When a key is
//! removed the groups on its path count it off again, so that a table in which keys come and go stays as
//! good as new: there are no tombstones.
//!
//! The table knows eight bits of each hash and asks its owner for the others when it grows. The owner
//! has them in the node, and is told beforehand which nodes those will be, since that is a miss as well.
//! (A hash in the table would be four more bytes for each place, of which there are up to
//! twice as many as keys.)
//!
//! Nothing here is concurrent: a table is a shard's, and guarded by its lock.

mod group;
mod short_hash;

use std::mem::replace;

use group::{Group, PLACES};
pub(crate) use short_hash::ShortHash;

/// A table grows when its groups hold so many keys on average.
const FULL: usize = 10;

/// Who walks the whole table has the nodes fetched that are so many groups ahead.
const AHEAD: usize = 2;

/// What the owner of a table knows of the values in it.
pub(crate) trait Hashes<T> {
    /// The hash that the value was inserted with.
    ///
    /// # Safety
    ///
    /// The value is in the owner's table.
    unsafe fn hash(&self, value: T) -> ShortHash;

    /// Told of a value that will soon be asked about.
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
    /// An empty table, which takes no memory.
    pub(crate) fn new() -> Self {
        Table {
            groups: Box::default(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many values fit before it grows.
    pub(crate) fn capacity(&self) -> usize {
        self.groups.len() * FULL
    }

    /// The value of this hash for which `eq` holds; `eq` is asked about a few of other hashes, too.
    #[inline]
    pub(crate) fn find(&self, hash: ShortHash, mut eq: impl FnMut(T) -> bool) -> Option<T> {
        let home = self.groups.get(hash.home(self.groups.len()))?;
        let found = home.tagged(hash.tag()).find(|value| eq(*value));
        if found.is_some() || home.passed() == 0 {
            return found;
        }
        self.find_away(hash, eq)
    }

    /// The same in all groups but the home.
    #[cold]
    fn find_away(&self, hash: ShortHash, mut eq: impl FnMut(T) -> bool) -> Option<T> {
        for group in hash.path(self.groups.len()).skip(1) {
            let group = &self.groups[group];
            let found = group.tagged(hash.tag()).find(|value| eq(*value));
            if found.is_some() || group.passed() == 0 {
                return found;
            }
        }
        None
    }

    /// Adds `value`, which must not be there yet.
    #[inline]
    pub(crate) fn insert(&mut self, hash: ShortHash, value: T, hashes: &impl Hashes<T>) {
        if self.len == self.capacity() {
            self.resize((2 * self.groups.len()).max(1), hashes);
        }
        self.put(hash, value);
        self.len += 1;
    }

    /// Puts a value into the first group on its path that is not full. There is one.
    #[inline]
    fn put(&mut self, hash: ShortHash, value: T) {
        for group in hash.path(self.groups.len()) {
            let group = &mut self.groups[group];
            if group.put(hash.tag(), value) {
                return;
            }
            group.set_passed(group.passed() + 1);
        }
        unreachable!("{FULL} of {PLACES} places at most are in use");
    }

    /// Removes the values for which `leaves` answers their hash.
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

    /// Frees a place, and counts its key off on its path.
    fn remove(&mut self, at: usize, place: usize, hash: ShortHash) {
        let path = hash.path(self.groups.len());
        for passed in path.take_while(|group| *group != at) {
            let group = &mut self.groups[passed];
            group.set_passed(group.passed() - 1);
        }
        self.groups[at].clear(place);
        self.len -= 1;
    }

    pub(crate) fn for_each(&self, f: impl FnMut(T)) {
        self.groups.iter().flat_map(Group::values).for_each(f);
    }

    /// Runs `f` over the values of so many groups from group `from` on that they have about `most` places,
    /// and answers the next group if there is one. That holds for as long as nobody changes the table.
    pub(crate) fn for_some(&self, from: usize, most: usize, f: impl FnMut(T)) -> Option<usize> {
        let from = from.min(self.groups.len());
        let end = from.saturating_add(most.div_ceil(PLACES));
        let end = end.min(self.groups.len());
        let groups = &self.groups[from..end];
        groups.iter().flat_map(Group::values).for_each(f);
        (end < self.groups.len()).then_some(end)
    }

    /// Gives memory back, down to room for `len` values or those that are there.
    pub(crate) fn shrink_to(&mut self, len: usize, hashes: &impl Hashes<T>) {
        let groups = match len.max(self.len).div_ceil(FULL) {
            0 => 0,
            groups => groups.next_power_of_two(),
        };
        if groups < self.groups.len() {
            self.resize(groups, hashes);
        }
    }

    /// Moves all values to `groups` new groups, which are enough for them.
    #[cold]
    fn resize(&mut self, groups: usize, hashes: &impl Hashes<T>) {
        let old = replace(&mut self.groups, vec![Group::empty(); groups].into());
        for (at, group) in old.iter().enumerate() {
            expect(&old, at + AHEAD, hashes);
            for value in group.values() {
                // SAFETY: it was in the table, and stays there.
                self.put(unsafe { hashes.hash(value) }, value);
            }
        }
    }
}

/// Tells the owner that the values of a group will be asked about, if there is such a group.
#[inline]
fn expect<T: Copy + Default>(groups: &[Group<T>], at: usize, hashes: &impl Hashes<T>) {
    if let Some(group) = groups.get(at) {
        for value in group.values() {
            // SAFETY: it is in the table, or about to be moved to its new groups.
            unsafe { hashes.expect(value) };
        }
    }
}

#[cfg(test)]
mod tests;
