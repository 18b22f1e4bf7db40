//! Delays: keys that are to be added when their time has come.
//!
//! # Roles
//!
//! ```text
//!     who delays a key                          the driver
//!     1 pins the node, sets its delay           takes the registrations that there are
//!     2 pushes a registration         ----->    puts them into the wheel
//!     3 fence(SeqCst)                           takes what is due, a batch at a time:
//!     4 is the driver asleep beyond                 ends the delay; its add is a plain add
//!       this due tick? wakes it                 wakes getters
//!                                               nothing left: publishes its next tick,
//!                                               fence(SeqCst), looks for registrations again,
//!                                               sleeps
//! ```
//!
//! The *driver* is whoever has the wheel: a thread that is started with the first delay, or
//! [`fire_due`](crate::WorkQueue::fire_due) called by hand. The wheel is behind a mutex, which
//! nobody else takes but a shut-down; delaying a key pushes to a lock-free queue and never waits.
//!
//! # Ground rules
//!
//! * A registration, and the wheel's entry made from it, holds a pin on its node, so that the
//!   node outlives it. Whoever takes the entry out gives the pin back.
//! * The wheel is never told that a delay was moved or cancelled. Its entry is *stale* then, and
//!   found out by its stamp ([`delay`]). Stale entries are counted, and swept when they outnumber
//!   the others: moving one delay a million times leaves no million entries behind.
//! * A delay is ended and its key added under the mutex, in one go. A shut-down takes the wheel
//!   away first and looks at the keys then, so it finds each delay pending or its key added, never
//!   in between, where it would be lost uncounted (S5).
//! * Getters are notified without the mutex: that may run anybody's wakers.
//! * A turn takes the registrations made before it, all of them, or one due early could come up
//!   after another due later (D8); and what is due in bounded batches. So neither a flood of new
//!   delays nor a million due at once keeps the other waiting (D7).
//!
//! # Orderings
//!
//! `sleeps_until` and the registrations are a pair as in [`crate::wait`]: each side stores,
//! fences, and looks at the other's. Without the fences the driver could sleep past a
//! registration that it did not see, made by a thread that did not see it asleep. `cleared` and
//! the registrations are another such pair, between who delays a key and a shut-down.

mod delay;
mod driver;
mod level;
mod slot;
mod wheel;

use std::sync::PoisonError;
use std::time::Duration;

pub use delay::DelayPolicy;
pub(crate) use delay::{Delay, Set, Stamp};
pub(crate) use driver::Driver;

use crate::clock::Clock;
use crate::nanos;
use crate::node::Pin;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{self, AtomicWaker, Mutex, MutexGuard, OnceLock, SegQueue, fence_after_rmw};
use delay::LAST_TICK;
use wheel::{Polled, Wheel};

/// Registrations that somebody takes in the driver's place.
const HELP: usize = 4096;
/// Units of the wheel's work in one go: entries that come up or move a level down.
const WORK: usize = 512;
/// With so many registrations waiting, somebody takes them even if none is due soon.
const CROWD: usize = 1024;
/// How often at most somebody who makes more yields to the driver.
const YIELDS: usize = 16;

/// Longer delays count as this one: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// `sleeps_until` of a driver that is awake, or not there: it will look by itself.
const AWAKE: u64 = 0;

/// One delay of one key, on its way to the wheel or in it.
struct Entry<K> {
    pin: Pin<K>,
    stamp: Stamp,
}

pub(crate) struct Timer<K> {
    /// One of its own, if it was given none, is made by the first delay and starts there.
    clock: OnceLock<Clock>,
    /// The length of a tick in nanoseconds.
    tick: u64,
    policy: DelayPolicy,
    /// Whether the driver is somebody who calls `fire_due`, and no thread.
    manual: bool,
    /// With their due ticks.
    registrations: SegQueue<(u64, Entry<K>)>,
    /// The number of registrations, or one more while one is being pushed.
    registered: AtomicUsize,
    /// The tick the driver sleeps until; [`AWAKE`] if it does not sleep.
    sleeps_until: AtomicU64,
    sleeper: AtomicWaker,
    /// None once the queue is shut down.
    wheel: Mutex<Option<Wheel<Entry<K>>>>,
    /// Stale entries in the wheel or on the way to it: an estimate.
    stale: AtomicUsize,
    /// Whether what waits has been dropped for good; see `register`.
    cleared: AtomicBool,
}

/// What waited when the queue was shut down. Its nodes stay pinned until [`Timer::clear`].
#[must_use]
pub(crate) struct Ended<K>(Option<Wheel<Entry<K>>>);

