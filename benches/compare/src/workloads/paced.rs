//! From the add of a key to its `get`: in an open loop (latency), and by a consumer that sleeps (wake). And what consumers
//! cost that sleep most of the time (idle cost).

use std::hint;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{processor_time, quantiles};
use crate::keys::{Key, Tally};
use crate::queue::{Queue, Tasked};

/// Nanoseconds between two keys, and from the time of an add to its `get`: median, 99th, 99.9th
/// percentile.
///
/// Keys are added at set times, whether or not the queue keeps up, and each key's latency counts
/// from the time at which it was to be added. So a stall counts for every key that it holds up, even
/// a stall of the producer (closed loops leave those keys out: "coordinated omission").
pub(super) fn latency<C: Queue<u64>>(count: usize, interval: f64) -> Vec<f64> {
    // A moment for both threads to be there.
    let start = Instant::now() + Duration::from_millis(10);
    let wait = |n| {
        let due = start + Duration::from_nanos((n as f64 * interval) as u64);
        while Instant::now() < due {
            hint::spin_loop();
        }
        due
    };
    let [p50, p99, p999] = quantiles(paced(count, wait, deliver::<C>), [0.5, 0.99, 0.999]);
    vec![interval, p50, p99, p999]
}

/// The median and the 99th percentile of the nanoseconds in which a thread has a key.
pub(super) fn wake<C: Queue<u64>>(count: usize) -> Vec<f64> {
    quantiles(paced(count, settle, deliver::<C>), [0.5, 0.99]).into()
}

fn deliver<C: Queue<u64>>(queue: Arc<C>, times: Arc<Times>) -> Tally {
    queue.deliver(|key| times.note(*key))
}

/// The same of a task, woken by a thread that is none of the runtime's.
pub(crate) fn wake_task<C: Tasked>(count: usize) -> Vec<f64> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).build().expect("a runtime");
    let deliver = |queue: Arc<C>, times: Arc<Times>| {
        let task = runtime.spawn(async move {
            let mut delivered = Tally::default();
            while let Some(item) = queue.get_in_task().await {
                times.note(*C::key(&item));
                delivered.count(C::key(&item));
                queue.done(item);
            }
            delivered
        });
        runtime.block_on(task).expect("the task panicked")
    };
    quantiles(paced(count, settle, deliver), [0.5, 0.99]).into()
}

/// Microseconds of processor time for each add, one a millisecond, with this number of threads that wait for keys; and
/// with none: what the producer uses, most of it to sleep.
pub(super) fn idle_cost<C: Queue<u64>>(count: usize, waiting: usize) -> Vec<f64> {
    let cost = |queue: &C| {
        thread::sleep(MILLISECOND);
        let before = processor_time();
        for n in 0..count {
            queue.add(u64::nth(n).into());
            // The consumer of the last key, too, sleeps again.
            thread::sleep(MILLISECOND);
        }
        (processor_time() - before) / count as f64 / 1000.0
    };
    let (queue, mut used) = (C::new(), 0.0);
    let producer = || used = cost(&queue);
    let consumers = vec![|| queue.deliver(|_| ()); waiting];
    let race = queue.race(vec![producer], consumers);
    assert_eq!(race.delivered, Tally::of_first::<u64>(count));
    vec![used, cost(&C::new())]
}

/// Long enough for a consumer to give up spinning and park.
fn settle(_: usize) -> Instant {
    thread::sleep(Duration::from_micros(500));
    Instant::now()
}

const MILLISECOND: Duration = Duration::from_millis(1);

struct Times {
    /// When each key was added.
    added: Vec<OnceLock<Instant>>,
    /// The nanoseconds that those which were delivered took.
    latencies: Mutex<Vec<u64>>,
}

impl Times {
    fn note(&self, key: u64) {
        // The inverse of the factor of `Key::nth`, modulo 2^64: the key's number.
        let number = key.wrapping_mul(0xF1DE_83E1_9937_733D) as usize;
        let added = self.added[number].get().expect("it was added");
        let latency = added.elapsed().as_nanos() as u64;
        self.latencies.lock().push(latency);
    }
}

/// Adds each key after a call of `wait`, and returns the nanoseconds from the times that it returned
/// to the gets of the keys.
fn paced<C: Queue<u64>>(
    count: usize,
    wait: impl Fn(usize) -> Instant + Sync,
    deliver: impl FnOnce(Arc<C>, Arc<Times>) -> Tally + Send,
) -> Vec<u64> {
    let queue = Arc::new(C::new());
    let times = Arc::new(Times {
        added: vec![OnceLock::new(); count],
        latencies: Mutex::new(Vec::with_capacity(count)),
    });
    let producer = || {
        for (n, added) in times.added.iter().enumerate() {
            added.set(wait(n)).expect("set once");
            queue.add(u64::nth(n).into());
        }
    };
    let consumer = || deliver(Arc::clone(&queue), Arc::clone(&times));
    let race = queue.race(vec![producer], vec![consumer]);
    assert_eq!(race.delivered, Tally::of_first::<u64>(count));
    std::mem::take(&mut *times.latencies.lock())
}
