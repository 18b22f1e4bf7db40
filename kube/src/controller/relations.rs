//! What else asks for reconciliations: owned and watched objects, and other streams.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::stream::{Stream, StreamExt, TryStreamExt};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Resource};
use kube_runtime::controller::ReconcileReason;
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;

use super::shared::asked_again;
use super::{Controller, without_lists};
use crate::changes::related::{Related, changes, owners};
use crate::changes::{Change, Urgency, is_success};

impl<K> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Also reconciles the owners, of kind `K`, of objects that change: of those that `wc` selects
    /// from `api`.
    ///
    /// Only the metadata of these objects are watched, and their versions and owners remembered.
    /// When the owner references of one change, its former owners are reconciled, too; and so are
    /// the owners of one that vanished while the watch was interrupted.
    pub fn owns<Child>(self, api: Api<Child>, wc: watcher::Config) -> Self
    where
        Child: Clone + Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + 'static,
    {
        self.owns_with(api, (), wc)
    }

    /// Like [`owns`](Self::owns), for a type that is found at run time.
    pub fn owns_with<Child>(
        self,
        api: Api<Child>,
        dyntype: Child::DynamicType,
        wc: watcher::Config,
    ) -> Self
    where
        Child: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        #[allow(
            deprecated,
            reason = "as in kube-runtime, as long as signatures take Api<Child>"
        )]
        let events = watcher::metadata_watcher(api, wc);
        let owner = self.dyntype.clone();
        let map = move |child: PartialObjectMeta<Child>| owners(&child, &owner);
        self.related_events(events, dyntype, map)
    }

    /// Also reconciles the owners, of kind `K`, of the objects that the stream yields.
    pub fn owns_stream<Child: Resource<DynamicType = ()> + Send + 'static>(
        self,
        trigger: impl Stream<Item = watcher::Result<Child>> + Send + 'static,
    ) -> Self {
        self.owns_stream_with(trigger, ())
    }

    /// Like [`owns_stream`](Self::owns_stream), for a type that is found at run time.
    pub fn owns_stream_with<Child: Resource + Send + 'static>(
        self,
        trigger: impl Stream<Item = watcher::Result<Child>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self
    where
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner = self.dyntype.clone();
        self.watches_stream_unbound(trigger, move |child| owners(&child, &owner), dyntype)
    }

    /// Also reconciles the owners, of kind `K`, of the objects that a shared reflector yields.
    pub fn owns_shared_stream<Child: Resource<DynamicType = ()> + Send + Sync + 'static>(
        self,
        trigger: impl Stream<Item = Arc<Child>> + Send + 'static,
    ) -> Self {
        self.owns_shared_stream_with(trigger, ())
    }

    /// Like [`owns_shared_stream`](Self::owns_shared_stream), for a type that is found at run time.
    pub fn owns_shared_stream_with<Child: Resource + Send + Sync + 'static>(
        self,
        trigger: impl Stream<Item = Arc<Child>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self
    where
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner = self.dyntype.clone();
        self.shared_unbound(trigger, move |child| owners(&*child, &owner), dyntype)
    }

    /// Also reconciles what `mapper` returns for objects that change: for those that `wc` selects
    /// from `api`.
    ///
    /// What an object mapped to before its change is reconciled, too; and so is what one mapped to
    /// that vanished while the watch was interrupted. So the controller remembers what each object
    /// maps to, and `mapper` should not return references to very many objects.
    pub fn watches<Other, I>(
        self,
        api: Api<Other>,
        wc: watcher::Config,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_with(api, Other::DynamicType::default(), wc, mapper)
    }

    /// Like [`watches`](Self::watches), for a type that is found at run time.
    pub fn watches_with<Other, I>(
        self,
        api: Api<Other>,
        dyntype: Other::DynamicType,
        wc: watcher::Config,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.related_events(watcher(api, wc), dyntype, mapper)
    }

    /// Also reconciles what `mapper` returns for the objects that the stream yields.
    pub fn watches_stream<Other, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<Other>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Default + Debug + Clone,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_stream_with(trigger, mapper, Other::DynamicType::default())
    }

    /// Like [`watches_stream`](Self::watches_stream), for a type that is found at run time.
    pub fn watches_stream_with<Other, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<Other>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Debug + Clone,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_stream_unbound(trigger, mapper, dyntype)
    }

    /// Also reconciles what `mapper` returns for the objects that a shared reflector yields.
    pub fn watches_shared_stream<Other, I>(
        self,
        trigger: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Default + Debug + Clone,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_shared_stream_with(trigger, mapper, Other::DynamicType::default())
    }

    /// Like [`watches_shared_stream`](Self::watches_shared_stream), for a type that is found at run
    /// time.
    pub fn watches_shared_stream_with<Other, I>(
        self,
        trigger: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Sync + Send + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Debug + Clone,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.shared_unbound(trigger, mapper, dyntype)
    }

    /// Reconciles all objects in the store whenever `trigger` yields: for a configuration that has
    /// changed. These reconciliations are less urgent than those for changes
    /// ([`levels`](Self::levels)).
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let (store, dyntype) = (self.reader.clone(), self.dyntype.clone());
        let all = trigger.map(move |()| {
            let objects = store.state().into_iter();
            let change = |object: Arc<K>| Change::Reconcile {
                object: ObjectRef::from_obj_with(&*object, dyntype.clone()),
                urgency: Urgency::Background,
                reason: ReconcileReason::BulkReconcile,
            };
            Ok(objects.map(change).collect())
        });
        self.sources.push(without_lists(all));
        self
    }

    /// Reconciles the objects that `trigger` yields: for what happens outside of the cluster.
    pub fn reconcile_on(
        mut self,
        trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    ) -> Self {
        let changes = trigger.map(|object| {
            Ok(vec![Change::Reconcile {
                object,
                urgency: Urgency::Change,
                reason: ReconcileReason::Unknown,
            }])
        });
        self.sources.push(without_lists(changes));
        self
    }

    fn related_events<T, I>(
        mut self,
        events: impl Stream<Item = watcher::Result<Event<T>>> + Send + 'static,
        dyntype: T::DynamicType,
        mapper: impl Fn(T) -> I + Send + 'static,
    ) -> Self
    where
        T: Resource + Send + 'static,
        T::DynamicType: Eq + Hash + Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let mut related = Related::new(dyntype, mapper);
        let changes = events.map_ok(move |event| {
            let is_success = is_success(&event);
            (related.event(event), is_success)
        });
        self.sources.push(changes.boxed());
        self
    }

    fn watches_stream_unbound<T, I>(
        mut self,
        trigger: impl Stream<Item = watcher::Result<T>> + Send + 'static,
        mapper: impl Fn(T) -> I + Send + 'static,
        dyntype: T::DynamicType,
    ) -> Self
    where
        T: Resource + Send + 'static,
        T::DynamicType: Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let change = move |object| {
            let reference = ObjectRef::from_obj_with(&object, dyntype.clone());
            let targets: Vec<_> = mapper(object).into_iter().collect();
            changes(&reference, &targets, Urgency::Change)
        };
        let changes = trigger.map(move |object| object.map(&change));
        self.sources.push(without_lists(changes));
        self
    }

    fn shared_unbound<T, I>(
        mut self,
        trigger: impl Stream<Item = Arc<T>> + Send + 'static,
        mapper: impl Fn(Arc<T>) -> I + Send + 'static,
        dyntype: T::DynamicType,
    ) -> Self
    where
        T: Resource + 'static,
        T::DynamicType: Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let changes = asked_again(trigger).map(move |object| {
            let reference = ObjectRef::from_obj_with(&*object, dyntype.clone());
            let targets: Vec<_> = mapper(object).into_iter().collect();
            Ok(changes(&reference, &targets, Urgency::Change))
        });
        self.sources.push(without_lists(changes));
        self
    }
}
