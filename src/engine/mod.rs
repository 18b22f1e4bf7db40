//! The queue without its public face: the parts put together.
//!
//! # Which thread does what to a key
//!
//! ```text
//!            adder                      FIFO                     worker
//!     shard lock: find or intern
//!     idle -> queued
//!     unlock
//!     push  ----------------------->  [Queued]
//!     notify a getter                     |
//!                                         +-------------->  pop
//!                                                           queued -> processing
//!                                                           ... works ...
//!                                     [Queued]  <---------  processing-dirty -> queued: push,
//!                                                           notify a getter
//!                                                           processing -> idle: nothing else
//! ```
//!
//! Exactly one thread makes a key queued. That thread must push the key's one entry to the FIFO,
//! and notify a getter after that. Between the change of state and the push, another thread's add
//! of the key returns `Merged` although the key cannot be popped yet; the first thread is about to
//! push it.
//!
//! A delivered key costs the node's cache line, its slot in the ring, the ring's tail or head, and
//! for the adder its shard. While the ring has room and no getter waits, `get` and `done` take no
//! lock and write nothing else.

mod adding;
pub(crate) mod driver;
pub(crate) mod leaving;
pub(crate) mod left;
pub(crate) mod lingering;
pub(crate) mod many;
mod meeting;
#[cfg(feature = "metrics")]
mod report;
mod retries;
pub(crate) mod shutdown;
pub(crate) mod taking;
pub(crate) mod timing;
pub(crate) mod values;
mod waiting;

use std::hash::Hash;
use std::time::Duration;

use crate::added::Added;
use crate::engine::meeting::Meeting;
use crate::engine::shutdown::Closing;
use crate::engine::timing::Watch;
use crate::engine::values::Extras;
use crate::fifo::Fifo;
use crate::fifo::groups::grouping::Ordered;
use crate::fifo::groups::settings::{By, GroupBy, Grouped, Pacing, Parts};
use crate::fifo::order::Order;
use crate::keys::Keys;
use crate::keys::carried::Carries;
use crate::keys::delay::Set;
use crate::keys::node::{Node, Pin};
use crate::keys::rule::{DelayPolicy, Rule};
use crate::keys::seat::Seated;
use crate::keys::slab::SideData;
use crate::keys::state::Level;
use crate::limiter::RateLimiter;
use crate::limiter::unset::Unset;
use crate::metrics::{Event, Recorder, Tally};
use crate::sync::Arc;
use crate::sync::atomic::AtomicUsize;
use crate::time::clock::Clock;
use crate::time::nanos;
use crate::timer::{Timer, Wait};
use crate::values::{Merger, Merging};
use crate::wait::WaitList;
use crate::wait::room::{Room, Share};
use driver::Driver;
use retries::Retries;

pub(crate) struct Core<K, V> {
    pub(crate) keys: Keys<K, V>,
    /// Unused if the queue has an order of its own.
    fifo: Fifo<K>,
    pub(crate) getters: WaitList,
    pub(crate) closing: Closing,
    /// `None` if the queue is not timed, its keys carry no values, and it has no order of its own and no
    /// bound.
    extras: Option<Box<Extras<K, V>>>,
    /// `None` if adds and the delays of their keys leave each other alone.
    meeting: Option<Meeting>,
    /// Whether a drain delivers the pending delays.
    pub(crate) drain_delays: bool,
    name: Option<Box<str>>,
    pub(crate) timer: Timer<K>,
    pub(crate) driver: Driver,
    pub(crate) limiter: Box<dyn RateLimiter<K>>,
    retries: Retries<K>,
}

/// Whether an add causes a delivery, or moves one: otherwise its delay is not used (L14).
pub(crate) type IsUsed = bool;

/// The settings of a core. [`Builder::build`](crate::Builder::build) checks that they are in range.
pub(crate) struct Settings {
    pub(crate) name: Option<Box<str>>,
    pub(crate) shards: usize,
    pub(crate) ring: usize,
    /// `None` for the queue's own clock.
    pub(crate) clock: Option<Clock>,
    pub(crate) tick: Duration,
    pub(crate) policy: DelayPolicy,
    pub(crate) supersede: bool,
    /// Whether adds wait for the retry of their key.
    pub(crate) wait_for_retries: bool,
    pub(crate) drain_delays: bool,
    pub(crate) manual: bool,
    /// `None` records times if the queue has a name.
    pub(crate) timing: Option<bool>,
    /// The bound of what waits.
    pub(crate) capacity: Option<usize>,
    pub(crate) order: Order,
    pub(crate) pacing: Pacing,
    pub(crate) recorder: Recorder,
}

