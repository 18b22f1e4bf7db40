//! The retries that are pending, so that those that a shut-down drops are reported (S5).
//!
//! # Protocol
//!
//! * A worker that has added a retry with a delay keeps the failure here, with the *stamp* of the
//!   key's pending delay ([`crate::keys::delay`]) and a handle of the key. It holds the key
//!   meanwhile, so no other worker gets the key before that.
//! * A worker that has processed a key takes the key's entry out, before it finishes the key.
//! * Each worker that ends *claims* the entries whose delays a shut-down has dropped, and reports
//!   them. One claim of each dropped delay succeeds, also if several [`Workers`](super::Workers)
//!   have an entry with its stamp. If the report is cancelled, the worker marks the key as left
//!   (`Loop::hold_dropped`).
//!
//! # Why no other key is reported
//!
//! A delay that has been cancelled, that has ended, or that another call has moved has another
//! stamp (one that another call has only made more urgent is the same), so neither a retry that was cancelled nor one that was delivered elsewhere is claimed.
//! The key may be queued or processing: by another add, or because the worker that has added the
//! retry still holds it. Then its delay is not claimed: the worker that gets or holds the key handles
//! how it ends, or `shut_down_now` counts it. Whoever gets a closed key disowns its dropped delay, which has another stamp
//! then. That a key is idle is final: the shut-down closes a key
//! before its delay, and a closed key that is idle stays idle. One that `shut_down_now` has discarded is
//! idle, too, and has a mark that it is left ([`crate::engine::left`]): it was queued, by an add that did not
//! fail. Whoever takes the mark away has claimed the delay before.

use super::by_key::ByKey;
use super::{Failure, GivenUp, Reason};
use crate::KeyHandle;
use crate::keys::delay::Stamp;
use crate::keys::state::State;

/// The stamp of the key's delay, and how the key is given up if that is dropped. Failures are user code, so none is
/// dropped under the lock.
pub(super) type Pending<K, V, E> = ByKey<K, V, (Stamp, GivenUp<E, V>)>;

fn claim<K, V>(key: &KeyHandle<K, V>, stamp: Stamp) -> bool {
    let (core, pin) = key.parts();
    let delay = pin.delay();
    // In this order: the state counts once the key is closed, and a worker that still holds the
    // key claims the delay itself, when it ends.
    delay.dropped_as(stamp).is_some_and(|dropped| {
        pin.phase() == State::Idle
            && !pin.state().has_left()
            && core.is_owed(pin)
            && delay.claim_dropped(dropped)
    })
}

impl<K, V, E> Pending<K, V, E> {
    /// Keeps the failure of a key that the caller holds, if its retry is still pending.
    pub(super) fn keep(&self, key: KeyHandle<K, V>, failure: Failure<E>, retries: u32) {
        let Some(stamp) = key.pin().delay().stamp() else {
            return;
        };
        let given_up = GivenUp {
            failure,
            value: None,
            retries,
            reason: Reason::Dropped,
        };
        self.put(key, (stamp, given_up));
    }

    /// Takes out the next retry that a shut-down has dropped, from address `from` on.
    pub(super) fn next_dropped(
        &self,
        from: &mut usize,
    ) -> Option<(KeyHandle<K, V>, GivenUp<E, V>)> {
        let (key, (_, given_up)) = self.claim(from, |(key, (stamp, _))| claim(key, *stamp))?;
        Some((key, given_up))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Clock, WorkQueue};

    #[test] // S5
    fn a_dropped_retry_is_left_to_the_worker_that_holds_its_key() {
        let (clock, _mock) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).build().unwrap();
        queue.add(1_u64);
        let mut item = queue.get().unwrap();
        item.add_after(Duration::from_secs(3600));
        let pending = Pending::new(usize::MAX);
        pending.keep(item.handle(), Failure::Error("no"), 0);
        assert_eq!(queue.shut_down().delayed, 1);
        // Another worker ends.
        assert!(pending.next_dropped(&mut 0).is_none());
        drop(item);
        let (key, given_up) = pending.next_dropped(&mut 0).unwrap();
        assert_eq!((*key, given_up.reason), (1, Reason::Dropped));
        assert!(pending.next_dropped(&mut 0).is_none());
    }
}
