//! A key that is counted while it lives, its borrowed form, and a hasher that can be bad.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyqueue_model::Spread;

/// The borrowed form of a [`Key`].
#[derive(Debug)]
pub(crate) struct Name {
    id: u16,
    alive: Arc<AtomicUsize>,
}

impl Name {
    pub(crate) fn new(id: u16, alive: &Arc<AtomicUsize>) -> Self {
        let alive = Arc::clone(alive);
        Name { id, alive }
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u16(self.id);
    }
}

impl ToOwned for Name {
    type Owned = Key;

    fn to_owned(&self) -> Key {
        Key::new(Name::new(self.id, &self.alive))
    }
}

/// A key, which raises the count of its kind by one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(Name);

impl Key {
    pub(crate) fn new(name: Name) -> Self {
        name.alive.fetch_add(1, Ordering::Relaxed);
        Key(name)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Key {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.0
    }
}

impl Borrow<Name> for Key {
    fn borrow(&self) -> &Name {
        &self.0
    }
}

/// A hasher of `u16`s.
pub(crate) struct Spreading(pub(crate) Spread);

pub(crate) struct SpreadHasher {
    spread: Spread,
    value: u64,
}

impl BuildHasher for Spreading {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher {
            spread: self.0,
            value: 0,
        }
    }
}

impl Hasher for SpreadHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.value = self.value << 8 | u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        // The shard is chosen by high bits, the place in it by low ones.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        match self.spread {
            Spread::OneHash => 0,
            Spread::FourHashes => (self.value % 4).wrapping_mul(MIX),
            Spread::OneShard => self.value,
            Spread::Even => self.value.wrapping_mul(MIX),
        }
    }
}
