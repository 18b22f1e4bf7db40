//! The order of a queue with levels: a lane for each level, which is a [`Fifo`] of its own.
//!
//! ```text
//!     pusher                          popper
//!     push the entry to the lane      choose a lane that has entries
//!     of its level                    pop an entry, claim its key
//!     notify a getter (the engine)    stale: drop it, and choose again
//! ```
//!
//! # Which lane is next (P1, P2)
//!
//! The most urgent one that has entries. A popper that finds keys in a less urgent lane, too, draws a
//! number; one in [`Order::starvation_limit`] numbers means that it takes from a less urgent lane. These
//! take turns. So of as many deliveries in a row as the limit says, one goes to a less urgent lane, for
//! any number of threads. While only one lane has keys, nobody writes the counter. A key that is not
//! delivered, because its value was removed, passes its number on to the next key of its lane.
//!
//! # A key that becomes more urgent (P3)
//!
//! The level of a queued key is in the word of its state, so an add can raise it by one exchange. Its
//! entry stays behind in the old lane, *stale*, and the thread that has raised it pushes another one to
//! the new lane:
//!
//! ```text
//!     raiser                                  popper of the lane `from`
//!     1 exchange: queued at `from`            1 pop an entry
//!                 -> queued at `to`           2 read the word
//!       (and one pin more)                      queued at `from`, and no entry is stale there:
//!     2 count a stale entry in `from`             exchange: queued at `from` -> taken
//!     3 push the entry to `to`                  otherwise: uncount a stale entry, unpin the node
//!     4 notify a getter
//! ```
//!
//! Entries of one key in one lane are equal, so only their number counts:
//!
//! > The number of entries of a key in a lane, with those that a popper holds, is the number of its stale
//! > entries there, and one more if the key is queued at that level and pushed.
//!
//! * A popper claims the key by an exchange of the word that says that the key is queued at its lane's level, so two
//!   poppers never have the same key, and none has a key whose level is being raised.
//! * If the key was raised, and queued again at the level that it had before, the stale entry is the
//!   older one. The popper that finds both a queued key and a stale entry counted drops the entry it has,
//!   so the key keeps the place of its last add: first in, first out.
//! * The thread that makes a key queued pushes the entry to the lane of the level that its own change of the
//!   word has set. If the key is raised before the push, that entry is stale when it gets there.
//! * A popper may find the entry stale before the raiser has counted it. Then the count is below
//!   zero for a moment. The key cannot be queued at `from` meanwhile: it is queued at `to`, and has no
//!   entry there until step 3.
//! * A popper that finds a lane with stale entries only drops some of them first, so that they do not
//!   pile up while more urgent keys come.
//! * Each stale entry has a pin on its node. The raiser has another one, for its steps 2 and 3.
//!
//! # Emptiness
//!
//! A popper that returns `None` has found each lane empty at some moment of the call, not all at the same
//! moment. That is enough for the protocol of [`crate::wait`]: a getter registers and pops once more. Each
//! key that is queued then is in its lane; or it is raised while the getter looks, from a lane that the
//! getter has not looked at to one that it has; but then the raiser notifies a getter after the push.

mod order;

use crossbeam_utils::CachePadded;
pub(crate) use order::Order;

use crate::fifo::Fifo;
use crate::keys::node::{Held, Pin, Queued};
use crate::keys::place::Laned;
use crate::keys::state::{Begun, KeyState, Level};
use crate::sync::atomic::{AtomicIsize, AtomicU8, AtomicUsize, Ordering};

pub(crate) struct Lanes<K> {
    laned: Laned,
    lanes: Box<[Lane<K>]>,
    limit: usize,
    /// Drawn by poppers that find keys in more than one lane.
    number: CachePadded<AtomicUsize>,
    /// The less urgent level that was served last because of its number.
    relieved: AtomicU8,
}

struct Lane<K> {
    fifo: Fifo<K>,
    /// The number of stale entries; may be off for a moment.
    stale: AtomicIsize,
}

