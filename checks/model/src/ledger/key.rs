//! Keys that are counted as long as they live.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A key: its number in the ledger, and one more in the count of those that are alive.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its place in the ledger.
    pub number: u64,
    /// Shared by all keys that are counted.
    pub(super) _alive: Option<Arc<()>>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Borrow<u64> for Key {
    fn borrow(&self) -> &u64 {
        &self.number
    }
}
