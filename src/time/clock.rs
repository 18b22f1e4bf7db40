//! The clock: nanoseconds since it was created, monotonic, and replaceable by a mock.
//!
//! What is decided by time, such as when a delay ends, takes the operating system's clock. It knows when the processor's cycle
//! counter is reset or runs at another rate, after a suspend or on another host. Ages are measured with the counter itself, by
//! `quanta`, which takes a third of the time: a timed queue reads it three times for each key. After a reset the ages of the
//! keys that are there are wrong, and a limiter may forget failures early. quanta calibrates itself once per process, which takes up to 200 ms: a clock
//! that measures no age does not.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::time::nanos;
use crate::wait::WaitList;

/// The largest reading of a clock, in nanoseconds: 292 years after its creation. A reading plus one
/// leaves the highest bit free ([`crate::keys::times`] uses that bit).
pub(crate) const END: u64 = (1 << 63) - 2;

/// A monotonic clock, which a test can replace with a mock that it advances manually.
///
/// A clone reads the same time as its original. Whether it advances while the machine is suspended depends on the operating
/// system. The first measurement of an age in a process, by a queue with a name or a limiter, calibrates the processor's counter,
/// which may take up to 200 ms.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use std::time::Duration;
///
/// let clock = Clock::new();
/// let earlier = clock.now();
/// assert!(clock.now() >= earlier);
///
/// let (clock, mock) = Clock::mock();
/// assert_eq!(clock.now(), Duration::ZERO);
/// mock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now(), Duration::from_secs(3600));
/// ```
#[derive(Clone)]
pub struct Clock {
    time: Time,
}

/// The control of a mocked [`Clock`], whose time stands still until it is advanced.
///
/// A clone controls the same clock. Any thread may advance it.
#[derive(Clone)]
pub struct MockClock {
    time: Arc<MockTime>,
}

#[derive(Clone)]
enum Time {
    Real(Arc<RealTime>),
    Mock(Arc<MockTime>),
}

#[derive(Default)]
struct MockTime {
    /// Nanoseconds since the clock was created.
    now: AtomicU64,
    /// The threads that sleep by this clock.
    sleepers: WaitList,
}

struct RealTime {
    created: Instant,
    /// Set by the first measurement.
    counter: OnceLock<quanta::Clock>,
}

impl Clock {
    /// Creates a clock of real time, which starts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            time: Time::Real(Arc::new(RealTime {
                created: Instant::now(),
                counter: OnceLock::new(),
            })),
        }
    }

    /// Creates a mocked clock that stands at zero, and the [`MockClock`] that advances it.
    #[must_use]
    pub fn mock() -> (Self, MockClock) {
        let mock = MockClock {
            time: Arc::default(),
        };
        (mock.clock(), mock)
    }

    /// Returns the time since the clock was created.
    ///
    /// The result is never less than that of an earlier call, on any thread. It stops at 292 years.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// Returns [`now`](Self::now) in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        match &self.time {
            Time::Real(real) => nanos::saturating(real.created.elapsed()).min(END),
            Time::Mock(time) => time.nanos(),
        }
    }

    /// Returns a reading for measuring durations, which is cheaper than nanoseconds;
    /// [`nanos_between`](Self::nanos_between) converts two of them. Never 0. May be some
    /// nanoseconds behind the reading of another core, and starts anew with the processor.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        match &self.time {
            Time::Real(real) => real.counter().raw().max(1),
            Time::Mock(time) => time.nanos() + 1,
        }
    }

    /// Returns the nanoseconds from one reading to another, 0 if the second is not later.
    pub(crate) fn nanos_between(&self, from: u64, to: u64) -> u64 {
        match &self.time {
            Time::Real(real) => real.counter().delta_as_nanos(from, to),
            Time::Mock(_) => to.saturating_sub(from),
        }
    }

    /// Returns a reading in nanoseconds that is cheaper than [`nanos`](Self::nanos), and not to be compared with it. It begins
    /// anywhere, and anew when the counter does.
    pub(crate) fn rough_nanos(&self) -> u64 {
        match &self.time {
            Time::Real(_) => self.nanos_between(0, self.ticks()),
            Time::Mock(time) => time.nanos(),
        }
    }

    /// Returns the instant of a reading in nanoseconds; `None` for a mocked clock.
    pub(crate) fn instant(&self, nanos: u64) -> Option<Instant> {
        match &self.time {
            Time::Real(real) => real.created.checked_add(Duration::from_nanos(nanos)),
            Time::Mock(_) => None,
        }
    }

    /// Returns the waiters that a mocked clock wakes when it is advanced; `None` for real time.
    pub(crate) fn sleepers(&self) -> Option<&WaitList> {
        match &self.time {
            Time::Real(_) => None,
            Time::Mock(time) => Some(&time.sleepers),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).finish()
    }
}

