//! Getters, and what must hold of each delivery.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use keyqueue::{Added, UpTo};
use shuttle::future::block_on;
use shuttle::sync::{Condvar, Mutex};

use super::{AGE, Place, R, lock};
use crate::plan::{GROUPS, KEYS, PRODUCERS};
use crate::{Bag, DeliveryOf, How, Kind, MS, below, dawdle, delay, group, once_in};

/// The hold of a group: its number, and until when no key of the group may be delivered. The number is 0 if there is
/// none.
pub(super) type Hold = (u64, Duration);

/// The deliveries of a group.
#[derive(Default, Debug)]
pub(super) struct InFlight {
    now: AtomicUsize,
    pub(super) all: AtomicUsize,
}

/// What a getter knows when it asks for a key.
pub(super) struct Asked {
    at: Duration,
    holds: [Hold; GROUPS as usize],
}

/// The waker of an executor that polls where it is woken: it calls the queue.
struct InPlace<K> {
    place: Weak<Place<K>>,
    woken: Mutex<bool>,
    condvar: Condvar,
}

/// Counts a panic that drops it.
struct CountsPanics<'a>(&'a AtomicUsize);

impl Drop for CountsPanics<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(usize::from(std::thread::panicking()), R);
    }
}

impl<K: Kind> Wake for InPlace<K> {
    fn wake(self: Arc<Self>) {
        if let Some(place) = self.place.upgrade() {
            // A lock that this thread has already is a panic here, which the queue catches.
            let _counts = CountsPanics(&place.panics_in_wakers);
            place.queue.fire_due();
            let _ = place.queue.counts();
            let _ = place.queue.is_empty();
        }
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condvar.notify_one();
    }
}

impl<K: Kind> Place<K> {
    /// What getters of this kind do.
    pub fn consume(self: &Arc<Self>, kind: u64) {
        let queue = &self.queue;
        loop {
            let asked = self.ask();
            if let Ok(item) = queue.try_get() {
                self.work(item, &asked);
                continue;
            }
            // A getter that may wait has asked long before it gets a key, which says less.
            let asked = self.ask();
            let item = match kind % 4 {
                0 => queue.get(),
                1 => block_on(queue.get_async()),
                2 => self.block_in_place(queue.get_async()),
                _ => {
                    // Without a thread that moves the clock, no time would end.
                    let linger = if self.plan.has_time() {
                        MS
                    } else {
                        Duration::ZERO
                    };
                    let Some(batch) = queue.get_batch(UpTo::new(2).linger(linger)) else {
                        return;
                    };
                    batch.into_iter().for_each(|item| self.work(item, &asked));
                    continue;
                }
            };
            match item {
                Some(item) => self.work(item, &asked),
                None => return,
            }
        }
    }