/// What a turn of the driver found.
pub(crate) enum Turn {
    /// There is more to do now.
    More,
    /// Nothing to do until this tick; none: until something is registered.
    Rest(Option<u64>),
    /// The queue is shut down: nothing to do any more.
    Ended,
}

impl<K> Timer<K> {
    /// A timer whose ticks last `tick` nanoseconds, above 0.
    pub(crate) fn new(clock: Option<Clock>, tick: u64, policy: DelayPolicy, manual: bool) -> Self {
        Timer {
            clock: clock.map_or_else(OnceLock::new, OnceLock::from),
            tick,
            policy,
            manual,
            registrations: SegQueue::new(),
            registered: AtomicUsize::new(0),
            sleeps_until: AtomicU64::new(AWAKE),
            sleeper: AtomicWaker::new(),
            wheel: Mutex::new(Some(Wheel::new(0))),
            stale: AtomicUsize::new(0),
            cleared: AtomicBool::new(false),
        }
    }

    fn wheel(&self) -> MutexGuard<'_, Option<Wheel<Entry<K>>>> {
        // Nothing that panics is done under the mutex, so a poisoned one is as good.
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no thread to be: somebody calls `fire_due`.
    pub(crate) fn is_manual(&self) -> bool {
        self.manual
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.clock.get_or_init(Clock::new)
    }

    fn now(&self) -> u64 {
        self.clock().nanos() / self.tick
    }

    /// The first tick that is no earlier than `delay` from now.
    fn due(&self, delay: Duration) -> u64 {
        let delay = delay.min(LONGEST);
        let at = self
            .clock()
            .nanos()
            .saturating_add(nanos::saturating(delay));
        at.div_ceil(self.tick).min(LAST_TICK)
    }

    /// Delays the pinned key; false if the queue is shut down. Takes the pin over.
    pub(crate) fn delay(&self, pin: Pin<K>, delay: Duration) -> bool {
        let due = self.due(delay);
        match pin.delay().set(due, self.policy) {
            Set::Pending { stamp, moved } => {
                if moved {
                    self.note_stale();
                }
                self.register(due, Entry { pin, stamp });
                true
            }
            set => {
                pin.unpin();
                set == Set::Kept
            }
        }
    }

    /// Notes that a delay was moved or cancelled while its entry waits.
    pub(crate) fn note_stale(&self) {
        // Ordering: Relaxed; an estimate.
        let before = self.stale.fetch_add(1, Ordering::Relaxed);
        // The driver may be asleep for hours; let it see now and then whether to sweep.
        if before % CROWD == CROWD - 1 {
            self.wake();
        }
    }

    fn register(&self, due: u64, entry: Entry<K>) {
        // Ordering: Relaxed; ordered by the fence below, for who sleeps.
        let crowd = self.registered.fetch_add(1, Ordering::Relaxed) >= CROWD;
        self.registrations.push((due, entry));
        // Ordering: SeqCst, after the addition and the push; pairs with the fences in `rest` and in
        // `clear`: see the header.
        fence_after_rmw();
        // Ordering: Relaxed; ordered by the fence.
        let sleeps_until = self.sleeps_until.load(Ordering::Relaxed);
        if due < sleeps_until || (crowd && sleeps_until != AWAKE) {
            self.wake();
        }
        if crowd {
            self.relieve();
        }
        // Ordering: Relaxed; ordered by the fence.
        if self.cleared.load(Ordering::Relaxed) {
            self.drop_registrations();
        }
    }

    /// Does something about a crowd of registrations, but waits for nobody.
    ///
    /// A thread that drives is let run. Taking its work over would be worse: who is off the
    /// processor just then, with the mutex, holds up every delay that is due.
    #[cold]
    fn relieve(&self) {
        if self.manual {
            return self.help();
        }
        for _ in 0..YIELDS {
            sync::yield_now();
            // Ordering: Relaxed; a hint.
            if self.registered.load(Ordering::Relaxed) < CROWD {
                return;
            }
        }
    }

    /// Takes a batch of registrations in place of whoever drives by hand, if nobody has the wheel.
    fn help(&self) {
        if let Ok(mut wheel) = self.wheel.try_lock() {
            if let Some(wheel) = wheel.as_mut() {
                self.take_registrations(wheel, HELP);
                self.sweep_if_due(wheel);
            }
        }
    }

    /// Wakes the driver, if it sleeps.
    pub(crate) fn wake(&self) {
        // Ordering: Relaxed; spares others the call. The waker itself synchronises.
        self.sleeps_until.store(AWAKE, Ordering::Relaxed);
        self.sleeper.wake();
    }

