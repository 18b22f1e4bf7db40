//! The queue of a controller: the objects to reconcile, each with the reason.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::{Builder, ConfigError, ValueQueue, Valued, WorkQueue};
use kube_client::Resource;
use kube_runtime::controller::ReconcileReason;
use kube_runtime::reflector::{ObjectRef, Store};

use crate::changes::{Change, Urgency};
use crate::controller::Settings;

/// client-go's delays of retries.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1000);

/// Why an object is delivered.
pub(crate) struct Cause<K: Resource> {
    /// The object as it was reconciled, or as a newer change refers to it. The key, which equals it, may have the
    /// uid and the version of an earlier object of this name.
    pub(crate) object: ObjectRef<K>,
    /// The first reason since the last delivery, as in kube-runtime; `None` if the object was
    /// deleted, and nothing else is known.
    pub(crate) reason: Option<ReconcileReason>,
    /// It was deleted since the last delivery: failures before that are of another object.
    pub(crate) was_gone: bool,
}

impl<K: Resource> Cause<K> {
    fn merge(&mut self, newer: Self) {
        self.object = newer.object;
        self.was_gone |= newer.was_gone;
        if self.reason.is_none() {
            self.reason = newer.reason;
        }
    }
}

pub(crate) type Key<K> = Valued<ObjectRef<K>, Cause<K>>;

pub(crate) type Queue<K> = ValueQueue<ObjectRef<K>, Cause<K>>;

pub(crate) type QueueBuilder<K> = Builder<Key<K>>;

/// Builds the queue, and takes out of the settings what belongs to it.
pub(crate) fn build<K>(settings: &mut Settings<K>) -> Result<Queue<K>, ConfigError>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let limiter = match settings.limiter.take() {
        Some(limiter) => limiter,
        None => Box::new(ItemExponentialFailure::new(FIRST_RETRY, LAST_RETRY)?),
    };
    let mut builder: QueueBuilder<K> = WorkQueue::builder()
        .name(settings.name.as_str())
        // As in kube-runtime, a change takes the place of a retry or a requeue that is pending.
        .supersede_delays(true)
        .rate_limiter(limiter)
        .merge(Cause::merge);
    if settings.has_levels {
        builder = builder.levels(Urgency::LEVELS);
    }
    if let Some(limit) = settings.starvation_limit {
        builder = builder.starvation_limit(limit);
    }
    if let Some(interval) = settings.min_interval {
        builder = builder.min_interval(interval);
    }
    if let Some(group) = settings.grouping.take() {
        builder = group(builder);
    } else if settings.group_limit.is_some() {
        builder = builder.group_by(|key: &Key<K>| key.key().namespace.clone());
    }
    if let Some(limit) = settings.group_limit {
        builder = builder.group_limit(limit);
    }
    builder.build()
}

/// Erases the namespace of a reference to a cluster-scoped object, which an owned object's
/// namespace gave to it. The store finds the object by both, but in the queue they are two keys.
pub(crate) fn own_reference<K>(mut change: Change<K>, store: &Store<K>) -> Change<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let is_erased = |found: Arc<K>| found.meta().namespace.is_none();
    if let Change::Reconcile { object, .. } = &mut change
        && object.namespace.is_some()
        && store.get(object).is_some_and(is_erased)
    {
        object.namespace = None;
    }
    change
}

/// Where the queue has far more objects than there are, as deleted ones pile up while nothing is delivered,
/// leaves only those that there are. They become less urgent.
pub(crate) fn tidy<K>(queue: &Queue<K>, store: &Store<K>, dyntype: &K::DynamicType)
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let objects = store.state();
    if queue.len() <= 2 * objects.len() + 1000 {
        return;
    }
    queue.clear();
    for object in objects {
        let object = ObjectRef::from_obj_with(&*object, dyntype.clone());
        put(queue, Change::of_object(object, Urgency::Background));
    }
}

/// Puts a change into the queue. After a shut-down nothing more is asked for.
pub(crate) fn put<K>(queue: &Queue<K>, change: Change<K>)
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    match change {
        Change::Reconcile {
            object,
            urgency,
            reason,
        } => {
            let cause = Cause {
                object: object.clone(),
                reason: Some(reason),
                was_gone: false,
            };
            let _ = queue.entry(object).level(urgency.level()).put(cause);
        }
        Change::Gone(object) => {
            queue.cancel(&object);
            // The delivery finds no object, and forgets the failures.
            let cause = Cause {
                object: object.clone(),
                reason: None,
                was_gone: true,
            };
            let _ = queue
                .entry(object)
                .level(Urgency::Background.level())
                .put(cause);
        }
    }
}
