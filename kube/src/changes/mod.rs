//! From what watches report to what should be reconciled: pure state machines, without I/O.

pub(crate) mod own;
pub(crate) mod related;

use kube_client::Resource;
use kube_runtime::controller::ReconcileReason;
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::Event;

/// How soon a key is delivered, if the queue has levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Something changed.
    Change,
    /// Nothing is known to have changed: the first list, what a later list repeats, a bulk request.
    Background,
}

impl Urgency {
    /// The number of levels of a queue that has them.
    pub(crate) const LEVELS: usize = 2;

    /// Returns the queue's level.
    pub(crate) fn level(self) -> usize {
        self as usize
    }
}

/// What to do about an object of the controller's kind.
pub(crate) enum Change<K: Resource> {
    /// It should be reconciled.
    Reconcile {
        object: ObjectRef<K>,
        urgency: Urgency,
        reason: ReconcileReason,
    },
    /// It is deleted: nothing about it should be tried again.
    Gone(ObjectRef<K>),
}

impl<K: Resource> Change<K> {
    /// The object itself changed.
    pub(crate) fn of_object(object: ObjectRef<K>, urgency: Urgency) -> Self {
        Change::Reconcile {
            object,
            urgency,
            reason: ReconcileReason::ObjectUpdated,
        }
    }
}

/// Returns whether the watch that reports this event works. One that lists may still fail, and begin again.
pub(crate) fn is_success<K>(event: &Event<K>) -> bool {
    match event {
        Event::Apply(_) | Event::Delete(_) | Event::InitDone => true,
        Event::Init | Event::InitApply(_) => false,
    }
}

#[cfg(test)]
mod tests;