    /// Waits for a future, with a waker that calls the queue (S15: it runs under no lock).
    fn block_in_place<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let in_place = Arc::new(InPlace {
            place: Arc::downgrade(self),
            woken: Mutex::new(false),
            condvar: Condvar::new(),
        });
        let waker = Waker::from(Arc::clone(&in_place));
        loop {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return ready;
            }
            let woken = in_place.woken.lock();
            let woken = woken.unwrap_or_else(PoisonError::into_inner);
            let waits = |woken: &mut bool| !std::mem::take(woken);
            drop(in_place.condvar.wait_while(woken, waits));
        }
    }

    /// Takes this many keys, if there are as many.
    pub fn take(&self, most: u64) {
        for _ in 0..most {
            let asked = self.ask();
            match self.queue.try_get() {
                Ok(item) => self.work(item, &asked),
                Err(_) => dawdle(4),
            }
        }
    }

    fn ask(&self) -> Asked {
        // The clock first: a hold that ends after this is read.
        let at = self.clock.now();
        let holds = *lock(&self.holds);
        Asked { at, holds }
    }

    fn work(&self, mut item: DeliveryOf<'_, K>, asked: &Asked) {
        let Place { plan, ledger, .. } = self;
        let (number, group) = Self::name(&item);
        ledger.begin(number);
        let puts = K::value(&mut item);
        lock(&self.waiting).now -= K::weight(&puts);
        self.note_retried(number, false);
        self.check(&item, asked);
        if plan.retries && number < plan.keys && once_in(4) {
            self.add_as(
                PRODUCERS,
                How::At(below(plan.levels as u64) as usize),
                number,
            );
        }
        dawdle(2);
        ledger.end(number);
        self.groups[group].now.fetch_sub(1, R);
        if plan.retries && number < plan.keys && once_in(4) {
            return self.retry(item, number, puts);
        }
        if K::HAS_VALUES {
            self.puts.finish(number, puts);
        }
        item.done();
    }

    pub(super) fn name(item: &DeliveryOf<'_, K>) -> (u64, usize) {
        (item.number, group(item) as usize)
    }

    /// Checks that this delivery is allowed now.
    fn check(&self, item: &DeliveryOf<'_, K>, asked: &Asked) {
        let plan = &self.plan;
        let (number, group) = Self::name(item);
        let hold = lock(&self.holds)[group];
        let of_group = self.groups[group].all.fetch_add(1, R) + 1;
        let all = self.groups.iter().map(|group| group.all.load(R));
        let of_all: usize = all.sum();
        let in_flight = self.groups[group].now.fetch_add(1, R) + 1;
        // After what it is compared with.
        let now = self.clock.now();

        let is_held = hold.0 > 0 && hold == asked.holds[group] && now < hold.1;
        assert!(!is_held, "G6: key {number} at {now:?}, before {hold:?}");
        let limited = plan.limit.is_none_or(|limit| in_flight <= limit);
        assert!(limited, "G2: {in_flight} keys of a group are in flight");
        let came = ((now - AGE).as_nanos() / MS.as_nanos()) as usize;
        let paced =
            |burst: Option<u32>, keys| burst.is_none_or(|burst| keys <= burst as usize + came);
        assert!(
            paced(plan.group_rate, of_group),
            "G5: {of_group} by {now:?}"
        );
        assert!(paced(plan.rate, of_all), "T1: {of_all} keys by {now:?}");
        assert!(item.level() < plan.levels, "P4");
        if number >= KEYS {
            return;
        }
        self.ledger.check_time(number, now);
        let nanos = asked.at.as_nanos() as u64;
        let last = Duration::from_nanos(self.asked[number as usize].swap(nanos, R));
        if let (Some(interval), false) = (plan.interval, last.is_zero()) {
            assert!(
                now - last >= interval,
                "T2: key {number} at {last:?} and {now:?}"
            );
        }
        let (waited, most) = (item.queue_time(), now - last.max(AGE));
        let in_time = waited.is_none_or(|waited| waited <= most);
        assert!(
            in_time,
            "M2: key {number} has waited {waited:?}, of {most:?}"
        );
    }

    /// Notes whether a key that is held is retried.
    fn note_retried(&self, number: u64, retried: bool) {
        if let Some(noted) = self.retried.get(number as usize) {
            noted.store(retried, R);
        }
    }

    fn retry(&self, item: DeliveryOf<'_, K>, number: u64, puts: Bag) {
        // While it is held: it may be delivered again at once.
        self.note_retried(number, true);
        let weight = K::weight(&puts);
        lock(&self.waiting).add(weight);
        let retry = || match self.plan.backs_off {
            true => item.retry(),
            false => item.retry_after(delay()),
        };
        let added = match self.plan.keeps_delays() {
            true => self.ledger.add(number, retry),
            false => {
                let added = retry();
                self.ledger.count(number, added);
                added
            }
        };
        if added == Added::ShutDown {
            // It is left.
            lock(&self.waiting).now -= weight;
        } else {
            self.exceed(self.of_delay(weight));
            self.delays.fetch_add(1, R);
        }
    }
}
