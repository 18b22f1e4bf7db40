//! Taking keys from the FIFO, and finishing them.
//!
//! As with adds, the fast path does what most calls need, and ends with a call of a function that is not
//! inlined for everything else.

use super::Core;
use crate::engine::cargo::Extras;
use crate::fifo::groups::grouping::Grouping;
use crate::fifo::ordered::{By, Ordered};
use crate::fifo::ring::Missed;
use crate::keys::node::{Held, Queued};
use crate::keys::state::Begun;

/// The result of taking a key from the FIFO.
pub(crate) enum Taken<K> {
    Key(Held<K>),
    /// Nothing is queued now.
    Empty,
    /// The queue is shut down and nothing will ever be queued again.
    Ended,
}

/// Where the fast path of taking a key stopped.
pub(crate) enum Unfinished<K> {
    /// The ring is empty, or another thread was faster.
    Pop(Missed),
    /// The key is popped, and the queue is timed, or its keys carry values. Not if it has lanes.
    Begin(Queued<K>),
    /// The delivery has begun, and a shut-down had closed the key.
    Closed(Held<K>, Begun),
}

impl<K> Taken<K> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Taken::Empty)
    }

    /// Takes again if nothing was queued.
    #[inline]
    pub(crate) fn or_else(self, take: impl FnOnce() -> Self) -> Self {
        if self.is_empty() { take() } else { self }
    }
}
impl<K> Core<K> {
    /// Takes the key at the head of the FIFO, and discards those before it that a shut-down has
    /// abandoned.
    #[inline]
    pub(crate) fn take(&self) -> Taken<K> {
        match self.take_fast() {
            Ok(held) => Taken::Key(held),
            Err(unfinished) => self.take_slow(unfinished),
        }
    }

    /// Takes the key at the head of the FIFO, if nothing else has to be done for it. If not, the
    /// caller continues with [`take_slow`](Self::take_slow).
    #[inline]
    pub(crate) fn take_fast(&self) -> Result<Held<K>, Unfinished<K>> {
        let entry = match self.fifo.try_pop() {
            Ok(entry) => entry,
            Err(missed) => return Err(Unfinished::Pop(missed)),
        };
        if self.extras.is_some() {
            return Err(Unfinished::Begin(entry));
        }
        match entry.begin() {
            (held, Begun::Open) => Ok(held),
            (held, begun) => Err(Unfinished::Closed(held, begun)),
        }
    }

    /// Continues where [`take_fast`](Self::take_fast) stopped.
    #[cold]
    pub(crate) fn take_slow(&self, unfinished: Unfinished<K>) -> Taken<K> {
        match unfinished {
            Unfinished::Pop(missed) => match self.ordered() {
                None => match self.fifo.pop_missed(missed) {
                    Some(entry) => self.begin(entry),
                    None => self.nothing(),
                },
                Some(ordered) => self.take_from(ordered),
            },
            Unfinished::Begin(entry) => self.begin(entry),
            Unfinished::Closed(held, begun) => self.begun_slow(held, begun, true),
        }
    }

    // Never: queues with one FIFO would pay for its registers.
    #[inline(never)]
    fn take_from(&self, ordered: &Ordered<K>) -> Taken<K> {
        if let By::Lanes(lanes) = &ordered.by
            && self.has_only_order()
        {
            return match lanes.pop_and_begin() {
                Some((held, Begun::Open)) => Taken::Key(held),
                Some((held, begun)) => self.begun_slow(held, begun, true),
                None => self.nothing(),
            };
        }
        let taken = match self.pop_ordered(ordered) {
            Some(entry) => self.begin(entry),
            None => self.nothing(),
        };
        if ordered.has_intervals
            && let (Taken::Key(held), Some(groups)) = (&taken, self.groups())
        {
            groups.delivered(held);
        }
        taken
    }

    /// Whether its order is all that the queue has in addition.
    fn has_only_order(&self) -> bool {
        let others = |extras: &Extras<K>| {
            extras.watch.is_some() || extras.cargo.is_some() || extras.room.is_some()
        };
        !self.extras.as_deref().is_some_and(others)
    }

    fn pop(&self) -> Option<Queued<K>> {
        match self.ordered() {
            None => self.fifo.pop(),
            Some(ordered) => self.pop_ordered(ordered),
        }
    }

