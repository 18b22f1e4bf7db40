//! A queue and its model side by side: every step is taken with both, and every result compared.
//!
//! Next to the model there are two witnesses that know nothing of it: `owed` (an accepted add is
//! followed by a delivery, C5) and the items held (no key twice at a time, C3).

pub mod limiter;
mod looking;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Key;
use crate::{By, Naive, Op, Policy, Settings, Setup, Spreading};
use keyqueue::{
    Added, Builder, Clock, DelayPolicy, GetError, Item, KeyHandle, MockClock, Remaining, WorkQueue,
};

use waiting::{Waiting, compare_wakes};

const GETTERS: usize = 4;
const DRAINERS: usize = 2;
/// The clock stays below this, in nanoseconds: it ends at 2^64, and a bucket's tokens with it.
const END: u128 = 1 << 62;

type Queue = WorkQueue<Key, (), Spreading>;
type Held<'q> = Item<'q, Key>;
type Getter<'q> = Pin<Box<dyn Future<Output = Option<Held<'q>>> + 'q>>;
type Drainer<'q> = Pin<Box<dyn Future<Output = Remaining> + 'q>>;

/// Takes all steps, and then delivers what is left.
pub fn run(setup: Setup, ops: &[Op]) {
    let (clock, time) = Clock::mock();
    let builder = settings::<Key>(&setup, clock.clone());
    let builder = match setup.has_limiter() {
        true => builder.rate_limiter(limiter::build(&setup.limits(), &clock)),
        false => builder,
    };
    let queue = match setup.groups() {
        0 => builder,
        groups => builder.group_by(move |key: &Key| key.number % groups),
    };
    let queue = match setup.capacity() {
        None => queue,
        Some(capacity) => queue.capacity(capacity),
    };
    let queue = queue.build().expect("the settings are in range");
    let alive = Arc::default();
    let mut lockstep = Lockstep {
        queue: &queue,
        time: &time,
        model: Naive::new(setup),
        setup,
        alive: &alive,
        owed: BTreeSet::new(),
        held: BTreeSet::new(),
        items: Vec::new(),
        handles: Vec::new(),
        getters: Default::default(),
        drainers: Default::default(),
    };
    for op in ops {
        lockstep.take(*op);
    }
    let handles = lockstep.finish();
    drop(queue);
    // C11: handles outlive the queue, and are refused.
    for handle in &handles {
        assert_eq!(handle.add(), Added::ShutDown);
    }
    drop(handles);
    assert_eq!(Arc::strong_count(&alive), 1, "keys were leaked");
}

