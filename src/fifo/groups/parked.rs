//! What waits for a time: groups that are held or have no token, and keys whose interval is not over.

use std::cmp::{Ordering as Order, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::keys::node::{Held, NodeRef, Pin, Queued};
use crate::keys::seat::Seated;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Nothing is waited for.
pub(crate) const NEVER: u64 = u64::MAX;

/// A pinned node, and the time for which it waits. Ordered by time.
pub(super) struct Due<T> {
    pub(super) at: u64,
    pub(super) pin: Pin<T>,
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Due<T> {}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> Order {
        self.at.cmp(&other.at)
    }
}

/// Groups that wait for a time. A group that goes on earlier leaves its entry behind, for the next time.
pub(super) struct Parked<T> {
    heap: Mutex<BinaryHeap<Reverse<Due<T>>>>,
    /// The first time in the heap. Written under its lock.
    next: AtomicU64,
}

impl<T> Parked<T> {
    pub(super) fn new() -> Self {
        Parked {
            heap: Mutex::new(BinaryHeap::new()),
            next: AtomicU64::new(NEVER),
        }
    }

    pub(super) fn next(&self) -> u64 {
        // Ordering: Relaxed; a thread that sets an earlier time wakes the driver after it.
        self.next.load(Ordering::Relaxed)
    }

    /// Puts a node in. Returns whether its time is the first now.
    pub(super) fn put(&self, due: Due<T>) -> bool {
        let at = due.at;
        let mut heap = self.heap.lock();
        let first = at < self.next();
        heap.push(Reverse(due));
        if first {
            // Ordering: Relaxed; as in `next`.
            self.next.store(at, Ordering::Relaxed);
        }
        first
    }

    /// Takes out a node whose time is no later than `now`.
    pub(super) fn take(&self, now: u64) -> Option<Due<T>> {
        if self.next() > now {
            return None;
        }
        let mut heap = self.heap.lock();
        let due = match heap.peek() {
            Some(Reverse(due)) if due.at <= now => heap.pop(),
            _ => None,
        };
        let next = heap.peek().map_or(NEVER, |Reverse(due)| due.at);
        // Ordering: Relaxed; as in `next`.
        self.next.store(next, Ordering::Relaxed);
        Some(due?.0)
    }
}

/// In `Seat::cooling`: the interval since the key's last delivery is not over.
const COOLING: u8 = 1;
/// And the key is queued.
const WAITING: u8 = 1 << 1;

/// The keys whose interval is not over (T2). They keep their nodes interned until then, so that none is
/// forgotten. All have the same interval, so they are in the order of their times.
pub(super) struct Cooling<K> {
    interval: u64,
    keys: Mutex<Keys<K>>,
    /// The first time in the queue while any key waits. Written under its lock.
    next: AtomicU64,
}

struct Keys<K> {
    queue: VecDeque<Due<K>>,
    waiting: usize,
}

impl<K> Keys<K> {
    fn next(&self) -> u64 {
        match self.queue.front() {
            Some(due) if self.waiting > 0 => due.at,
            _ => NEVER,
        }
    }
}

impl<K> Keys<K> {
    /// Ends at most so many intervals that are over, up to the first key that waits for that.
    fn forget(&mut self, now: u64, most: usize, seated: &Seated) {
        // Ordering: Relaxed, here and below; accessed under the lock.
        let waits =
            |due: &Due<K>| due.pin.seat(seated).cooling.load(Ordering::Relaxed) & WAITING != 0;
        for _ in 0..most {
            match self.queue.front() {
                Some(due) if due.at <= now && !waits(due) => {
                    // Ordering: Relaxed; as above.
                    due.pin.seat(seated).cooling.store(0, Ordering::Relaxed);
                    due.pin.unpin();
                    self.queue.pop_front();
                }
                _ => return,
            }
        }
    }
}

impl<K> Cooling<K> {
    pub(super) fn new(interval: u64) -> Self {
        Cooling {
            interval,
            keys: Mutex::new(Keys {
                queue: VecDeque::new(),
                waiting: 0,
            }),
            next: AtomicU64::new(NEVER),
        }
    }

    pub(super) fn next(&self) -> u64 {
        // Ordering: Relaxed; as in `Parked::next`.
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the number of queued keys that wait.
    pub(super) fn waiting(&self) -> usize {
        self.keys.lock().waiting
    }

    /// Notes a delivery that begins, and ends some intervals that are over: without that, keys that are
    /// not added again would be kept.
    pub(super) fn begin(&self, held: &Held<K>, now: u64, seated: &Seated) {
        let pin = held.pin();
        let mut keys = self.keys.lock();
        keys.forget(now, 2, seated);
        // Ordering: Relaxed, here and below; accessed under the lock.
        held.seat(seated).cooling.store(COOLING, Ordering::Relaxed);
        // The clock may be read in another order than the lock is taken.
        let last = keys.queue.back().map_or(0, |due| due.at);
        let at = now.saturating_add(self.interval).max(last);
        keys.queue.push_back(Due { at, pin });
    }

    /// Keeps a queued key until its interval is over, if it is not. Returns whether it does, and whether
    /// the driver has to be woken.
    pub(super) fn keep(&self, entry: &Queued<K>, seated: &Seated) -> Option<bool> {
        let mut keys = self.keys.lock();
        let flags = &entry.seat(seated).cooling;
        // Ordering: Relaxed; accessed under the lock.
        if flags.load(Ordering::Relaxed) & COOLING == 0 {
            return None;
        }
        flags.store(COOLING | WAITING, Ordering::Relaxed);
        keys.waiting += 1;
        let next = keys.next();
        let first = next < self.next();
        // Ordering: Relaxed; as in `next`.
        self.next.store(next, Ordering::Relaxed);
        Some(first)
    }

    /// Ends the intervals that are over and for which no key waits.
    pub(super) fn forget(&self, now: u64, seated: &Seated) {
        self.keys.lock().forget(now, usize::MAX, seated);
    }

    /// Returns the queued keys that wait, which do so no longer.
    pub(super) fn take_all(&self, seated: &Seated) -> Vec<NodeRef<K>> {
        let mut keys = self.keys.lock();
        keys.waiting = 0;
        // Ordering: Relaxed; as in `next`.
        self.next.store(NEVER, Ordering::Relaxed);
        let waiting = |due: &&Due<K>| {
            let flags = &due.pin.seat(seated).cooling;
            // Ordering: Relaxed; accessed under the lock.
            flags.swap(COOLING, Ordering::Relaxed) & WAITING != 0
        };
        keys.queue
            .iter()
            .filter(waiting)
            .map(|due| due.pin.node())
            .collect()
    }

    /// Ends the intervals that are over, and returns a key that has waited for that.
    pub(super) fn take(&self, now: u64, seated: &Seated) -> Option<NodeRef<K>> {
        let mut keys = self.keys.lock();
        let mut found = None;
        while found.is_none()
            && keys.queue.front().is_some_and(|due| due.at <= now)
            && let Some(due) = keys.queue.pop_front()
        {
            let flags = &due.pin.seat(seated).cooling;
            // Ordering: Relaxed; accessed under the lock.
            if flags.load(Ordering::Relaxed) & WAITING != 0 {
                keys.waiting -= 1;
                found = Some(due.pin.node());
            }
            // Ordering: Relaxed; accessed under the lock.
            flags.store(0, Ordering::Relaxed);
            due.pin.unpin();
        }
        // Ordering: Relaxed; as in `next`.
        self.next.store(keys.next(), Ordering::Relaxed);
        found
    }
}
