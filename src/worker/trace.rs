//! Spans and events of the worker loop, for `tracing`.
//!
//! Each delivered key has a span named `key`, with target `keyqueue` and level info, around the
//! call of the function and the handling of its outcome:
//!
//! | field | value |
//! | --- | --- |
//! | `queue` | the queue's name, if it has one |
//! | `key` | the key, if [`Workers::trace_keys`](super::Workers::trace_keys) was called |
//! | `attempt` | 1, and one more for each retry |
//! | `queue_seconds` | how long the key was queued, if the queue is timed |
//! | `outcome` | `done`, `requeue_after`, `retry`, `given_up` |
//!
//! A disabled span costs one read of a static; its fields are not computed.

use std::hash::{BuildHasher, Hash};

use tracing::field::{Empty, display};
use tracing::{Instrument, error, info_span, warn};

use super::{GivenUp, Reason, Workers};
use crate::Item;
use crate::limiter::RateLimiter;
use crate::wait::catch_panic::catch_panic;

/// The span of one delivered key.
pub(super) struct Span(tracing::Span);

impl Span {
    pub(super) fn of<K, L, S, E>(
        workers: &Workers<'_, K, L, S, E>,
        item: &Item<'_, K, L, S>,
    ) -> Self
    where
        K: Hash + Eq + Send + Sync + 'static,
        L: RateLimiter<K>,
        S: BuildHasher,
    {
        let span = info_span!(
            target: "keyqueue",
            "key",
            queue = Empty,
            key = Empty,
            attempt = Empty,
            queue_seconds = Empty,
            outcome = Empty,
        );
        if !span.is_disabled() {
            span.record("queue", workers.queue.name());
            // The limiter and the key's `Debug` are user code, which may panic.
            if let Ok(retries) = catch_panic(|| workers.retries(item)) {
                span.record("attempt", u64::from(retries) + 1);
            }
            if let Some(write) = workers.trace_keys
                && let Ok(key) = catch_panic(|| write(item.key()))
            {
                span.record("key", display(key));
            }
            if let Some(time) = item.queue_time() {
                span.record("queue_seconds", time.as_secs_f64());
            }
        }
        Span(span)
    }

    pub(super) fn within<T>(&self, f: impl FnOnce() -> T) -> T {
        self.0.in_scope(f)
    }

    pub(super) fn around<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        future.instrument(self.0.clone())
    }

    pub(super) fn outcome(&self, outcome: &'static str) {
        self.0.record("outcome", outcome);
    }

    pub(super) fn panicked(&self, message: &str) {
        self.within(|| error!(target: "keyqueue", message, "the worker's function panicked"));
    }

    pub(super) fn gave_up<E>(&self, given_up: &GivenUp<E>) {
        self.outcome("given_up");
        let reason = match given_up.reason {
            Reason::MaxRetries => "max_retries",
            Reason::ShutDown => "shut_down",
            Reason::Limiter => "limiter",
        };
        let retries = given_up.retries;
        self.within(|| warn!(target: "keyqueue", reason, retries, "the key is given up"));
    }
}
