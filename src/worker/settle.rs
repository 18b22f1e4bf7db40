//! What happens to a key after the function returned: promises W2 and W3, for threads and tasks
//! alike.
//!
//! Ground rules: the worker holds the item to the end, so no other worker gets the key before its
//! retry is counted or its end is reported. Any user code (the limiter, the hook, the drop of an
//! error, the wakers that a retry runs) may panic, and each stage catches that.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::trace::Span;
use super::{Failure, GivenUp, Outcome, Reason, Workers};
use crate::engine::timing::Event;
use crate::limiter::{ItemFastSlow, RateLimiter};
use crate::queue::added::Added;
use crate::queue::item::Item;
use crate::wait::catch_panic::catch_panic;

/// How long the workers remember the retries of a key that is not added again.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What the function returned, or the message of its panic.
pub(super) type Said<E> = Result<Result<Outcome, E>, String>;

/// Why a key was not added again, and how many retries it had.
struct Refused {
    reason: Reason,
    retries: u32,
}

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
        let Err(Refused { reason, retries }) = self.try_again(item) else {
            span.outcome("retry");
            return;
        };
        span.outcome("given_up");
        self.queue().core.note(Event::GivenUp);
        self.forget(item);
        let given_up = GivenUp {
            failure,
            retries,
            reason,
        };
        span.gave_up(&given_up);
        if let Some(hook) = &self.on_give_up {
            hook(item.key(), given_up);
        }
    }

    /// Adds the key again, rate limited, if it has retries left.
    fn try_again(&self, item: &Item<'_, K, L, S>) -> Result<(), Refused> {
        let retries = catch_panic(|| self.retries(item)).map_err(|_| Refused {
            reason: Reason::Limiter,
            retries: 0,
        })?;
        let refused = |reason| Err(Refused { reason, retries });
        if self.max_retries.is_some_and(|max| retries >= max) {
            return refused(Reason::MaxRetries);
        }
        match catch_panic(|| item.add_rate_limited()) {
            Ok(Added::ShutDown) => refused(Reason::ShutDown),
            Ok(_) => {
                // The key is retried even if its hash panics here.
                let _ = catch_panic(|| self.count_retry(item));
                Ok(())
            }
            Err(_) => refused(Reason::Limiter),
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
        let counted = self
            .retries
            .get()
            .map_or(0, |retries| retries.num_requeues(key));
        counted.max(self.queue().num_requeues(key))
    }

    /// Forgets the key's failures and retries. Never panics, so the caller continues even if the
    /// limiter panics.
    fn forget(&self, key: &K) {
        let _ = catch_panic(|| {
            if let Some(retries) = self.retries.get() {
                retries.forget(key);
            }
            self.queue().forget(key);
        });
    }
}
