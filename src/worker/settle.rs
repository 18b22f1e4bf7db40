//! What happens to a key after the function returned: promises W2, W3, W5 and W7. [`super::pending`]
//! has the retries that a shut-down drops.
//!
//! The worker holds the item to the end, so no other worker gets the key before its retry is
//! counted or its end is reported. Any user code (the limiter, the hook, the drop of an error, the
//! wakers that a retry runs, a subscriber of `tracing`) may panic, and each stage catches that.

use std::fmt;
use std::iter;
use std::time::Duration;

use super::by_key::address;
use super::each::Rest;
use super::trace::{self, Span};
use super::{Failed, Failure, GivenUp, Hook, Key, Loop, Outcome, Reason, Report, Verdict};
use crate::metrics::Event;
use crate::sync::Arc;
use crate::sync::catch_panic::{catch_panic, catch_panic_async};
use crate::{Added, Ended, Item, KeyHandle};

/// What the function returned, or the message of its panic.
pub(super) type Said<E> = Result<Verdict<E>, String>;

/// When a try began, for [`Crowd`](crate::wait::crowd::Crowd).
pub(super) type Epoch = u64;

/// The failure of a job that has no other one.
const TAKEN: &str = "the value was taken by a call that failed for the batch as a whole";

/// When to retry a key that failed, or why not. `None`: after the limiter's delay.
type Retry = Result<Option<Duration>, Reason>;

/// A key that is given up.
pub(super) enum Lost<'i, 'q, K, V> {
    /// The worker still holds it.
    Held(&'i mut Item<'q, K, V>),
    /// Its retry was dropped: it is idle, and closed.
    Dropped(&'i KeyHandle<K, V>),
}

impl<K, V> Lost<'_, '_, K, V> {
    pub(super) fn key(&self) -> &K {
        match self {
            Lost::Held(item) => item.key(),
            Lost::Dropped(key) => key.key(),
        }
    }

    pub(super) fn handle(&self) -> KeyHandle<K, V> {
        match self {
            Lost::Held(item) => item.handle(),
            Lost::Dropped(key) => key.share(),
        }
    }

    /// Returns a clone of the value, unless that panics.
    fn clone_value(&mut self, clone: fn(&V) -> V) -> Option<V> {
        let clone = |value: &V| catch_panic(|| clone(value)).ok();
        match self {
            Lost::Held(item) => clone(item.loaded()?.as_ref()?),
            // It is closed, and nobody else delivers it: while it is cloned, which is user code, it is taken out.
            Lost::Dropped(key) => {
                let (core, pin) = key.parts();
                let carried = pin.carried(&core.values()?.carries);
                let value = carried.take_waiting()?;
                let cloned = clone(&value);
                carried.waiting.lock().load.value = Some(value);
                cloned
            }
        }
    }

    pub(super) fn take_value(&mut self) -> Option<V> {
        match self {
            Lost::Held(item) => item.take(),
            Lost::Dropped(key) => {
                let (core, pin) = key.parts();
                pin.carried(&core.values()?.carries).take_waiting()
            }
        }
    }
}

impl<'a, K: Key, V: Send + 'static, E: fmt::Display> Loop<'a, K, V, E> {
    /// Handles the result of the function for a key, or for one of its messages: `rest` has the others. Keeps the item: the
    /// key stays in hand, unless the others are joined to it for a later delivery. Never panics. Returns the call of an async hook.
    #[must_use = "the hook is to be awaited"]
    pub(super) fn settle(
        &self,
        (item, rest): (&mut Item<'_, K, V>, &mut Rest<V>),
        said: Said<E>,
        span: &Span,
        began: Epoch,
    ) -> Option<Report<'a>> {
        // The panic hook has reported a panic in here, and no further report is needed.
        let settle = || self.try_settle(item, rest, said, (span, began));
        span.within(|| catch_panic(settle)).ok().flatten()
    }

