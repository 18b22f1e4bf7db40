//! The events of the controller's own kind.
//!
//! While the watcher lists, which it does again after it has lost its place, the reflector's store
//! changes only at the end of the list. So the objects of a list are reported at its end, from the
//! store, compared with what the store had when the list began:
//!
//! | the object is | reported as |
//! | --- | --- |
//! | in the first list | background |
//! | in a later list, with the version that the store had | background |
//! | in a later list, new or with another version | a change |
//! | in the store before, but not in the list | gone |
//! | in the store before with another uid | gone, and then as a new one |

use std::collections::HashSet;
use std::hash::Hash;

use kube_client::Resource;
use kube_runtime::reflector::{ObjectRef, Store};
use kube_runtime::watcher::Event;

use super::{Change, Urgency};

/// Follows the events of one reflector, each of which must be in the store already.
pub(crate) struct Own<K: Resource + Clone + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    store: Store<K>,
    dyntype: K::DynamicType,
    /// What the store had when the list began.
    before: HashSet<ObjectRef<K>>,
    has_listed: bool,
}

impl<K: Resource + Clone + 'static> Own<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    pub(crate) fn new(store: Store<K>, dyntype: K::DynamicType) -> Self {
        Own {
            store,
            dyntype,
            before: HashSet::new(),
            has_listed: false,
        }
    }

    pub(crate) fn event(&mut self, event: &Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Apply(object) => {
                vec![Change::of_object(self.reference(object), Urgency::Change)]
            }
            Event::Delete(object) => vec![Change::Gone(self.reference(object))],
            Event::Init => {
                self.before = self.stored().collect();
                Vec::new()
            }
            Event::InitApply(_) => Vec::new(),
            Event::InitDone => self.listed(),
        }
    }

    fn listed(&mut self) -> Vec<Change<K>> {
        let mut before = std::mem::take(&mut self.before);
        let is_first = !std::mem::replace(&mut self.has_listed, true);
        let mut changes = Vec::new();
        for object in self.stored() {
            let (old, new) = (before.take(&object), &object.extra);
            let is_same = |old: &ObjectRef<K>| old.extra.resource_version == new.resource_version;
            let urgency = match is_first || old.as_ref().is_some_and(is_same) {
                true => Urgency::Background,
                false => Urgency::Change,
            };
            let replaced = old.filter(|old| old.extra.uid != new.uid);
            changes.extend(replaced.map(Change::Gone));
            changes.push(Change::of_object(object, urgency));
        }
        changes.extend(before.into_iter().map(Change::Gone));
        changes
    }

    fn stored(&self) -> impl Iterator<Item = ObjectRef<K>> {
        let objects = self.store.state().into_iter();
        objects.map(|object| self.reference(&object))
    }

    fn reference(&self, object: &K) -> ObjectRef<K> {
        ObjectRef::from_obj_with(object, self.dyntype.clone())
    }
}
