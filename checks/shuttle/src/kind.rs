//! The two kinds of queues, of keys alone and of keys with values, as one: every way to add, and what comes back.

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keyqueue::{Added, Full, Receipt, WorkQueue};
use shuttle::future::block_on;

use crate::{DeliveryOf, Key, MS, QueueOf, SettingsOf, below, dawdle};

/// What was put, in the order in which it was merged.
pub type Bag = Vec<u64>;

/// A way to add a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// At a level, whatever the bound.
    At(usize),
    Handle,
    After(Duration),
    HandleAfter(Duration),
    /// With a receipt, if there are values.
    Tracked,
    /// After a while, whatever the bound.
    Exceed,
    /// The others keep the bound: refused for lack of room,
    Try,
    /// or after a while,
    WaitFor,
    /// or never, by a thread
    Wait,
    /// or a task;
    Async,
    /// or dropped after this many polls.
    Dropped(u64),
}

/// A delay: it ends half-way through a tick, or with it.
pub fn delay() -> Duration {
    MS * (1 + below(4)) as u32 / 2
}

impl How {
    /// Draws one.
    pub fn draw(levels: u64) -> Self {
        match below(15) {
            0..3 => How::At(below(levels) as usize),
            3 => How::At(0),
            4 => How::Handle,
            5 => How::Tracked,
            6 => How::After(delay()),
            7 => How::HandleAfter(delay()),
            8 | 9 => How::Try,
            10 => How::WaitFor,
            11 => How::Wait,
            12 => How::Async,
            13 => How::Exceed,
            _ => How::Dropped(1 + below(2)),
        }
    }

    /// Whether the bound is kept.
    pub fn is_bounded(self) -> bool {
        use How::{Async, Dropped, Try, Wait, WaitFor};
        matches!(self, Try | WaitFor | Wait | Async | Dropped(_))
    }

    /// Whether the key is delayed, unless the queue is shut down.
    pub fn is_delayed(self) -> bool {
        matches!(self, How::After(_) | How::HandleAfter(_))
    }
}

/// What an add did, `None` if there was no room, or its future was dropped; and its receipt, if it has one.
pub type Did = (Option<Added>, Option<Receipt>);

/// What the keys of a queue carry: nothing, or values.
pub trait Kind: Debug + Send + Sync + Sized + 'static {
    /// Whether keys have values.
    const HAS_VALUES: bool;

    /// A builder of such a queue.
    fn builder() -> SettingsOf<Self>;

    /// Makes the capacity count the numbers in the values, if there are any.
    fn weigh(settings: SettingsOf<Self>) -> SettingsOf<Self>;

    /// Adds a key, with this number if it has a value.
    fn add(queue: &QueueOf<Self>, how: How, key: Key, put: u64) -> Did;

    /// Takes the value of a key back, if keys have values.
    fn remove(queue: &QueueOf<Self>, key: &Key) -> Option<Bag>;

    /// The values of the keys that an end has left.
    fn take_left(queue: &QueueOf<Self>) -> Vec<Bag>;

    /// What a delivery has at most taken in the room of the queue.
    fn weight(value: &Bag) -> usize {
        if Self::HAS_VALUES { value.len() } else { 1 }
    }

    /// The value of a delivery.
    fn value(item: &mut DeliveryOf<'_, Self>) -> Bag;
}

/// Polls an add a few times, and drops it.
fn poll_and_drop(polls: u64, add: impl Future<Output = Added>) -> Option<Added> {
    let mut add = pin!(add);
    for _ in 0..polls {
        if let Poll::Ready(added) = add.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(added);
        }
        dawdle(8);
    }
    None
}

/// A limit that is over after a few steps of others.
const SOON: Duration = Duration::ZERO;

fn unless_full<T>(added: Result<Added, Full<T>>) -> Did {
    (added.ok(), None)
}

impl Kind for () {
    const HAS_VALUES: bool = false;

    fn builder() -> SettingsOf<Self> {
        WorkQueue::<Key>::builder().hasher(crate::HASHER)
    }

    fn weigh(settings: SettingsOf<Self>) -> SettingsOf<Self> {
        settings
    }

    fn add(queue: &QueueOf<Self>, how: How, key: Key, _put: u64) -> Did {
        let added = match how {
            How::At(level) => queue.entry(key).level(level).add(),
            How::Handle => queue.handle(key).add(),
            How::After(delay) => queue.add_after(key, delay),
            How::HandleAfter(delay) => queue.handle(key).add_after(delay),
            How::Tracked => queue.add(key),
            How::Try => return unless_full(queue.entry(key).try_add()),
            How::WaitFor => return unless_full(queue.entry(key).within(SOON).try_add()),
            How::Exceed => queue.entry(key).within(SOON).add(),
            How::Wait => queue.entry(key).wait().add(),
            How::Async => block_on(queue.entry(key).add_async()),
            How::Dropped(polls) => {
                return (poll_and_drop(polls, queue.entry(key).add_async()), None);
            }
        };
        (Some(added), None)
    }

    fn remove(_: &QueueOf<Self>, _: &Key) -> Option<Bag> {
        None
    }

    fn take_left(queue: &QueueOf<Self>) -> Vec<Bag> {
        queue.take_left().into_iter().map(|_| Bag::new()).collect()
    }

    fn value(_: &mut DeliveryOf<'_, Self>) -> Bag {
        Bag::new()
    }
}

impl Kind for Bag {
    const HAS_VALUES: bool = true;

    fn builder() -> SettingsOf<Self> {
        let merge = |older: &mut Bag, newer: Bag| older.extend(newer);
        <()>::builder().merge(merge)
    }

    fn weigh(settings: SettingsOf<Self>) -> SettingsOf<Self> {
        settings.weight(Bag::len)
    }

    fn add(queue: &QueueOf<Self>, how: How, key: Key, put: u64) -> Did {
        let value = vec![put];
        let added = match how {
            How::At(level) => queue.entry(key).level(level).put(value),
            How::Handle => queue.handle(key).put(value),
            How::After(delay) => queue.entry(key).after(delay).put(value),
            How::HandleAfter(delay) => queue.handle(key).entry().after(delay).put(value),
            How::Tracked => {
                let (entry, receipt) = queue.entry(key).tracked();
                entry.put(value);
                return (None, Some(receipt));
            }
            How::Try => return unless_full(queue.entry(key).try_put(value)),
            How::WaitFor => return unless_full(queue.entry(key).within(SOON).try_put(value)),
            How::Exceed => queue.entry(key).within(SOON).put(value),
            How::Wait => queue.entry(key).wait().put(value),
            How::Async => block_on(queue.entry(key).put_async(value)),
            How::Dropped(polls) => {
                return (
                    poll_and_drop(polls, queue.entry(key).put_async(value)),
                    None,
                );
            }
        };
        (Some(added), None)
    }

    fn remove(queue: &QueueOf<Self>, key: &Key) -> Option<Bag> {
        queue.remove(key)
    }

    fn take_left(queue: &QueueOf<Self>) -> Vec<Bag> {
        let left = queue.take_left().into_iter();
        left.map(|left| left.value.expect("keys have values"))
            .collect()
    }

    fn value(item: &mut DeliveryOf<'_, Self>) -> Bag {
        item.value_mut().clone()
    }
}
