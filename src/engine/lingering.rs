//! Getters that wait for several keys, and take none until they have waited ([`crate::wait::linger`]).
//!
//! ```text
//!     Glance    until a key is there, as a `get` does; passes each of its notifications on
//!     Linger    until enough are there, or the time is over, or the queue is shut down
//!     take      all of them at once, or back to the first step if another getter was faster
//! ```
//!
//! Between these steps the getter holds nothing, so it may be dropped at any time: each key is still where it
//! was, in its order, merges adds, and may be taken by any other getter. Keys that are held during the wait would
//! have to be put back, which changes their order, and is refused after a shut-down.
//!
//! The timer's thread ends the time of a task and of a thread alike, by the queue's clock.
//!
//! # What ends a linger
//!
//! A getter that lingers is woken once it has *counted* as many keys as it misses. That is right as long as each count
//! is one key, of which a batch has room for as many as the getter has seen. Otherwise it *looks again*
//! ([`Ready::Several`]), and then misses another number, or none.
//!
//! | event | keys that may become deliverable | a getter that lingers |
//! | --- | --- | --- |
//! | an add, the end of a delay, a `done` of a dirty key | this one | counts it |
//! | the same, in a queue with limits, rates or a pace | this one; another getter that takes it leaves a batch less room | counts it, whoever is woken |
//! | the same, of a group whose keys wait for a time that has come, and nobody has looked | all of the group | looks again |
//! | the same, of a group that had keys in flight or few tokens, and none to deliver | this one; what may follow it is less than of other groups | looks again |
//! | a resume | all | looks again |
//! | a release of a group, or a shorter hold | all of the group | looks again |
//! | the end of holds, of intervals, a token of groups or of the pace: seen by the timer's thread, `fire_due`, another getter, or an add in an interval | all that have waited for it | looks again |
//! | a delivery ends that was the last one of its group's limit | all of the group | looks again |
//! | a token comes back, of a key without a value | all of its group | looks again |
//! | `clear` | none, but as the deliveries that it ends do | as for these |
//! | a group is forgotten | none: it had no keys | |
//! | a getter passes a notification on, or takes one key of several that have become deliverable | none | counts one, and is woken too early |
//! | a getter takes keys; a pause, a hold, an end of room | fewer than before | is woken too early |
//! | an add finds no room | none | ends its wait |
//! | a shut-down, the end of all deliveries | | looks again, and ends its wait |
//!
//! # Idle keys
//!
//! A getter that waits here sweeps them as any other does ([`super::waiting`]): in the first step before it waits, in
//! the second while it does. A thread does so again whenever that is due.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Core;
use crate::fifo::groups::NEVER;
#[cfg(doc)]
use crate::fifo::groups::grouping::Ready;
use crate::sync::Arc;
use crate::time::nanos;
use crate::wait::Waiter;
use crate::wait::room::Room;

impl<K, V> Core<K, V> {
    /// Returns how many keys have to come until a getter that waits for `max` keys should wait no longer; 0 if the
    /// queue has no room for more, or has ended. `None` if no key may be taken now.
    fn missing(&self, max: usize) -> Option<usize> {
        let missing = match self.groups() {
            None => (!self.fifo.is_empty()).then(|| max.saturating_sub(self.len())),
            Some(groups) => {
                // This getter takes nothing yet, so it does not notify another one for what it leaves.
                if groups.next() != NEVER {
                    self.notify_ready(groups.unpark());
                }
                groups.missing(max)
            }
        };
        if self.closing.all_delivered() {
            return Some(0);
        }
        let free = self.bound().map_or(usize::MAX, Room::free);
        missing.map(|missing| missing.min(free))
    }

    /// Returns whether a key may be taken. Until one may, sweeps idle keys if that is due.
    fn glance(&self) -> bool {
        loop {
            if self.missing(1).is_some() {
                return true;
            }
            if !self.look() {
                return false;
            }
        }
    }
}

/// Waits until a key may be taken, or the queue has ended.
pub(crate) struct Glance<'c, K, V> {
    core: &'c Core<K, V>,
    waiter: Option<Waiter>,
}

impl<'c, K, V> Glance<'c, K, V> {
    pub(crate) fn new(core: &'c Core<K, V>) -> Self {
        Glance { core, waiter: None }
    }
}

impl<K, V> Future for Glance<'_, K, V> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let core = self.core;
        if let Some(waiter) = &self.waiter
            && !waiter.is_notified(context.waker())
        {
            return Poll::Pending;
        }
        if let Some(waiter) = self.waiter.take() {
            core.leave(waiter);
        }
        if core.glance() {
            return Poll::Ready(());
        }
        let waiter = core.getters.register(context.waker());
        if core.missing(1).is_some() {
            core.leave(waiter);
            return Poll::Ready(());
        }
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl<K, V> Drop for Glance<'_, K, V> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.core.leave(waiter);
        }
    }
}

/// Waits until a batch of `max` keys would be full, at most until a time.
pub(crate) struct Linger<'c, K, V> {
    core: &'c Arc<Core<K, V>>,
    max: usize,
    /// In nanoseconds of the queue's clock.
    until: u64,
    waiter: Option<Waiter>,
    /// Where adds that find no room notify it, from when it has to wait.
    pressed: Option<Waiter>,
}

impl<'c, K, V> Linger<'c, K, V> {
    pub(crate) fn new(core: &'c Arc<Core<K, V>>, max: usize, time: Duration) -> Self {
        let now = core.timer.clock().nanos();
        Linger {
            core,
            max,
            until: now.saturating_add(nanos::saturating(time)),
            waiter: None,
            pressed: None,
        }
    }

    /// Returns how many keys have to come; 0 if the queue is shut down, because then none comes.
    fn wanted(&self) -> usize {
        match self.core.closing.has_begun() {
            true => 0,
            // Without any, other getters have taken what was there. Of groups, the first one that comes says how many
            // may follow.
            false => self
                .core
                .missing(self.max)
                .unwrap_or(match self.core.groups() {
                    None => self.max,
                    Some(_) => 1,
                }),
        }
    }

    fn stop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.core.getters.stop_lingering(&waiter);
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Future for Linger<'_, K, V> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let core = self.core;
        loop {
            let waker = context.waker();
            // Before it sees whether it is notified: the drop of a key may wait, and take this thread's wake-up.
            let has_swept = self.waiter.is_some() && core.look();
            let is_notified = |pressed: &Waiter| pressed.is_notified(waker);
            let is_pressed = self.pressed.as_ref().is_some_and(is_notified);
            if let Some(waiter) = &self.waiter
                && !waiter.is_notified(waker)
                && !is_pressed
            {
                if has_swept {
                    continue;
                }
                return Poll::Pending;
            }
            self.stop();
            if is_pressed {
                return Poll::Ready(());
            }
            if let (None, Some(room)) = (&self.pressed, core.bound()) {
                self.pressed = Some(room.pressed.register(waker));
            }
            if self.wanted() == 0 || core.timer.clock().nanos() >= self.until {
                return Poll::Ready(());
            }
            let waiter = core.getters.linger(waker, self.until);
            core.getters.expect(&waiter, self.wanted());
            self.waiter = Some(waiter);
            core.driver.start(core);
            core.timer.wake_by(self.until);
        }
    }
}

impl<K, V> Drop for Linger<'_, K, V> {
    fn drop(&mut self) {
        self.stop();
        if let (Some(pressed), Some(room)) = (self.pressed.take(), self.core.bound()) {
            // Every getter is notified, so there is no notification to pass on.
            room.pressed.cancel(pressed);
        }
    }
}
