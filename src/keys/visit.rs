//! What reports want of the keys: to look at them, and a few counts that are kept under the shards' locks.

#[cfg(feature = "metrics")]
use super::Keys;
use super::Shard;
use crate::node::NodeRef;

#[cfg(feature = "metrics")]
impl<K> Keys<K> {
    /// How many shards there are.
    pub(crate) fn count(&self) -> usize {
        self.table.shards()
    }
}

impl<K> Shard<'_, K> {
    /// Runs `f` over some of the shard's nodes, about `most`, beginning at `place`, and answers the
    /// place to go on from, if the shard has more. Between two calls nodes may change their places, so
    /// one may be overlooked or visited twice.
    pub(crate) fn visit(
        &self,
        place: usize,
        most: usize,
        f: impl FnMut(NodeRef<K>),
    ) -> Option<usize> {
        self.table.for_some(place, most, f)
    }

    /// How many sweeps there were.
    #[cfg(feature = "metrics")]
    pub(crate) fn sweeps(&mut self) -> u64 {
        self.table.beside().sweeps
    }
}
