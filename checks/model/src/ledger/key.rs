//! Keys that are counted as long as they live.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A key, which is counted as long as it lives if it has a share of something.
#[derive(Clone, Debug)]
pub struct Key {
    /// What it is: with a ledger, its place there.
    pub number: u64,
    _alive: Option<Arc<()>>,
}

impl Key {
    /// The key of this number.
    pub fn new(number: u64, alive: Option<Arc<()>>) -> Self {
        Key {
            number,
            _alive: alive,
        }
    }
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
