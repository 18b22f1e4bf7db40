//! One reconciliation, in the task of a worker.

use std::error::Error as StdError;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use futures_util::future::{TryFuture, TryFutureExt};
use keyqueue::worker::{Job, Outcome, Verdict};
use kube_client::Resource;
use kube_runtime::controller::{Action, Error, ReconcileReason};
use kube_runtime::reflector::{ObjectRef, Store};
use tokio::sync::mpsc;
use tracing::{Instrument, info_span};

use crate::action::{self, Next};
use crate::changes::{Change, Urgency};
use crate::controller::Reconciled;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::work::queue::{self, Cause, Queue};

/// What reconciles objects.
pub(crate) struct Reconciler<K, F, P, Ctx, E: 'static>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    pub(crate) reconciler: F,
    /// Returns what a failure leads to: `None` leaves it to the limiter.
    pub(crate) policy: P,
    pub(crate) context: Arc<Ctx>,
    pub(crate) store: Store<K>,
    pub(crate) queue: Arc<Queue<K>>,
    pub(crate) leadership: Option<Leadership>,
    pub(crate) results: mpsc::Sender<Reconciled<K, E>>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<K, F, Fut, P, Ctx> Reconciler<K, F, P, Ctx, Fut::Error>
where
    K: Clone + Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut,
    Fut: TryFuture<Ok = Action>,
    Fut::Error: StdError,
    P: Fn(Arc<K>, &Fut::Error, Arc<Ctx>) -> Option<Action>,
{
    /// Reconciles the object of a delivery. The error of the verdict is only for hooks: the
    /// stream has the reconciler's.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        mut job: Job<'static, ObjectRef<K>, Cause<K>>,
    ) -> Verdict<String> {
        if let Some(leadership) = &self.leadership {
            // The lease may have run out since the key was taken. If it is lost, this is cancelled.
            leadership.acquired().await;
        }
        let attempt = job.attempt();
        let cause = job.value_mut();
        let object_ref = cause.object.clone();
        let is_asked_for = cause.is_asked_for();
        // A deletion alone reconciles nothing: what replaces the deleted object is a change, which may have to be quiet.
        let found = self.store.get(&object_ref);
        let Some(object) = found.filter(|_| is_asked_for || !cause.was_gone) else {
            if is_asked_for {
                self.publish(Err(Error::ObjectNotFound(Box::new(object_ref.erase()))))
                    .await;
            }
            return Verdict::Ok(Outcome::Done);
        };
        // It was put before the store had the object.
        let is_other_key = object_ref.namespace.is_some() && object.meta().namespace.is_none();
        // It is a new object of the same name, which begins without the failures of the old.
        let has_failures = cause.was_gone && !self.queue.is_shutting_down() && attempt > 1;
        if is_other_key || has_failures {
            let change = Change::Reconcile {
                object: ObjectRef::from_obj_with(&*object, object_ref.dyntype.clone()),
                urgency: Urgency::Change,
                reason: cause.reason.take().unwrap_or(ReconcileReason::Unknown),
            };
            queue::put(&self.queue, change);
            return Verdict::Ok(Outcome::Done);
        }
        cause.was_gone = false;
        // The newest change may be of a related object, which names an earlier object of this name as its owner.
        let object_ref = ObjectRef::from_obj_with(&*object, object_ref.dyntype.clone());
        cause.object = object_ref.clone();
        let reason = cause.reason.as_ref().unwrap_or(&ReconcileReason::Unknown);
        let span = info_span!(
            "reconciling object",
            "object.ref" = %object_ref,
            object.reason = %reason,
        );
        let result = {
            let _measured = self.metrics.begin();
            let context = Arc::clone(&self.context);
            let future = span.in_scope(|| (self.reconciler)(Arc::clone(&object), context));
            TryFutureExt::into_future(future).instrument(span).await
        };
        match result {
            Ok(action) => {
                cause.reason = Some(ReconcileReason::ReconcilerRequestedRetry);
                let next = action::next(&action);
                self.metrics.succeeded(next);
                self.publish(Ok((object_ref, action))).await;
                Verdict::Ok(match next {
                    Next::Change => Outcome::Done,
                    Next::After(delay) => Outcome::RequeueAfter(delay),
                })
            }
            Err(error) => {
                cause.reason = Some(ReconcileReason::ErrorPolicyRequestedRetry);
                let text = error.to_string();
                let context = Arc::clone(&self.context);
                // The error is published even if the policy panics.
                let action =
                    catch_unwind(AssertUnwindSafe(|| (self.policy)(object, &error, context)));
                let object_ref = Box::new(object_ref.erase());
                self.publish(Err(Error::ReconcilerFailed(error, object_ref)))
                    .await;
                let action = action.unwrap_or_else(|panic| resume_unwind(panic));
                match action.as_ref().map(action::next) {
                    None => Verdict::Retry(text),
                    Some(Next::After(delay)) => Verdict::RetryAfter(text, delay),
                    Some(Next::Change) => Verdict::GiveUp(text),
                }
            }
        }
    }

    async fn publish(&self, result: Reconciled<K, Fut::Error>) {
        // Nobody reads the results of a controller that is being dropped.
        let _ = self.results.send(result).await;
    }
}
