//! Contenders that only delay keys, and hand them over to a channel when they are due.
//!
//! The heap is what client-go has, with its loop's faults left out: a map from key to ready time
//! under the same mutex, lazily deleted entries, and a thread that sleeps until the first of them
//! and is woken only when that changes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Runtime;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use crate::queue::Delays;
use crate::workloads::runtime;

/// A binary heap and a map under one mutex, and a thread.
pub(super) struct Heap {
    shared: Arc<Shared>,
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
    ready_at: HashMap<u64, Instant, RandomState>,
    over: bool,
}

impl Shared {
    fn drive(&self, ready: &Sender<u64>) {
        /// Keys that are handed over at a time.
        const BATCH: usize = 512;
        let mut due = Vec::new();
        let mut pending = self.pending.lock();
        while !pending.over {
            let (now, first) = (Instant::now(), pending.heap.peek().copied());
            match first {
                Some(Reverse((at, key))) if at <= now && due.len() < BATCH => {
                    pending.heap.pop();
                    if pending.ready_at.get(&key) == Some(&at) {
                        pending.ready_at.remove(&key);
                        due.push(key);
                    }
                }
                // Without the lock, so that adds are not kept waiting. The receiver is gone only at
                // the end of the round.
                _ if !due.is_empty() => MutexGuard::unlocked(&mut pending, || {
                    due.drain(..).for_each(|key| _ = ready.send(key));
                }),
                Some(Reverse((at, _))) => {
                    self.sooner.wait_until(&mut pending, at);
                }
                None => self.sooner.wait(&mut pending),
            }
        }
    }
}

impl Delays for Heap {
    fn new(ready: Sender<u64>) -> Self {
        let shared = Arc::new(Shared::default());
        let driven = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || driven.drive(&ready)));
        Self { shared, thread }
    }

    fn add_after(&self, key: u64, delay: Duration) {
        let at = Instant::now() + delay;
        let mut pending = self.shared.pending.lock();
        let earlier = pending.ready_at.get(&key);
        if earlier.is_some_and(|&earlier| earlier <= at) {
            return;
        }
        pending.ready_at.insert(key, at);
        let first = pending.heap.peek();
        let is_first = first.is_none_or(|Reverse((first, _))| at < *first);
        pending.heap.push(Reverse((at, key)));
        drop(pending);
        if is_first {
            self.shared.sooner.notify_one();
        }
    }

    fn cancel(&self, key: u64) -> Option<bool> {
        Some(self.shared.pending.lock().ready_at.remove(&key).is_some())
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
pub(super) struct TokioUtil {
    wheel: Arc<Mutex<Wheel>>,
    runtime: Runtime,
}

#[derive(Default)]
struct Wheel {
    queue: DelayQueue<u64>,
    keys: HashMap<u64, (Key, Instant), RandomState>,
    /// Of the task, while the queue is empty: the queue itself wakes it for all but a first entry.
    waker: Option<Waker>,
}

impl Delays for TokioUtil {
    fn new(ready: Sender<u64>) -> Self {
        let runtime = runtime(1);
        let wheel = Arc::new(Mutex::new(Wheel::default()));
        let shared = Arc::clone(&wheel);
        runtime.spawn(poll_fn(move |context| {
            loop {
                let mut wheel = shared.lock();
                let Poll::Ready(Some(expired)) = wheel.queue.poll_expired(context) else {
                    wheel.waker = Some(context.waker().clone());
                    return Poll::<()>::Pending;
                };
                let key = expired.into_inner();
                wheel.keys.remove(&key);
                drop(wheel);
                let _ = ready.send(key);
            }
        }));
        Self { wheel, runtime }
    }

    fn add_after(&self, key: u64, delay: Duration) {
        // The queue makes a timer of the runtime when it is given its first entry.
        let _entered = self.runtime.enter();
        let at = Instant::now() + delay;
        let wheel = &mut *self.wheel.lock();
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

    fn cancel(&self, key: u64) -> Option<bool> {
        let mut wheel = self.wheel.lock();
        let known = wheel.keys.remove(&key);
        if let Some((id, _)) = known {
            wheel.queue.remove(&id);
        }
        Some(known.is_some())
    }
}