    /// Takes the registrations, and a batch of what is due: ends those delays and passes the pins
    /// on to `add`, under the mutex. The caller then calls again or sleeps.
    pub(crate) fn turn(&self, mut add: impl FnMut(Pin<K>)) -> Turn {
        let mut wheel = self.wheel();
        let Some(wheel) = wheel.as_mut() else {
            return Turn::Ended;
        };
        // Ordering: Relaxed; counts every registration that this thread knows to have been made.
        // Later ones are for the next turn, however fast they come.
        self.take_registrations(wheel, self.registered.load(Ordering::Relaxed));
        self.sweep_if_due(wheel);
        match wheel.poll(self.now(), WORK, |_, entry| self.come_up(entry, &mut add)) {
            Polled::CaughtUp => Turn::Rest(wheel.next_wake()),
            Polled::More => Turn::More,
        }
    }

    /// Moves so many registrations to the wheel.
    fn take_registrations(&self, wheel: &mut Wheel<Entry<K>>, most: usize) {
        let mut taken = 0;
        while taken < most {
            let Some((due, entry)) = self.registrations.pop() else {
                break;
            };
            wheel.insert(due, entry);
            taken += 1;
        }
        // Ordering: Relaxed; a count.
        self.registered.fetch_sub(taken, Ordering::Relaxed);
    }

    /// An entry's time has come: passes its pin on if the delay is still the entry's.
    fn come_up(&self, entry: Entry<K>, add: impl FnOnce(Pin<K>)) {
        if entry.pin.delay().end(entry.stamp) {
            add(entry.pin);
        } else {
            self.discard(&entry);
        }
    }

    /// Takes leave of a stale entry.
    fn discard(&self, entry: &Entry<K>) {
        entry.pin.unpin();
        // Ordering: Relaxed; an estimate.
        self.stale.fetch_sub(1, Ordering::Relaxed);
    }

    fn sweep_if_due(&self, wheel: &mut Wheel<Entry<K>>) {
        // Ordering: Relaxed; an estimate. It is below zero for a moment when an entry comes up
        // before the thread that made it stale has noted that.
        let stale = self.stale.load(Ordering::Relaxed).cast_signed().max(0) as usize;
        if stale > CROWD && stale > wheel.len() / 2 {
            wheel.retain(|entry| {
                let pending = entry.pin.delay().is(entry.stamp);
                if !pending {
                    self.discard(entry);
                }
                pending
            });
        }
    }

    /// Says that the driver is going to sleep until tick `until`, with `sleeper` to wake it.
    /// False if there is something to do after all.
    fn rest(&self, until: Option<u64>, sleeper: &std::task::Waker) -> bool {
        self.sleeper.register(sleeper);
        // Ordering: Relaxed; ordered by the fence.
        self.sleeps_until
            .store(until.unwrap_or(u64::MAX), Ordering::Relaxed);
        // Ordering: SeqCst; pairs with the fence in `register`: see the header.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed; ordered by the fence.
        let idle = self.registered.load(Ordering::Relaxed) == 0;
        if !idle {
            self.rise();
        }
        idle
    }

    /// Says that the driver is awake.
    fn rise(&self) {
        // Ordering: Relaxed; who reads the old value wakes once too often.
        self.sleeps_until.store(AWAKE, Ordering::Relaxed);
    }

    /// How long it is until `tick`.
    pub(crate) fn until(&self, tick: u64) -> Duration {
        let at = tick.saturating_mul(self.tick);
        Duration::from_nanos(at.saturating_sub(self.clock().nanos()))
    }

    /// Lets no delay come up any more, because the queue is shut down. With `add` it ends every
    /// delay that is pending before, whatever its time, in due order.
    ///
    /// Waits for a turn that is being taken.
    pub(crate) fn end(&self, add: Option<impl FnMut(Pin<K>)>) -> Ended<K> {
        let mut wheel = self.wheel();
        if let (Some(wheel), Some(mut add)) = (wheel.as_mut(), add) {
            self.take_registrations(wheel, usize::MAX);
            wheel.take_all(|_, entry| self.come_up(entry, &mut add));
        }
        Ended(wheel.take())
    }

    /// Drops what has ended, once no delay is pending any more.
    pub(crate) fn clear(&self, ended: Ended<K>) {
        // Ordering: Relaxed; ordered by the fence.
        self.cleared.store(true, Ordering::Relaxed);
        // Ordering: SeqCst; pairs with the fence in `register`: what is pushed too late for this
        // is dropped by who pushed it.
        fence(Ordering::SeqCst);
        self.drop_registrations();
        if let Some(mut wheel) = ended.0 {
            wheel.take_all(|_, entry| entry.pin.unpin());
        }
    }

    fn drop_registrations(&self) {
        while let Some((_, entry)) = self.registrations.pop() {
            entry.pin.unpin();
        }
    }
}
