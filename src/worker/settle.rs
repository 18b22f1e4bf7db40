//! What happens to a key after the function: promises W2 and W3, for threads and tasks alike.
//!
//! Ground rules: the item is held to the very end, so that no other worker has the key before its
//! retry is counted and its end reported. Whatever is the user's (limiter, hook, the drop of an error,
//! the wakers that a re-add runs) may panic, and each stage catches that.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::trace::Span;
use super::{Failure, GivenUp, Outcome, Reason, Workers};
use crate::caught::caught;
use crate::item::Item;
use crate::limiter::{ItemExponentialFailure, RateLimiter};
use crate::outcome::Added;

/// How long the workers remember the retries of a key that its limiter does not.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What the function said, or how it failed: `Err` of a message is a panic.
pub(super) type Said<E> = Result<Result<Outcome, E>, String>;

/// Why a key was not added again, and how often it had been.
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
    /// Does with a key what `said` asks for. Never panics.
    pub(super) fn settle(&self, item: Item<'_, K, L, S>, said: Said<E>, span: &Span) {
        // A panic in here has been printed by the panic hook, and nobody else is to be told: the key
        // is done, by the drop of the item.
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
        let _ = span.within(|| caught(settle));
    }

    fn failed(&self, item: &Item<'_, K, L, S>, failure: Failure<E>, span: &Span) {
        let Err(Refused { reason, retries }) = self.try_again(item) else {
            span.outcome("retry");
            return;
        };
        span.outcome("given_up");
        if let Some(watch) = self.queue().core.watch() {
            watch.tally().gave_up();
        }
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

    /// Adds the key again, rate limited, if it may be.
    fn try_again(&self, item: &Item<'_, K, L, S>) -> Result<(), Refused> {
        let counts = caught(|| {
            let counted = self.queue().num_requeues(item);
            (counted, self.retries(item, counted))
        });
        let (counted, retries) = counts.map_err(|_| Refused {
            reason: Reason::Limiter,
            retries: 0,
        })?;
        let refused = |reason| Err(Refused { reason, retries });
        if self.max_retries.is_some_and(|max| retries >= max) {
            return refused(Reason::MaxRetries);
        }
        match caught(|| item.add_rate_limited()) {
            Ok(Added::ShutDown) => refused(Reason::ShutDown),
            Ok(_) => {
                // It is tried again whether or not that can be counted.
                let _ = caught(|| self.count_beside(item, counted));
                Ok(())
            }
            Err(_) => refused(Reason::Limiter),
        }
    }

    /// Counts a retry of a key for which the limiter had `counted` so many, if that one may not: it
    /// counts none, or it forgets the key while that is worked on, and so never comes beyond one.
    fn count_beside(&self, key: &K, counted: u32) {
        let may_forget = counted == 0 && self.max_retries.is_some();
        // The key is held: nobody forgets it meanwhile for having succeeded.
        if may_forget || self.queue().num_requeues(key) == 0 {
            let uncounted = self.uncounted.get_or_init(|| {
                ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO)
                    .expect("no delay is in range")
                    .remember_for(REMEMBERED)
            });
            uncounted.when(key);
        }
    }

    /// How often the key was tried again since it was last forgotten; the limiter has `counted` so many.
    pub(super) fn retries(&self, key: &K, counted: u32) -> u32 {
        match self.uncounted.get() {
            Some(uncounted) if counted == 0 => uncounted.num_requeues(key),
            _ => counted,
        }
    }

    /// Never panics: what is to follow does, even if the limiter cannot forget.
    fn forget(&self, key: &K) {
        let _ = caught(|| {
            if let Some(uncounted) = self.uncounted.get() {
                uncounted.forget(key);
            }
            self.queue().forget(key);
        });
    }
}