impl MockClock {
    /// Moves the clock forward by `d`, at most to 292 years after its creation, and wakes the
    /// threads that sleep by it.
    pub fn advance(&self, d: Duration) {
        let by = nanos::saturating(d);
        let now = &self.time.now;
        // Ordering: Release; pairs with the Acquire load in `MockTime::nanos`: a thread that sees
        // the new time sees what the advancing thread did before. Relaxed on failure: only a value
        // for the next attempt.
        let advanced = now.fetch_update(Ordering::Release, Ordering::Relaxed, |now| {
            Some(now.saturating_add(by).min(END))
        });
        debug_assert!(advanced.is_ok(), "the closure always returns a value");
        self.time.sleepers.notify_all();
    }

    /// Returns the clock that this control advances.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock {
            time: Time::Mock(Arc::clone(&self.time)),
        }
    }
}

impl fmt::Debug for MockClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockClock")
            .field("now", &self.clock().now())
            .finish()
    }
}

impl MockTime {
    fn nanos(&self) -> u64 {
        // Ordering: Acquire; pairs with the Release update in `MockClock::advance`.
        self.now.load(Ordering::Acquire)
    }
}

impl RealTime {
    #[inline]
    fn counter(&self) -> &quanta::Clock {
        self.counter.get_or_init(quanta::Clock::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaled::scaled;
    use std::thread;

    fn real(clock: &Clock) -> &RealTime {
        match &clock.time {
            Time::Real(real) => real,
            Time::Mock(_) => unreachable!("made by Clock::new"),
        }
    }

    // M4. Nor does a clock calibrate that is not read.
    #[test]
    fn a_queue_without_a_name_reads_no_clock() {
        let builder = || crate::WorkQueue::<u64>::builder().clock(Clock::new());
        for (queue, read) in [
            (builder().build().unwrap(), false),
            (builder().name("named").build().unwrap(), true),
        ] {
            queue.add(1);
            let item = queue.get().unwrap();
            queue.add(1);
            queue.handle(1).add();
            item.done();
            drop(queue.get_batch(1));
            let counter = real(queue.core.timer.clock()).counter.get();
            assert_eq!(counter.is_some(), read);
        }
    }

    // D9: however long the machine has run, which is where its counter stands.
    #[test]
    fn a_clock_begins_with_itself_and_not_with_the_processor() {
        let began = Instant::now();
        let clock = Clock::new();
        let _ = clock.ticks();
        let now = clock.now();
        assert!(now <= began.elapsed(), "{now:?}");
    }

    // D9
    #[test]
    fn no_thread_sees_time_go_back() {
        let clock = Clock::new();
        let latest = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        // Ordering: SeqCst; the plain order of events is what is being tested.
                        let seen = latest.load(Ordering::SeqCst);
                        let now = clock.nanos();
                        assert!(now >= seen, "{now} is before {seen}");
                        // Ordering: SeqCst; as above.
                        latest.fetch_max(now, Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn a_mock_moves_all_clones_and_saturates() {
        let (clock, mock) = Clock::mock();
        let other = clock.clone();
        thread::scope(|scope| {
            for _ in 0..4 {
                let mock = mock.clone();
                scope.spawn(move || {
                    for _ in 0..scaled(1000) {
                        mock.advance(Duration::from_nanos(1));
                    }
                });
            }
        });
        let moved = Duration::from_nanos(4 * scaled(1000) as u64);
        assert_eq!(other.now(), moved);
        assert_eq!(mock.clock().now(), moved);
        mock.advance(Duration::MAX);
        mock.advance(Duration::MAX);
        assert_eq!(clock.now(), Duration::from_nanos(END));
    }
}
