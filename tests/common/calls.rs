//! User code that calls the queue from within a call of the queue, as the task of an executor that
//! polls in place does (S15).
//!
//! [`everything`] makes each kind of call, and so takes each lock of the crate. If the crate calls
//! user code under a lock, the thread waits for itself, and the test's watchdog ends it.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::poll;
use super::timed::{HOUR, MS};
use keyqueue::WorkQueue;

/// Makes every kind of call that does not wait, but for those that end or empty the queue.
/// `key` returns a key for each number.
pub(crate) fn everything<K, V>(queue: &WorkQueue<K, V>, key: impl Fn(u64) -> K)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    // New keys each time: these are interned, in any shard.
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    // Ordering: Relaxed, a number that is not used twice.
    let first = NEXT.fetch_add(100, Ordering::Relaxed);
    let new = |n| key(first + n);
    let _ = (queue.len(), queue.is_empty());
    let _ = (queue.counts(), queue.state(&new(0)));
    (0..20).for_each(|n| _ = queue.add(new(n)));
    queue.entry(new(21)).level(0).add();
    let _ = queue.entry(new(22)).try_add();
    let _ = queue.entry(new(23)).within(Duration::ZERO).try_add();
    queue.add_after(new(24), HOUR);
    queue.cancel(&new(24));
    queue.add_after(new(25), MS);
    queue.handle(new(26)).add();
    queue.fire_due();
    drop(poll(&mut queue.get_async(), Waker::noop()));
    if let Ok(item) = queue.try_get() {
        let _ = item.retry_after(HOUR);
    }
    drop(queue.try_get_batch(3));
    queue.shrink();
}

/// A call that user code makes.
pub(crate) type Call<K, V = ()> = fn(&WorkQueue<K, V>);

/// A waker that makes one call, each time it is woken, of a queue that may have been dropped.
pub(crate) struct Calls<K, V = ()> {
    queue: Weak<WorkQueue<K, V>>,
    call: Call<K, V>,
    /// How many calls have returned.
    returned: AtomicUsize,
}

impl<K, V> Calls<K, V>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    pub(crate) fn new(queue: &Arc<WorkQueue<K, V>>, call: Call<K, V>) -> (Arc<Self>, Waker) {
        let calls = Arc::new(Calls {
            queue: Arc::downgrade(queue),
            call,
            returned: AtomicUsize::new(0),
        });
        let waker = Waker::from(Arc::clone(&calls));
        (calls, waker)
    }

    pub(crate) fn returned(&self) -> usize {
        self.returned.load(Ordering::SeqCst)
    }
}

impl<K, V> Wake for Calls<K, V>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    fn wake(self: Arc<Self>) {
        if let Some(queue) = self.queue.upgrade() {
            (self.call)(&queue);
            self.returned.fetch_add(1, Ordering::SeqCst);
        }
    }
}
