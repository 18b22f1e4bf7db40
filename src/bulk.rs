//! Adding many keys: their getters are woken a few at a time.

use crate::core::Core;

/// Notifies getters of keys added in bulk, at the latest when it is dropped.
pub(crate) struct Bulk<'a, K> {
    core: &'a Core<K>,
    unannounced: usize,
}

impl<'a, K> Bulk<'a, K> {
    /// So many keys are pushed before the getters hear of them.
    const MOST: usize = 32;

    pub(crate) fn new(core: &'a Core<K>) -> Self {
        Bulk {
            core,
            unannounced: 0,
        }
    }

    pub(crate) fn pushed(&mut self) {
        self.unannounced += 1;
        if self.unannounced == Self::MOST {
            self.announce();
        }
    }

    fn announce(&mut self) {
        self.core.announce(std::mem::take(&mut self.unannounced));
    }
}

impl<K> Drop for Bulk<'_, K> {
    fn drop(&mut self) {
        if self.unannounced > 0 {
            self.announce();
        }
    }
}
