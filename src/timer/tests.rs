//! The timer without its thread: what a turn does, and when a registration wakes the driver.

use super::*;
use crate::DelayPolicy;
use crate::keys::Keys;
use crate::keys::slab::SideData;
use crate::time::clock::MockClock;
use crate::wait::tests::Bell;

/// A tick, in nanoseconds.
const TICK: u64 = 1_000_000;

struct Timed {
    timer: Timer<u64>,
    keys: Keys<u64, ()>,
    time: MockClock,
}

impl Timed {
    fn new() -> Self {
        let (clock, time) = Clock::mock();
        let rule = Rule {
            policy: DelayPolicy::Replace,
            holds_retries: false,
        };
        Timed {
            timer: Timer::new(clock, TICK, rule, true),
            keys: Keys::new(2, SideData::default()),
            time,
        }
    }

    fn pin(&self, key: u64) -> Pin<u64> {
        let mut shard = self.keys.lock(key);
        match shard.pin(key, |known| *known == key) {
            Some(pin) => pin,
            None => shard.insert_pinned(key, key, false).0,
        }
    }

    fn delay(&self, key: u64, ticks: u64) {
        self.delay_as(key, ticks, 0, false);
    }

    fn delay_as(&self, key: u64, ticks: u64, level: Level, retry: bool) {
        let wait = Duration::from_nanos(ticks * TICK).into();
        let set = self
            .timer
            .delay(self.pin(key), level, wait, retry, |_| true, ());
        assert_ne!(set, Set::Closed);
    }

    /// Cancels the delay of a key, as the queue does.
    fn cancel(&self, key: u64) {
        let pin = self.pin(key);
        assert!(pin.delay().cancel().is_some());
        pin.unpin();
        self.timer.note_stale();
    }

    /// Runs one turn, and returns the keys that it fired.
    fn turn(&self) -> Vec<u64> {
        let mut keys = Vec::new();
        let _ = self.timer.turn(|pin, stamp| {
            pin.delay().end(stamp).map(|_| {
                keys.push(*pin.key());
                pin.unpin();
            })
        });
        keys
    }

    fn stale(&self) -> usize {
        // Ordering: Relaxed; one thread.
        self.timer.stale.load(Ordering::Relaxed)
    }
}

// D8
#[test]
#[cfg_attr(miri, ignore = "thousands of keys in one thread")]
fn a_turn_takes_every_registration_before_it_fires_any() {
    let timed = Timed::new();
    {
        // No thread helps while the wheel is locked.
        let _wheel = timed.timer.wheel.lock();
        let delays = || {
            (0..5000).for_each(|key| timed.delay(key, 2));
            timed.delay(5000, 1);
        };
        std::thread::scope(|scope| scope.spawn(delays).join().unwrap());
    }
    timed.time.advance(Duration::from_nanos(3 * TICK));
    assert_eq!(timed.turn().first(), Some(&5000));
}

// D1 D7: a turn of a wheel full of stale entries is short.
#[test]
#[cfg_attr(miri, ignore = "thousands of keys in one thread")]
fn a_turn_removes_a_bounded_number_of_stale_entries() {
    let timed = Timed::new();
    let keys = 20_000;
    (0..keys).for_each(|key| timed.delay(key, 1000));
    assert!(timed.turn().is_empty());
    (0..keys).for_each(|key| timed.cancel(key));
    timed.delay(keys, 1);
    timed.time.advance(Duration::from_nanos(TICK));
    assert_eq!(
        timed.turn(),
        [keys],
        "what is due does not wait for the sweep"
    );
    let mut turns = 1;
    while timed.stale() > 0 {
        let before = timed.stale();
        let turn = timed.timer.turn(|_, _| unreachable!("nothing is due"));
        let removed = before - timed.stale();
        assert!((1..WORK + 256).contains(&removed), "{removed} in one turn");
        // The driver does not sleep before the sweep has ended.
        assert!(timed.stale() == 0 || matches!(turn, Turn::More));
        turns += 1;
    }
    assert!(turns > keys as usize / (WORK + 256), "{turns} turns");
}

