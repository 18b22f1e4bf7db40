//! A queue in this process, as the workloads see it. They are generic over these traits, so that a
//! timed loop calls nothing through a pointer.

use std::borrow::Borrow;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use crate::keys::{Key, Tally};
use crate::race::{Race, race};

/// A deduplicating queue for keys of kind `Q`.
pub(crate) trait Queue<Q: Key + ?Sized>: Send + Sync + 'static {
    /// What `add` takes; made before the clock starts.
    type Key: From<Q::Owned> + Send + 'static;
    /// What `get` returns.
    type Item<'a>: Send;

    fn new() -> Self;
    fn key<'a>(item: &'a Self::Item<'_>) -> &'a Q;
    fn add(&self, key: Self::Key);
    fn add_ref(&self, key: &Q);
    /// Blocks; `None` once the queue is shut down and empty.
    fn get(&self) -> Option<Self::Item<'_>>;
    fn done(&self, item: Self::Item<'_>);
    fn len(&self) -> usize;
    fn shut_down(&self);
    fn shrink(&self) {}

    /// Adds the `n`th of the keys.
    fn by_key(&self, keys: Vec<Q::Owned>) -> impl Fn(usize) + Sync {
        move |n| self.add_ref(keys[n].borrow())
    }

    /// The same through handles, where the queue has them.
    fn by_handle(&self, keys: Vec<Q::Owned>) -> impl Fn(usize) + Sync {
        self.by_key(keys)
    }

    /// Adds keys, many at a time where the queue can.
    fn add_all(&self, keys: impl Iterator<Item = Self::Key>) {
        keys.for_each(|key| self.add(key));
    }

    /// Gets and finishes up to `most` keys, of which one at least is queued; many at a time where the queue can.
    fn deliver_some(&self, _most: usize, delivered: &mut Tally) {
        self.deliver_one(delivered);
    }

    /// Gets and finishes keys until the queue is shut down and empty, up to `most` at a time where the queue can.
    fn deliver_batches(&self, _most: usize) -> Tally {
        self.deliver(|_| ())
    }

    /// Gets and finishes a key.
    fn deliver_one(&self, delivered: &mut Tally) {
        let item = self.get().expect("a key is queued");
        delivered.count(Self::key(&item));
        self.done(item);
    }

    /// Gets and finishes keys until the queue is shut down and empty; `work` comes in between.
    fn deliver(&self, mut work: impl FnMut(&Q)) -> Tally {
        let mut delivered = Tally::default();
        while let Some(item) = self.get() {
            delivered.count(Self::key(&item));
            work(Self::key(&item));
            self.done(item);
        }
        delivered
    }

    /// Runs producers and consumers until the queue is shut down and empty.
    fn race(
        &self,
        producers: Vec<impl FnOnce() + Send>,
        consumers: Vec<impl FnOnce() -> Tally + Send>,
    ) -> Race {
        let race = race(producers, || self.shut_down(), consumers);
        assert_eq!(self.len(), 0);
        race
    }
}

/// A queue whose workers may be tasks.
pub(crate) trait Tasked: Queue<u64> {
    /// Waits without blocking; `None` once the queue is shut down and empty.
    fn get_in_task(&self) -> impl Future<Output = Option<Self::Item<'_>>> + Send;
}

/// What is put to a key: 64 bytes.
pub(crate) type Event = [u64; 8];

/// A queue whose keys carry the events that were put to them.
pub(crate) trait Inboxes: Sync {
    fn new(workers: usize) -> Self;
    fn put(&self, key: u64, event: Event);
    /// Puts events, many at a time where the queue can.
    fn put_all(&self, events: impl Iterator<Item = (u64, Event)>) {
        events.for_each(|(key, event)| self.put(key, event));
    }
    /// Gets and finishes keys until the queue is shut down and empty; `work` comes in between, with
    /// all events that the key had, the oldest first.
    fn deliver(&self, work: impl FnMut(u64, &[Event]));
    /// The same, up to `most` keys at a time where the queue can.
    fn deliver_batches(&self, _most: usize, work: impl FnMut(u64, &[Event])) {
        self.deliver(work);
    }
    /// Whether the queue, shut down, has no key and no event left.
    fn is_empty(&self) -> bool;
    fn shut_down(&self);
}

/// Something that delivers keys when their time has come; the earlier of two times counts.
pub(crate) trait Delays: Sync {
    /// Sends the keys to `ready`, unless `get` is its own.
    fn new(ready: Sender<u64>) -> Self;
    fn add_after(&self, key: u64, delay: Duration);
    /// Whether a delay was pending; `None` if delays cannot be cancelled.
    fn cancel(&self, _key: u64) -> Option<bool> {
        None
    }
    /// Returns when every delay so far is set, for those that only note an add and set it later.
    fn settle(&self) {}
    /// Blocks.
    fn get(&self, ready: &Receiver<u64>) -> u64 {
        ready.recv().expect("the sender lives")
    }
}
