//! Walks over a shard's nodes: for shut-downs, and for reports, with the counts that are kept under its lock.

#[cfg(feature = "metrics")]
use super::Keys;
use super::Shard;
use crate::closing::Census;
use crate::node::{self, Added, Node, NodeRef, Queued};

#[cfg(feature = "metrics")]
impl<K> Keys<K> {
    /// How many shards there are.
    pub(crate) fn count(&self) -> usize {
        self.shards.len()
    }
}

impl<K> Shard<'_, K> {
    /// Runs `f` over the nodes of the shard.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Node<K>)) {
        // SAFETY: in the table of a shard whose lock is held.
        self.store
            .table
            .for_each(|index| f(unsafe { self.node(index).get() }));
    }

    /// Closes every key of the shard, and counts what is left of each. A delay that is pending is
    /// dropped and counted, or with `deliver` the key is added first; the entries that the FIFO is
    /// owed for that are passed on.
    pub(crate) fn close(
        &self,
        deliver: bool,
        census: &mut Census,
        mut owed: impl FnMut(Queued<K>),
    ) {
        self.store.table.for_each(|index| {
            let node_ref = self.node(index);
            // SAFETY: in the table of a shard whose lock is held.
            let node = unsafe { node_ref.get() };
            if deliver && node.delay.close() {
                // SAFETY: as above.
                if let Added::Queued(entry) = unsafe { node::add_locked(node_ref) } {
                    owed(entry);
                }
            }
            if let Some(phase) = node.state.close() {
                census.count(phase);
            }
            // After the state: an add that is to supersede the delay and finds none is refused.
            if node.delay.close() {
                census.delayed += 1;
            }
        });
    }

    /// Runs `f` over some of the shard's nodes, about `most`, beginning at `place`, and answers the
    /// place to go on from, if the shard has more. Between two calls nodes may change their places, so
    /// one may be overlooked or visited twice.
    pub(crate) fn visit(
        &self,
        place: usize,
        most: usize,
        mut f: impl FnMut(NodeRef<K>),
    ) -> Option<usize> {
        self.store
            .table
            .for_some(place, most, |index| f(self.node(index)))
    }

    /// How many sweeps there were.
    #[cfg(feature = "metrics")]
    pub(crate) fn sweeps(&self) -> u64 {
        self.store.sweeps
    }
}
