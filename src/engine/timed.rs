//! What operations do in addition in a timed queue, in separate functions, so that the code of
//! untimed queues stays small.

use super::timing::{Event, Watch};
use crate::engine::Core;
use crate::keys::Shard;
use crate::keys::node::{self, Held, NodeRef, Pin, Queued};

impl<K> Core<K> {
    /// Records what an add of the pinned key did, if the queue is timed.
    pub(crate) fn note_added_by_pin(&self, pin: &Pin<K>, added: &node::Added<K>) {
        if let Some(watch) = self.watch() {
            match added {
                node::Added::Deferred(_) => pin.times(watch.timed()).deferred(watch.now()),
                node::Added::Merged => watch.tally().count(Event::Merged),
                node::Added::Queued(_) | node::Added::Closed => {}
            }
        }
    }

    /// Records what an add did, if the queue is timed. The caller holds the lock of the key's
    /// shard.
    #[inline]
    pub(crate) fn note_added(&self, _locked: &Shard<'_, K>, added: &node::Added<K>) {
        if self.watch().is_some() {
            match *added {
                node::Added::Deferred(node) => self.note_deferred(node),
                node::Added::Merged => self.note(Event::Merged),
                node::Added::Queued(_) | node::Added::Closed => {}
            }
        }
    }

    #[cold]
    fn note_deferred(&self, node: NodeRef<K>) {
        if let Some(watch) = self.watch() {
            // SAFETY: only `note_added` calls this, and its caller holds the lock of the node's
            // shard.
            unsafe { node.times(watch.timed()) }.deferred(watch.now());
        }
    }

    /// Counts an event, if the queue has a name.
    #[cold]
    pub(crate) fn note(&self, event: Event) {
        if let Some(watch) = self.watch() {
            watch.tally().count(event);
        }
    }

    /// Counts a pending delay that was cancelled.
    pub(crate) fn note_cancelled(&self) {
        self.timer.note_stale();
        self.note(Event::Cancelled);
    }

    #[cold]
    pub(crate) fn enqueue_watched(&self, entry: Queued<K>) {
        if let Some(watch) = self.watch() {
            watch.queued(&entry);
        }
        self.push(entry);
    }

    #[cold]
    pub(crate) fn begin_watched(&self, watch: &Watch, entry: Queued<K>) -> Held<K> {
        let (held, closed) = watch.begin(entry);
        self.begun(closed);
        held
    }

    #[cold]
    pub(crate) fn finish_watched(&self, watch: &Watch, held: Held<K>) {
        let (entry, closed) = watch.finish(held);
        self.finished(entry, closed);
    }
}
