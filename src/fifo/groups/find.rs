//! The table of groups: which one a key belongs to.

use std::hash::{BuildHasher, Hash};

use super::group::{Body, Group};
use super::{GroupRef, Groups};
use crate::keys::node::Pin;
use crate::keys::seat::Seat;
use crate::sync::SpinLock;
use crate::wait::catch_panic::catch_panic;

impl<K, G> Groups<K, G>
where
    K: Send + Sync + 'static,
    G: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// Returns the pinned group with this name, which is interned if it is not yet.
    pub(super) fn intern(&self, name: Option<G>) -> Pin<Group<K, G>> {
        let hash = match &name {
            Some(name) => self.hasher.hash_one(name),
            None => 0,
        };
        let known = self.groups.lock(hash).pin(hash, |group| group.name == name);
        if let Some(pin) = known {
            return pin;
        }
        // Not under the lock: it is user code.
        let weight = match (&self.weigh, &name) {
            (Some(weigh), Some(name)) => weigh(name).max(1),
            _ => 1,
        };
        let mut shard = self.groups.lock(hash);
        if let Some(pin) = shard.pin(hash, |group| group.name == name) {
            return pin;
        }
        let group = Group {
            name,
            weight,
            body: SpinLock::new(Body::new(&self.rules)),
        };
        let (pin, swept) = shard.insert_pinned(hash, group, false);
        drop(shard);
        drop(swept);
        pin
    }

    /// Returns the group of a queued or pinned key.
    pub(super) fn group_of(&self, key: &K, seat: &Seat) -> GroupRef<K, G> {
        match seat.group() {
            Some(group) => group,
            None => self.find_group(key, seat),
        }
    }

    #[cold]
    fn find_group(&self, key: &K, seat: &Seat) -> GroupRef<K, G> {
        // The panic hook reports a panic of user code. The key must not get lost for it.
        let found = catch_panic(|| self.intern(Some((self.by)(key))));
        seat.set_group(&found.unwrap_or_else(|_| self.intern(None)))
    }
}
