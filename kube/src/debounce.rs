//! Waits until objects have not changed for a time.

use std::hash::Hash;
use std::time::Duration;

use keyqueue::{ConfigError, DelayPolicy, WorkQueue};
use kube_client::Resource;
use kube_runtime::controller::ReconcileReason;
use kube_runtime::reflector::ObjectRef;

use crate::changes::{Change, Urgency};

/// A queue in front of the queue, whose delays begin again at each change.
pub(crate) struct Debounce<K: Resource + 'static> {
    changes: WorkQueue<ObjectRef<K>, Changed<K>>,
    quiet: Duration,
}

/// The greatest urgency, the first reason and the newest reference since the object was quiet.
type Changed<K> = (Urgency, ReconcileReason, ObjectRef<K>);

impl<K: Resource + 'static> Debounce<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    pub(crate) fn new(quiet: Duration) -> Result<Self, ConfigError> {
        let changes = WorkQueue::builder()
            .delay_policy(DelayPolicy::Latest)
            .drain_delays(true)
            .merge(|older: &mut Changed<K>, newer: Changed<K>| {
                older.0 = older.0.min(newer.0);
                older.2 = newer.2;
            })
            .build()?;
        Ok(Debounce { changes, quiet })
    }

    /// Takes a change in, or returns one that should not wait.
    pub(crate) fn take(&self, change: Change<K>) -> Option<Change<K>> {
        match change {
            Change::Reconcile {
                object,
                urgency,
                reason,
            } => {
                let value = (urgency, reason, object.clone());
                let _ = self.changes.entry(object).after(self.quiet).put(value);
                None
            }
            Change::Gone(object) => {
                let _ = self.changes.remove(&object);
                Some(Change::Gone(object))
            }
        }
    }

    /// Passes the objects that have become quiet to `f`, until the [end](Self::end).
    pub(crate) async fn forward(&self, f: impl Fn(Change<K>)) {
        while let Some(mut item) = self.changes.get_async().await {
            // A key is delivered only with a value.
            let Some((urgency, reason, object)) = item.take() else {
                continue;
            };
            f(Change::Reconcile {
                object,
                urgency,
                reason,
            });
        }
    }

    /// Ends the wait of all objects now. [`forward`](Self::forward) has to run meanwhile.
    pub(crate) async fn end(&self) {
        self.changes.drain_async().await;
    }
}