impl<K, V> Core<K, V> {
    pub(crate) fn new(
        mut settings: Settings,
        limiter: Option<Box<dyn RateLimiter<K>>>,
        values: Option<Merging<V>>,
        mut groups: Option<Box<dyn GroupBy<K>>>,
    ) -> Arc<Self>
    where
        K: Hash + Send + Sync + 'static,
        V: Send + 'static,
    {
        if groups.is_none() && (settings.order.has_levels() || settings.pacing.is_set()) {
            let (by, weigh) = (None::<By<K, ()>>, None);
            groups = Some(Box::new(Grouped { by, weigh }));
        }
        let is_timed = settings.timing.unwrap_or(settings.name.is_some());
        let core = Arc::new_cyclic(|core| {
            let watch = is_timed.then(|| {
                let recorder = std::mem::take(&mut settings.recorder);
                let tally = Tally::new(settings.name.as_deref(), recorder, settings.manual, core);
                // The core and its watch use the same clock.
                Watch::new(settings.clock.get_or_insert_default().clone(), tally)
            });
            Self::with(settings, watch, limiter, values, groups)
        });
        if let Some(groups) = core.groups() {
            let weak = Arc::downgrade(&core);
            groups.wake_by(Box::new(move |at| {
                if let Some(core) = weak.upgrade() {
                    core.driver.start(&core);
                    core.timer.wake_by(at);
                }
            }));
        }
        core
    }

