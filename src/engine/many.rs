//! Many keys at a time: chunks of adds and puts, and batches that pop before they begin.
//!
//! In a large queue, most of what a key costs is waiting for memory: for its place in the table, and for its node. What is
//! added or taken together is [prefetched](crate::sync::prefetch) together, and waits once.
//!
//! # A chunk of adds
//!
//! ```text
//!     1 take up to CHUNK keys from the caller's iterator, and hash each
//!     2 shard by shard, under its lock ([`crate::keys::chunk`]):
//!         prefetch the places of its keys, then the nodes that are there
//!         add each key as `add` does, but keep the entry of one that has become queued
//!     3 push the entries, in the order of the call, and notify as many getters
//!     4 drop the keys that were known already, and what sweeps have removed
//! ```
//!
//! A chunk of puts takes the shards' locks only for the prefetch. Then it puts one value after the other, in the order of
//! the call, as `put` does, which merges under the lock of the key's value alone ([`crate::values`]); it also keeps the entries.
//!
//! * Between 2 and 3 a key is queued, and its entry is not pushed yet, as it is for a moment in each add: other
//!   adds of it return `Merged`, and a shut-down counts it (C5). Of user code, only `Eq` and merge functions run in between. If one
//!   of them panics, [`Entries`] pushes the entries: each item is put or not put, and no key is queued without an entry (C14).
//!   Before anything is dropped that is not the queue's, the entries are pushed: its drop may wait for their delivery (S15).
//! * Keys become deliverable in the order of the pushes (C1), and values are merged in the order of the call (V1).
//! * The iterator is user code, and may wait. A chunk takes no more keys than the iterator says that it has
//!   ([`Iterator::size_hint`]): of one that does not know, such as that of a channel, each key is added before the next one is
//!   taken. If the iterator or `Hash` panics, what was taken before is added.
//! * Keys are added one by one in a small queue, whose nodes are in the processor's caches, where that is as fast; if they are
//!   large with their values; in a queue that has levels, groups, a pace or times; and in one without values that has a bound or
//!   supersedes delays.
//!
//! # A batch
//!
//! A getter of several keys with values pops up to [`POPPED`] entries, prefetches their nodes, and then begins the deliveries,
//! in order. While they are only popped, the keys are queued: puts merge into these deliveries (C5), and a shut-down that abandons
//! the keys is seen by `begin`. Of user code only wakers run in between. A queue with an order of its own takes its keys one by one, since
//! each delivery decides about the next; so does one without values, where `begin` touches one line of a node, which whoever moved the
//! entry from the overflow has touched.

use std::mem;
use std::panic::resume_unwind;
use std::thread;

use super::Core;
use super::taking::Taken;
use crate::added::Added;
use crate::keys::chunk::CHUNK;
use crate::keys::node::{self, Held, Queued};
use crate::sync::FEW;
use crate::sync::catch_panic::{catch_payload, drop_payload};

/// The most entries that are popped together.
const POPPED: usize = 32;

/// Larger keys with their values are added one by one: a chunk of them would take much of the stack.
const LARGEST: usize = 128;

/// A key that is to be added, with its hash, and what is to be put to it.
pub(crate) struct Addition<K, V> {
    pub(crate) hash: u64,
    /// `None` once it is in the queue.
    pub(crate) key: Option<K>,
    pub(crate) put: Option<V>,
}

impl<K, V> Addition<K, V> {
    const NONE: Self = Addition {
        hash: 0,
        key: None,
        put: None,
    };
}

/// Adds all of `items`: those of a chunk with `many`, if `is_far` returns that this pays, and each of the others with `one`.
pub(crate) fn in_chunks<K, V>(
    items: impl IntoIterator<Item = (K, V)>,
    is_far: impl Fn() -> bool,
    hash_of: impl Fn(&K) -> u64,
    mut one: impl FnMut(u64, K, V),
    mut many: impl FnMut(&mut [Addition<K, V>]),
) {
    let mut items = items.into_iter();
    loop {
        let most = items.size_hint().0.min(CHUNK);
        if most >= FEW && size_of::<Addition<K, V>>() <= LARGEST && is_far() {
            if add_chunk(items.by_ref().take(most), &hash_of, &mut many) < most {
                // It had said that it has more.
                return;
            }
            continue;
        }
        let mut left = CHUNK;
        for (key, put) in items.by_ref().take(CHUNK) {
            one(hash_of(&key), key, put);
            left -= 1;
        }
        if left > 0 {
            return;
        }
    }
}

/// Returns how many items there were.
// Never: it takes much of the stack.
#[inline(never)]
fn add_chunk<K, V>(
    items: impl Iterator<Item = (K, V)>,
    hash_of: impl Fn(&K) -> u64,
    mut many: impl FnMut(&mut [Addition<K, V>]),
) -> usize {
    let mut chunk = [const { Addition::NONE }; CHUNK];
    let mut len = 0;
    let taken = catch_payload(|| {
        for ((key, put), place) in items.zip(&mut chunk) {
            let hash = hash_of(&key);
            let (key, put) = (Some(key), Some(put));
            *place = Addition { hash, key, put };
            len += 1;
        }
    });
    let chunk = &mut chunk[..len];
    if let Err(payload) = taken {
        // The first panic continues; only the panic hook reports one of `Eq` or merge.
        let added = catch_payload(|| many(chunk));
        added.err().into_iter().for_each(drop_payload);
        resume_unwind(payload);
    }
    many(chunk);
    len
}