#[test]
fn an_entry_that_comes_up_stale_is_no_longer_counted() {
    let timed = Timed::new();
    timed.delay(1, 1);
    timed.delay(1, 2);
    assert_eq!(timed.stale(), 1);
    timed.time.advance(Duration::from_nanos(2 * TICK));
    assert_eq!(timed.turn(), [1]);
    assert_eq!(timed.stale(), 0);
}

// V7 C10
#[test]
fn adds_that_make_the_retry_that_they_wait_for_more_urgent_leave_its_entry() {
    let timed = Timed::new();
    timed.delay_as(1, 1, 3, true);
    let pin = timed.pin(1);
    assert!(
        [3, 1, 2, 0]
            .into_iter()
            .all(|level| pin.delay().join_retry(level))
    );
    pin.unpin();
    timed.time.advance(Duration::from_nanos(TICK));
    assert_eq!(timed.turn(), [1]);
    assert_eq!(timed.stale(), 0);
    timed.keys.shrink();
    assert!(timed.keys.lock(1).find(1, |_| true).is_none(), "C10: pins");
}

// D1
#[test]
fn a_delay_that_is_one_tick_earlier_wakes_the_driver() {
    for (due, wakes) in [(11, 0), (10, 0), (9, 1)] {
        let timed = Timed::new();
        let bell = Bell::default();
        assert!(timed.timer.prepare_sleep(Some(10), &bell.waker()));
        timed.delay(1, due);
        assert_eq!(bell.rings(), wakes, "due at {due}");
    }
}

// D1
#[test]
fn the_driver_does_not_sleep_past_what_another_thread_has_moved_to_the_wheel() {
    let timed = Timed::new();
    assert!(timed.turn().is_empty());
    timed.delay(1, 5);
    timed.timer.shrink();
    for (until, sleeps) in [(None, false), (Some(6), false), (Some(5), true)] {
        let bell = Bell::default();
        let is_idle = timed.timer.prepare_sleep(until, &bell.waker());
        assert_eq!(is_idle, sleeps, "{until:?}");
    }
}

// D8
#[test]
fn a_delay_beyond_the_end_of_the_clock_comes_up_at_its_end() {
    let timed = Timed::new();
    timed
        .time
        .advance(Duration::from_nanos(clock::END - 5 * TICK));
    timed.delay(1, 20);
    assert!(timed.turn().is_empty());
    timed.time.advance(Duration::MAX);
    assert_eq!(timed.turn(), [1]);
}

// C10
#[test]
fn no_limit_of_a_burst_is_kept_longer_than_its_entries() {
    let timed = Timed::new();
    let debounce = |key, ticks: u64| {
        let pin = timed.pin(key);
        let wait = Wait {
            delay: Duration::from_nanos(ticks * TICK),
            limit: Some(Duration::from_secs(1)),
        };
        timed.timer.delay(pin, 0, wait, false, |_| true, ());
    };
    for key in 0..100 {
        debounce(key, 5); // fires
        debounce(100 + key, 5); // is moved, and fires
        debounce(100 + key, 6);
        debounce(200 + key, 5); // is cancelled
        timed.cancel(200 + key);
        debounce(300 + key, 5); // becomes another delay
        timed.delay(300 + key, 2);
        debounce(400 + key, 5); // is cancelled, and begins again
        timed.cancel(400 + key);
        debounce(400 + key, 9);
    }
    timed.turn();
    assert_eq!(timed.timer.limits.len(), 500);
    timed.time.advance(Duration::from_nanos(8 * TICK));
    while !timed.turn().is_empty() {}
    assert_eq!(timed.timer.limits.len(), 100);
    timed.time.advance(Duration::from_nanos(TICK));
    while !timed.turn().is_empty() {}
    assert_eq!(timed.timer.limits.len(), 0);
}