    /// Handles a job of a batch whose value was taken by a call that failed for all: it fails, or the call gives it up.
    #[must_use = "the hook is to be awaited"]
    pub(super) fn settle_taken(
        &self,
        item: &mut Item<'_, K, V>,
        gives_up: bool,
        span: &Span,
        began: Epoch,
    ) -> Option<Report<'a>> {
        let retry = if gives_up {
            Err(Reason::GiveUp)
        } else {
            Ok(None)
        };
        let failure = Failure::Panic(TAKEN.to_owned());
        let settle = || {
            self.forget_last(item);
            self.failed(item, &mut Rest::none(), (failure, retry), (span, began))
        };
        span.within(|| catch_panic(settle)).ok().flatten()
    }

    fn try_settle(
        &self,
        item: &mut Item<'_, K, V>,
        rest: &mut Rest<V>,
        said: Said<E>,
        (span, began): (&Span, Epoch),
    ) -> Option<Report<'a>> {
        self.forget_last(item);
        let (failure, retry) = match said {
            Ok(Verdict::Ok(outcome)) => match self.succeeded(item, rest, outcome, span) {
                Ok(()) => return None,
                Err(limiter) => {
                    rest.part(item);
                    (Failure::Panic(limiter), Err(Reason::Limiter))
                }
            },
            Ok(Verdict::Retry(error)) => (Failure::Error(error), Ok(None)),
            Ok(Verdict::RetryAfter(error, delay)) => (Failure::Error(error), Ok(Some(delay))),
            Ok(Verdict::GiveUp(error)) => (Failure::Error(error), Err(Reason::GiveUp)),
            Err(message) => {
                trace::panicked(&message);
                (Failure::Panic(message), Ok(None))
            }
        };
        self.failed(item, rest, (failure, retry), (span, began))
    }

    /// Fails with the message of the limiter's panic.
    fn succeeded(
        &self,
        item: &mut Item<'_, K, V>,
        rest: &mut Rest<V>,
        outcome: Outcome,
        span: &Span,
    ) -> Result<(), String> {
        let mut is_done = false;
        match outcome {
            Outcome::Done => {}
            Outcome::RequeueAfter(_) => {
                rest.join_behind(item);
                // What the function has taken is done, and nothing is behind it.
                is_done = matches!(item.loaded(), Some(None));
                if is_done {
                    item.end_receipts();
                }
            }
            _ => rest.join(item),
        }
        let limited = match outcome {
            Outcome::RequeueRateLimited if !self.queue.core.closing.has_begun() => {
                catch_panic(|| item.try_retry(None, false))?
            }
            _ => (Added::ShutDown, Duration::ZERO),
        };
        let (event, name) = match outcome {
            Outcome::Done => (Event::Done, "done"),
            Outcome::RequeueAfter(_) => (Event::RequeueAfter, "requeue_after"),
            Outcome::Later(_) => (Event::RequeueAfter, "later"),
            Outcome::RequeueRateLimited => (Event::RequeueAfter, "requeue_rate_limited"),
            Outcome::HoldGroup(_) => (Event::RequeueAfter, "hold_group"),
        };
        self.queue.core.note(event);
        span.outcome(name);
        if matches!(outcome, Outcome::Done | Outcome::RequeueAfter(_)) {
            self.forget(item);
            if let Some(room) = self.queue.core.bound() {
                room.crowd.succeeded();
            }
        }
        let added = match outcome {
            Outcome::Done => return Ok(()),
            Outcome::RequeueAfter(delay) | Outcome::Later(delay) => {
                item.try_add_after(delay, false)
            }
            Outcome::RequeueRateLimited => limited.0,
            Outcome::HoldGroup(hold) => item.hold_group(hold),
        };
        let waits = match outcome {
            Outcome::Later(delay) | Outcome::HoldGroup(delay) => delay,
            _ => limited.1,
        };
        // The hash of a key is user code.
        let _ = catch_panic(|| self.queue.core.postpone_retries(item, waits));
        // A key that did not fail and is refused is left, unless it is done. A drain does not deliver it again: those that
        // are requeued forever would keep it from its end.
        let added = added.or_else(|| item.readd(false));
        if !is_done {
            added.or_else(|| item.refuse());
        }
        if rest.has_lost_its_front() {
            self.forget(item);
        }
        Ok(())
    }

    fn failed(
        &self,
        item: &mut Item<'_, K, V>,
        rest: &mut Rest<V>,
        (failure, retry): (Failure<E>, Retry),
        (span, began): (&Span, Epoch),
    ) -> Option<Report<'a>> {
        self.queue.core.note(match failure {
            Failure::Error(_) => Event::Error,
            Failure::Panic(_) => Event::Panic,
        });
        let retries = catch_panic(|| self.retries(item));
        let next = retry.and_then(|after| match retries {
            Ok((retries, _)) if self.max_retries.is_some_and(|max| retries >= max) => {
                Err(Reason::MaxRetries)
            }
            Ok((_, counted)) => {
                rest.join(item);
                if matches!(item.loaded(), Some(None)) {
                    // The function has taken all that was tried, and nothing is behind it. What has come meanwhile is
                    // another value: a retry would delay it.
                    item.end_as(Ended::GivenUp);
                    self.forget(item);
                    return Ok(None);
                }
                // Nor is one that was taken from others behind it.
                let is_taken = rest.has_lost_its_front();
                let retried = match !is_taken && self.is_crowded_out(item, began, counted) {
                    true => Err(Reason::Crowded),
                    false => self.retry(item, after),
                };
                if retried.is_err() {
                    rest.part(item);
                } else if is_taken {
                    // What was tried is not tried again.
                    self.forget(item);
                }
                retried.map(Some)
            }
            Err(_) => Err(Reason::Limiter),
        });
        let (retries, _) = retries.unwrap_or_default();
        let delay = next.ok().flatten();
        span.outcome(if delay.is_some() { "retry" } else { "given_up" });
        let failed = Failed {
            failure: &failure,
            attempt: retries.saturating_add(1),
            next: delay,
        };
        if let Some(failures) = &self.failures {
            let _ = catch_panic(|| failures.keep(item.handle(), &failed));
        }
        self.trace_failed(item, &failed);
        if let Some(hook) = &self.on_error {
            let _ = catch_panic(|| hook(item, &failed));
        }
        match next {
            Ok(delay) => {
                // Without a delay the key is dirty now: it is delivered once more.
                if let Some(on_give_up) = &self.on_give_up
                    && delay.is_some_and(|delay| !delay.is_zero())
                {
                    on_give_up.pending().keep(item.handle(), failure, retries);
                }
                None
            }
            Err(reason) => {
                let given_up = GivenUp {
                    failure,
                    value: None,
                    retries,
                    reason,
                };
                if reason == Reason::ShutDown && self.on_give_up.is_none() {
                    rest.join(item);
                    item.refuse();
                } else {
                    item.end_as(Ended::GivenUp);
                }
                self.give_up(Lost::Held(item), given_up)
            }
        }
    }

    /// Ends the tries of a key, and keeps or reports it. Or returns the call of an async hook, which may be cancelled:
    /// the caller [ends the tries](Self::end_tries) after it.
    fn give_up(&self, lost: Lost<'_, '_, K, V>, given_up: GivenUp<E, V>) -> Option<Report<'a>> {
        let hook = self.on_give_up.as_ref().map(|on_give_up| &on_give_up.hook);
        // Without a hook, it is left, which counts.
        let is_refused = hook.is_some() && given_up.reason == Reason::ShutDown;
        let core = Arc::clone(&self.queue.core);
        let count = move || {
            if is_refused {
                core.note_refused();
            }
        };
        if !matches!(hook, Some(Hook::Async(_))) {
            count();
            self.end_tries(lost.key());
            return self.pass_on(lost, given_up);
        }
        let key = lost.handle();
        let report = catch_panic(|| self.pass_on(lost, given_up)).ok().flatten();
        match report {
            // If it is cancelled, the key is put back, and left or delivered again.
            Some(report) if is_refused && self.requeue_cancelled => Some(Box::pin(async move {
                let _ = catch_panic_async(report).await;
                count();
            })),
            report => {
                count();
                if report.is_none() {
                    self.end_tries(&key);
                }
                report
            }
        }
    }

    /// Counts a key as given up, and forgets it. Never panics.
    pub(super) fn end_tries(&self, key: &K) {
        self.queue.core.note(Event::GivenUp);
        self.forget(key);
    }

    fn pass_on(
        &self,
        mut lost: Lost<'_, '_, K, V>,
        mut given_up: GivenUp<E, V>,
    ) -> Option<Report<'a>> {
        self.trace_given_up(lost.key(), &given_up);
        if let Some(keep) = &self.dead_letters
            && !matches!(given_up.reason, Reason::ShutDown | Reason::Dropped)
            && keep(&mut lost, &given_up)
        {
            return None;
        }
        match &self.on_give_up.as_ref()?.hook {
            Hook::Sync(hook) => {
                hook(lost, given_up);
                None
            }
            Hook::Async(hook) => {
                given_up.value = self.clone_value.and_then(|clone| lost.clone_value(clone));
                Some(hook(lost.handle(), given_up))
            }
        }
    }

    /// Reports the retries that a shut-down has dropped, one at each step of the iterator, which each
    /// worker runs when it ends. Never panics. Returns the calls of an async hook, with the keys.
    pub(super) fn report_dropped(&self) -> impl Iterator<Item = (KeyHandle<K, V>, Report<'a>)> {
        let mut from = 0;
        let dropped = iter::from_fn(move || {
            let on_give_up = self.on_give_up.as_ref()?;
            on_give_up.pending().next_dropped(&mut from)
        });
        dropped.filter_map(|(key, given_up)| {
            let report = catch_panic(|| self.give_up(Lost::Dropped(&key), given_up)).ok()??;
            Some((key, report))
        })
    }

    /// Adds the key again, after the limiter's delay or after `after`, and charges the limiter.
    /// Returns the delay, or why there is no retry.
    fn retry(
        &self,
        item: &mut Item<'_, K, V>,
        after: Option<Duration>,
    ) -> Result<Duration, Reason> {
        let add = || {
            if !self.queue.core.closing.has_begun() {
                let (added, delay) = item.try_retry(after, true);
                match added {
                    Added::ShutDown => {}
                    // Into what was added meanwhile, without a delay.
                    Added::Merged => return Some(Duration::ZERO),
                    _ => return Some(delay),
                }
            }
            // A drain delivers the key again at once.
            let added = item.readd(true);
            added.is_accepted().then_some(Duration::ZERO)
        };
        let added = catch_panic(add).map_err(|_| Reason::Limiter)?;
        let delay = added.ok_or(Reason::ShutDown)?;
        // The key is retried even if its hash panics here.
        let _ = catch_panic(|| self.queue.core.count_retry(item, delay));
        Ok(delay)
    }

    /// Returns the epoch of a try that begins, of a bounded queue.
    pub(super) fn epoch(&self) -> Epoch {
        let room = self.queue.core.bound();
        room.map_or(0, |room| room.crowd.epoch())
    }

    /// Returns whether a key whose try began in this epoch has failed before and fails on its own, and too many retries
    /// wait (B5). No key is given up for that unless somebody is told (S14).
    fn is_crowded_out(&self, key: &K, began: Epoch, counted: u32) -> bool {
        let core = &self.queue.core;
        let is_told = self.on_give_up.is_some() || self.dead_letters.is_some();
        let crowd = core.bound().map(|room| &room.crowd);
        let crowd = crowd.filter(|_| is_told && !core.closing.has_begun());
        crowd.is_some_and(|crowd| crowd.fails_alone(address(key), began, counted))
    }

    /// Returns two numbers of retries of the key: the larger of the limiter's count and the workers' own, and the
    /// latter alone.
    pub(super) fn retries(&self, key: &K) -> (u32, u32) {
        let core = &self.queue.core;
        let counted = core.retries(key);
        (counted.max(core.limiter.num_requeues(key)), counted)
    }

    /// Forgets the last failure of a key, of which a retry was pending. Never panics.
    pub(super) fn forget_last(&self, item: &Item<'_, K, V>) {
        // The drop of that failure is user code.
        if let Some(on_give_up) = &self.on_give_up {
            let _ = catch_panic(|| on_give_up.pending().forget(item));
        }
        if let Some(failures) = &self.failures {
            let _ = catch_panic(|| failures.0.forget(item));
        }
    }

    /// Forgets the key's failures and retries. Never panics, so the caller continues even if the
    /// limiter panics.
    pub(super) fn forget(&self, key: &K) {
        let _ = catch_panic(|| self.queue.core.forget(key));
    }
}
