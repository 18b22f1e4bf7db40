//! Pages: the keys of a queue in bounded steps, for a look at a queue with a million keys.
//!
//! A page locks one shard at a time, each time for a portion of the places of its table only, so an adder waits for
//! a tenth of a millisecond at most. Under the lock it reads the state of each key and pins those that it returns; user code
//! runs after the lock is released.

use crate::WorkQueue;
use crate::keys::state::State;
use crate::keys::times::Seen;
use crate::keys::visit::PORTION;
use crate::queue::snapshot::{Counts, KeySnapshot, Sight};

/// The places that are visited before it is checked whether the page is full.
const STEP: usize = 16;
/// The most places that one page looks at.
const MOST: usize = 65_536;

/// Which keys a [`page`](WorkQueue::page) has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Listed {
    /// Those that are queued, processing or delayed.
    #[default]
    All,
    /// Those that are queued.
    Queued,
    /// Those that are processing, dirty ones included.
    Processing,
    /// Those with a pending delay, whatever their state is.
    Delayed,
}

impl Listed {
    pub(super) fn has(self, sight: &Sight) -> bool {
        let phase = sight.seen.phase;
        match self {
            Listed::All => phase != State::Idle || sight.due.is_some(),
            Listed::Queued => phase == State::Queued,
            Listed::Processing => matches!(phase, State::Processing | State::Dirty),
            Listed::Delayed => sight.due.is_some(),
        }
    }
}

/// Where a [`page`](WorkQueue::page) begins. The default is the first key.
///
/// A cursor is a place in the memory of a queue, and of use for that queue alone. One that is none of the queue's is
/// harmless: the page then is empty, or has keys from somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cursor {
    shard: u32,
    place: u32,
}

impl Cursor {
    /// Returns the cursor as a number, for a link, say.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.place)
    }

    /// Returns the cursor that [`to_bits`](Self::to_bits) made this number of.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Cursor {
            shard: (bits >> 32) as u32,
            place: bits as u32,
        }
    }
}

/// Some keys of a queue; see [`WorkQueue::page`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Page<'q, K, V = ()> {
    /// The keys, in no particular order.
    pub keys: Vec<KeySnapshot<'q, K, V>>,
    /// The numbers of keys that were looked at, those included that are not listed. Those of all pages of a queue add
    /// up to its [`counts`](WorkQueue::counts).
    pub counts: Counts,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<Cursor>,
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns some of the queue's keys: those that are `listed`, from a place on, in bounded time and memory (X4).
    ///
    /// A page is full with `max` keys, or at most 15 more. It ends earlier once 65 536 places of the table were looked
    /// at, so it may have no keys and still not be the last one. Adds to a shard wait while 1024 of its places are
    /// visited, which takes about a tenth of a millisecond if their memory is not in a cache.
    ///
    /// The queue keeps running. Each key is as it was at some moment during the call, and a key that the queue has from
    /// the first page to the last is on one of them, unless the table of its shard grows or shrinks meanwhile: then keys
    /// of that shard may be missing or come twice.
    ///
    /// ```
    /// # use keyqueue::{Counts, Cursor, Listed, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add_all(0..1000);
    /// queue.add_after(1000, Duration::from_secs(3600));
    ///
    /// let mut queued = Vec::new();
    /// let mut counted = Counts::default();
    /// let mut next = Some(Cursor::default());
    /// while let Some(from) = next {
    ///     let page = queue.page(from, Listed::Queued, 100);
    ///     assert!(page.keys.len() < 100 + 16);
    ///     queued.extend(page.keys.iter().map(|key| *key.key()));
    ///     counted.queued += page.counts.queued;
    ///     counted.delayed += page.counts.delayed;
    ///     next = page.next;
    /// }
    /// queued.sort();
    /// assert!(queued.into_iter().eq(0..1000));
    /// assert_eq!(counted, queue.counts());
    /// ```
    #[must_use]
    pub fn page(&self, from: Cursor, listed: Listed, max: usize) -> Page<'_, K, V> {
        let core = &*self.core;
        let mut page = Page {
            keys: Vec::new(),
            counts: core.no_counts(),
            next: None,
        };
        let is_full = |keys: usize, looked: usize| keys >= max.max(1) || looked >= MOST;
        let mut looked = 0;
        let mut cursor = from;
        while (cursor.shard as usize) < core.keys.count() {
            if is_full(page.keys.len(), looked) {
                page.next = Some(cursor);
                break;
            }
            let shard = core.keys.shard(cursor.shard as usize);
            let mut place = Some(cursor.place as usize);
            for _ in 0..PORTION / STEP {
                let Some(from) = place else { break };
                if is_full(page.keys.len(), looked) {
                    break;
                }
                looked += STEP;
                let wanted = |sight: &Sight| {
                    let Seen { phase, level, .. } = sight.seen;
                    let is_delayed = sight.due.is_some();
                    page.counts.count(phase, level, is_delayed, sight.retrying);
                    listed.has(sight)
                };
                place = core.sight(&shard, from, STEP, wanted, &mut page.keys);
            }
            cursor = match place {
                Some(place) => Cursor {
                    place: place as u32,
                    ..cursor
                },
                None => Cursor {
                    shard: cursor.shard + 1,
                    place: 0,
                },
            };
        }
        self.count_requeues(&mut page.keys);
        page
    }
}
