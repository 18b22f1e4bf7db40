//! Groups of keys, and the pace: the settings, and what is done with a group.

use std::any::Any;
use std::hash::Hash;
use std::time::Duration;

use crate::engine::Core;
use crate::fifo::groups::grouping::GroupCounts;
use crate::fifo::groups::settings::{By, Grouped, Weigh};
use crate::keys::node::Pinned;
use crate::keys::state::State;
use crate::keys::visit::PORTION;
use crate::time::nanos;
use crate::{Builder, WorkQueue};

impl<K: Send + Sync + 'static, V, S> Builder<K, V, S> {
    /// Divides the keys into groups that take turns, such as tenants, customers or hosts: `group_by` returns
    /// the group of a key (G1). Without it, the queue is first in, first out over all keys.
    ///
    /// While a group has queued keys, it has a turn in each round, in which one of its keys is delivered, or as many as
    /// its [weight](Self::group_weight). So one group with a million keys delays the keys of another by one
    /// round, not by a million deliveries. Within a group keys come out first in, first out, or by
    /// [level](Self::levels) (G4).
    ///
    /// `group_by` is called when a key becomes queued whose group the queue does not know, must always return the same group for a key, and should be
    /// cheap. It returns an owned group: a clone of a `String` in the key, say, or of an `Arc<str>`. If it panics, or `Hash`, `Eq` or `Clone` of the group do, the panic hook reports that, and the
    /// key is in one more group, with all others for which that happens.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::builder().group_by(|key: &(&str, u32)| key.0).build()?;
    /// queue.add_all([("big", 1), ("big", 2), ("big", 3), ("small", 1)]);
    /// queue.shut_down();
    /// let order: Vec<_> = queue.iter().map(|item| *item).collect();
    /// assert_eq!(order, [("big", 1), ("small", 1), ("big", 2), ("big", 3)]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("fairness", "tenant", "round_robin"))]
    pub fn group_by<G>(mut self, group_by: impl Fn(&K) -> G + Send + Sync + 'static) -> Self
    where
        G: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let by: Option<By<K, G>> = Some(Box::new(group_by));
        self.grouping = Some(Box::new(Grouped { by, weigh: None }));
        self
    }

    /// Limits how many keys of a group are in flight, that is, held by workers (G2): above 0. A group at its
    /// limit delays no other, and has its next key delivered as soon as one of its keys is done. The limit cuts a
    /// [turn](Self::group_weight) short.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let builder = WorkQueue::builder().group_by(|key: &(&str, u32)| key.0);
    /// let queue = builder.group_limit(1).build()?;
    /// queue.add_all([("big", 1), ("big", 2), ("small", 1)]);
    /// let [first, second] = [(); 2].map(|()| queue.try_get().unwrap());
    /// assert_eq!((*first, *second), (("big", 1), ("small", 1)));
    /// assert!(queue.try_get().is_err()); // ("big", 2) waits
    /// first.done();
    /// assert_eq!(*queue.try_get().unwrap(), ("big", 2));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("concurrency", "bulkhead"))]
    pub fn group_limit(mut self, in_flight: usize) -> Self {
        self.settings.pacing.group_limit = Some(in_flight);
        self
    }

    /// Sets how many keys of a group are delivered in its turn; 0 counts as 1, and so does a panic. `weight` is called
    /// once for a group, as long as the queue remembers it. Default: 1 for all.
    ///
    /// The type of the groups must be that of [`group_by`](Self::group_by), which comes first.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let builder = WorkQueue::builder().group_by(|key: &(&'static str, u32)| key.0);
    /// let queue = builder.group_weight(|group: &&str| if *group == "paid" { 2 } else { 1 }).build()?;
    /// queue.add_all([("free", 1), ("free", 2), ("paid", 1), ("paid", 2), ("paid", 3)]);
    /// queue.shut_down();
    /// let order: Vec<_> = queue.iter().map(|item| item.0).collect();
    /// assert_eq!(order, ["free", "paid", "paid", "free", "paid"]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn group_weight<G: 'static>(
        mut self,
        weight: impl Fn(&G) -> u32 + Send + Sync + 'static,
    ) -> Self {
        let weigh: Weigh<G> = Box::new(weight);
        let rule = match &mut self.grouping {
            None => Some("must come after `group_by`"),
            Some(by) => match by.weigh_by(Box::new(weigh)) {
                false => Some("must be of the groups that `group_by` returns"),
                true => None,
            },
        };
        if let Some(rule) = rule {
            self.settings.pacing.misplaced = Some(("group_weight", rule));
        }
        self
    }

    /// Limits how many keys of each group are delivered per second, as a token bucket: `burst` at once, then
    /// `per_second` (G5). Both above 0, and the bucket must fill within 100 years. A group without a token
    /// delays no other.
    ///
    /// The bucket is a virtual schedule (GCRA, ITU-T I.371). Tokens are taken by deliveries, retries included.
    /// Also holds while the queue [drains](WorkQueue::shut_down_with_drain).
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers();
    /// let queue = builder.group_by(|key: &(&str, u32)| key.0).group_rate(1.0, 2).build()?;
    /// queue.add_all([("big", 1), ("big", 2), ("big", 3), ("small", 1)]);
    /// let order = [(); 3].map(|()| *queue.try_get().unwrap());
    /// assert_eq!(order, [("big", 1), ("small", 1), ("big", 2)]);
    /// time.advance(Duration::from_secs(1));
    /// assert_eq!(*queue.try_get().unwrap(), ("big", 3));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn group_rate(mut self, per_second: f64, burst: u32) -> Self {
        self.settings.pacing.group_rate = Some((per_second, burst));
        self
    }

    /// Limits how many keys are delivered per second in all, as a token bucket: `burst` at once, then
    /// `per_second` (T1). Both above 0, and the bucket must fill within 100 years. The order stays, and a key
    /// that waits for a token merges further adds.
    ///
    /// Also holds while the queue [drains](WorkQueue::shut_down_with_drain).
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers();
    /// let queue = builder.dispatch_rate(10.0, 1).build()?;
    /// queue.add_all(["a", "b"]);
    /// assert_eq!(*queue.try_get().unwrap(), "a");
    /// assert!(queue.try_get().is_err());
    /// time.advance(Duration::from_millis(100));
    /// assert_eq!(*queue.try_get().unwrap(), "b");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("throttle", "rate_limit"))]
    pub fn dispatch_rate(mut self, per_second: f64, burst: u32) -> Self {
        self.settings.pacing.dispatch_rate = Some((per_second, burst));
        self
    }

    /// Sets the least time between the begins of two deliveries of one key (T2): above 0. Adds in between merge
    /// into one delivery at the end of the interval.
    ///
    /// Also holds for retries, and while the queue [drains](WorkQueue::shut_down_with_drain). A key that was
    /// delivered is remembered until its interval is over, so the queue keeps all keys of that time.
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers();
    /// let queue = builder.min_interval(Duration::from_secs(1)).build()?;
    /// queue.add("a");
    /// queue.try_get().unwrap().done();
    /// queue.add_all(["a", "b", "a"]);
    /// assert_eq!(*queue.try_get().unwrap(), "b");
    /// assert!(queue.try_get().is_err());
    /// time.advance(Duration::from_secs(1));
    /// assert_eq!(*queue.try_get().unwrap(), "a");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("throttle", "min_reconcile_interval"))]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.settings.pacing.min_interval = Some(interval);
        self
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Delivers no key of this group for the time `hold`, from now (G6): its keys stay queued and merge, and other
    /// groups go on. A later call replaces an earlier one, so one with `Duration::ZERO` ends
    /// the hold.
    ///
    /// Keys that workers hold are not affected. A worker whose host answers 429, say, returns
    /// [`Outcome::HoldGroup`](crate::worker::Outcome::HoldGroup), which never shortens a hold. A drain waits for
    /// the end of holds.
    ///
    /// Returns false, and does nothing, if the queue has no groups of this type:
    /// [`group_by`](Builder::group_by) says which it has.
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers();
    /// let queue = builder.group_by(|key: &(&'static str, u32)| key.0).build()?;
    /// queue.add_all([("a", 1), ("b", 1)]);
    /// assert!(queue.hold_group(&"a", Duration::from_secs(30)));
    /// assert_eq!(*queue.try_get().unwrap(), ("b", 1));
    /// assert!(queue.try_get().is_err());
    /// time.advance(Duration::from_secs(30));
    /// assert_eq!(*queue.try_get().unwrap(), ("a", 1));
    /// assert!(!queue.hold_group(&7, Duration::MAX)); // groups are `&str`
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use = "nothing is held if the queue has no groups of this type"]
    pub fn hold_group<G: 'static>(&self, group: &G, hold: Duration) -> bool {
        let core = &*self.core;
        let groups = core.groups();
        let ready = groups.and_then(|groups| groups.hold(group, core.hold_until(hold)));
        ready.map(|ready| core.notify_ready(ready)).is_some()
    }

    /// Returns the groups that have queued keys or keys in flight, or are held, those with the most keys
    /// first. Each is as it was at some moment during the call.
    ///
    /// Looks at every key that the queue knows, as a [`page`](Self::page) does, and returns none if the queue has no
    /// groups of this type.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::builder().group_by(|n: &u32| n % 2 == 0).build()?;
    /// queue.add_all([1, 3, 5, 6]);
    /// let item = queue.get();
    /// let groups = queue.groups::<bool>();
    /// assert_eq!((groups[0].group, groups[0].queued, groups[0].in_flight), (false, 2, 1));
    /// assert_eq!((groups[1].group, groups[1].queued, groups[1].in_flight), (true, 1, 0));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn groups<G: Clone + 'static>(&self) -> Vec<GroupCounts<G>> {
        let mut all: Vec<GroupCounts<G>> = Vec::new();
        self.core.visit_groups(&mut |group| {
            all.extend(group.downcast_ref().cloned());
        });
        if self.core.closing.all_delivered() {
            // What `shut_down_now` has discarded is still in the lists.
            all.iter_mut().for_each(|group| group.queued = 0);
        }
        all.sort_by_key(|group| std::cmp::Reverse(group.queued + group.in_flight));
        all
    }
}

impl<K, V> Core<K, V> {
    fn visit_groups(&self, f: &mut dyn FnMut(&dyn Any)) {
        let Some(groups) = self.groups() else { return };
        let mut in_flight = Vec::new();
        for index in 0..self.keys.count() {
            let mut place = Some(0);
            while let Some(from) = place {
                place = self.keys.shard(index).visit(from, PORTION, |node| {
                    if matches!(node.get().state.phase(), State::Processing | State::Dirty) {
                        in_flight.push(Pinned(node.pin()));
                    }
                });
            }
        }
        groups.visit(&in_flight, f);
    }

    /// Returns when a hold ends that begins now; 0 if it is none.
    pub(crate) fn hold_until(&self, hold: Duration) -> u64 {
        if hold.is_zero() {
            return 0;
        }
        let now = self.timer.clock().nanos();
        now.saturating_add(nanos::saturating(hold))
    }
}
