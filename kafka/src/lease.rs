//! Whether work may begin: only while it is sure that this member is in its group.
//!
//! A member that is cut off does not notice that others get its partitions. With `group.protocol=consumer` only the brokers know the
//! session. With the classic protocols librdkafka gives an assignment up when it has not reached the group for a session, but it does not
//! look at that while the group changes. A member does know which of its commits brokers have taken: they refuse those of one that is
//! not in the group any more.
//!
//! # Protocol
//!
//! | who | does |
//! | --- | --- |
//! | the clerk | [`renew`](Lease::renew)s after a commit that was taken, from the moment before it was sent |
//! | the driver | has everything committed again, changed or not, when it holds records and a renewal [is due](Lease::is_due) |
//! | a worker | [`wait`](Lease::wait)s before each handler. It looks at the clock, so that a process that was stopped begins nothing when it wakes |
//! | the driver, when it ends a tenure | [`ring`](Lease::ring)s: the workers look whether it was theirs |
//!
//! With the classic protocols a lease ends a session after the commit was sent: each commit that brokers take renews the session of its
//! member. (`commitOffset` of Kafka's `OffsetMetadataManager`: in the states `STABLE` and `PREPARING_REBALANCE`. In the third one,
//! `COMPLETING_REBALANCE`, they take none.)
//!
//! With `group.protocol=consumer` it ends after half a session. This is safe although a commit does not renew the session: while librdkafka is connected it
//! sends a heartbeat for each interval, and when it is connected again and one is overdue, it sends that before the commits that have waited. So when a commit
//! is taken, the session has at least its length less two intervals to go: more than half, as long as an interval is less than a
//! quarter (by default they are 5 and 45 s).
//!
//! After some rebalances librdkafka no longer looks at what brokers say of its member (`rkcg_rebalance_incr_assignment` stays set), so a member
//! that they remove stays outside for good. The clerk notes that they do not know it, and after its own length and 10 s of nothing else the
//! driver ends the run with an error.
//!
//! An assignment alone begins no lease, because the reply with the committed offsets does not show that this member is in the group. So the
//! first records wait for a first commit. A member that holds no record lets its lease end, and has a commit sent when it reads one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::lock;

/// How long after a session it is sure that a member which brokers do not know stays outside.
const SURE: Duration = Duration::from_secs(10);

pub(crate) struct Lease {
    /// How long it goes on after a commit was sent.
    pub(crate) limit: Duration,
    created: Instant,
    /// When it ends, in nanoseconds after `created`.
    end: AtomicU64,
    bell: Notify,
    /// The first and the last commit of a member that brokers do not know, with nothing else in between.
    refused: Mutex<Option<(Instant, Instant)>>,
}

impl Lease {
    /// A lease that has ended.
    pub(crate) fn new(limit: Duration) -> Self {
        Lease {
            limit,
            created: Instant::now(),
            end: AtomicU64::new(0),
            bell: Notify::new(),
            refused: Mutex::new(None),
        }
    }

    /// Notes that brokers have taken a commit that was sent after this moment.
    pub(crate) fn renew(&self, sent: Instant) {
        self.forgive();
        let end = sent.duration_since(self.created) + self.limit;
        let end = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        // Ordering: Release; pairs with the Acquire load in `ended`: a worker that hears the bell sees this end.
        self.end.fetch_max(end, Ordering::Release);
        self.ring();
    }

    /// Notes that brokers do not know this member, by a commit that was sent then.
    pub(crate) fn refuse(&self, sent: Instant) {
        let mut refused = lock(&self.refused);
        *refused = Some((refused.map_or(sent, |(first, _)| first), sent));
    }

    /// Forgets that: the group changes, or brokers know it.
    pub(crate) fn forgive(&self) {
        *lock(&self.refused) = None;
    }

    /// Whether brokers have not known this member for so long that it stays outside.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = *lock(&self.refused);
        refused.is_some_and(|(first, last)| last - first > self.limit + SURE)
    }

    /// Lets those that wait look again.
    pub(crate) fn ring(&self) {
        self.bell.notify_waiters();
    }

    /// For how long it has ended; `None` if work may begin.
    pub(crate) fn ended(&self, now: Instant) -> Option<Duration> {
        // Ordering: Acquire; pairs with the Release in `renew`.
        let end = Duration::from_nanos(self.end.load(Ordering::Acquire));
        now.duration_since(self.created).checked_sub(end)
    }

    /// Whether it should be renewed: a quarter of it is over.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let soon = now + 3 * self.limit / 4;
        self.ended(soon).is_some()
    }

    /// Waits until work may begin, or `is_over` holds.
    pub(crate) async fn wait(&self, is_over: impl Fn() -> bool) {
        while self.ended(Instant::now()).is_some() {
            // Before the second look, so that a bell after that wakes it.
            let bell = self.bell.notified();
            if is_over() || self.ended(Instant::now()).is_none() {
                return;
            }
            bell.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test] // R2
    fn nothing_begins_without_a_commit_that_was_sent_within_the_limit() {
        let limit = Duration::from_secs(1000);
        let lease = Lease::new(limit);
        let created = lease.created;
        let mut waits = Box::pin(lease.wait(|| false));
        assert!(waits.as_mut().now_or_never().is_none());
        lease.renew(created);
        assert!(waits.as_mut().now_or_never().is_some());
        for (after, ended, is_due) in [
            (0, None, false),
            (249, None, false),
            (250, None, true),
            (999, None, true),
            (1001, Some(1), true),
        ] {
            let now = created + Duration::from_secs(after);
            assert_eq!(lease.ended(now), ended.map(Duration::from_secs), "{after}");
            assert_eq!(lease.is_due(now), is_due, "{after}");
        }
        // One that is slow, and was sent before.
        lease.renew(created + Duration::from_secs(10));
        lease.renew(created + Duration::from_secs(5));
        assert_eq!(lease.ended(created + Duration::from_secs(1009)), None);
    }

    #[test] // R2, R6
    fn one_that_waits_is_let_go_when_its_tenure_ends() {
        let lease = Lease::new(Duration::from_secs(1000));
        let is_over = std::cell::Cell::new(false);
        let mut waits = Box::pin(lease.wait(|| is_over.get()));
        assert!(waits.as_mut().now_or_never().is_none());
        is_over.set(true);
        lease.ring();
        assert!(waits.as_mut().now_or_never().is_some());
    }

    #[test] // R6
    fn a_member_that_brokers_do_not_know_is_given_up_after_a_session_of_nothing_else() {
        let lease = Lease::new(Duration::from_secs(100));
        let at = |seconds| lease.created + Duration::from_secs(seconds);
        for (sent, is_refused) in [(0, false), (110, false), (111, true)] {
            lease.refuse(at(sent));
            assert_eq!(lease.is_refused(), is_refused, "{sent}");
        }
        lease.renew(at(112));
        assert!(!lease.is_refused());
        lease.refuse(at(113));
        assert!(!lease.is_refused());
    }
}
