//! The queue of a controller: the objects to reconcile, each with the reason.

use std::hash::Hash;
use std::sync::Arc;

use keyqueue::{Builder, ConfigError, WorkQueue};
use kube_client::Resource;
use kube_runtime::controller::ReconcileReason;
use kube_runtime::reflector::{ObjectRef, Store};

use crate::changes::{Change, Urgency};
use crate::controller::Settings;

/// Why an object is delivered.
pub(crate) struct Cause<K: Resource> {
    /// The object as it was reconciled, or as a newer change refers to it. The key, which equals it, may have the
    /// uid and the version of an earlier object of this name.
    pub(crate) object: ObjectRef<K>,
    /// The first reason since the last delivery, but that of a retry only if there is no other; `None` if the
    /// object was deleted, and nothing else is known.
    pub(crate) reason: Option<ReconcileReason>,
    /// It was deleted since the last delivery: failures before that are of another object.
    pub(crate) was_gone: bool,
}

impl<K: Resource> Cause<K> {
    fn merge(&mut self, newer: Self) {
        self.object = newer.object;
        self.was_gone |= newer.was_gone;
        if newer.reason.is_some() && !self.is_asked_for() {
            self.reason = newer.reason;
        }
    }

    /// Returns whether there is more than a deletion, and a retry or a requeue, which a deletion drops.
    pub(crate) fn is_asked_for(&self) -> bool {
        use ReconcileReason::{ErrorPolicyRequestedRetry, ReconcilerRequestedRetry};
        !matches!(
            self.reason,
            None | Some(ErrorPolicyRequestedRetry | ReconcilerRequestedRetry)
        )
    }
}

pub(crate) type Queue<K> = WorkQueue<ObjectRef<K>, Cause<K>>;

pub(crate) type QueueBuilder<K> = Builder<ObjectRef<K>, Cause<K>>;

/// Builds the queue, and takes out of the settings what belongs to it.
pub(crate) fn build<K>(settings: &mut Settings<K>) -> Result<Queue<K>, ConfigError>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let mut builder: QueueBuilder<K> = WorkQueue::builder()
        .name(settings.name.as_str())
        // As in kube-runtime, a change takes the place of a retry or a requeue that is pending.
        .supersede_delays(true)
        .merge(Cause::merge);
    if let Some(limiter) = settings.limiter.take() {
        builder = builder.rate_limiter(limiter);
    }
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
        builder = builder.group_by(|object: &ObjectRef<K>| object.namespace.clone());
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
/// leaves only those that there are. They become less urgent. After a shut-down it does nothing, as nothing could be
/// put into the queue again.
pub(crate) fn tidy<K>(queue: &Queue<K>, store: &Store<K>, dyntype: &K::DynamicType)
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    if queue.is_shutting_down() || queue.len() <= 2 * store.len() + 1000 {
        return;
    }
    queue.clear();
    put_all(queue, store, dyntype);
}

