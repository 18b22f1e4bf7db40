//! A key that is counted while it lives, and its borrowed form.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
