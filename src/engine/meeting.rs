//! What the adds of a key and its pending delay do with each other, in a queue that is told to: an add supersedes a
//! delay (D5), or waits for a retry (V7). Otherwise they leave each other alone.
//!
//! # Protocol
//!
//! The lock of the key's shard makes each of these one step:
//!
//! | who | under the lock |
//! | --- | --- |
//! | an add | cancels the delay and adds the key; or finds a retry pending, and joins it: it changes neither the key's state nor its place |
//! | a call that delays the key | merges into the key if that is queued or dirty, and otherwise sets the delay |
//! | a worker whose key failed | takes back that the key is dirty, and sets the retry: adds before that wait for it as those after it do |
//! | the driver, and `run_now` | ends the delay and adds the key |
//! | a shut-down | closes the key, and drops the delay or adds the key |
//!
//! So where adds wait for retries, a key whose retry is pending is idle or processing, never queued or dirty: nothing but
//! the end of the retry delivers it, and its `done` has nothing to find out. An add that comes when the retry
//! has ended finds the key queued, or dirty if it is still held.
//!
//! A value that is put is merged under the lock of the key's value, which is taken before the shard's: so is one that
//! waits for a retry. A worker puts its own value back, and sets the retry, under that lock; a cancel takes the
//! value with the delay. So no value is left without a delay or a delivery. The key may be idle then, so the put pins its node.
//!
//! An add that waits needs no order of its own with the delivery: the driver takes the same lock after it.

use super::Core;
use crate::keys::Shard;
use crate::keys::delay::Delay;
use crate::keys::node::{self, Pin};
use crate::keys::state::{Admit, Level, State};
use crate::metrics::Event;
use crate::wait::room::Share;

/// What the adds of a queue do with the pending delays of their keys.
#[derive(Clone, Copy)]
pub(crate) struct Meeting {
    supersede: bool,
    wait_for_retries: bool,
}

impl Meeting {
    /// Returns `None` if they leave them alone.
    pub(super) fn new(supersede: bool, wait_for_retries: bool) -> Option<Self> {
        let meeting = Meeting {
            supersede,
            wait_for_retries,
        };
        (supersede || wait_for_retries).then_some(meeting)
    }
}

impl<K, V> Core<K, V> {
    /// Decides about an add of a key whose shard is locked then. Returns its level, or `None` if it waits for a retry.
    #[inline]
    pub(super) fn meet_delay(
        &self,
        delay: &Delay,
        level: Level,
        share: &mut Share<'_>,
    ) -> Option<Level> {
        match self.meeting {
            None => Some(level),
            Some(meeting) => self.meet_delay_by(meeting, delay, level, share),
        }
    }

    // Never: puts in queues without such a setting would pay for its registers.
    #[inline(never)]
    fn meet_delay_by(
        &self,
        meeting: Meeting,
        delay: &Delay,
        level: Level,
        share: &mut Share<'_>,
    ) -> Option<Level> {
        if meeting.wait_for_retries && delay.join_retry(level) {
            self.note(Event::Merged);
            return None;
        }
        match meeting.supersede.then(|| delay.cancel()).flatten() {
            None => Some(level),
            Some(delayed) => {
                self.note_cancelled();
                share.receive(delayed.is_retry());
                // The more urgent one.
                Some(level.min(delayed.level()))
            }
        }
    }

    /// Decides about a delay of a pinned key. Returns its level, or what the key is if the delay merges into that.
    #[inline]
    pub(super) fn meet_add(
        &self,
        pin: &Pin<K>,
        level: Level,
        share: &mut Share<'_>,
    ) -> Result<Level, node::Added<K>> {
        match self.meeting {
            None => Ok(level),
            Some(meeting) => self.meet_add_by(meeting, pin, level, share),
        }
    }

    #[inline(never)]
    fn meet_add_by(
        &self,
        meeting: Meeting,
        pin: &Pin<K>,
        level: Level,
        share: &mut Share<'_>,
    ) -> Result<Level, node::Added<K>> {
        if meeting.wait_for_retries && share.is_retry() {
            let dirty = pin.state().end_dirty();
            return Ok(dirty.map_or(level, |dirty| level.min(dirty)));
        }
        match meeting.supersede {
            true => self
                .merge_delay(pin, level, share.is_retry())
                .map_or(Ok(level), Err),
            false => Ok(level),
        }
    }

    /// Locks the shard of the pinned key, if its state and its delay are looked at together: if adds and delays meet, or
    /// if this one may be refused, since a key that is delayed or queued needs no room. The lock keeps the delay from
    /// ending in between, and a shut-down from visiting the node: it would find neither the delay nor the add. If they
    /// meet, it also keeps one from being set.
    pub(super) fn lock_for_delay(
        &self,
        pin: &Pin<K>,
        share: &Share<'_>,
    ) -> Option<Shard<'_, K, V>> {
        (self.meeting.is_some() || share.may_refuse()).then(|| self.keys.lock_of(pin))
    }

    /// Merges a delay into the pinned key, if that is queued or dirty, so that its delivery comes sooner. The lock of
    /// its shard is held.
    fn merge_delay(&self, pin: &Pin<K>, level: Level, retry: bool) -> Option<node::Added<K>> {
        // The room that was taken for the delay is kept until the end: if the key is idle after all, it needs it.
        let merged = pin.add_at(level, |state| match state {
            State::Queued | State::Dirty => Admit::Yes,
            State::Idle | State::Processing => Admit::No,
        })?;
        if retry {
            pin.turn();
        }
        self.note_added(&merged, pin);
        Some(merged)
    }
}
