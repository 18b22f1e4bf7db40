//! Taking keys from the FIFO, and finishing them.
//!
//! As with adds, the fast path does what most calls need, and ends with a call of a function that is not
//! inlined for everything else.

use super::Core;
use crate::engine::values::Extras;
use crate::fifo::groups::grouping::{Ordered, Ready};
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
    /// There is more to do: the queue is timed or bounded, its keys carry values, or it has an order of
    /// its own. Nothing is popped yet.
    Extras,
    /// The delivery has begun, and a shut-down had closed the key, or it is a retry.
    Begun(Held<K>, Begun),
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
impl<K, V> Core<K, V> {
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
        if self.extras.is_some() {
            return Err(Unfinished::Extras);
        }
        let entry = match self.fifo.try_pop() {
            Ok(entry) => entry,
            Err(missed) => return Err(Unfinished::Pop(missed)),
        };
        match entry.begin() {
            (held, begun) if begun.is_plain() => Ok(held),
            (held, begun) => Err(Unfinished::Begun(held, begun)),
        }
    }

    /// Continues where [`take_fast`](Self::take_fast) stopped.
    #[inline(always)]
    pub(crate) fn take_slow(&self, unfinished: Unfinished<K>) -> Taken<K> {
        match unfinished {
            Unfinished::Pop(missed) => self.begin_or_nothing(self.fifo.pop_missed(missed), None),
            Unfinished::Extras => match self.ordered() {
                None => self.begin_or_nothing(self.fifo.pop(), None),
                Some(ordered) => self.take_from(ordered),
            },
            Unfinished::Begun(held, begun) => self.begun_slow(held, begun, true),
        }
    }

    // Never: queues with one FIFO would pay for its registers.
    #[inline(never)]
    fn take_from(&self, ordered: &Ordered<K>) -> Taken<K> {
        let taken = self.begin_or_nothing(self.pop_ordered(ordered), Some(ordered));
        if ordered.min_interval.is_some()
            && let Taken::Key(held) = &taken
        {
            ordered.groups.delivered(held);
        }
        taken
    }

    fn pop(&self) -> Option<Queued<K>> {
        match self.ordered() {
            None => self.fifo.pop(),
            Some(ordered) => self.pop_ordered(ordered),
        }
    }

    #[inline]
    fn pop_ordered(&self, ordered: &Ordered<K>) -> Option<Queued<K>> {
        let (entry, ready) = ordered.groups.pop()?;
        self.notify_ready(ready);
        Some(entry)
    }

    /// Notifies getters of what the groups have made deliverable.
    #[inline]
    pub(crate) fn notify_ready(&self, ready: Ready) {
        match ready {
            Ready::Nothing => {}
            Ready::One => self.getters.notify(1),
            Ready::Counted => self.getters.notify_counted(1),
            Ready::Several => self.getters.notify_several(1),
        }
    }

    #[inline]
    fn nothing(&self) -> Taken<K> {
        match self.closing.all_delivered() {
            true => Taken::Ended,
            false => Taken::Empty,
        }
    }

    #[inline(always)]
    fn begin_or_nothing(&self, entry: Option<Queued<K>>, ordered: Option<&Ordered<K>>) -> Taken<K> {
        match entry {
            Some(entry) => self.begin(entry, ordered),
            None => self.nothing(),
        }
    }

    #[inline(always)]
    fn begin(&self, entry: Queued<K>, ordered: Option<&Ordered<K>>) -> Taken<K> {
        match self.begin_one(entry) {
            (held, begun, true) if begun.is_plain() => {
                if let Some(ordered) = ordered {
                    held.seat(&ordered.seated).begin(begun.level());
                }
                Taken::Key(held)
            }
            (held, begun, loaded) => self.begun_slow(held, begun, loaded),
        }
    }

    /// Begins the deliveries of keys that were taken out of their groups.
    pub(crate) fn begin_all(&self, entries: Vec<Queued<K>>) -> Vec<Held<K>> {
        let begin = |entry| {
            let (held, begun, loaded) = self.begin_one(entry);
            // No token is given back, because these deliveries have taken none.
            self.deliverable(held, begun, loaded, |_| ())
        };
        entries.into_iter().filter_map(begin).collect()
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

    /// Discards the entries of the keys that a shut-down has abandoned, which are all that is left, whatever
    /// they wait for.
    pub(crate) fn discard_abandoned(&self) {
        match self.groups() {
            None => {
                let taken = self.take();
                debug_assert!(!matches!(taken, Taken::Key(_)), "a key is not abandoned");
            }
            Some(groups) => {
                let taken = self.begin_all(groups.take_all());
                debug_assert!(taken.is_empty(), "a key is not abandoned");
            }
        }
    }

    /// Ends the processing of an abandoned key. It is counted already, and not dirty, because adds are refused.
    fn discard(&self, held: Held<K>) {
        let extras = self.extras.as_ref();
        let ready = extras.map_or(Ready::Nothing, |extras| extras.end_delivery(&held));
        held.finish();
        self.notify_ready(ready);
    }

    /// Counts the delivery of a closed key, which disowns its dropped delay, and ends a retry. If there is nothing to
    /// deliver, because a shut-down has abandoned the key, or because it should carry a value but has none (not `loaded`),
    /// finishes the key, in the latter case after `refund`.
    fn deliverable(
        &self,
        held: Held<K>,
        begun: Begun,
        loaded: bool,
        refund: impl FnOnce(&Held<K>),
    ) -> Option<Held<K>> {
        if begun.is_retry() {
            held.clear_retry();
        }
        if begun.is_closed() && self.closing.delivered() {
            self.getters.notify_all();
        }
        if begun.is_abandoned() {
            self.discard(held);
            return None;
        }
        if begun.is_closed() {
            held.disown_dropped();
        }
        if !loaded {
            refund(&held);
            self.finish(held);
            return None;
        }
        if let Some(ordered) = self.ordered() {
            held.seat(&ordered.seated).begin(begun.level());
        }
        Some(held)
    }

    /// Begins the delivery of a key of a queue without an order of its own. Returns `None` if there is nothing to deliver.
    #[inline]
    pub(super) fn begin_popped(&self, entry: Queued<K>) -> Option<Held<K>> {
        match self.begin_one(entry) {
            (held, begun, true) if begun.is_plain() => Some(held),
            (held, begun, loaded) => self.deliverable(held, begun, loaded, |_| ()),
        }
    }

    /// Returns the key, or the next one if there is nothing to deliver; see
    /// [`deliverable`](Self::deliverable).
    #[cold]
    fn begun_slow(&self, mut held: Held<K>, mut begun: Begun, mut loaded: bool) -> Taken<K> {
        let refund = |held: &Held<K>| {
            if let Some(groups) = self.groups() {
                self.notify_ready(groups.refund(held));
            }
        };
        loop {
            if let Some(held) = self.deliverable(held, begun, loaded, refund) {
                return Taken::Key(held);
            }
            let Some(entry) = self.pop() else {
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
            Some(extras) => self.finish_extras(extras, held),
        }
    }

    #[cold]
    fn finish_extras(&self, extras: &Extras<K, V>, held: Held<K>) {
        let (entry, closed, ready) = extras.finish(held);
        match entry {
            // Not `enqueue`: in a timed queue the entry already has its time.
            Some(entry) => self.notify_ready(self.push_extras(entry)),
            None => self.finished((None, closed)),
        }
        if let Some(ordered) = &extras.ordered {
            self.notify_ready(ready);
            self.note_finished(ordered);
        }
    }

    #[inline]
    fn finished(&self, (entry, closed): (Option<Queued<K>>, bool)) {
        if let Some(entry) = entry {
            self.push_apart(entry);
        } else if closed {
            self.finished_closed();
        }
    }

    #[cold]
    fn finished_closed(&self) {
        if self.closing.finished() {
            self.end_redelivery();
            self.closing.drainers.notify_all();
        }
    }
}
