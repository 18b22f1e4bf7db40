//! Contenders that only delay keys: a heap under a mutex, and tokio-util's `DelayQueue` under a mutex.
//!
//! The heap is what client-go has, with its loop's faults left out: a map from key to ready time
//! under the same mutex, lazily deleted entries, and a thread that sleeps until the first of them
//! and is woken only when that changes. Neither of the two deduplicates queued keys or guards
//! those being processed; they hand keys over to one channel and that is all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::{Condvar, Mutex};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::Contender;
use crate::queue::Delays;
use crate::spec::{Kind, Round, Scale};
use crate::workloads::delay;

type Map<V> = std::collections::HashMap<u64, V, RandomState>;

/// Keys that the heap's thread hands over at a time.
const BATCH: usize = 512;

/// A contender that takes part in the workloads of delays alone.
pub(super) struct Delaying<D> {
    name: &'static str,
    delays: PhantomData<fn() -> D>,
}

impl<D> Delaying<D> {
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            name,
            delays: PhantomData,
        }
    }
}

pub(super) fn heap() -> impl Contender {
    Delaying::<Heap>::named("heap")
}

pub(super) fn delay_queue() -> impl Contender {
    Delaying::<TokioUtil>::named("delay-queue")
}

impl<D: Delays> Contender for Delaying<D> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, workload: Kind, scale: &Scale, _: &Round) -> Option<Vec<f64>> {
        match workload {
            Kind::Delay { of } => Some(delay::run::<D>(of, scale)),
            _ => None,
        }
    }
}

/// A binary heap and a map under one mutex, and a thread.
struct Heap {
    shared: Arc<Shared>,
    ready: Mutex<Receiver<u64>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    sooner: Condvar,
}

#[derive(Default)]
struct Pending {
    /// Ready times; an entry that is not the map's is dead.
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
    ready_at: Map<Instant>,
    over: bool,
}

impl Shared {
    fn drive(&self, ready: &Sender<u64>) {
        let mut due = Vec::new();
        let mut pending = self.pending.lock();
        while !pending.over {
            let now = Instant::now();
            let first = pending.heap.peek().map(|&Reverse(first)| first);
            if let Some((at, key)) = first.filter(|&(at, _)| at <= now && due.len() < BATCH) {
                pending.heap.pop();
                if pending.ready_at.get(&key) == Some(&at) {
                    pending.ready_at.remove(&key);
                    due.push(key);
                }
            } else if !due.is_empty() {
                // Without the lock, so that adds are not kept waiting.
                drop(pending);
                due.drain(..).for_each(|key| {
                    // The receiver is gone only at the end of the round.
                    let _ = ready.send(key);
                });
                pending = self.pending.lock();
            } else if let Some((at, _)) = first {
                self.sooner.wait_until(&mut pending, at);
            } else {
                self.sooner.wait(&mut pending);
            }
        }
    }
}

impl Delays for Heap {
    fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let (send, ready) = mpsc::channel();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.drive(&send)
        });
        Heap {
            shared,
            ready: Mutex::new(ready),
            thread: Some(thread),
        }
    }

    fn add_after(&self, key: u64, delay: Duration) {
        let at = Instant::now() + delay;
        let mut pending = self.shared.pending.lock();
        if pending
            .ready_at
            .get(&key)
            .is_some_and(|&earlier| earlier <= at)
        {
            return;
        }
        pending.ready_at.insert(key, at);
        let first = pending
            .heap
            .peek()
            .is_none_or(|&Reverse((first, _))| at < first);
        pending.heap.push(Reverse((at, key)));
        if pending.heap.len() > 2 * pending.ready_at.len() + 1024 {
            let Pending { heap, ready_at, .. } = &mut *pending;
            heap.retain(|Reverse((at, key))| ready_at.get(key) == Some(at));
        }
        drop(pending);
        if first {
            self.shared.sooner.notify_one();
        }
    }

    fn cancel(&self, key: u64) -> bool {
        self.shared.pending.lock().ready_at.remove(&key).is_some()
    }

    fn get(&self) -> u64 {
        self.ready.lock().recv().expect("the thread lives")
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        self.shared.pending.lock().over = true;
        self.shared.sooner.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread panicked");
        }
    }
}

/// tokio-util's wheel and a map under one mutex, and a runtime of one thread.
struct TokioUtil {
    wheel: Arc<Mutex<Wheel>>,
    ready: Mutex<Receiver<u64>>,
    runtime: Option<tokio::runtime::Runtime>,
}

struct Wheel {
    queue: DelayQueue<u64>,
    keys: Map<(Key, Instant)>,
    /// Of the task, while the queue is empty: the queue itself wakes it for all but a first entry.
    waker: Option<Waker>,
}

impl Delays for TokioUtil {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime of one thread");
        let (send, ready) = mpsc::channel();
        let wheel = Arc::new(Mutex::new(Wheel {
            queue: DelayQueue::new(),
            keys: Map::default(),
            waker: None,
        }));
        let shared = Arc::clone(&wheel);
        runtime.spawn(async move {
            loop {
                let key = poll_fn(|context| {
                    let mut wheel = shared.lock();
                    match wheel.queue.poll_expired(context) {
                        Poll::Ready(Some(expired)) => {
                            let key = expired.into_inner();
                            wheel.keys.remove(&key);
                            Poll::Ready(key)
                        }
                        Poll::Ready(None) | Poll::Pending => {
                            wheel.waker = Some(context.waker().clone());
                            Poll::Pending
                        }
                    }
                });
                let _ = send.send(key.await);
            }
        });
        TokioUtil {
            wheel,
            ready: Mutex::new(ready),
            runtime: Some(runtime),
        }
    }

    fn add_after(&self, key: u64, delay: Duration) {
        let runtime = self.runtime.as_ref().expect("there until the drop");
        // The queue makes a timer of the runtime when it is given its first entry.
        let _entered = runtime.enter();
        let at = Instant::now() + delay;
        let mut wheel = self.wheel.lock();
        let wheel = &mut *wheel;
        match wheel.keys.get_mut(&key) {
            Some((_, earlier)) if *earlier <= at => {}
            Some((key, earlier)) => {
                *earlier = at;
                wheel.queue.reset_at(key, at.into());
            }
            None => {
                let was_empty = wheel.queue.is_empty();
                let id = wheel.queue.insert_at(key, at.into());
                wheel.keys.insert(key, (id, at));
                if was_empty {
                    wheel.waker.take().into_iter().for_each(Waker::wake);
                }
            }
        }
    }

    fn cancel(&self, key: u64) -> bool {
        let mut wheel = self.wheel.lock();
        let Some((id, _)) = wheel.keys.remove(&key) else {
            return false;
        };
        wheel.queue.remove(&id);
        true
    }

    fn get(&self) -> u64 {
        self.ready.lock().recv().expect("the task lives")
    }
}

impl Drop for TokioUtil {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}
