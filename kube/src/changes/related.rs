//! The events of a related kind: owned objects, and those that a mapper maps.
//!
//! What each related object maps to is remembered, with the object's version. So the objects that
//! it mapped to before a change are reconciled as well, for example the former owner; and so are
//! those of an object that vanished while the watch was interrupted, for which there is no event.
//!
//! | the related object is | what it maps to, and mapped to before, is reconciled as |
//! | --- | --- |
//! | in the first list | background |
//! | in a later list, with the known version | background |
//! | in a later list, new or with another version | a change |
//! | known before, but not in the list | a change |
//! | applied or deleted | a change |
//!
//! A list that is interrupted begins again. Its objects have been reported, so they are known, and map to what they
//! mapped to before as well: only the end of a list tells what an object does not map to any more.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

use kube_client::Resource;
use kube_runtime::controller::ReconcileReason;
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::Event;

use super::{Change, Urgency};

/// Follows the events of one watch of a related kind `T`.
pub(crate) struct Related<T: Resource, K: Resource, M> {
    dyntype: T::DynamicType,
    map: M,
    known: Objects<T, K>,
    /// The objects of the list that has begun.
    listed: Objects<T, K>,
    has_listed: bool,
}

type Objects<T, K> = HashMap<ObjectRef<T>, Known<K>>;

/// A related object.
struct Known<K: Resource> {
    version: Option<String>,
    targets: Vec<ObjectRef<K>>,
}

impl<T, K, M, I> Related<T, K, M>
where
    T: Resource,
    T::DynamicType: Eq + Hash + Clone,
    K: Resource,
    K::DynamicType: Eq + Hash + Clone,
    M: Fn(T) -> I,
    I: IntoIterator<Item = ObjectRef<K>>,
{
    pub(crate) fn new(dyntype: T::DynamicType, map: M) -> Self {
        Related {
            dyntype,
            map,
            known: HashMap::new(),
            listed: HashMap::new(),
            has_listed: false,
        }
    }

    pub(crate) fn event(&mut self, event: Event<T>) -> Vec<Change<K>> {
        match event {
            Event::Apply(object) => {
                let (object, new) = self.look_at(object);
                let mut changes = changes(&object, &new.targets, Urgency::Change);
                if let Some(old) = self.known.insert(object.clone(), new) {
                    changes.extend(self.former(&object, &old));
                }
                changes
            }
            Event::Delete(object) => {
                let (object, new) = self.look_at(object);
                let mut changes = changes(&object, &new.targets, Urgency::Change);
                if let Some(old) = self.known.remove(&object) {
                    changes.extend(left(&object, &old, &new.targets));
                }
                changes
            }
            Event::Init => {
                for (object, interrupted) in mem::take(&mut self.listed) {
                    self.remember(object, interrupted);
                }
                Vec::new()
            }
            Event::InitApply(object) => {
                let (object, new) = self.look_at(object);
                let urgency = match self.known.get(&object) {
                    _ if !self.has_listed => Urgency::Background,
                    Some(old) if old.version == new.version => Urgency::Background,
                    _ => Urgency::Change,
                };
                let mut changes = changes(&object, &new.targets, urgency);
                // A list that is streamed may have an object twice.
                if let Some(old) = self.listed.remove(&object) {
                    changes.extend(left(&object, &old, &new.targets));
                }
                self.listed.insert(object, new);
                changes
            }
            Event::InitDone => {
                self.has_listed = true;
                let old = mem::replace(&mut self.known, mem::take(&mut self.listed));
                let former = old
                    .iter()
                    .flat_map(|(object, old)| self.former(object, old));
                former.collect()
            }
        }
    }

    /// Adds what an object of an interrupted list maps to.
    fn remember(&mut self, object: ObjectRef<T>, interrupted: Known<K>) {
        let known = self.known.entry(object).or_insert(Known {
            version: None,
            targets: Vec::new(),
        });
        known.version = interrupted.version;
        for target in interrupted.targets {
            if !known.targets.contains(&target) {
                known.targets.push(target);
            }
        }
    }

    /// Returns the changes of what an object mapped to, and does not map to now.
    fn former(&self, object: &ObjectRef<T>, old: &Known<K>) -> Vec<Change<K>> {
        let new = self.known.get(object).map_or(&[][..], |new| &new.targets);
        left(object, old, new)
    }

    fn look_at(&self, object: T) -> (ObjectRef<T>, Known<K>) {
        let reference = ObjectRef::from_obj_with(&object, self.dyntype.clone());
        let version = object.meta().resource_version.clone();
        let targets = (self.map)(object).into_iter().collect();
        (reference, Known { version, targets })
    }
}

/// Returns the changes of what an object mapped to, and does not map to any more.
fn left<T, K>(object: &ObjectRef<T>, old: &Known<K>, new: &[ObjectRef<K>]) -> Vec<Change<K>>
where
    T: Resource,
    T::DynamicType: Clone,
    K: Resource,
    K::DynamicType: Eq + Hash + Clone,
{
    let left = old.targets.iter().filter(|old| !new.contains(old));
    changes(object, left, Urgency::Change)
}

/// Returns the changes that an object causes to those that it maps to.
pub(crate) fn changes<'t, T, K>(
    object: &ObjectRef<T>,
    targets: impl IntoIterator<Item = &'t ObjectRef<K>>,
    urgency: Urgency,
) -> Vec<Change<K>>
where
    T: Resource,
    T::DynamicType: Clone,
    K: Resource + 't,
    K::DynamicType: Clone,
{
    let change = |target: &ObjectRef<K>| Change::Reconcile {
        object: target.clone(),
        urgency,
        reason: ReconcileReason::RelatedObjectUpdated {
            obj_ref: Box::new(object.clone().erase()),
        },
    };
    targets.into_iter().map(change).collect()
}

/// Returns the owners of kind `K` that the metadata of an object names.
pub(crate) fn owners<T: Resource, K: Resource>(
    object: &T,
    dyntype: &K::DynamicType,
) -> Vec<ObjectRef<K>>
where
    K::DynamicType: Clone,
{
    let meta = object.meta();
    let namespace = meta.namespace.as_deref();
    let owners = meta.owner_references.iter().flatten();
    owners
        .filter_map(|owner| ObjectRef::from_owner_ref(namespace, owner, dyntype.clone()))
        .collect()
}
