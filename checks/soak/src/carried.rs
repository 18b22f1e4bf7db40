//! What the two kinds of lives do differently: their keys are alone, or carry values.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::worker::{Verdict, Workers};
use keyqueue::{
    Added, Builder, DefaultHasher, Ended, Full, Item, KeyHandle, OwnedItem, Valued, WorkQueue,
};
use keyqueue_model::ledger::{Key, Reply};

use crate::pieces::{Pieces, Source, Value, merge};
use crate::plan::Adding;
use crate::produce::Producer;
use crate::settings::{Queue, Settings};

pub(crate) type Got<'q, K> = Item<'q, K, DefaultHasher>;
pub(crate) type Owned<K> = OwnedItem<K, DefaultHasher>;
pub(crate) type Crew<'q, K> = Workers<'q, K, DefaultHasher, &'static str>;

/// How long a key waits before it is added.
pub(crate) struct Wait {
    pub(crate) delay: Duration,
    /// With a limit it is debounced.
    pub(crate) limit: Option<Duration>,
}

impl From<Duration> for Wait {
    fn from(delay: Duration) -> Self {
        Wait { delay, limit: None }
    }
}

/// The key of a queue.
pub(crate) trait Carried:
    From<Key> + Borrow<Key> + Hash + Eq + Debug + Send + Sync + 'static
{
    /// Begins a queue of such keys.
    fn builder(settings: &Settings) -> Builder<Self>;

    /// Adds a key in this way. `handle` is one of that key, if there is one.
    fn add(
        producer: &mut Producer<'_, Self>,
        how: Adding,
        key: Key,
        handle: Option<usize>,
    ) -> Reply;

    /// Delays a key, or debounces it, by a handle if there is one.
    fn delay(
        queue: &Queue<Self>,
        source: &mut Source,
        key: Key,
        handle: Option<&KeyHandle<Self>>,
        delay: impl Into<Wait>,
    ) -> Added;

    /// Takes back what a key carries. Whether there was something.
    fn take_back(queue: &Queue<Self>, key: &Key) -> bool;

    /// Takes what the end has left (S12).
    fn take_left(queue: &Queue<Self>);

    /// What a delivery carries, if keys carry something.
    fn value<'i>(item: &'i mut Got<'_, Self>) -> Option<&'i mut Value>;

    /// The same.
    fn owned_value(item: &mut Owned<Self>) -> Option<&mut Value>;

    /// Runs workers on threads until the end of the queue.
    fn run<F>(crew: Crew<'_, Self>, work: F)
    where
        F: Fn(&Key, Option<&mut Value>) -> Verdict<&'static str> + Sync;

    /// Runs workers as tasks until the end of the queue.
    fn run_async<F>(crew: Crew<'_, Self>, work: F) -> impl Future<Output = ()>
    where
        F: AsyncFn(&Key, Option<&mut Value>) -> Verdict<&'static str>;
}

const RUNS: &str = "the number of workers is in range, and the system has the threads";

/// The longest wait for room of an add with a limit.
fn limit() -> Duration {
    Duration::from_micros(fastrand::u64(..300))
}

/// Polls an add once or twice, and drops it.
fn cancelled(add: impl Future<Output = Added>) -> Reply {
    let mut add = pin!(add);
    for _ in 0..fastrand::u8(1..3) {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(added) = add.as_mut().poll(&mut context) {
            return added.into();
        }
        thread::yield_now();
    }
    Reply::Refused
}

fn reply<T>(added: Result<Added, Full<T>>) -> Reply {
    added.map_or(Reply::Refused, Reply::Added)
}

impl Carried for Key {
    fn builder(_: &Settings) -> Builder<Self> {
        WorkQueue::builder()
    }

    fn add(
        producer: &mut Producer<'_, Self>,
        how: Adding,
        key: Key,
        handle: Option<usize>,
    ) -> Reply {
        let queue = &*producer.life.queue;
        let added = match (how, handle) {
            (_, Some(handle)) => producer.handles[handle].add(),
            (Adding::Ref, _) => queue.add_ref(&key),
            (Adding::At, _) => queue.entry(key).level(fastrand::usize(..9)).add(),
            (Adding::NewHandle, _) => queue.handle(key).add(),
            (Adding::Try, _) => return reply(queue.entry(key).refuse().add()),
            (Adding::Wait, _) => queue.entry(key).wait().add(),
            (Adding::Timeout, _) => return reply(queue.entry(key).within(limit()).add()),
            (Adding::Async, _) => pollster::block_on(queue.entry(key).add_async()),
            (Adding::Cancelled, _) => return cancelled(queue.entry(key).add_async()),
            // The others have handles, or are for values.
            _ => queue.add(key),
        };
        added.into()
    }

    fn delay(
        queue: &Queue<Self>,
        _: &mut Source,
        key: Key,
        handle: Option<&KeyHandle<Self>>,
        delay: impl Into<Wait>,
    ) -> Added {
        let wait = delay.into();
        match (handle, wait.limit) {
            (Some(handle), None) => handle.add_after(wait.delay),
            (None, None) => queue.add_after(key, wait.delay),
            (Some(handle), Some(limit)) => handle.entry().debounce(wait.delay, limit).add(),
            (None, Some(limit)) => queue.entry(key).debounce(wait.delay, limit).add(),
        }
    }

    fn take_back(_: &Queue<Self>, _: &Key) -> bool {
        false
    }

    fn take_left(queue: &Queue<Self>) {
        queue.take_left();
    }

    fn value<'i>(_: &'i mut Got<'_, Self>) -> Option<&'i mut Value> {
        None
    }

    fn owned_value(_: &mut Owned<Self>) -> Option<&mut Value> {
        None
    }

    fn run<F>(crew: Crew<'_, Self>, work: F)
    where
        F: Fn(&Key, Option<&mut Value>) -> Verdict<&'static str> + Sync,
    {
        let crew = crew.on_give_up(|_, _| {});
        crew.run(|key: &Key| work(key, None)).expect(RUNS);
    }

    async fn run_async<F>(crew: Crew<'_, Self>, work: F)
    where
        F: AsyncFn(&Key, Option<&mut Value>) -> Verdict<&'static str>,
    {
        let ran = crew.run_async(async |key: &Key| work(key, None).await);
        ran.await.expect(RUNS);
    }
}

impl Carried for Valued<Key, Value> {
    fn builder(settings: &Settings) -> Builder<Self> {
        let values = settings.values.as_ref().expect("keys with values");
        let builder = WorkQueue::builder().merge(merge(values.merging));
        match values.weight {
            None => builder,
            Some(weight) => builder.weight(move |value| value.len() * weight),
        }
    }

    fn add(
        producer: &mut Producer<'_, Self>,
        how: Adding,
        key: Key,
        handle: Option<usize>,
    ) -> Reply {
        let value = producer.source.value();
        // V4: a panic of the merge function reaches this caller. The value has been put then.
        let put = catch_unwind(AssertUnwindSafe(|| put(producer, how, key, handle, value)));
        let reply = put.unwrap_or(Reply::Accepted);
        producer.source.put(reply);
        reply
    }

    fn delay(
        queue: &Queue<Self>,
        source: &mut Source,
        key: Key,
        handle: Option<&KeyHandle<Self>>,
        delay: impl Into<Wait>,
    ) -> Added {
        let value = source.value();
        let wait = delay.into();
        let put = catch_unwind(AssertUnwindSafe(|| match (handle, wait.limit) {
            (Some(handle), None) => handle.entry().after(wait.delay).put(value),
            (None, None) => queue.entry(key).after(wait.delay).put(value),
            (Some(handle), Some(limit)) => handle.entry().debounce(wait.delay, limit).put(value),
            (None, Some(limit)) => queue.entry(key).debounce(wait.delay, limit).put(value),
        }));
        // As above.
        let added = put.unwrap_or(Added::Delayed);
        source.put(added.into());
        added
    }

    fn take_back(queue: &Queue<Self>, key: &Key) -> bool {
        let value = queue.remove(key);
        value.map(|mut value| Pieces::taken(&mut value)).is_some()
    }

    fn take_left(queue: &Queue<Self>) {
        for mut left in queue.take_left() {
            Pieces::taken(&mut left.value);
        }
    }

    fn value<'i>(item: &'i mut Got<'_, Self>) -> Option<&'i mut Value> {
        Some(item.value_mut())
    }

    fn owned_value(item: &mut Owned<Self>) -> Option<&mut Value> {
        Some(item.value_mut())
    }

    fn run<F>(crew: Crew<'_, Self>, work: F)
    where
        F: Fn(&Key, Option<&mut Value>) -> Verdict<&'static str> + Sync,
    {
        let crew = crew.values().on_give_up(|_, value, _| given_up(value));
        let ran = crew.run(|key: &Key, value: &mut Value| work(key, Some(value)));
        ran.expect(RUNS);
    }

    async fn run_async<F>(crew: Crew<'_, Self>, work: F)
    where
        F: AsyncFn(&Key, Option<&mut Value>) -> Verdict<&'static str>,
    {
        let crew = crew.values().on_give_up(|_, value, _| given_up(value));
        let work = async |key: &Key, value: &mut Value| work(key, Some(value)).await;
        crew.run_async(work).await.expect(RUNS);
    }
}

fn given_up(value: Option<Value>) {
    value
        .into_iter()
        .for_each(|mut value| Pieces::taken(&mut value));
}

/// Puts a value in this way.
fn put(
    producer: &mut Producer<'_, Valued<Key, Value>>,
    how: Adding,
    key: Key,
    handle: Option<usize>,
    mut value: Value,
) -> Reply {
    let queue = &*producer.life.queue;
    let added = match (how, handle) {
        (_, Some(handle)) => producer.handles[handle].put(value),
        (Adding::Ref, _) => queue.entry_ref(&key).put(value),
        (Adding::At, _) => queue.entry(key).level(fastrand::usize(..9)).put(value),
        (Adding::NewHandle, _) => queue.handle(key.into()).put(value),
        (Adding::Update, _) => queue.update(key, |waiting| waiting.append(&mut value)),
        (Adding::Tracked, _) => {
            let number = key.number;
            let (_, receipt) = queue.entry(key).tracked().put(value);
            if receipt.ended() == Some(Ended::Dropped) {
                // It was refused, or has been discarded already.
                return Reply::Refused;
            }
            producer.track(number, receipt);
            return Reply::Accepted;
        }
        (Adding::Try, _) => return reply(queue.entry(key).refuse().put(value)),
        (Adding::Wait, _) => queue.entry(key).wait().put(value),
        (Adding::Timeout, _) => return reply(queue.entry(key).within(limit()).put(value)),
        (Adding::Async, _) => pollster::block_on(queue.entry(key).put_async(value)),
        (Adding::Cancelled, _) => return cancelled(queue.entry(key).put_async(value)),
        (Adding::Add | Adding::Handle | Adding::Bulk, _) => queue.put(key, value),
    };
    added.into()
}
