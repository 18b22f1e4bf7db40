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

use std::collections::HashMap;
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
    /// The versions at the begin of the list.
    before: HashMap<ObjectRef<K>, Option<String>>,
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
            before: HashMap::new(),
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
                self.before = self.versions().collect();
                Vec::new()
            }
            Event::InitApply(_) => Vec::new(),
            Event::InitDone => self.listed(),
        }
    }

    fn listed(&mut self) -> Vec<Change<K>> {
        let mut before = std::mem::take(&mut self.before);
        let is_first = !std::mem::replace(&mut self.has_listed, true);
        let mut changes: Vec<_> = self
            .versions()
            .map(|(object, version)| {
                let is_same = before.remove(&object).is_some_and(|old| old == version);
                let urgency = match is_first || is_same {
                    true => Urgency::Background,
                    false => Urgency::Change,
                };
                Change::of_object(object, urgency)
            })
            .collect();
        changes.extend(before.into_keys().map(Change::Gone));
        changes
    }

    fn versions(&self) -> impl Iterator<Item = (ObjectRef<K>, Option<String>)> {
        let objects = self.store.state().into_iter();
        objects.map(|object| {
            let version = object.meta().resource_version.clone();
            (self.reference(&object), version)
        })
    }

    fn reference(&self, object: &K) -> ObjectRef<K> {
        ObjectRef::from_obj_with(object, self.dyntype.clone())
    }
}
