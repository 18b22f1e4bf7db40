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
pub(crate) mod cargo;
pub(crate) mod driver;
#[cfg(feature = "metrics")]
pub(crate) mod scan;
pub(crate) mod shutdown;
pub(crate) mod timing;
mod waiting;

use std::time::Duration;

use crate::engine::cargo::{Cargo, Extras};
use crate::engine::shutdown::Closing;
use crate::engine::timing::{Event, Watch};
use crate::fifo::Fifo;
use crate::fifo::groups::grouping::Grouping;
use crate::fifo::groups::settings::{GroupBy, Grouped, Pacing, Parts};
use crate::fifo::lanes::{Lanes, Order};
use crate::fifo::ordered::{By, Ordered};
use crate::fifo::ring::Missed;
use crate::keys::Keys;
use crate::keys::behind::Behind;
use crate::keys::delay::DelayPolicy;
use crate::keys::node::{Held, Node, Pin, Queued};
use crate::keys::slab::Annex;
use crate::keys::state::{Begun, Level};
use crate::metrics::{Recorder, Tally};
use crate::queue::added::Added;
use crate::sync::Arc;
use crate::time::clock::Clock;
use crate::time::nanos;
use crate::timer::{Registered, Timer};
use crate::wait::WaitList;
use crate::wait::room::Room;
use driver::Driver;

pub(crate) struct Core<K> {
    pub(crate) keys: Keys<K>,
    fifo: Fifo<K>,
    pub(crate) getters: WaitList,
    pub(crate) closing: Closing,
    /// `None` if the queue is not timed, its keys carry no values, and it has no order of its own and no
    /// bound.
    extras: Option<Box<Extras<K>>>,
    /// Whether a plain add cancels the pending delay of its key (D5).
    supersede: bool,
    /// Whether a drain delivers the pending delays.
    pub(crate) drain_delays: bool,
    name: Option<Box<str>>,
    pub(crate) timer: Timer<K>,
    pub(crate) driver: Driver,
}

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

/// The result of taking a key from the FIFO.
pub(crate) enum Taken<K> {
    Key(Held<K>),
    /// Nothing is queued now.
    Empty,
    /// The queue is shut down and nothing will ever be queued again.
    Ended,
}

/// Where the fast path of taking a key stopped.
pub(crate) enum Unfinished<K> {
    /// The ring is empty, or another thread was faster.
    Pop(Missed),
    /// The key is popped, and the queue is timed, or its keys carry values. Not if it has lanes.
    Begin(Queued<K>),
    /// The delivery has begun, and a shut-down had closed the key.
    Closed(Held<K>, Begun),
}

impl<K> Taken<K> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Taken::Empty)
    }

    /// Takes again if nothing was queued.
    #[inline]
    pub(crate) fn or_else(self, take: impl FnOnce() -> Self) -> Self {
        if self.is_empty() { take() } else { self }
    }
}

