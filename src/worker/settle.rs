//! What happens to a key after the function returned: promises W2, W3 and W5.
//!
//! The worker holds the item to the end, so no other worker gets the key before its retry is
//! counted or its end is reported. Any user code (the limiter, the hook, the drop of an error, the
//! wakers that a retry runs) may panic, and each stage catches that.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::trace::Span;
use super::{Failure, GivenUp, Outcome, Reason, Verdict, Workers};
use crate::engine::timing::Event;
use crate::limiter::{ItemFastSlow, RateLimiter};
use crate::wait::catch_panic::catch_panic;
use crate::{Added, Item};

/// How long the workers remember the retries of a key that is not added again.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What the function returned, or the message of its panic.
pub(super) type Said<E> = Result<Verdict<E>, String>;

/// When to retry a key that failed, or why not. `None`: after the limiter's delay.
type Retry = Result<Option<Duration>, Reason>;

impl<K, L, S, E> Workers<'_, K, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher,
{
    /// Handles the result of the function for a key. Never panics.
    pub(super) fn settle(&self, item: Item<'_, K, L, S>, said: Said<E>, span: &Span) {
        // The panic hook has reported a panic in here, and no further report is needed: the drop of
        // the item finishes the key.
        let settle = move || {
            let (failure, retry) = match said {
                Ok(Verdict::Ok(outcome)) => return self.succeeded(&item, outcome, span),
                Ok(Verdict::Retry(error)) => (Failure::Error(error), Ok(None)),
                Ok(Verdict::RetryAfter(error, delay)) => (Failure::Error(error), Ok(Some(delay))),
                Ok(Verdict::GiveUp(error)) => (Failure::Error(error), Err(Reason::GiveUp)),
                Err(message) => {
                    span.panicked(&message);
                    (Failure::Panic(message), Ok(None))
                }
            };
            self.failed(&item, failure, retry, span);
        };
        let _ = span.within(|| catch_panic(settle));
    }

    fn succeeded(&self, item: &Item<'_, K, L, S>, outcome: Outcome, span: &Span) {
        match outcome {
            Outcome::Done => {
                span.outcome("done");
                self.forget(item);
            }
            Outcome::RequeueAfter(delay) => {
                span.outcome("requeue_after");
                self.forget(item);
                item.add_after(delay);
            }
            Outcome::Later(delay) => {
                span.outcome("later");
                item.add_after(delay);
            }
        }
    }

    fn failed(&self, item: &Item<'_, K, L, S>, failure: Failure<E>, retry: Retry, span: &Span) {
        let retries = catch_panic(|| self.retries(item));
        let next = retry.and_then(|after| match retries {
            Ok(retries) if self.max_retries.is_some_and(|max| retries >= max) => {
                Err(Reason::MaxRetries)
            }
            Ok(_) => self.retry(item, after),
            Err(_) => Err(Reason::Limiter),
        });
        let Err(reason) = next else {
            span.outcome("retry");
            return;
        };
        self.queue.core.note(Event::GivenUp);
        self.forget(item);
        let given_up = GivenUp {
            failure,
            retries: retries.unwrap_or(0),
            reason,
        };
        span.gave_up(&given_up);
        if let Some(hook) = &self.on_give_up {
            hook(item.key(), given_up);
        }
    }

    /// Adds the key again, after the limiter's delay or after `after`, and charges the limiter.
    /// Returns the delay, or why there is no retry.
    fn retry(&self, item: &Item<'_, K, L, S>, after: Option<Duration>) -> Result<Duration, Reason> {
        let add = || {
            if self.queue.is_shutting_down() {
                return (Duration::ZERO, Added::ShutDown);
            }
            let limited = self.queue.limiter.when(item);
            let delay = after.unwrap_or(limited);
            (delay, item.add_after(delay))
        };
        match catch_panic(add) {
            Ok((_, Added::ShutDown)) => Err(Reason::ShutDown),
            Ok((delay, _)) => {
                // The key is retried even if its hash panics here.
                let _ = catch_panic(|| self.count_retry(item));
                Ok(delay)
            }
            Err(_) => Err(Reason::Limiter),
        }
    }

    /// Counts a retry. The worker holds the key, so no other worker forgets it meanwhile.
    fn count_retry(&self, key: &K) {
        let retries = self.retries.get_or_init(|| {
            ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0)
                .expect("a delay of zero is in range")
                .remember_for(REMEMBERED)
        });
        retries.when(key);
    }

    /// Returns the number of retries of the key: the larger of the limiter's count and the workers'
    /// own count.
    pub(super) fn retries(&self, key: &K) -> u32 {
        let retries = self.retries.get();
        let counted = retries.map_or(0, |retries| retries.num_requeues(key));
        counted.max(self.queue.num_requeues(key))
    }

    /// Forgets the key's failures and retries. Never panics, so the caller continues even if the
    /// limiter panics.
    fn forget(&self, key: &K) {
        let _ = catch_panic(|| {
            if let Some(retries) = self.retries.get() {
                retries.forget(key);
            }
            self.queue.forget(key);
        });
    }
}
