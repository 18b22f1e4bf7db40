//! Spans and events of the worker loop, for `tracing`: see the [module](super#traces). A disabled
//! span costs one read of a static; its fields are not computed.

use std::hash::{BuildHasher, Hash};

use tracing::field::{self, Empty};
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
        // The limiter and the key's `Debug` are user code, which may panic.
        let key = |write: fn(&K) -> String| catch_panic(|| write(item.key())).ok();
        let retries = || catch_panic(|| workers.retries(item)).ok();
        Span(info_span!(
            target: "keyqueue",
            "key",
            queue = workers.queue.name(),
            key = workers.trace_keys.and_then(key).map(field::display),
            attempt = retries().map(|retries| u64::from(retries) + 1),
            queue_seconds = item.queue_time().map(|time| time.as_secs_f64()),
            outcome = Empty,
        ))
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
        error!(target: "keyqueue", message, "the worker's function panicked");
    }

    pub(super) fn gave_up<E>(&self, given_up: &GivenUp<E>) {
        self.outcome("given_up");
        let reason = match given_up.reason {
            Reason::MaxRetries => "max_retries",
            Reason::ShutDown => "shut_down",
            Reason::Limiter => "limiter",
            Reason::GiveUp => "give_up",
        };
        let retries = given_up.retries;
        warn!(target: "keyqueue", reason, retries, "the key is given up");
    }
}