    fn with(
        mut settings: Settings,
        watch: Option<Watch>,
        limiter: Option<Box<dyn RateLimiter<K>>>,
        values: Option<Merging<V>>,
        groups: Option<Box<dyn GroupBy<K>>>,
    ) -> Self
    where
        K: Hash + 'static,
    {
        let side_data = SideData {
            timed: watch.is_some(),
            seated: groups.is_some(),
            carries: values.is_some(),
        };
        let mut room = settings.capacity.map(Room::new);
        let values = values.map(|merging| Merger {
            merging,
            // The bound of a queue of values is that of the values.
            room: room.take(),
            // SAFETY: the nodes have what `side_data` says.
            carries: unsafe { Carries::new::<K>(side_data) },
        });
        let meeting = Meeting::new(settings.supersede, settings.wait_for_retries);
        let has_extras = !side_data.is_empty() || room.is_some();
        let clock = settings.clock.get_or_insert_default().clone();
        let limiter = limiter.unwrap_or_else(|| Box::new(Unset::new(clock.clone())));
        let ordered = groups.map(|groups| {
            // SAFETY: the nodes have what `side_data` says.
            let seated = unsafe { Seated::new(side_data.timed) };
            Ordered {
                default_level: settings.order.usual_level(),
                last_level: settings.order.last_level(),
                counts_in_flight: settings.pacing.group_limit.is_some(),
                min_interval: settings.pacing.min_interval,
                groups: groups.groups(Parts {
                    order: settings.order,
                    pacing: settings.pacing,
                    seated,
                    clock: clock.clone(),
                }),
                seated,
                leaving: AtomicUsize::new(0),
            }
        });
        Core {
            keys: Keys::new(settings.shards, side_data),
            fifo: Fifo::new(if ordered.is_some() { 1 } else { settings.ring }),
            getters: WaitList::default(),
            closing: Closing::new(has_extras || meeting.is_some()),
            extras: has_extras.then(|| {
                Box::new(Extras {
                    watch,
                    values,
                    ordered,
                    room,
                })
            }),
            meeting,
            drain_delays: settings.drain_delays,
            name: settings.name,
            timer: Timer::new(
                clock,
                nanos::saturating(settings.tick),
                Rule {
                    policy: settings.policy,
                    holds_retries: settings.wait_for_retries,
                },
                settings.manual,
            ),
            driver: Driver::default(),
            limiter,
            retries: Retries::new(),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    #[inline]
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.extras.as_ref()?.watch.as_ref()
    }

    // ---- delaying ---------------------------------------------------------------------------

    /// Adds the pinned key after a delay, as a `retry` of one that has failed or not. Takes ownership of the pin.
    pub(crate) fn delay(
        self: &Arc<Self>,
        pin: Pin<K>,
        level: Level,
        wait: impl Into<Wait>,
        retry: bool,
    ) -> (Added, IsUsed)
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
    {
        let mut share = Share::exceeding_as(retry, self.room());
        self.delay_in(pin, level, wait.into(), &mut share)
            .unwrap_or((Added::ShutDown, false))
    }

    /// Adds the pinned key after a delay, if `share` has or gets room for it, and otherwise returns `None`. Takes
    /// ownership of the pin.
    #[inline]
    pub(crate) fn delay_in(
        self: &Arc<Self>,
        pin: Pin<K>,
        level: Level,
        wait: Wait,
        share: &mut Share<'_>,
    ) -> Option<(Added, IsUsed)>
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
    {
        if wait.is_zero() || self.closing.has_begun() {
            // A queue that is shut down refuses this, too.
            let added = self.add_pinned_in(&pin, level, share);
            pin.unpin();
            if added.is_some_and(Added::is_accepted) {
                self.note(Event::Retried);
            }
            return added.map(|added| (added, matches!(added, Added::Queued | Added::Deferred)));
        }
        let shard = self.lock_for_delay(&pin, share);
        let retry = share.is_retry();
        let level = match self.meet_add(&pin, level, share) {
            Ok(level) => level,
            Err(merged) => {
                drop(shard);
                let added = self.after_add_slow(merged);
                pin.unpin();
                if added.is_accepted() {
                    self.note(Event::Retried);
                }
                return Some((added, false));
            }
        };
        let admit = |pin: &Pin<K>| share.admit(true, || pin.is_known());
        let set = self.timer.delay(pin, level, wait, retry, admit, shard);
        match set {
            Set::Refused => return None,
            Set::Closed => return Some((Added::ShutDown, false)),
            Set::Pending { moved: false, .. } => share.spend(),
            // It takes room as a retry. What it has had before is given back.
            Set::Pending { turned: true, .. } | Set::Kept { turned: true } => {
                share.spend();
                share.receive(false);
            }
            Set::Pending { .. } | Set::Kept { .. } => {}
        }
        self.note_delayed();
        self.driver.start(self);
        Some((Added::Delayed, !matches!(set, Set::Kept { .. })))
    }

    /// Cancels the pending delay of the key for which `eq` holds. Returns whether there was one.
    pub(crate) fn cancel(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> bool {
        // Dropped last: what the delay had room for is offered to others.
        let mut share = Share::exceeding(self.room());
        let cancelled = match self.values() {
            None => {
                let cancel = |node: &Node<K>| node.delay.cancel();
                let shard = self.keys.lock(hash);
                let cancelled = shard.read(hash, eq, cancel).flatten();
                if let Some(stamp) = cancelled {
                    share.receive(stamp.is_retry());
                    share.give_back();
                }
                cancelled.is_some()
            }
            Some(values) => {
                let pin = self.keys.lock(hash).pin(hash, eq);
                pin.is_some_and(|pin| {
                    let cancelled = self.cancel_with_values(values, &pin);
                    pin.unpin();
                    cancelled
                })
            }
        };
        if cancelled {
            self.note_cancelled();
        }
        cancelled
    }

    /// Ends the pending delay of the key for which `eq` holds, and adds the key. Returns `None` if there is no delay.
    pub(crate) fn run_now(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Added> {
        // Dropped last: what the delay had room for and the add does not need is offered to others.
        let mut share = Share::exceeding(self.room());
        // The lock keeps a shut-down from visiting the node in between: it would find neither the delay nor the key.
        let shard = self.keys.lock(hash);
        let pin = shard.pin(hash, eq)?;
        let Some(stamp) = pin.delay().cancel() else {
            pin.unpin();
            return None;
        };
        let added = self.add_delayed(&pin, stamp, &mut share);
        drop(shard);
        self.note_cancelled();
        Some(self.after_add_slow(added))
    }

    // ---- getting ----------------------------------------------------------------------------

    pub(crate) fn len(&self) -> usize {
        // An adder may push an entry after its key was abandoned, when no getter is left.
        if self.closing.all_delivered() {
            return 0;
        }
        match self.ordered() {
            None => self.fifo.len(),
            Some(ordered) => ordered.groups.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closing.all_delivered()
            || match self.groups() {
                None => self.fifo.is_empty(),
                Some(groups) => groups.len() == 0,
            }
    }
}
