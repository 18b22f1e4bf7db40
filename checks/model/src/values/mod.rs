//! Values: a queue of values and its model side by side. Every step is taken with both, and every
//! result compared.
//!
//! Apart from the model there is one witness that knows nothing of it: each value is a list of
//! numbers that are put once, so at the end each number was delivered, taken back, or dropped, once.

mod model;
mod op;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::Span;
use crate::lockstep::{choose, settings, take_one};
use crate::{By, Settings, Setup, Spreading};
use keyqueue::limiter::NoLimit;
use keyqueue::{Clock, Full, GetError, Item, KeyHandle, MockClock, Receipt, WorkQueue, merge};

use model::Model;
pub use op::{ValueOp, ValueScript, Verb};

/// A value: numbers, in the order of their puts. They share a count of those that are alive.
type Value = Vec<Number>;

#[derive(Clone, Debug)]
struct Number(u32, #[allow(dead_code, reason = "counts")] Arc<()>);

type Queue = WorkQueue<u16, Value, Spreading>;
type Held<'q> = Item<'q, u16, Value>;

/// Takes all steps, and then delivers what is left.
pub fn run(setup: Setup, ops: &[ValueOp]) {
    let (clock, time) = Clock::mock();
    let builder = settings::<u16>(&setup, clock);
    // The number of the limiter chooses between the bounds, and whether retries are delayed (L15).
    let capacity = (setup.limiter % 2 == 1).then_some(usize::from(setup.limiter / 2 % 4) + 1);
    let backs_off = setup.limiter / 8 % 2 == 1;
    let builder = match backs_off {
        true => builder,
        false => builder.rate_limiter(NoLimit),
    };
    let builder = builder.merge(merge::append);
    let builder = match capacity {
        None => builder,
        Some(capacity) => builder.capacity(capacity),
    };
    let builder = match setup.groups() {
        0 => builder,
        groups => builder.group_by(move |key: &u16| u64::from(*key) % groups),
    };
    let queue = builder.build().expect("the settings are in range");
    let mut lockstep = Lockstep {
        queue: &queue,
        time: &time,
        model: Model::new(setup, capacity, backs_off),
        setup,
        alive: Arc::default(),
        next: 0,
        items: Vec::new(),
        handles: Vec::new(),
        receipts: Vec::new(),
    };
    for op in ops {
        _ = lockstep.step(*op);
        lockstep.compare(*op);
    }
    let (alive, receipts) = lockstep.finish();
    drop(queue);
    assert_eq!(Arc::strong_count(&alive), 1, "values were leaked");
    for (number, receipt) in receipts {
        assert!(receipt.ended().is_some(), "the receipt of {number}");
    }
}

struct Lockstep<'q> {
    queue: &'q Queue,
    time: &'q MockClock,
    model: Model,
    setup: Setup,
    /// Shared by all numbers that have not been dropped.
    alive: Arc<()>,
    /// The next number.
    next: u32,
    items: Vec<(u16, Held<'q>)>,
    handles: Vec<KeyHandle<u16, Value>>,
    receipts: Vec<(u32, Receipt)>,
}

impl Lockstep<'_> {
    fn key(&self, number: u16) -> u16 {
        number % self.setup.keys()
    }

    /// Returns a new number, for the model and for the queue.
    fn value(&mut self) -> (u32, Value) {
        self.next += 1;
        (self.next, vec![Number(self.next, Arc::clone(&self.alive))])
    }

    /// Puts or updates with settings (V6).
    fn enter(&mut self, key: u16, how: Settings, verb: Verb) {
        let (number, mut value) = self.value();
        let before = value.len();
        let handle = self.handles.iter().find(|handle| *handle.key() == key);
        // Of entries whose types of keys differ. `None` if it is refused; then all of the value comes back.
        macro_rules! put {
            ($entry:expr) => {{
                let mut entry = how.of($entry);
                let mut receipt = None;
                if verb.tracked {
                    let (tracked, its) = entry.tracked();
                    (entry, receipt) = (tracked, Some(its));
                }
                let added = match (how.refuse, verb.update) {
                    (false, false) => Some(entry.put(value)),
                    (false, true) => Some(entry.update(|older| older.append(&mut value))),
                    (true, false) => {
                        let back = |Full((_, value)): Full<(_, Value)>| value.len();
                        let put = entry.try_put(value).map_err(back);
                        assert!(put.is_ok() || put == Err(before));
                        put.ok()
                    }
                    (true, true) => entry.try_update(|older| older.append(&mut value)).ok(),
                };
                added.map(|added| (added, receipt))
            }};
        }
        let put = match (how.by, handle) {
            (By::Handle, Some(handle)) => put!(handle.entry()),
            (By::Ref, _) => put!(self.queue.entry_ref(&key)),
            _ => put!(self.queue.entry(key)),
        };
        let added = match put {
            Some((added, receipt)) => {
                assert_eq!(receipt.is_some(), verb.tracked);
                self.receipts
                    .extend(receipt.map(|receipt| (number, receipt)));
                Some(added)
            }
            None => None,
        };
        let expected = self.model.enter(key, number, how, verb);
        assert_eq!(added, expected, "V6: {how:?} {verb:?} of {key}");
    }

    /// Takes a step. `None`: there is nothing to take it with.
    fn step(&mut self, op: ValueOp) -> Option<()> {
        match op {
            ValueOp::Put(key) => {
                let (key, (number, value)) = (self.key(key), self.value());
                let added = self.queue.put(key, value);
                assert_eq!(added, self.model.put(key, Some(number)), "V1: put of {key}");
            }
            ValueOp::PutAll(first, stride, count) => {
                let numbers =
                    (0..u16::from(count)).map(|at| first.wrapping_add(at * u16::from(stride)));
                let keys: Vec<_> = numbers.map(|number| self.key(number)).collect();
                let (mut items, mut expected) = (Vec::new(), 0);
                for key in keys {
                    let (number, value) = self.value();
                    items.push((key, value));
                    let added = self.model.put(key, Some(number));
                    expected += usize::from(added == keyqueue::Added::Queued);
                }
                let queued = self.queue.put_all(items);
                assert_eq!(queued, expected, "C14: puts from {first} on");
            }
            ValueOp::Update(key) => {
                let (key, (number, mut value)) = (self.key(key), self.value());
                let added = self
                    .queue
                    .entry(key)
                    .update(|older| older.append(&mut value));
                assert_eq!(
                    added,
                    self.model.put(key, Some(number)),
                    "V1: update of {key}"
                );
            }
            ValueOp::Enter(key, how, verb) => self.enter(self.key(key), how, verb),
            ValueOp::Add(key) => {
                let key = self.key(key);
                let added = self.queue.add(key);
                assert_eq!(added, self.model.put(key, None), "add of {key}");
            }
            // What a shut-down leaves behind stays until a sweep, and this may be one.
            ValueOp::Handle(_) | ValueOp::Shrink if self.model.is_shutting_down() => {}
            ValueOp::Handle(key) => {
                let key = self.key(key);
                self.handles.push(self.queue.handle(key));
            }
            ValueOp::HandlePut(which) => {
                let (number, value) = self.value();
                let handle = choose(&self.handles, which)?;
                let added = handle.put(value);
                assert_eq!(added, self.model.put(*handle.key(), Some(number)));
            }
            ValueOp::HandleDrop(which) => drop(take_one(&mut self.handles, which)?),
            ValueOp::Remove(key) => {
                let key = self.key(key);
                let removed = self.queue.remove(&key).map(|value| numbers(&value));
                assert_eq!(removed, self.model.remove(key), "remove of {key}");
            }
            ValueOp::Cancel(key) => {
                let key = self.key(key);
                assert_eq!(self.queue.cancel(&key), self.model.cancel(key), "D6: {key}");
            }
            ValueOp::RunNow(key) => {
                let key = self.key(key);
                assert_eq!(
                    self.queue.run_now(&key),
                    self.model.run_now(key),
                    "X3: {key}"
                );
            }
            ValueOp::TryGet => self.get(),
            ValueOp::Change(which) => {
                let at = usize::from(which).checked_rem(self.items.len())?;
                let (key, item) = &mut self.items[at];
                let loaded = self.model.loaded(*key)?;
                item.value_mut().reverse();
                loaded.reverse();
            }
            ValueOp::Take(which) => {
                let at = usize::from(which).checked_rem(self.items.len())?;
                let (key, item) = &mut self.items[at];
                let taken = item.take().map(|value| numbers(&value));
                assert_eq!(taken, self.model.take(*key));
            }
            ValueOp::Done(which) => {
                let (key, item) = take_one(&mut self.items, which)?;
                item.done();
                self.model.done(key);
            }
            ValueOp::Retry(which) => {
                let (key, item) = take_one(&mut self.items, which)?;
                assert_eq!(item.retry(), self.model.retry(key), "V3: {key}");
            }
            ValueOp::RetryAfter(which, delay) => {
                let (key, item) = take_one(&mut self.items, which)?;
                let added = item.retry_after(delay.duration());
                assert_eq!(
                    added,
                    self.model.retry_after(key, delay.nanos()),
                    "V3: {key}"
                );
            }
            ValueOp::Advance(by) => self.advance(by),
            ValueOp::FireDue => {
                assert_eq!(
                    self.queue.fire_due(),
                    self.model.fire_due(),
                    "delays that ended"
                );
            }
            ValueOp::Shrink => self.queue.shrink(),
            ValueOp::Clear => {
                assert_eq!(self.queue.clear(), self.model.clear());
            }
            ValueOp::ShutDown => {
                let left = self.queue.shut_down();
                assert_eq!(left, self.model.shut_down(), "S5");
            }
            ValueOp::DrainNow => {
                let left = self.queue.drain_timeout(Duration::ZERO);
                assert_eq!(left, self.model.drain_now(self.setup.drain_delays), "S5");
            }
            ValueOp::ShutDownNow => {
                let left = self.queue.shut_down_now();
                assert_eq!(left, self.model.shut_down_now(), "S5 S8");
            }
            ValueOp::TakeLeft => {
                let left = self.queue.take_left().into_iter();
                let left =
                    left.map(|left| (left.key, (numbers(&left.value.unwrap()), left.reason)));
                assert_eq!(
                    left.collect::<BTreeMap<_, _>>(),
                    self.model.take_left(),
                    "S12"
                );
            }
        }
        Some(())
    }

    /// The clock stays far below its end.
    fn advance(&mut self, by: Span) {
        if self.model.now() + by.nanos() < 1 << 62 {
            self.time.advance(by.duration());
            self.model.advance(by);
        }
    }

    fn get(&mut self) {
        match (self.queue.try_get(), self.model.get()) {
            (Ok(item), Some((key, expected))) => {
                assert_eq!(*item.key(), key);
                assert_eq!(
                    numbers(item.value()),
                    expected,
                    "V1, V2: the value of {key}"
                );
                self.items.push((key, item));
            }
            (got, expected) => {
                let ended = self.model.has_ended();
                let none = if ended {
                    GetError::ShutDown
                } else {
                    GetError::Empty
                };
                assert!(
                    expected.is_none() && got.as_ref().err() == Some(&none),
                    "{got:?}, {expected:?}"
                );
            }
        }
    }

    /// Compares what can be seen without a step.
    fn compare(&self, after: ValueOp) {
        assert_eq!(self.queue.len(), self.model.len(), "after {after:?}");
        for (number, receipt) in &self.receipts {
            let (ended, expected) = (receipt.ended(), self.model.ended(*number));
            assert_eq!(ended, expected, "the receipt of {number} after {after:?}");
        }
        let alive = Arc::strong_count(&self.alive) - 1;
        assert_eq!(alive, self.model.alive(), "values after {after:?}");
    }

    /// Works everything off.
    fn finish(mut self) -> (Arc<()>, Vec<(u32, Receipt)>) {
        loop {
            self.get();
            self.compare(ValueOp::TryGet);
            if self.items.is_empty() {
                break;
            }
            while self.step(ValueOp::Done(0)).is_some() {
                self.compare(ValueOp::Done(0));
            }
        }
        assert_eq!(self.queue.len(), 0);
        (self.alive, self.receipts)
    }
}

fn numbers(value: &Value) -> Vec<u32> {
    value.iter().map(|number| number.0).collect()
}