impl<K> Lane<K> {
    fn len(&self) -> usize {
        // Ordering: Relaxed; a snapshot.
        let stale = self.stale.load(Ordering::Relaxed);
        self.fifo.len().saturating_sub(stale.max(0).unsigned_abs())
    }

    /// Returns whether there are entries that are not stale.
    fn has_keys(&self) -> bool {
        // Ordering: Relaxed; a snapshot.
        !self.fifo.is_empty() && (self.stale.load(Ordering::Relaxed) == 0 || self.len() > 0)
    }
}

impl<K> Lanes<K> {
    /// Lanes that have a ring for `ring` entries each.
    pub(crate) fn new(order: Order, ring: usize, laned: Laned) -> Self {
        let lane = |_| Lane {
            fifo: Fifo::of_repeated(ring),
            stale: AtomicIsize::new(0),
        };
        Lanes {
            laned,
            lanes: (0..order.levels).map(lane).collect(),
            limit: order.starvation_limit,
            number: CachePadded::new(AtomicUsize::new(0)),
            relieved: AtomicU8::new(0),
        }
    }

    fn last_level(&self) -> Level {
        (self.lanes.len() - 1) as Level
    }

    pub(crate) fn laned(&self) -> &Laned {
        &self.laned
    }

    fn lane(&self, level: Level) -> &Lane<K> {
        &self.lanes[usize::from(level)]
    }

    #[inline]
    pub(crate) fn push(&self, entry: Queued<K>) {
        self.lane(entry.level()).fifo.push(entry);
    }

    /// Takes the next key, or returns `None` if there is none.
    pub(crate) fn pop(&self) -> Option<Queued<K>> {
        let (entry, ()) = self.pop_as(|state, level| state.claim(level).then_some(()))?;
        Some(entry)
    }

    /// Takes the next key of the lane of this level, whose last one is not delivered; if it has none, the next key.
    pub(crate) fn pop_again(&self, level: Level) -> Option<Queued<K>> {
        while let Some(entry) = self.lane(level).fifo.pop() {
            let claim = |state: &KeyState, level| state.claim(level).then_some(());
            if self.claim(&entry, level, claim).is_some() {
                return Some(entry);
            }
        }
        self.pop()
    }

    /// Takes the next key, and begins its delivery with the same exchange.
    #[inline]
    pub(crate) fn pop_and_begin(&self) -> Option<(Held<K>, Begun)> {
        let (entry, begun) = self.pop_as(KeyState::begin_at)?;
        // SAFETY: `begin_at` has begun the delivery.
        Some((unsafe { entry.begun() }, begun))
    }

    /// Takes the next key, which `claim` has claimed.
    #[inline]
    fn pop_as<R>(&self, claim: impl Fn(&KeyState, Level) -> Option<R>) -> Option<(Queued<K>, R)> {
        let mut drawn = None;
        // Lanes in which a push has begun and not ended.
        let mut skipped = 0;
        // As many stale entries as the raises of one key leave.
        let mut stale = self.lanes.len();
        loop {
            let level = self.choose(skipped, &mut drawn, &mut stale)?;
            match self.lane(level).fifo.pop() {
                None => skipped |= 1 << level,
                Some(entry) => {
                    if let Some(claimed) = self.claim(&entry, level, &claim) {
                        return Some((entry, claimed));
                    }
                }
            }
        }
    }

    /// Chooses the lane to pop from, but for those skipped. `drawn` says which less urgent level it is, once a
    /// number was drawn for this delivery.
    #[inline]
    fn choose(
        &self,
        skipped: u8,
        drawn: &mut Option<Option<Level>>,
        stale: &mut usize,
    ) -> Option<Level> {
        let mut filled = 0_u8;
        for (level, lane) in self.lanes.iter().enumerate() {
            filled |= u8::from(!lane.fifo.is_empty()) << level;
        }
        filled &= !skipped;
        if filled == 0 {
            return None;
        }
        let first = filled.trailing_zeros() as Level;
        let others = filled & (filled - 1);
        Some(match others {
            0 => first,
            others => self.choose_among(first, others, drawn, stale),
        })
    }