/// What becomes of the entry of a key that has become queued.
pub(crate) trait Pushes<K> {
    fn push(&mut self, entry: Queued<K>);

    /// Pushes the entries that are kept, because user code is about to run that must not wait for them.
    fn flush(&mut self);

    /// The result of a put that is refused. What was to be put is dropped next.
    #[inline]
    fn refuse(&mut self) -> Added {
        self.flush();
        Added::ShutDown
    }
}

/// Pushes each entry as it comes, in a queue with extras.
impl<K, V> Pushes<K> for &Core<K, V> {
    #[inline]
    fn push(&mut self, entry: Queued<K>) {
        self.enqueue_extras(entry);
    }

    #[inline]
    fn flush(&mut self) {}
}

/// The entries of a chunk, each at the place of its key. They are pushed when this is dropped, also by a panic.
pub(crate) struct Entries<'c, K, V> {
    core: &'c Core<K, V>,
    entries: [Option<Queued<K>>; CHUNK],
    /// The first place behind all entries.
    end: usize,
}

impl<'c, K, V> Entries<'c, K, V> {
    pub(crate) fn new(core: &'c Core<K, V>) -> Self {
        let entries = [const { None }; CHUNK];
        Entries {
            core,
            entries,
            end: 0,
        }
    }

    #[inline]
    fn keep(&mut self, place: usize, entry: Queued<K>) {
        self.entries[place] = Some(entry);
        self.end = self.end.max(place + 1);
    }
}

impl<K, V> Pushes<K> for Entries<'_, K, V> {
    #[inline]
    fn push(&mut self, entry: Queued<K>) {
        self.keep(self.end, entry);
        // By a panic, what was put is dropped next.
        if self.end == CHUNK || thread::panicking() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let entries = &mut self.entries[..mem::take(&mut self.end)];
        let pushed = self
            .core
            .fifo
            .push_all(entries.iter_mut().filter_map(Option::take));
        if pushed > 0 {
            self.core.getters.notify(pushed);
        }
    }
}

impl<K, V> Drop for Entries<'_, K, V> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<K, V> Core<K, V> {
    /// Returns whether it pays to add a chunk of keys, in a queue whose adds may do that.
    pub(crate) fn adds_chunks(&self) -> bool {
        self.closing.is_plain() && self.keys.are_far()
    }

    /// The same for puts.
    pub(crate) fn puts_chunks(&self) -> bool {
        self.ordered().is_none() && self.watch().is_none() && self.keys.are_far()
    }

    /// Adds the keys of a chunk; see the header. Returns how many of them have become queued.
    pub(crate) fn add_chunk(&self, chunk: &mut [Addition<K, ()>]) -> usize
    where
        K: Eq,
    {
        // Dropped after the entries are pushed.
        let mut swept = Vec::new();
        let mut entries = Entries::new(self);
        let mut queued = 0;
        self.keys.for_each_in_shards(
            chunk,
            |item| item.hash,
            |shard, place, item| {
                let is_same = |known: &K| item.key.as_ref().is_some_and(|key| known == key);
                let entry = match shard.add(item.hash, is_same) {
                    Some(node::Added::Queued(entry)) => entry,
                    Some(_) => return,
                    // As in `add_new`.
                    None if self.closing.has_begun() => return,
                    None => {
                        let Some(key) = item.key.take() else { return };
                        let (entry, gone) = shard.insert_queued(item.hash, key);
                        swept.extend(gone);
                        entry
                    }
                };
                entries.keep(place, entry);
                queued += 1;
            },
        );
        queued
    }

    /// Takes up to `most` keys from the head of the FIFO without waiting, and calls `each` with them, in order.
    pub(crate) fn take_some(&self, most: usize, mut each: impl FnMut(Held<K>)) {
        let distance = match self.values() {
            Some(values) if self.ordered().is_none() => values.carries.distance(),
            _ => {
                let mut left = most;
                while left > 0
                    && let Taken::Key(held) = self.take()
                {
                    each(held);
                    left -= 1;
                }
                return;
            }
        };
        let mut left = most;
        while left > 0 {
            let mut entries = [const { None }; POPPED];
            let mut popped = 0;
            for place in entries.iter_mut().take(left) {
                let Some(entry) = self.fifo.pop() else { break };
                entry.prefetch(distance);
                *place = Some(entry);
                popped += 1;
            }
            for entry in entries.into_iter().flatten() {
                if let Some(held) = self.begin_popped(entry) {
                    each(held);
                    left -= 1;
                }
            }
            if popped < POPPED {
                return;
            }
        }
    }
}
