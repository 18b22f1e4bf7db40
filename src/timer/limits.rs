//! Debounced delays: each change of a key moves its delay, but not beyond the limit of the first one.
//!
//! A *burst* is a pending delay that a debounced add has set: its word has a flag
//! ([`delay`](crate::keys::delay)). Its limit, a tick, is here, by the address of the word. Only debounced adds, and
//! other delays that find a burst, look for it, so other delays cost nothing more, and nodes have no room for it.
//!
//! # Protocol
//!
//! | who | does under the lock |
//! | --- | --- |
//! | a debounced add that finds no burst | sets the delay with the flag, and stores the limit, or the tick of the delay that it replaces if that is earlier |
//! | a debounced add that finds one | reads the limit, and moves the delay |
//! | another delay for which one was kept | is set once more, as the burst may have moved beyond it; lowers the limit to its tick if the burst is kept again |
//! | the driver, for each entry of a burst that has fired or is stale | removes the limit, unless the delay is a burst |
//!
//! * A word gets the flag only under the lock, or while it has it. It may lose it at any time: the burst is
//!   fired, cancelled, moved by another delay, or dropped. What is stored for it is garbage then; the next
//!   burst of the key overwrites it.
//! * Each burst has an entry in the wheel, or one on its way to it, which pins the node. If that finds a burst
//!   when it is taken out, a later entry is there for that. So no limit outlives the last entry of its node:
//!   none is found for another key whose node has the same address.
//! * The lock is the last one that is taken: no other is while it is held, and no user code runs.

use std::collections::HashMap;
use std::ptr;
use std::time::Duration;

use crate::DefaultHasher;
use crate::keys::delay::{Delay, Plan, Set, Stamp};
use crate::keys::rule::Rule;
use crate::keys::state::Level;
use crate::sync::Mutex;

/// How long an add waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) delay: Duration,
    /// With a limit it is debounced: `delay` is the quiet time.
    pub(crate) limit: Option<Duration>,
}

impl Wait {
    pub(crate) fn is_zero(self) -> bool {
        self.delay.is_zero() || self.limit.is_some_and(|limit| limit.is_zero())
    }
}

impl From<Duration> for Wait {
    fn from(delay: Duration) -> Self {
        Wait { delay, limit: None }
    }
}

/// The limits of the bursts, in ticks.
#[derive(Default)]
pub(super) struct Limits(Mutex<HashMap<usize, u64, DefaultHasher>>);

fn address(delay: &Delay) -> usize {
    ptr::from_ref(delay).addr()
}

impl Limits {
    /// Sets or moves a debounced delay; see [`Delay::set`]. `dues` returns the tick at which the quiet time
    /// that begins now ends, and that of a limit that begins now.
    #[cold]
    pub(super) fn set(
        &self,
        delay: &Delay,
        level: Level,
        rule: Rule,
        dues: impl FnOnce() -> (u64, u64),
        admit: impl FnMut() -> bool,
    ) -> Set {
        let mut limits = self.0.lock();
        // Under the lock: the last change decides.
        let (quiet, limit) = dues();
        let mut begins = None;
        let plan = |pending: Option<Stamp>| {
            begins = None;
            let due = match pending {
                // Its end serves this change, too.
                Some(retry) if rule.holds_retries && retry.is_retry() => None,
                Some(burst) if burst.is_burst() => {
                    let limit = limits.get(&address(delay));
                    let due = limit.map_or(quiet, |&limit| quiet.min(limit));
                    (due != burst.due()).then_some(due)
                }
                // It comes sooner, and serves this change, too.
                Some(other) if other.due() <= quiet.min(limit) => None,
                other => {
                    // The changes that follow move it no further than the delay that it replaces.
                    begins = Some(other.map_or(limit, |other| limit.min(other.due())));
                    Some(quiet.min(limit))
                }
            };
            due.map(Plan::Burst)
        };
        let set = delay.set_as(level, false, plan, admit);
        if let (Some(limit), Set::Pending { .. }) = (begins, set) {
            limits.insert(address(delay), limit);
        }
        set
    }

    /// Keeps a burst from moving beyond another delay, for which it was kept; `due` returns the tick at which that is due if
    /// it begins now. Returns the stamp of that delay, if the burst has moved beyond it: then it is set after all.
    #[cold]
    pub(super) fn lower(
        &self,
        delay: &Delay,
        level: Level,
        rule: Rule,
        due: impl FnOnce() -> u64,
    ) -> Option<Stamp> {
        if !rule.bounds_bursts() {
            return None;
        }
        let mut limits = self.0.lock();
        let due = due();
        // If none is pending any more, its end has served the other delay, and nothing is set.
        if let Set::Pending { stamp, .. } = delay.set(due, level, rule, false, || false) {
            return Some(stamp);
        }
        if let Some(limit) = limits.get_mut(&address(delay)) {
            *limit = due.min(*limit);
        }
        None
    }

    /// Removes the limit of a delay that is no burst any more.
    pub(super) fn forget(&self, delay: &Delay) {
        let mut limits = self.0.lock();
        if !delay.is_burst() {
            limits.remove(&address(delay));
            if limits.len() < limits.capacity() / 8 {
                let twice = 2 * limits.len();
                limits.shrink_to(twice);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
