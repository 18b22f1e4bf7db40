//! Spans and events of the worker loop, for `tracing`: see the [module](super#traces). A disabled
//! span costs one read of a static; its fields are not computed. (With tracing's own feature `log`
//! they are, in a program that never sets a subscriber.)
//!
//! A subscriber is user code, which may panic. Nothing in here does: the work goes on without what was to be traced.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tracing::field::{self, Empty};
use tracing::{error, info_span, warn};

use super::settle::Said;
use super::{Failed, GivenUp, Key, Loop, Reason, Verdict};
use crate::Item;
use crate::sync::catch_panic::{catch_panic, catch_payload, drop_caught};

/// The span of one delivered key.
pub(super) struct Span(tracing::Span);

impl Span {
    pub(super) fn of<K: Key, V: Send + 'static, E: fmt::Display>(
        workers: &Loop<'_, K, V, E>,
        item: &Item<'_, K, V>,
    ) -> Self {
        // The limiter is user code, which may panic.
        let retries = || catch_panic(|| workers.retries(item).0).ok();
        let span = catch_panic(|| {
            info_span!(
                target: "keyqueue",
                "key",
                queue = workers.queue.core.name(),
                key = workers.written(item.key()).map(field::display),
                attempt = retries().map(|retries| u64::from(retries) + 1),
                queue_seconds = item.queue_time().map(|time| time.as_secs_f64()),
                outcome = Empty,
            )
        });
        Span(span.unwrap_or_else(|_| tracing::Span::none()))
    }

    /// Calls `f`, which must not panic: the subscriber would be called during the panic, and a second one aborts the process.
    pub(super) fn within<T>(&self, f: impl FnOnce() -> T) -> T {
        let entered = catch_panic(|| self.0.enter());
        let result = f();
        let _ = catch_panic(|| match entered {
            Ok(entered) => drop(entered),
            // What is below the layer that panicked has entered the span.
            Err(_) => _ = self.0.with_subscriber(|(id, below)| below.exit(id)),
        });
        result
    }

    /// Polls a future within the span, and drops it there. Returns its result, or the message of its panic.
    pub(super) async fn around<F: Future>(&self, future: F) -> Result<F::Output, String> {
        let future = pin!(Some(future));
        let mut around = Around { span: self, future };
        poll_fn(|context| around.poll(context)).await
    }

    pub(super) fn outcome(&self, outcome: &'static str) {
        let _ = catch_panic(|| self.0.record("outcome", outcome));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        drop_caught(mem::replace(&mut self.0, tracing::Span::none()));
    }
}

/// A future with its span.
struct Around<'a, F> {
    span: &'a Span,
    /// `None` in the drop of this alone.
    future: Pin<&'a mut Option<F>>,
}

impl<F: Future> Around<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Output, String>> {
        let future = self.future.as_mut().as_pin_mut();
        let poll = || future.map_or(Poll::Pending, |future| future.poll(context));
        match self.span.within(|| catch_panic(poll)) {
            Ok(poll) => poll.map(Ok),
            Err(message) => Poll::Ready(Err(message)),
        }
    }
}

impl<F> Drop for Around<'_, F> {
    fn drop(&mut self) {
        let dropped = || catch_payload(|| self.future.set(None));
        if let Err(payload) = self.span.within(dropped) {
            resume_unwind(payload);
        }
    }
}

/// Records that the function panicked with this message.
pub(super) fn panicked(message: &str) {
    let _ = catch_panic(
        || error!(target: "keyqueue", panic = message, "the worker's function panicked"),
    );
}

/// Records that the function failed for this many keys as a whole.
pub(super) fn batch_failed<E: fmt::Display>(keys: usize, said: &Said<E>) {
    let error: &dyn fmt::Display = match said {
        Ok(Verdict::Retry(error) | Verdict::RetryAfter(error, _) | Verdict::GiveUp(error)) => error,
        Ok(Verdict::Ok(_)) => return,
        Err(message) => message,
    };
    let _ = catch_panic(|| {
        warn!(target: "keyqueue", keys, error = format_args!("{error:#}"), "the batch failed, and is tried in parts");
    });
}

// A disabled event computes none of its fields. The `Display` of errors is user code, which may
// panic.
impl<K, V, E: fmt::Display> Loop<'_, K, V, E> {
    /// Returns the key in its `Debug` form, if it is to be recorded.
    fn written(&self, key: &K) -> Option<String> {
        let write = self.trace_keys?;
        catch_panic(|| write(key)).ok()
    }

    pub(super) fn trace_failed(&self, key: &K, failed: &Failed<'_, E>) {
        let _ = catch_panic(|| {
            warn!(
                target: "keyqueue",
                key = self.written(key).map(field::display),
                error = format_args!("{:#}", failed.failure),
                attempt = failed.attempt,
                next_delay_seconds = failed.next.map(|next| next.as_secs_f64()),
                "the key failed",
            );
        });
    }

    pub(super) fn trace_given_up(&self, key: &K, given_up: &GivenUp<E, V>) {
        let reason = match given_up.reason {
            Reason::MaxRetries => "max_retries",
            Reason::ShutDown => "shut_down",
            Reason::Limiter => "limiter",
            Reason::GiveUp => "give_up",
            Reason::Dropped => "dropped",
            Reason::Crowded => "crowded",
        };
        let _ = catch_panic(|| {
            warn!(
                target: "keyqueue",
                key = self.written(key).map(field::display),
                error = format_args!("{:#}", given_up.failure),
                reason,
                retries = given_up.retries,
                "the key is given up",
            );
        });
    }
}
