//! Delays: keys that are added once their due time has come.
//!
//! # Roles
//!
//! ```text
//!     caller that delays a key                  driver
//!     1 pins the node, sets its delay           pops the registrations
//!     2 pushes a registration         ----->    puts them into the wheel
//!     3 fence(SeqCst)                           fires what is due, a batch at a time:
//!     4 is the driver asleep beyond                 ends the delay, adds the key
//!       this due tick? wakes it                 notifies getters
//!                                               if nothing is left: publishes its next tick,
//!                                               fence(SeqCst), checks for registrations again,
//!                                               sleeps
//! ```
//!
//! The *driver* is the thread that holds the wheel: a thread that the first delay starts, or the first wait until a
//! time; or a caller of [`fire_due`](crate::WorkQueue::fire_due). The wheel is behind a mutex that otherwise
//! only a shut-down locks. A caller that delays a key pushes to a lock-free queue; it waits only for the limit of a debounced key.
//!
//! # Ground rules
//!
//! * A registration, and the wheel's entry made from it, holds a pin on its node, so the node
//!   outlives it. The thread that takes the entry out unpins the node.
//! * Moving or cancelling a delay does not access the wheel. The delay's entry is then *stale*,
//!   which its stamp shows ([`delay`](crate::keys::delay)). Stale entries are counted, and swept
//!   when they outnumber the others, so moving one delay a million times does not leave a million
//!   entries behind.
//! * The driver ends a delay and adds its key under the lock of the key's shard, without unlocking the mutex in
//!   between. A shut-down takes the wheel away before it visits the keys, so it finds each delay either pending or its
//!   key added, and counts it (S5).
//! * Getters are notified after the mutex is unlocked, because that may run user code (wakers).
//! * A turn reads the clock, then takes every registration made before, and then fires what was due
//!   by that reading (D8). In the other order, an entry could fire before one with an earlier due
//!   tick that was registered between the two steps.
//! * A turn fires, cascades and sweeps a bounded number of entries, so that neither a flood of new
//!   delays nor a million due or stale ones hold up the others (D1, D7).
//!
//! # Orderings
//!
//! `sleeps_until` and the registrations form a pair as in [`crate::wait`]: each side stores,
//! fences, and loads the other's word. Without the fences, the driver could miss a registration and
//! sleep past it, while the registering thread misses that the driver sleeps. `shrink`, or a `fire_due`
//! beside the driver, may have moved a registration to the wheel: the driver looks there, under the mutex,
//! before it sleeps. `cleared` and the registrations are another such pair, between a caller that delays a
//! key and a shut-down.

mod limits;
mod slot;
mod wheel;

use std::time::{Duration, Instant};

use crate::keys::delay::{LAST_TICK, Set, Stamp};
use crate::keys::node::{Pin, Pinned};
use crate::keys::rule::Rule;
use crate::keys::state::Level;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{AtomicWaker, Mutex, SegQueue, ThreadParker, fence_after_rmw, thread};
use crate::time::clock::{self, Clock};
use crate::time::nanos;
use limits::Limits;
pub(crate) use limits::Wait;
use wheel::{Polled, Wheel};

/// The most registrations that a registering thread moves to the wheel for the driver.
const HELP: usize = 4096;
/// Units of the wheel's work in one turn: entries that fire or move a level down.
const WORK: usize = 512;
/// With this many registrations waiting, the driver is woken even if none is due soon.
const CROWD: usize = 1024;
/// The most yields of a registering thread to the driver.
const YIELDS: usize = 16;

/// The longest delay, to which longer ones are lowered: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// `sleeps_until` of a driver that is awake or not running: it will check by itself.
const AWAKE: u64 = 0;

/// One delay of one key, on its way to the wheel or in it.
struct Entry<K> {
    pin: Pin<K>,
    stamp: Stamp,
}

pub(crate) struct Timer<K> {
    clock: Clock,
    /// The length of a tick in nanoseconds.
    tick: u64,
    rule: Rule,
    /// Whether `fire_due` drives the timer instead of a thread.
    pub(crate) manual: bool,
    /// With their due ticks.
    registrations: SegQueue<(u64, Entry<K>)>,
    /// The number of registrations, or one more while one is being pushed.
    registered: AtomicUsize,
    /// The tick the driver sleeps until; [`AWAKE`] if it does not sleep.
    sleeps_until: AtomicU64,
    sleeper: AtomicWaker,
    /// `None` once the queue is shut down.
    wheel: Mutex<Option<Wheel<Entry<K>>>>,
    /// The number of stale entries in the wheel or among the registrations: an estimate.
    stale: AtomicUsize,
    /// Whether a shut-down has dropped all entries; see `register`.
    cleared: AtomicBool,
    limits: Limits,
}