struct Lockstep<'q> {
    queue: &'q Queue,
    time: &'q MockClock,
    model: Naive<u64>,
    setup: Setup,
    /// Shared by all keys that have not been dropped.
    alive: &'q Arc<()>,
    /// Keys with an accepted add since their last delivery began.
    owed: BTreeSet<u64>,
    /// Keys of `items`.
    held: BTreeSet<u64>,
    items: Vec<Held<'q>>,
    handles: Vec<KeyHandle<Key>>,
    getters: [Option<Waiting<Getter<'q>>>; GETTERS],
    drainers: [Option<Waiting<Drainer<'q>>>; DRAINERS],
}

impl<'q> Lockstep<'q> {
    fn id(&self, number: u16) -> u64 {
        u64::from(number % self.setup.keys())
    }

    fn key(&self, id: u64) -> Key {
        Key::new(id, Some(Arc::clone(self.alive)))
    }

    /// Adds a key with settings (V6).
    fn enter(&mut self, id: u64, how: Settings) {
        // Of entries whose types of keys differ.
        macro_rules! add {
            ($entry:expr) => {
                match (how.of($entry), how.refuse) {
                    (entry, true) => entry.try_add().ok(),
                    (entry, false) => Some(entry.add()),
                }
            };
        }
        let handle = self.handles.iter().find(|handle| handle.key().number == id);
        let added = match (how.by, handle) {
            (By::Handle, Some(handle)) => add!(handle.entry()),
            (By::Ref, _) => add!(self.queue.entry_ref(&self.key(id))),
            _ => add!(self.queue.entry(self.key(id))),
        };
        let expected = self.model.enter(id, how);
        assert_eq!(added.is_some(), expected.is_some(), "B2: room for {id}");
        if let (Some(added), Some(expected)) = (added, expected) {
            self.added_as(id, added, expected);
        }
    }

    /// Takes a step. `None`: there is nothing to take it with.
    fn step(&mut self, op: Op) -> Option<()> {
        match op {
            Op::Add(number) => {
                let id = self.id(number);
                let added = self.queue.add(self.key(id));
                self.added(id, added);
            }
            Op::Enter(number, how) => self.enter(self.id(number), how),
            Op::AddRef(number) => {
                let id = self.id(number);
                let added = self.queue.entry_ref(&self.key(id)).add();
                self.added(id, added);
            }
            Op::AddAll {
                first,
                stride,
                count,
            } => self.add_all(first, stride, count),
            Op::AddAfter(number, delay) => {
                let id = self.id(number);
                let added = self.queue.add_after(self.key(id), delay.duration());
                let expected = self.model.add_after(id, delay.nanos());
                self.added_as(id, added, expected);
            }
            Op::AddLimited(number) => {
                let id = self.id(number);
                let added = self.queue.add_rate_limited(self.key(id));
                let expected = self.model.add_limited(id);
                self.added_as(id, added, expected);
            }
            Op::Cancel(number) => {
                let id = self.id(number);
                let cancelled = self.queue.cancel(&id);
                assert_eq!(
                    cancelled,
                    self.model.delays.cancel(id).is_some(),
                    "cancel of {id}"
                );
            }
            Op::RunNow(number) => {
                let id = self.id(number);
                let added = self.queue.run_now(&id);
                let expected = self.model.run_now(id);
                assert_eq!(added.is_some(), expected.is_some(), "X3: {id}");
                if let (Some(added), Some(expected)) = (added, expected) {
                    self.added_as(id, added, expected);
                }
            }
            Op::Forget(number) => {
                let id = self.id(number);
                self.queue.forget(&self.key(id));
                self.model.limits.forget(id);
            }
            Op::NumRequeues(number) => {
                let id = self.id(number);
                let failures = self.queue.num_requeues(&self.key(id));
                assert_eq!(failures, self.model.num_requeues(id), "failures of {id}");
            }
            Op::Advance(by) if self.model.delays.now() + by.nanos() < END => {
                self.time.advance(by.duration());
                self.model.delays.advance(by);
            }
            Op::Advance(_) => {}
            Op::FireDue => {
                let fired = self.queue.fire_due();
                let expected = self.model.fire_due();
                assert_eq!(fired, expected.len(), "delays that ended");
                if !self.model.is_shutting_down() {
                    self.owed.extend(expected);
                }
            }
            Op::Handle(number) => {
                let id = self.id(number);
                self.handles.push(self.queue.handle(self.key(id)));
                self.model.pin(id);
            }
            Op::HandleAdd(which) => {
                let handle = choose(&self.handles, which)?;
                let (id, added) = (handle.key().number, handle.add());
                self.added(id, added);
            }
            Op::HandleAddAfter(which, delay) => {
                let handle = choose(&self.handles, which)?;
                let id = handle.key().number;
                let added = handle.add_after(delay.duration());
                let expected = self.model.add_after(id, delay.nanos());
                self.added_as(id, added, expected);
            }
            Op::HandleClone(which) => {
                let handle = choose(&self.handles, which)?.clone();
                self.model.pin(handle.key().number);
                self.handles.push(handle);
            }
            Op::HandleDrop(which) => {
                let handle = take_one(&mut self.handles, which)?;
                self.model.unpin(handle.key().number);
            }
            Op::TryGet => {
                let got = self.queue.try_get();
                self.got(got);
            }
            Op::Get if self.would_wait() => {}
            Op::Get => self.got(self.queue.get().ok_or(GetError::ShutDown)),
            Op::GetTimeout => {
                let got = self.queue.get_timeout(Duration::ZERO);
                self.got(got);
            }
            Op::GetBatch(_) if self.would_wait() => {}
            Op::GetBatch(max) => self.get_batch(usize::from(max)),
            Op::Done(which) => {
                let item = take_one(&mut self.items, which)?;
                self.release(item.number);
                item.done();
            }
            Op::Retry(which) => {
                let item = take_one(&mut self.items, which)?;
                let id = item.number;
                let expected = self.model.retry(id);
                self.release(id);
                self.retried(id, item.retry(), expected);
            }
            Op::RetryAfter(which, delay) => {
                let item = take_one(&mut self.items, which)?;
                let id = item.number;
                let expected = self.model.retry_after(id, delay.nanos());
                self.release(id);
                self.retried(id, item.retry_after(delay.duration()), expected);
            }
            Op::DropItem(which) => {
                let item = take_one(&mut self.items, which)?;
                self.release(item.number);
            }
            Op::DropItems => {
                for item in std::mem::take(&mut self.items) {
                    self.release(item.number);
                }
            }
            Op::PollGet { who, waker } => self.poll_get(usize::from(who) % GETTERS, waker.into()),
            Op::DropGet(who) => {
                let who = usize::from(who) % GETTERS;
                if self.getters[who].take().is_some() {
                    self.model.drop_get(who);
                }
            }
            Op::PollDrain(who) => self.poll_drain(usize::from(who) % DRAINERS),
            Op::DropDrain(who) => {
                let who = usize::from(who) % DRAINERS;
                self.drainers[who] = None;
                self.model.drop_drain(who);
            }
            Op::ShutDown => {
                assert_eq!(self.queue.shut_down(), self.model.shut_down());
            }
            Op::ShutDownNow => {
                assert_eq!(self.queue.shut_down_now(), self.model.shut_down_now());
                // S8: what was queued or dirty is not delivered.
                self.owed.clear();
            }
            Op::DrainNow => {
                self.drain_begins();
                let drained = self.queue.drain_timeout(Duration::ZERO);
                assert_eq!(drained, self.model.drain_now());
            }
            Op::Shrink => {
                self.queue.shrink();
                self.model.shrink();
                // C10; a key that became more urgent stays until the entry it left behind comes up.
                let (alive, in_use) = (self.alive(), self.model.in_use());
                assert!(alive >= in_use, "{in_use} keys are in use");
                if self.setup.levels() == 1 || self.setup.groups() > 0 {
                    assert_eq!(alive, in_use, "keys after a shrink");
                }
            }
            Op::TakeLeft => {
                let left = self.queue.take_left().into_iter();
                let left = left.map(|left| (left.key.number, left.reason));
                assert_eq!(
                    left.collect::<BTreeMap<_, _>>(),
                    self.model.take_left(),
                    "S12"
                );
                self.owed.clear();
            }
            Op::Snapshot => self.snapshot(),
            Op::Stuck(older_than) => self.stuck(older_than),
        }
        Some(())
    }

    fn added(&mut self, id: u64, added: Added) {
        let expected = self.model.add(id);
        self.added_as(id, added, expected);
    }

    fn added_as(&mut self, id: u64, added: Added, expected: Added) {
        assert_eq!(added, expected, "add of {id}");
        if !matches!(expected, Added::Delayed | Added::ShutDown) {
            self.owed.insert(id);
        }
    }

    fn retried(&mut self, id: u64, added: Added, expected: Added) {
        if self.setup.wait_for_retries && expected == Added::Delayed {
            // V7: what has made the key dirty waits as well.
            self.owed.remove(&id);
        }
        self.added_as(id, added, expected);
    }

    /// Notes that what is delayed is about to be delivered, if a drain does that.
    fn drain_begins(&mut self) {
        if self.setup.drain_delays && !self.model.is_shutting_down() {
            let keys = 0..u64::from(self.setup.keys());
            let delayed = keys.filter(|id| self.model.delays.is_pending(*id));
            self.owed.extend(delayed);
        }
    }

    fn add_all(&mut self, first: u16, stride: u8, count: u8) {
        let numbers = (0..count).map(|at| first.wrapping_add(u16::from(at) * u16::from(stride)));
        let ids: Vec<_> = numbers.map(|number| self.id(number)).collect();
        let keys = ids.iter().map(|id| self.key(*id));
        let queued = self.queue.add_all(keys);
        if !self.queue.is_shutting_down() {
            let model = &self.model;
            let owed = ids.iter().filter(|id| !model.delays.holds(**id));
            self.owed.extend(owed);
        }
        assert_eq!(queued, self.model.add_all(ids));
    }

    /// Compares a result, and keeps the item.
    fn got(&mut self, got: Result<Held<'q>, GetError>) {
        let expected = self.model.get();
        self.keep(got, expected);
    }

    fn keep(&mut self, got: Result<Held<'q>, GetError>, expected: Result<u64, GetError>) {
        let id = got.as_ref().map(|item| item.number);
        assert_eq!(id.map_err(|none| *none), expected);
        if let Ok(item) = got {
            let id = item.number;
            assert!(self.owed.remove(&id), "{id} was delivered for no add");
            assert!(self.held.insert(id), "{id} was handed out twice at a time");
            assert_eq!(item.level(), self.model.level(id), "level of {id}");
            self.compare_queue_time(&item);
            self.items.push(item);
        }
    }

    /// Whether a get would wait. If the model says that it would not, the queue must say so too,
    /// lest a bug make the test hang rather than fail.
    fn would_wait(&self) -> bool {
        if self.model.has_ended() {
            let got = self.queue.try_get();
            assert_eq!(got.err(), Some(GetError::ShutDown));
        } else if !self.model.is_empty() {
            assert!(!self.queue.is_empty());
        }
        self.model.would_wait()
    }

    /// Notes that the item of a key is about to be given back.
    fn release(&mut self, id: u64) {
        self.held.remove(&id);
        self.model.done(id);
    }

    fn get_batch(&mut self, max: usize) {
        let expected = max.max(1).min(self.model.len());
        let batch = self.queue.get_batch(max);
        assert_eq!(batch.as_deref().map_or(0, <[_]>::len), expected);
        assert_eq!(batch.is_none(), expected == 0);
        for item in batch.into_iter().flatten() {
            self.got(Ok(item));
        }
    }

    fn alive(&self) -> usize {
        Arc::strong_count(self.alive) - 1
    }

    /// Compares what can be seen without a step.
    fn compare(&mut self, after: Op) {
        self.model.assert_consistent();
        let seen = (self.queue.len(), self.queue.is_empty());
        let expected = (self.model.len(), self.model.is_empty());
        assert_eq!(seen, expected, "after {after:?}");
        let by_level = match self.setup.levels() {
            1 => Vec::new(),
            _ => self.model.by_level(),
        };
        assert_eq!(self.queue.counts().by_level, by_level);
        assert_eq!(self.queue.is_shutting_down(), self.model.is_shutting_down());
        // Every key is interned once, and none that is in use is dropped.
        let left = self.model.remaining();
        let interned = left.queued + left.processing..=usize::from(self.setup.keys());
        let alive = self.alive();
        assert!(interned.contains(&alive), "{alive} keys after {after:?}");
        let woken = self.model.getters.take_woken();
        compare_wakes(&mut self.getters, woken, after);
        let woken = self.model.drainers.take_woken();
        compare_wakes(&mut self.drainers, woken, after);
    }

    fn take(&mut self, op: Op) {
        _ = self.step(op);
        self.compare(op);
    }

    /// Works everything off, and returns the handles.
    fn finish(mut self) -> Vec<KeyHandle<Key>> {
        (0..GETTERS as u8).for_each(|who| self.take(Op::DropGet(who)));
        while !self.items.is_empty() || !self.model.is_empty() {
            self.take(Op::DropItems);
            self.take(Op::GetBatch(u8::MAX));
        }
        assert!(self.owed.is_empty(), "adds were lost: {:?}", self.owed);
        self.take(Op::Shrink);
        self.take(Op::ShutDown);
        (0..DRAINERS as u8).for_each(|who| self.take(Op::PollDrain(who)));
        self.take(Op::DrainNow);
        assert!(self.queue.drain_timeout(Duration::MAX).is_finished());
        let (who, waker) = (0, false);
        let poll = Op::PollGet { who, waker };
        for op in [Op::TryGet, Op::Get, Op::GetTimeout, Op::GetBatch(2), poll] {
            self.take(op);
        }
        assert!(self.items.is_empty());
        self.handles
    }
}

/// The one of some things that a number means.
pub(crate) fn choose<T>(things: &[T], number: u8) -> Option<&T> {
    things.get(usize::from(number).checked_rem(things.len())?)
}

/// The same, taken away.
pub(crate) fn take_one<T>(things: &mut Vec<T>, number: u8) -> Option<T> {
    let at = usize::from(number).checked_rem(things.len())?;
    Some(things.remove(at))
}

/// The settings of a queue that do not depend on what its keys are.
pub(crate) fn settings<K>(setup: &Setup, clock: Clock) -> Builder<K, (), Spreading>
where
    K: Hash + Eq + Send + Sync + 'static,
{
    let policy = match setup.policy {
        Policy::Earliest => DelayPolicy::Earliest,
        Policy::Latest => DelayPolicy::Latest,
        Policy::Replace => DelayPolicy::Replace,
        Policy::KeepFirst => DelayPolicy::KeepFirst,
    };
    WorkQueue::<K>::builder()
        .hasher(Spreading(setup.spread))
        .shards(setup.shards())
        .ring(setup.ring())
        .clock(clock)
        .manual_timers()
        .tick(Duration::from_millis(setup.tick()))
        .delay_policy(policy)
        .supersede_delays(setup.supersede)
        .adds_wait_for_retries(setup.wait_for_retries)
        .drain_delays(setup.drain_delays)
        .timing(setup.timed())
        .levels(setup.levels())
        .starvation_limit(setup.starvation_limit())
}