impl<K> Core<K> {
    pub(crate) fn new(
        mut settings: Settings,
        mut cargo: Option<Box<dyn Cargo<K>>>,
        mut groups: Option<Box<dyn GroupBy<K>>>,
    ) -> Arc<Self>
    where
        K: Send + Sync + 'static,
    {
        if let Some(cargo) = &mut cargo
            && let Some(capacity) = settings.capacity.take()
        {
            cargo.bound(capacity);
        }
        if groups.is_none() && settings.pacing.is_set() {
            groups = Some(Box::new(Grouped::new(Box::new(|_: &K| ()))));
        }
        let core = Self::build(settings, cargo, groups);
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

    fn build(
        mut settings: Settings,
        cargo: Option<Box<dyn Cargo<K>>>,
        groups: Option<Box<dyn GroupBy<K>>>,
    ) -> Arc<Self>
    where
        K: Send + Sync + 'static,
    {
        if !settings.timing.unwrap_or(settings.name.is_some()) {
            return Arc::new(Self::with(settings, None, cargo, groups));
        }
        Arc::new_cyclic(|core| {
            let recorder = std::mem::take(&mut settings.recorder);
            let tally = Tally::new(settings.name.as_deref(), recorder, settings.manual, core);
            // The core and its watch use the same clock.
            let watch = Watch::new(settings.clock.get_or_insert_default().clone(), tally);
            Self::with(settings, Some(watch), cargo, groups)
        })
    }

    fn with(
        mut settings: Settings,
        watch: Option<Watch>,
        cargo: Option<Box<dyn Cargo<K>>>,
        groups: Option<Box<dyn GroupBy<K>>>,
    ) -> Self {
        let annex = Annex {
            timed: watch.is_some(),
            laned: settings.order.has_lanes() && groups.is_none(),
            seated: groups.is_some(),
        };
        let room = settings.capacity.map(Room::new);
        let has_extras = !annex.is_empty() || cargo.is_some() || room.is_some();
        let clock = settings.clock.get_or_insert_default().clone();
        // SAFETY: the nodes have what `annex` says, here and below.
        let seated = || unsafe { Behind::new(annex.timed) };
        let by = match groups {
            Some(groups) => {
                let parts = Parts {
                    order: settings.order,
                    pacing: settings.pacing,
                    ring: settings.ring,
                    shards: settings.shards,
                    seated: seated(),
                    clock: clock.clone(),
                };
                Some(By::Groups(groups.groups(parts), seated()))
            }
            None if annex.laned => {
                // SAFETY: as above.
                let laned = unsafe { Behind::new(annex.timed) };
                let lanes = Lanes::new(settings.order, settings.ring, laned);
                Some(By::Lanes(lanes))
            }
            None => None,
        };
        let ordered = by.map(|by| Ordered {
            default_level: settings.order.usual_level(),
            last_level: settings.order.last_level(),
            counts_in_flight: settings.pacing.group_limit.is_some(),
            has_intervals: settings.pacing.min_interval.is_some(),
            by,
        });
        Core {
            keys: Keys::new(settings.shards, annex),
            fifo: Fifo::new(if ordered.is_some() { 1 } else { settings.ring }),
            getters: WaitList::new(),
            closing: Closing::new(has_extras || settings.supersede),
            extras: has_extras.then(|| {
                Box::new(Extras {
                    watch,
                    cargo,
                    ordered,
                    room,
                })
            }),
            supersede: settings.supersede,
            drain_delays: settings.drain_delays,
            name: settings.name,
            timer: Timer::new(
                clock,
                nanos::saturating(settings.tick),
                settings.policy,
                settings.manual,
            ),
            driver: Driver::new(),
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

    pub(crate) fn delay(
        self: &Arc<Self>,
        pin: Pin<K>,
        hash: u64,
        level: Level,
        delay: Duration,
    ) -> Added
    where
        K: Send + Sync + 'static,
    {
        if delay.is_zero() || self.is_shutting_down() {
            // A queue that is shut down refuses this, too.
            let added = self.add_pinned_at(&pin, hash, level);
            pin.unpin();
            if added.is_accepted() {
                self.note(Event::Retried);
            }
            return added;
        }
        let room = self.room();
        if let Some(room) = room {
            // First: the delay may end at any time after.
            room.add(1);
        }
        let registered = self.timer.delay(pin, level, delay);
        if registered != Registered::New
            && let Some(room) = room
        {
            room.release(1);
        }
        if registered == Registered::Closed {
            return Added::ShutDown;
        }
        self.note(Event::Retried);
        self.driver.start(self);
        Added::Delayed
    }

    /// Cancels the pending delay of the key for which `eq` holds. Returns whether there was one.
    pub(crate) fn cancel(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> bool {
        let cancelled = match self.cargo() {
            None => {
                let cancel = |node: &Node<K>| node.delay.cancel();
                self.keys.lock(hash).read(hash, eq, cancel) == Some(true)
            }
            Some(cargo) => {
                let pin = self.keys.lock(hash).pin(hash, eq);
                pin.is_some_and(|pin| {
                    let cancelled = self.cancel_with_cargo(cargo, &pin);
                    pin.unpin();
                    cancelled
                })
            }
        };
        if cancelled {
            self.note_cancelled();
            self.offer_room();
        }
        cancelled
    }

    // ---- getting ----------------------------------------------------------------------------

    /// Takes the key at the head of the FIFO, and discards those before it that a shut-down has
    /// abandoned.
    #[inline]
    pub(crate) fn take(&self) -> Taken<K> {
        match self.take_fast() {
            Ok(held) => Taken::Key(held),
            Err(unfinished) => self.take_slow(unfinished),
        }
    }

    /// Takes the key at the head of the FIFO, if nothing else has to be done for it. If not, the
    /// caller continues with [`take_slow`](Self::take_slow).
    #[inline]
    pub(crate) fn take_fast(&self) -> Result<Held<K>, Unfinished<K>> {
        let entry = match self.fifo.try_pop() {
            Ok(entry) => entry,
            Err(missed) => return Err(Unfinished::Pop(missed)),
        };
        if self.extras.is_some() {
            return Err(Unfinished::Begin(entry));
        }
        match entry.begin() {
            (held, Begun::Open) => Ok(held),
            (held, begun) => Err(Unfinished::Closed(held, begun)),
        }
    }

    /// Continues where [`take_fast`](Self::take_fast) stopped.
    #[cold]
    pub(crate) fn take_slow(&self, unfinished: Unfinished<K>) -> Taken<K> {
        match unfinished {
            Unfinished::Pop(missed) => match self.ordered() {
                None => match self.fifo.pop_missed(missed) {
                    Some(entry) => self.begin(entry),
                    None => self.nothing(),
                },
                Some(ordered) => self.take_from(ordered),
            },
            Unfinished::Begin(entry) => self.begin(entry),
            Unfinished::Closed(held, begun) => self.begun_slow(held, begun, true),
        }
    }

    // Never: queues with one FIFO would pay for its registers.
    #[inline(never)]
    fn take_from(&self, ordered: &Ordered<K>) -> Taken<K> {
        if let By::Lanes(lanes) = &ordered.by
            && self.has_only_order()
        {
            return match lanes.pop_and_begin() {
                Some((held, Begun::Open)) => Taken::Key(held),
                Some((held, begun)) => self.begun_slow(held, begun, true),
                None => self.nothing(),
            };
        }
        match self.pop_ordered(ordered) {
            Some(entry) => self.begin(entry),
            None => self.nothing(),
        }
    }

    /// Whether its order is all that the queue has in addition.
    fn has_only_order(&self) -> bool {
        let others = |extras: &Extras<K>| {
            extras.watch.is_some() || extras.cargo.is_some() || extras.room.is_some()
        };
        !self.extras.as_deref().is_some_and(others)
    }

    fn pop(&self) -> Option<Queued<K>> {
        match self.ordered() {
            None => self.fifo.pop(),
            Some(ordered) => self.pop_ordered(ordered),
        }
    }

    #[inline]
    fn pop_ordered(&self, ordered: &Ordered<K>) -> Option<Queued<K>> {
        let (entry, more) = ordered.pop()?;
        if more {
            self.getters.notify(1);
        }
        Some(entry)
    }

    #[inline]
    fn nothing(&self) -> Taken<K> {
        match self.closing.all_delivered() {
            true => Taken::Ended,
            false => Taken::Empty,
        }
    }

    #[inline]
    fn begin(&self, entry: Queued<K>) -> Taken<K> {
        match self.begin_one(entry) {
            (held, Begun::Open, true) => Taken::Key(self.delivered(held)),
            (held, begun, loaded) => self.begun_slow(held, begun, loaded),
        }
    }

    /// Begins the interval of a key that is delivered.
    #[inline]
    fn delivered(&self, held: Held<K>) -> Held<K> {
        if self.ordered().is_some_and(|ordered| ordered.has_intervals)
            && let Some(groups) = self.groups()
        {
            groups.delivered(&held);
        }
        held
    }

    /// Takes all queued keys of a queue with groups, whatever they wait for.
    #[cold]
    pub(crate) fn take_groups(&self, groups: &dyn Grouping<K>) -> Vec<Held<K>> {
        let mut all = Vec::new();
        for entry in groups.take_all() {
            match self.begin_one(entry) {
                (held, Begun::Open, true) => all.push(held),
                (held, Begun::Abandoned, _) => self.discard(held),
                (held, begun, loaded) => {
                    if begun == Begun::Closed && self.closing.delivered() {
                        self.getters.notify_all();
                    }
                    match loaded {
                        true => all.push(held),
                        false => self.finish(held),
                    }
                }
            }
        }
        all
    }

    /// Begins the delivery of a key. Returns also whether it carries what it should.
    #[inline]
    fn begin_one(&self, entry: Queued<K>) -> (Held<K>, Begun, bool) {
        match &self.extras {
            None => {
                let (held, begun) = entry.begin();
                (held, begun, true)
            }
            Some(extras) => extras.begin(entry),
        }
    }

    /// Ends the processing of an abandoned key. It is counted already, and not dirty, because adds are refused.
    fn discard(&self, held: Held<K>) {
        let more = self
            .extras
            .as_ref()
            .is_some_and(|extras| extras.land(&held));
        held.finish();
        if more {
            self.getters.notify(1);
        }
    }

    /// Finishes a key that is not delivered, and takes the one that has its turn, if the order knows it.
    fn pop_instead(&self, held: Held<K>) -> Option<Queued<K>> {
        let Some(ordered) = self.ordered() else {
            self.finish(held);
            return None;
        };
        let level = ordered.delivered(&held);
        if let By::Groups(groups, _) = &ordered.by {
            groups.refund(&held);
        }
        self.finish(held);
        match &ordered.by {
            By::Lanes(lanes) => lanes.pop_again(level),
            By::Groups(..) => None,
        }
    }

    /// Counts the delivery of a closed key. If there is nothing to deliver, because a shut-down has
    /// abandoned the key, or because it should carry a value but has none (not `loaded`), finishes
    /// the key and takes the next one.
    #[cold]
    fn begun_slow(&self, mut held: Held<K>, mut begun: Begun, mut loaded: bool) -> Taken<K> {
        loop {
            let mut next = None;
            if begun == Begun::Closed && self.closing.delivered() {
                self.getters.notify_all();
            }
            if begun == Begun::Abandoned {
                self.discard(held);
            } else if loaded {
                return Taken::Key(self.delivered(held));
            } else {
                next = self.pop_instead(held);
            }
            let Some(entry) = next.or_else(|| self.pop()) else {
                return self.nothing();
            };
            (held, begun, loaded) = self.begin_one(entry);
        }
    }

    /// Ends the processing of a key.
    #[inline]
    pub(crate) fn finish(&self, held: Held<K>) {
        match &self.extras {
            None => self.finished(held.finish()),
            Some(extras) => {
                let (entry, closed, more) = extras.finish(held);
                self.finished_extras((entry, closed));
                if more {
                    self.getters.notify(1);
                }
            }
        }
    }

    #[inline(never)]
    fn finished_extras(&self, (entry, closed): (Option<Queued<K>>, bool)) {
        match entry {
            // Not `enqueue`: in a timed queue the entry already has its time.
            Some(entry) => {
                self.push_extras(entry);
                self.getters.notify(1);
            }
            None => self.finished((None, closed)),
        }
    }

    #[inline]
    fn finished(&self, (entry, closed): (Option<Queued<K>>, bool)) {
        if let Some(entry) = entry {
            self.push_apart(entry);
        } else if closed && self.closing.finished() {
            self.closing.drainers.notify_all();
        }
    }

    pub(crate) fn len(&self) -> usize {
        // An adder may push an entry after its key was abandoned, when no getter is left.
        if self.closing.all_delivered() {
            return 0;
        }
        match self.ordered() {
            None => self.fifo.len(),
            Some(ordered) => ordered.len(),
        }
    }

    pub(crate) fn len_by_level(&self) -> Vec<usize> {
        match self.ordered() {
            None => vec![self.len()],
            Some(ordered) if self.closing.all_delivered() => {
                vec![0; usize::from(ordered.last_level) + 1]
            }
            Some(ordered) => match &ordered.by {
                By::Lanes(lanes) => lanes.depths(),
                By::Groups(..) => self.keys.depths(ordered.last_level),
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closing.all_delivered()
            || match self.groups() {
                None => self.nothing_to_take(),
                Some(groups) => groups.len() == 0,
            }
    }

    /// Returns whether a getter would find nothing.
    fn nothing_to_take(&self) -> bool {
        match self.ordered() {
            None => self.fifo.is_empty(),
            Some(ordered) => ordered.is_idle(),
        }
    }
}
