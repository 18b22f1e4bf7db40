//! What happens to a key after the function returned: promises W2 and W3.
//!
//! The worker holds the item to the end, so no other worker gets the key before its retry is
//! counted or its end is reported. Any user code (the limiter, the hook, the drop of an error, the
//! wakers that a retry runs) may panic, and each stage catches that.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::trace::Span;
use super::{Failure, GivenUp, Outcome, Reason, Workers};
use crate::engine::timing::Event;
use crate::limiter::{ItemFastSlow, RateLimiter};
use crate::wait::catch_panic::catch_panic;
use crate::{Added, Item};

/// How long the workers remember the retries of a key that is not added again.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What the function returned, or the message of its panic.
pub(super) type Said<E> = Result<Result<Outcome, E>, String>;

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
        let settle = move || match said {
            Ok(Ok(Outcome::Done)) => {
                span.outcome("done");
                self.forget(&item);
            }
            Ok(Ok(Outcome::RequeueAfter(delay))) => {
                span.outcome("requeue_after");
                self.forget(&item);
                item.retry_after(delay);
            }
            Ok(Err(error)) => self.failed(&item, Failure::Error(error), span),
            Err(message) => {
                span.panicked(&message);
                self.failed(&item, Failure::Panic(message), span);
            }
        };
        let _ = span.within(|| catch_panic(settle));
    }

    fn failed(&self, item: &Item<'_, K, L, S>, failure: Failure<E>, span: &Span) {
        let retries = catch_panic(|| self.retries(item));
        let refused = match retries {
            Ok(retries) if self.max_retries.is_some_and(|max| retries >= max) => {
                Some(Reason::MaxRetries)
            }
            Ok(_) => self.retry(item),
            Err(_) => Some(Reason::Limiter),
        };
        let Some(reason) = refused else {
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

    /// Adds the key again, rate limited. Returns why it was refused, if it was.
    fn retry(&self, item: &Item<'_, K, L, S>) -> Option<Reason> {
        match catch_panic(|| item.add_rate_limited()) {
            Ok(Added::ShutDown) => Some(Reason::ShutDown),
            Ok(_) => {
                // The key is retried even if its hash panics here.
                let _ = catch_panic(|| self.count_retry(item));
                None
            }
            Err(_) => Some(Reason::Limiter),
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