/// Puts all objects into the queue, at the less urgent level.
pub(crate) fn put_all<K>(queue: &Queue<K>, store: &Store<K>, dyntype: &K::DynamicType)
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    for object in store.state() {
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
            if urgency == Urgency::Background {
                // It takes the place of a retry or a requeue, but not its level.
                queue.cancel(&object);
            }
            let cause = Cause {
                object: object.clone(),
                reason: Some(reason),
                was_gone: false,
            };
            let _ = queue.entry(object).level(urgency.level()).put(cause);
        }
        Change::Gone(object) => {
            // The deletion takes neither the level nor the reason of the retry, which after a panic is that of a change.
            queue.cancel(&object);
            // The delivery forgets the failures, but a candidate that does not lead may discard it.
            queue.forget(&object);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use keyqueue::Item;
    use kube_runtime::reflector;
    use kube_runtime::watcher::Event;

    use super::*;

    fn queue() -> Queue<ConfigMap> {
        build(&mut Settings::new("maps".into())).unwrap()
    }

    fn changed(object: &ObjectRef<ConfigMap>) -> Change<ConfigMap> {
        Change::of_object(object.clone(), Urgency::Change)
    }

    fn again(mut item: Item<'_, ObjectRef<ConfigMap>, Cause<ConfigMap>>, reason: ReconcileReason) {
        item.value_mut().reason = Some(reason);
        let _ = item.retry_after(Duration::from_secs(3600));
    }

    /// K5, K6: after a panic a retry has the reason of its delivery.
    #[test]
    fn a_deletion_has_neither_the_level_nor_the_reason_of_the_retry_that_it_drops() {
        let queue = queue();
        let [a, b] = ["a", "b"].map(ObjectRef::new);
        put(&queue, changed(&a));
        again(queue.try_get().unwrap(), ReconcileReason::ObjectUpdated);
        put(&queue, Change::Gone(a.clone()));
        put(&queue, changed(&b));
        let [first, last] = [(); 2].map(|()| queue.try_get().unwrap());
        assert_eq!([first.key(), last.key()], [&b, &a]);
        assert!(!last.value().is_asked_for());
        assert_eq!(queue.counts().delayed, 0);
    }

    /// K5, K7
    #[test]
    fn a_repetition_has_not_the_level_but_the_failures_of_the_retry_that_it_takes_the_place_of() {
        let queue = queue();
        let [a, b] = ["a", "b"].map(ObjectRef::new);
        put(&queue, changed(&a));
        let _ = queue.try_get().unwrap().retry();
        put(&queue, Change::of_object(a.clone(), Urgency::Background));
        put(&queue, changed(&b));
        let [first, last] = [(); 2].map(|()| queue.try_get().unwrap());
        assert_eq!([first.key(), last.key()], [&b, &a]);
        assert!(last.value().is_asked_for());
        assert_eq!(queue.num_requeues(&a), 1);
    }

    /// K6: the deletion comes while the object is reconciled.
    #[test]
    fn a_deletion_and_a_retry_are_not_asked_for() {
        use ReconcileReason::{ErrorPolicyRequestedRetry, ReconcilerRequestedRetry};
        let queue = queue();
        let a = ObjectRef::new("a");
        for reason in [ErrorPolicyRequestedRetry, ReconcilerRequestedRetry] {
            put(&queue, changed(&a));
            let item = queue.try_get().unwrap();
            put(&queue, Change::Gone(a.clone()));
            again(item, reason);
            let item = queue.try_get().unwrap();
            assert!(!item.value().is_asked_for());
        }
    }

    /// K6
    #[test]
    fn an_object_that_is_created_again_before_its_deletion_is_delivered_was_gone() {
        let queue = queue();
        let a = ObjectRef::new("a");
        put(&queue, changed(&a));
        put(&queue, Change::Gone(a.clone()));
        put(&queue, changed(&a));
        let cause = queue.try_get().unwrap().take().unwrap();
        assert!(cause.was_gone);
    }

    /// K6: a candidate that does not lead delivers no deletion.
    #[test]
    fn the_failures_of_an_object_whose_deletion_is_discarded_are_forgotten() {
        let queue = queue();
        let (store, _writer) = reflector::store();
        let a = ObjectRef::new("a");
        put(&queue, changed(&a));
        let _ = queue.try_get().unwrap().retry();
        assert_eq!(queue.num_requeues(&a), 1);
        put(&queue, Change::Gone(a.clone()));
        for n in 0..1000 {
            put(&queue, changed(&ObjectRef::new(&format!("m{n}"))));
        }
        tidy(&queue, &store, &());
        assert!(queue.is_empty());
        assert_eq!(queue.num_requeues(&a), 0);
    }

    /// K3: the streams have ended, and nothing can be put into the queue any more.
    #[test]
    fn what_is_left_after_the_end_is_not_discarded() {
        let queue = queue();
        let (store, _writer) = reflector::store();
        for n in 0..1001 {
            put(&queue, changed(&ObjectRef::new(&format!("m{n}"))));
        }
        queue.shut_down();
        tidy(&queue, &store, &());
        assert_eq!(queue.len(), 1001);
    }

    /// K2, K9
    #[test]
    fn a_cluster_scoped_owner_is_one_key_whatever_namespace_a_reference_to_it_has() {
        let (store, mut writer) = reflector::store();
        let mut owner = ConfigMap::default();
        owner.metadata.name = Some("a".into());
        writer.apply_watcher_event(&Event::Apply(owner));
        let change = changed(&ObjectRef::new("a").within("default"));
        let Change::Reconcile { object, .. } = own_reference(change, &store) else {
            panic!("a change stays one");
        };
        assert_eq!(object, ObjectRef::new("a"));
    }
}
