//! What the two kinds of lives do differently: their keys are alone, or carry values.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::worker::{Job, Workers};
use keyqueue::{Added, Builder, Ended, Full, Item, KeyHandle, WorkQueue};
use keyqueue_model::ledger::{Key, Reply};

use crate::life::Life;
use crate::pieces::{Pieces, Source, Value, merge};
use crate::plan::Adding;
use crate::produce::Producer;
use crate::settings::{Queue, Settings};

/// Workers over a queue.
pub(crate) type Crew<'a, V> = Workers<'a, Key, V, &'static str>;

pub(crate) type Got<'q, V> = Item<'q, Key, V>;

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

/// What the keys of a queue carry: nothing, or values.
pub(crate) trait Carried: Debug + Send + Sync + Sized + 'static {
    /// Begins a queue of such keys.
    fn builder(settings: &Settings) -> Builder<Key, Self>;

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
        handle: Option<&KeyHandle<Key, Self>>,
        delay: impl Into<Wait>,
    ) -> Added;

    /// What a delivery carries, if keys carry something.
    fn of_item<'i>(item: &'i mut Got<'_, Self>) -> Option<&'i mut Value>;

    /// The same, of what a worker gets.
    fn of_job<'j>(job: &'j mut Job<'_, Key, Self>) -> Option<&'j mut Value>;

    /// Workers that try the messages of a key one by one, if it carries some, up to `turn` of them in a row.
    fn each(workers: Crew<'_, Self>, turn: usize) -> Crew<'_, Self>;

    /// Notes that workers have given a key up with this.
    fn given_up(self, life: &Life<Self>, number: u64);

    /// Notes that this was given back.
    fn taken(self);
}

/// Takes back what a key carries. Whether there was something.
pub(crate) fn take_back<V: Carried>(queue: &Queue<V>, key: &Key) -> bool {
    queue.remove(key).map(V::taken).is_some()
}

/// Takes what the end has left (S12).
pub(crate) fn take_left<V: Carried>(queue: &Queue<V>) {
    let left = queue.take_left().into_iter();
    left.filter_map(|left| left.value).for_each(V::taken);
}

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

impl Carried for () {
    fn builder(_: &Settings) -> Builder<Key, Self> {
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
            (Adding::Ref, _) => queue.entry_ref(&key).add(),
            (Adding::At, _) => {
                let entry = queue.entry(key).level(fastrand::usize(..9));
                match fastrand::u8(..8) {
                    0 => entry.within(limit()).add(),
                    _ => entry.add(),
                }
            }
            (Adding::NewHandle, _) => queue.handle(key).add(),
            (Adding::Try, _) => return reply(queue.entry(key).try_add()),
            (Adding::Wait, _) => queue.entry(key).wait().add(),
            (Adding::Timeout, _) => return reply(queue.entry(key).within(limit()).try_add()),
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
        handle: Option<&KeyHandle<Key, Self>>,
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

    fn of_item<'i>(_: &'i mut Got<'_, Self>) -> Option<&'i mut Value> {
        None
    }

    fn of_job<'j>(_: &'j mut Job<'_, Key, Self>) -> Option<&'j mut Value> {
        None
    }

    fn each(workers: Crew<'_, Self>, _: usize) -> Crew<'_, Self> {
        workers
    }

    fn given_up(self, _: &Life<Self>, _: u64) {}

    fn taken(self) {}
}

impl Carried for Value {
    fn builder(settings: &Settings) -> Builder<Key, Self> {
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
        handle: Option<&KeyHandle<Key, Self>>,
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

    fn of_item<'i>(item: &'i mut Got<'_, Self>) -> Option<&'i mut Value> {
        Some(item.value_mut())
    }

    fn of_job<'j>(job: &'j mut Job<'_, Key, Self>) -> Option<&'j mut Value> {
        Some(job.value_mut())
    }

    fn each(workers: Crew<'_, Self>, turn: usize) -> Crew<'_, Self> {
        workers.each(turn)
    }

    fn given_up(mut self, life: &Life<Self>, number: u64) {
        life.pieces.delivered(number, &mut self);
    }

    fn taken(mut self) {
        Pieces::taken(&mut self);
    }
}

/// Puts a value in this way.
fn put(
    producer: &mut Producer<'_, Value>,
    how: Adding,
    key: Key,
    handle: Option<usize>,
    mut value: Value,
) -> Reply {
    let queue = &*producer.life.queue;
    let added = match (how, handle) {
        (_, Some(handle)) => producer.handles[handle].put(value),
        (Adding::Ref, _) => queue.entry_ref(&key).put(value),
        (Adding::At, _) => {
            let entry = queue.entry(key).level(fastrand::usize(..9));
            match fastrand::u8(..8) {
                0 => entry.within(limit()).put(value),
                _ => entry.put(value),
            }
        }
        (Adding::NewHandle, _) => queue.handle(key).put(value),
        (Adding::Update, _) => queue
            .entry(key)
            .update(|waiting| waiting.append(&mut value)),
        (Adding::Tracked, _) => {
            let number = key.number;
            let (entry, receipt) = queue.entry(key).tracked();
            entry.put(value);
            if receipt.ended() == Some(Ended::Dropped) {
                // It was refused, or has been discarded already.
                return Reply::Refused;
            }
            producer.track(number, receipt);
            return Reply::Accepted;
        }
        (Adding::Try, _) => return reply(queue.entry(key).try_put(value)),
        (Adding::Wait, _) => queue.entry(key).wait().put(value),
        (Adding::Timeout, _) => return reply(queue.entry(key).within(limit()).try_put(value)),
        (Adding::Async, _) => pollster::block_on(queue.entry(key).put_async(value)),
        (Adding::Cancelled, _) => return cancelled(queue.entry(key).put_async(value)),
        (Adding::Add | Adding::Handle | Adding::Bulk, _) => queue.put(key, value),
    };
    added.into()
}