/// The entries that waited when the queue was shut down. Their nodes stay pinned until
/// [`Timer::clear`].
#[must_use]
pub(crate) struct Ended<K>(Option<Wheel<Entry<K>>>);

/// The result of a turn of the driver.
pub(crate) enum Turn {
    /// There is more to do now.
    More,
    /// There is nothing to do until this tick, or with `None` until a delay is registered. After a
    /// shut-down there is nothing to do any more.
    Rest(Option<u64>),
}

impl<K> Timer<K> {
    /// A timer whose ticks last `tick` nanoseconds, above 0.
    pub(crate) fn new(clock: Clock, tick: u64, rule: Rule, manual: bool) -> Self {
        Timer {
            clock,
            tick,
            rule,
            manual,
            registrations: SegQueue::new(),
            registered: AtomicUsize::new(0),
            sleeps_until: AtomicU64::new(AWAKE),
            sleeper: AtomicWaker::new(),
            wheel: Mutex::new(Some(Wheel::new(0))),
            stale: AtomicUsize::new(0),
            cleared: AtomicBool::new(false),
            limits: Limits::default(),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    fn now(&self) -> u64 {
        self.clock().nanos() / self.tick
    }

    /// Returns the first tick that is no earlier than `delay` from now.
    fn due(&self, delay: Duration) -> u64 {
        let delay = delay.min(LONGEST);
        let at = self
            .clock()
            .nanos()
            .saturating_add(nanos::saturating(delay));
        // The clock stops at its end, so a delay that would be due later is due then.
        let last = LAST_TICK.min(clock::END / self.tick);
        at.div_ceil(self.tick).min(last)
    }

    /// Delays the pinned key, to be added at `level`, as a `retry` or not, and takes ownership of the pin. `admit` is called with the
    /// pin, and as by [`Delay::set`](crate::keys::delay::Delay::set). Drops `lock` once the delay is set.
    pub(crate) fn delay(
        &self,
        pin: Pin<K>,
        level: Level,
        wait: Wait,
        retry: bool,
        mut admit: impl FnMut(&Pin<K>) -> bool,
        lock: impl Sized,
    ) -> Set {
        let admit = || admit(&pin);
        let mut set = match wait.limit {
            None => {
                let due = self.due(wait.delay);
                pin.delay().set(due, level, self.rule, retry, admit)
            }
            Some(limit) => {
                let dues = || (self.due(wait.delay), self.due(limit));
                self.limits.set(pin.delay(), level, self.rule, dues, admit)
            }
        };
        drop(lock);
        if let Set::Kept { turned } = set
            && wait.limit.is_none()
            && pin.delay().is_burst()
        {
            // Without the lock: what this sets moves a delay that is pending by now, as a call that comes now would.
            let due = || self.due(wait.delay);
            if let Some(stamp) = self.limits.lower(pin.delay(), level, self.rule, due) {
                let moved = true;
                set = Set::Pending {
                    stamp,
                    moved,
                    turned,
                };
            }
        }
        match set {
            Set::Pending { stamp, moved, .. } => {
                if moved {
                    self.note_stale();
                }
                self.register(stamp.due(), Entry { pin, stamp });
            }
            Set::Kept { .. } | Set::Refused | Set::Closed => pin.unpin(),
        }
        set
    }

    /// Notes that a delay was moved or cancelled while its entry waits.
    pub(crate) fn note_stale(&self) {
        // Ordering: Relaxed; an estimate.
        let before = self.stale.fetch_add(1, Ordering::Relaxed);
        // The driver may be asleep for hours: wake it from time to time to check whether to sweep.
        if before % CROWD == CROWD - 1 {
            self.wake();
        }
    }

    fn register(&self, due: u64, entry: Entry<K>) {
        // Ordering: Relaxed; ordered by the fence below.
        let crowd = self.registered.fetch_add(1, Ordering::Relaxed) >= CROWD;
        self.registrations.push((due, entry));
        // Ordering: SeqCst, after the addition and the push; pairs with the fences in
        // `prepare_sleep` and in `clear`: see the header.
        fence_after_rmw();
        // Ordering: Relaxed; ordered by the fence.
        let sleeps_until = self.sleeps_until.load(Ordering::Relaxed);
        if due < sleeps_until || (crowd && sleeps_until != AWAKE) {
            self.wake();
        }
        // Ordering: Relaxed; ordered by the fence.
        if self.cleared.load(Ordering::Relaxed) {
            self.drop_registrations();
        }
        if crowd {
            self.throttle();
        }
    }

    /// Slows this thread down when many registrations are waiting, without blocking it.
    ///
    /// It yields to a driver thread. Doing the driver's work here would be worse: a thread that is
    /// preempted while it holds the mutex holds up every due delay.
    #[cold]
    fn throttle(&self) {
        if self.manual {
            return self.help();
        }
        for _ in 0..YIELDS {
            thread::yield_now();
            // Ordering: Relaxed; a hint.
            if self.registered.load(Ordering::Relaxed) < CROWD {
                return;
            }
        }
    }

    /// Moves a batch of registrations to the wheel on behalf of a manual driver, unless another
    /// thread holds the wheel.
    fn help(&self) {
        if let Some(mut wheel) = self.wheel.try_lock()
            && let Some(wheel) = wheel.as_mut()
        {
            let taken = self.take_registrations(wheel, HELP);
            self.sweep_if_due(wheel, taken);
        }
    }

    /// Wakes the driver if it sleeps longer than until `at`, in nanoseconds. The caller has stored that time
    /// where [`sleep`](Self::sleep)'s `is_awaited` finds it.
    pub(crate) fn wake_by(&self, at: u64) {
        // Ordering: SeqCst; pairs with the fence in `prepare_sleep`.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed; ordered by the fence.
        if self.tick_of(at) < self.sleeps_until.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Returns the first tick that is no earlier than this time, in nanoseconds.
    pub(crate) fn tick_of(&self, at: u64) -> u64 {
        at.div_ceil(self.tick)
    }

    pub(crate) fn wake(&self) {
        // Ordering: Relaxed; saves other threads the call. The waker itself synchronises.
        self.sleeps_until.store(AWAKE, Ordering::Relaxed);
        self.sleeper.wake();
    }

    /// Runs one turn: moves the registrations to the wheel and fires a batch of due entries, that
    /// is, passes their pins and stamps to `end`, under the mutex. That ends the delay, adds the key and unpins it, or
    /// returns `None` if the entry is stale. The caller then calls again or sleeps.
    pub(crate) fn turn(&self, mut end: impl FnMut(&Pin<K>, Stamp) -> Option<()>) -> Turn {
        let mut wheel = self.wheel.lock();
        let Some(wheel) = wheel.as_mut() else {
            return Turn::Rest(None);
        };
        // Read the clock before counting the registrations: see the ground rules.
        let now = self.now();
        // Ordering: Relaxed; counts every registration that this thread knows to have been made.
        // Later ones are for the next turn, however fast they come.
        let registered = self.registered.load(Ordering::Relaxed);
        let taken = self.take_registrations(wheel, registered);
        let swept = self.sweep_if_due(wheel, taken);
        match wheel.poll(now, WORK, |_, entry| self.fire(&entry, &mut end)) {
            Polled::CaughtUp if swept => Turn::Rest(wheel.next_wake()),
            _ => Turn::More,
        }
    }

    /// Moves up to this many registrations to the wheel, and returns how many those were.
    fn take_registrations(&self, wheel: &mut Wheel<Entry<K>>, most: usize) -> usize {
        let mut taken = 0;
        while taken < most
            && let Some((due, entry)) = self.registrations.pop()
        {
            wheel.insert(due, entry);
            taken += 1;
        }
        // Ordering: Relaxed; a count.
        self.registered.fetch_sub(taken, Ordering::Relaxed);
        taken
    }

    /// Fires an entry: passes it to `end`, and discards it if it is stale.
    fn fire(&self, entry: &Entry<K>, end: impl FnOnce(&Pin<K>, Stamp) -> Option<()>) {
        // `end` unpins the node.
        let burst = entry.stamp.is_burst().then(|| Pinned(entry.pin.clone()));
        if end(&entry.pin, entry.stamp).is_none() {
            self.discard(entry);
        } else if let Some(Pinned(pin)) = &burst {
            self.limits.forget(pin.delay());
        }
    }

    /// Unpins and uncounts a stale entry.
    fn discard(&self, entry: &Entry<K>) {
        if entry.stamp.is_burst() {
            self.limits.forget(entry.pin.delay());
        }
        entry.pin.unpin();
        // Ordering: Relaxed; an estimate.
        self.stale.fetch_sub(1, Ordering::Relaxed);
    }

    /// Visits a batch of entries if too many are stale, and removes those. Returns whether that was
    /// all. The batch is twice as large as what the turn has taken, so that sweeps keep pace.
    fn sweep_if_due(&self, wheel: &mut Wheel<Entry<K>>, taken: usize) -> bool {
        if !wheel.is_sweeping() {
            // Ordering: Relaxed; an estimate. It is briefly below zero when an entry fires before
            // the thread that made it stale has counted it.
            let stale = self.stale.load(Ordering::Relaxed).cast_signed().max(0) as usize;
            if stale <= CROWD || stale <= wheel.len() / 2 {
                return true;
            }
        }
        wheel.sweep(WORK.max(2 * taken), |entry| self.keeps(entry))
    }

    /// Returns whether an entry's delay is pending. Discards a stale entry.
    fn keeps(&self, entry: &Entry<K>) -> bool {
        let pending = entry.pin.delay().is(entry.stamp);
        if !pending {
            self.discard(entry);
        }
        pending
    }

    /// Removes every stale entry, so that none keeps its key interned.
    pub(crate) fn shrink(&self) {
        if let Some(wheel) = self.wheel.lock().as_mut() {
            // Ordering: Relaxed; as in `turn`.
            self.take_registrations(wheel, self.registered.load(Ordering::Relaxed));
            wheel.retain(|entry| self.keeps(entry));
        }
    }

    /// Announces that the driver sleeps until tick `until`, with `sleeper` to wake it. Returns
    /// false if there are registrations, or an entry that is due earlier, so that it must not sleep.
    fn prepare_sleep(&self, until: Option<u64>, sleeper: &std::task::Waker) -> bool {
        self.sleeper.register(sleeper);
        // Ordering: Relaxed; ordered by the fence.
        self.sleeps_until
            .store(until.unwrap_or(u64::MAX), Ordering::Relaxed);
        // Ordering: SeqCst; pairs with the fence in `register`: see the header.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed; ordered by the fence.
        let idle = self.registered.load(Ordering::Relaxed) == 0 && !self.is_due_before(until);
        if !idle {
            self.mark_awake();
        }
        idle
    }

    /// Returns whether the wheel has an entry that is due before tick `until`.
    fn is_due_before(&self, until: Option<u64>) -> bool {
        let next = self.wheel.lock().as_ref().and_then(Wheel::next_wake);
        next.is_some_and(|next| until.is_none_or(|until| next < until))
    }

    /// Sleeps until tick `until`, until `look`, or until woken. Returns immediately if there is
    /// something to do.
    pub(crate) fn sleep(
        &self,
        until: Option<u64>,
        look: Option<Instant>,
        parker: &ThreadParker,
        is_stopped: impl Fn() -> bool,
    ) {
        if !self.prepare_sleep(until, parker.waker()) {
            if self.registrations.is_empty() || self.wheel.lock().is_none() {
                // A thread has counted its registration but not pushed it yet, or a shut-down has taken the wheel
                // away and not yet dropped the registrations.
                thread::yield_now();
            }
            return;
        }
        // A mocked clock wakes its sleepers when it is advanced.
        let mocked = self.clock().sleepers();
        let waiter = mocked.map(|sleepers| sleepers.register(parker.waker()));
        let early = until.is_none_or(|tick| self.now() < tick);
        if early && !is_stopped() {
            let deadline = match (mocked, until) {
                (None, Some(tick)) => Instant::now().checked_add(self.until(tick)),
                _ => None,
            };
            parker.park(deadline.into_iter().chain(look).min());
        }
        if let (Some(sleepers), Some(waiter)) = (mocked, waiter) {
            sleepers.cancel(waiter);
        }
        self.mark_awake();
    }

    fn mark_awake(&self) {
        // Ordering: Relaxed; a thread that reads the old value only wakes the driver needlessly.
        self.sleeps_until.store(AWAKE, Ordering::Relaxed);
    }

    /// Returns the time until `tick`.
    pub(crate) fn until(&self, tick: u64) -> Duration {
        let at = tick.saturating_mul(self.tick);
        Duration::from_nanos(at.saturating_sub(self.clock().nanos()))
    }

    /// Stops all firing, for a shut-down. With `fire`, it first fires every pending delay, due or
    /// not, in due order, as a [`turn`](Self::turn) does.
    ///
    /// Waits for a turn in progress.
    pub(crate) fn end(&self, fire: Option<impl FnMut(&Pin<K>, Stamp) -> Option<()>>) -> Ended<K> {
        let mut wheel = self.wheel.lock();
        if let (Some(wheel), Some(mut fire)) = (wheel.as_mut(), fire) {
            self.take_registrations(wheel, usize::MAX);
            wheel.take_all(|_, entry| self.fire(&entry, &mut fire));
        }
        Ended(wheel.take())
    }

    /// Drops the entries of `ended`, once no delay is pending any more.
    pub(crate) fn clear(&self, ended: Ended<K>) {
        // Ordering: Relaxed; ordered by the fence.
        self.cleared.store(true, Ordering::Relaxed);
        // Ordering: SeqCst; pairs with the fence in `register`: a thread that pushes too late for
        // this call drops the registrations itself.
        fence(Ordering::SeqCst);
        self.drop_registrations();
        if let Some(mut wheel) = ended.0 {
            wheel.take_all(|_, entry| entry.pin.unpin());
        }
    }

    fn drop_registrations(&self) {
        while let Some((_, entry)) = self.registrations.pop() {
            entry.pin.unpin();
            // Ordering: Relaxed; a count. Groups may keep the driver after a shut-down, and it must not take these
            // for registrations that are about to come.
            self.registered.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
