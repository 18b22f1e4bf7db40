//! How long a parked consumer takes from an add to its `get`: a thread, or a task.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use keyqueue::WorkQueue;

use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::spec::Scale;

/// Long enough for a consumer to give up spinning and park.
const SETTLE: Duration = Duration::from_micros(500);

/// When the key on its way was added, and how long those before it took.
struct Wakes {
    epoch: Instant,
    added_at: AtomicU64,
}

/// What the consumer has seen.
struct Seen {
    latencies: Histogram<u64>,
    delivered: Tally,
}

/// The median and the 99th percentile, in nanoseconds.
pub(super) fn thread<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let (queue, wakes) = (C::new(), Wakes::new());
    let seen = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut seen = Seen::new();
            while let Some(item) = queue.get() {
                seen.note(&wakes, C::key_of(&item));
                queue.done(item);
            }
            seen
        });
        wakes.make::<Q>(scale.wakes, |key| queue.add_ref(key));
        queue.shut_down();
        consumer.join().expect("the consumer panicked")
    });
    seen.check::<Q>(scale.wakes)
}

/// The same of a task, woken by a thread that is none of the runtime's.
pub(crate) fn task(scale: &Scale) -> Vec<f64> {
    let queue = Arc::new(WorkQueue::<u64>::new());
    let wakes = Arc::new(Wakes::new());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime of one thread");
    let consumer = runtime.spawn({
        let (queue, wakes) = (Arc::clone(&queue), Arc::clone(&wakes));
        async move {
            let mut seen = Seen::new();
            while let Some(item) = queue.get_async().await {
                seen.note(&wakes, item.key());
            }
            seen
        }
    });
    wakes.make::<u64>(scale.wakes, |key| {
        queue.add_ref(key);
    });
    queue.shut_down();
    let seen = runtime.block_on(consumer);
    let seen = seen.expect("the consumer panicked");
    seen.check::<u64>(scale.wakes)
}

impl Wakes {
    fn new() -> Self {
        Self {
            epoch: Instant::now(),
            added_at: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn make<Q: Key + ?Sized>(&self, wakes: usize, add: impl Fn(&Q)) {
        for n in 0..wakes {
            thread::sleep(SETTLE);
            // Ordering: Relaxed; the add comes after this store and the delivery before the load.
            self.added_at.store(self.now(), Ordering::Relaxed);
            add(Q::nth(n).borrow());
        }
    }
}

impl Seen {
    fn new() -> Self {
        Self {
            latencies: Histogram::new(3).expect("three digits are allowed"),
            delivered: Tally::default(),
        }
    }

    fn note<Q: Key + ?Sized>(&mut self, wakes: &Wakes, key: &Q) {
        // Ordering: Relaxed; see the store.
        self.latencies += wakes.now() - wakes.added_at.load(Ordering::Relaxed);
        self.delivered.count(key);
    }

    fn check<Q: Key + ?Sized>(&self, wakes: usize) -> Vec<f64> {
        assert_eq!(self.delivered, Tally::of_first::<Q>(wakes));
        let at = |quantile| self.latencies.value_at_quantile(quantile) as f64;
        vec![at(0.5), at(0.99)]
    }
}