    #[inline(never)]
    fn choose_among(
        &self,
        first: Level,
        mut others: u8,
        drawn: &mut Option<Option<Level>>,
        stale: &mut usize,
    ) -> Level {
        for level in first + 1..=self.last_level() {
            if others & (1 << level) == 0 || self.lane(level).has_keys() {
                continue;
            }
            // All entries are stale, and while more urgent keys come nobody would look at them.
            if *stale > 0 {
                *stale -= 1;
                return level;
            }
            others &= !(1 << level);
        }
        if others == 0 || !self.lane(first).has_keys() {
            return first;
        }
        let level = *drawn.get_or_insert_with(|| {
            // Ordering: Relaxed; a counter.
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            (number % self.limit == self.limit - 1).then(|| self.relieve(others))
        });
        // Other threads may have emptied that lane.
        let level = level.filter(|level| others & (1 << level) != 0);
        level.unwrap_or(first)
    }

    /// Returns the next one of these levels, after the one that was relieved last.
    #[cold]
    fn relieve(&self, levels: u8) -> Level {
        // Ordering: Relaxed; which one it is matters only on the average.
        let behind = levels & (u8::MAX << self.relieved.load(Ordering::Relaxed) << 1);
        let next = if behind == 0 { levels } else { behind };
        let level = next.trailing_zeros() as Level;
        // Ordering: Relaxed; as above.
        self.relieved.store(level, Ordering::Relaxed);
        level
    }

    /// Claims the key of an entry that was popped from a lane. If the entry is stale, uncounts it.
    #[inline]
    fn claim<R>(
        &self,
        entry: &Queued<K>,
        level: Level,
        claim: impl Fn(&KeyState, Level) -> Option<R>,
    ) -> Option<R> {
        let place = entry.place(&self.laned);
        let stale = &place.stale[usize::from(level)];
        while entry.state().is_queued_at(level) {
            // Ordering: Relaxed; the exchange below, or the one of the word, decides.
            let count = stale.load(Ordering::Relaxed);
            if count <= 0 {
                if let Some(claimed) = claim(entry.state(), level) {
                    place.deliver(level);
                    return Some(claimed);
                }
                continue;
            }
            // Ordering: Relaxed; a count.
            let taken =
                stale.compare_exchange(count, count - 1, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                self.drop_stale(entry, level);
                return None;
            }
        }
        // Ordering: Relaxed; a count.
        stale.fetch_sub(1, Ordering::Relaxed);
        self.drop_stale(entry, level);
        None
    }

    #[cold]
    fn drop_stale(&self, entry: &Queued<K>, level: Level) {
        // Ordering: Relaxed; a count.
        self.lane(level).stale.fetch_sub(1, Ordering::Relaxed);
        entry.state().unpin();
    }

    /// Pushes another entry of a key that was raised from level `from` to level `to`. The exchange has
    /// pinned the node for the old entry; `pin` is the caller's.
    #[cold]
    pub(crate) fn raise(&self, pin: &Pin<K>, from: Level, to: Level) {
        let place = pin.place(&self.laned);
        // Ordering: Relaxed; a popper reads it after the word, and is right either way: see the header.
        place.stale[usize::from(from)].fetch_add(1, Ordering::Relaxed);
        // Ordering: Relaxed; a count.
        self.lane(from).stale.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the raise has made the old entry stale, so this is the key's one entry.
        self.push(unsafe { Queued::again(pin.node(), to) });
    }

    /// Returns the number of queued keys.
    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(Lane::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.lanes.iter().any(Lane::has_keys)
    }

    /// Returns the number of queued keys of each level.
    pub(crate) fn depths(&self) -> Vec<usize> {
        self.lanes.iter().map(Lane::len).collect()
    }
}