    #[inline]
    fn pop_ordered(&self, ordered: &Ordered<K>) -> Option<Queued<K>> {
        let (entry, more) = ordered.pop()?;
        if more {
            self.getters.notify(1);
        }
        Some(entry)
    }

    #[inline]
    fn nothing(&self) -> Taken<K> {
        match self.closing.all_delivered() {
            true => Taken::Ended,
            false => Taken::Empty,
        }
    }

    #[inline]
    fn begin(&self, entry: Queued<K>) -> Taken<K> {
        match self.begin_one(entry) {
            (held, Begun::Open, true) => Taken::Key(held),
            (held, begun, loaded) => self.begun_slow(held, begun, loaded),
        }
    }

    /// Takes all queued keys of a queue with groups, whatever they wait for.
    #[cold]
    pub(crate) fn take_groups(&self, groups: &dyn Grouping<K>) -> Vec<Held<K>> {
        let mut all = Vec::new();
        for entry in groups.take_all() {
            match self.begin_one(entry) {
                (held, Begun::Open, true) => all.push(held),
                (held, Begun::Abandoned, _) => self.discard(held),
                (held, begun, loaded) => {
                    if begun == Begun::Closed && self.closing.delivered() {
                        self.getters.notify_all();
                    }
                    match loaded {
                        true => all.push(held),
                        false => self.finish(held),
                    }
                }
            }
        }
        all
    }

    /// Begins the delivery of a key. Returns also whether it carries what it should.
    #[inline]
    fn begin_one(&self, entry: Queued<K>) -> (Held<K>, Begun, bool) {
        match &self.extras {
            None => {
                let (held, begun) = entry.begin();
                (held, begun, true)
            }
            Some(extras) => extras.begin(entry),
        }
    }

    /// Ends the processing of an abandoned key. It is counted already, and not dirty, because adds are refused.
    fn discard(&self, held: Held<K>) {
        let more = self
            .extras
            .as_ref()
            .is_some_and(|extras| extras.land(&held));
        held.finish();
        if more {
            self.getters.notify(1);
        }
    }

    /// Finishes a key that is not delivered, and takes the one that has its turn, if the order knows it.
    fn pop_instead(&self, held: Held<K>) -> Option<Queued<K>> {
        let Some(ordered) = self.ordered() else {
            self.finish(held);
            return None;
        };
        let level = ordered.delivered(&held);
        if let By::Groups(groups, _) = &ordered.by {
            groups.refund(&held);
        }
        self.finish(held);
        match &ordered.by {
            By::Lanes(lanes) => lanes.pop_again(level),
            By::Groups(..) => None,
        }
    }

    /// Counts the delivery of a closed key. If there is nothing to deliver, because a shut-down has
    /// abandoned the key, or because it should carry a value but has none (not `loaded`), finishes
    /// the key and takes the next one.
    #[cold]
    fn begun_slow(&self, mut held: Held<K>, mut begun: Begun, mut loaded: bool) -> Taken<K> {
        loop {
            let mut next = None;
            if begun == Begun::Closed && self.closing.delivered() {
                self.getters.notify_all();
            }
            if begun == Begun::Abandoned {
                self.discard(held);
            } else if loaded {
                return Taken::Key(held);
            } else {
                next = self.pop_instead(held);
            }
            let Some(entry) = next.or_else(|| self.pop()) else {
                return self.nothing();
            };
            (held, begun, loaded) = self.begin_one(entry);
        }
    }

    /// Ends the processing of a key.
    #[inline]
    pub(crate) fn finish(&self, held: Held<K>) {
        match &self.extras {
            None => self.finished(held.finish()),
            Some(extras) => {
                let (entry, closed, more) = extras.finish(held);
                self.finished_extras((entry, closed));
                if more {
                    self.getters.notify(1);
                }
            }
        }
    }

    #[inline(never)]
    fn finished_extras(&self, (entry, closed): (Option<Queued<K>>, bool)) {
        match entry {
            // Not `enqueue`: in a timed queue the entry already has its time.
            Some(entry) => {
                self.push_extras(entry);
                self.getters.notify(1);
            }
            None => self.finished((None, closed)),
        }
    }

    #[inline]
    fn finished(&self, (entry, closed): (Option<Queued<K>>, bool)) {
        if let Some(entry) = entry {
            self.push_apart(entry);
        } else if closed && self.closing.finished() {
            self.closing.drainers.notify_all();
        }
    }
}
