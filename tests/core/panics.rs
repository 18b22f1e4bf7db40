//! User code that panics: keys whose `Hash`, `Eq` or `Drop` panics at any of its calls, workers,
//! iterators and wakers. The queue stays usable, loses nothing else, and drops every key once.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

use crate::common::timed::{built, ms};
use crate::common::{
    Config, Queue, Task, panicking_waker, poll, take_all, with_queues, with_these_queues,
};
use keyqueue::{Added, KeyHandle, State};

// ---- keys that panic ------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Hook {
    Hash = 1,
    Eq = 2,
    Drop = 3,
}

/// What the keys of one run share: which call is to panic, and how often each key was dropped.
#[derive(Default)]
struct World {
    armed: AtomicU8,
    calls_left: AtomicUsize,
    drops: Mutex<Vec<u32>>,
}

/// What a panicking call panics with; unwound quietly, past the panic hook.
struct Blown;

impl World {
    /// Lets the `call`th call of `hook` panic, counted from 1.
    fn arm(&self, hook: Hook, call: usize) {
        self.calls_left.store(call, Ordering::SeqCst);
        self.armed.store(hook as u8, Ordering::SeqCst);
    }

    /// Ends the danger; true if the call was never reached.
    fn disarm(&self) -> bool {
        self.armed.swap(0, Ordering::SeqCst) != 0
    }

    fn called(&self, hook: Hook) {
        if self.armed.load(Ordering::SeqCst) == hook as u8
            && !thread::panicking()
            && self.calls_left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.armed.store(0, Ordering::SeqCst);
            resume_unwind(Box::new(Blown));
        }
    }

    fn key(self: &Arc<Self>, id: u32) -> Key {
        let mut drops = self.drops.lock().unwrap();
        drops.push(0);
        let serial = drops.len() - 1;
        let world = Arc::clone(self);
        Key { id, serial, world }
    }

    fn assert_all_dropped_once(&self) {
        let drops = self.drops.lock().unwrap();
        if let Some(serial) = drops.iter().position(|&drops| drops != 1) {
            panic!("key {serial} was dropped {} times", drops[serial]);
        }
    }
}

/// Neither `Clone` nor `Debug`: keys need not be.
struct Key {
    id: u32,
    serial: usize,
    world: Arc<World>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.called(Hook::Hash);
        self.id.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.world.called(Hook::Eq);
        self.id == other.id
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        self.world.drops.lock().unwrap()[self.serial] += 1;
        self.world.called(Hook::Drop);
    }
}

/// Runs one operation; `None` if a key panicked in it.
fn attempt<R>(operation: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(result) => Some(result),
        Err(cause) if cause.is::<Blown>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

/// A queue and a model of it, which knows what a panic leaves behind.
struct Run {
    // Is dropped before the handles.
    queue: Queue<Key>,
    world: Arc<World>,
    hook: Hook,
    model: VecDeque<u32>,
    handles: Vec<KeyHandle<Key>>,
}

impl Run {
    /// An add that panics in `Hash` or `Eq` did nothing. One that panics in `Drop` was dropping
    /// the key that was known already, and has added it.
    fn added(&mut self, id: u32, answer: Option<Added>) {
        let queued = !self.model.contains(&id);
        match answer {
            None if self.hook != Hook::Drop => return,
            None => {}
            Some(Added::Queued) => assert!(queued, "{id} was queued already"),
            Some(Added::Merged) => assert!(!queued, "{id} was not queued"),
            Some(other) => panic!("{other:?}"),
        }
        if queued {
            self.model.push_back(id);
        }
        assert_eq!(self.queue.len(), self.model.len());
    }

    fn add(&mut self, id: u32) {
        let key = self.world.key(id);
        let answer = attempt(|| self.queue.add(key));
        self.added(id, answer);
    }

    fn add_by_handle(&mut self, id: u32) {
        let key = self.world.key(id);
        if let Some(handle) = attempt(|| self.queue.handle(key)) {
            let answer = handle.add();
            self.added(id, Some(answer));
            self.handles.push(handle);
        }
    }

    fn add_all(&mut self, ids: std::ops::Range<u32>) {
        let mut begun = Vec::new();
        let world = &self.world;
        let keys = ids.inspect(|id| begun.push(*id)).map(|id| world.key(id));
        let whole = attempt(|| self.queue.add_all(keys)).is_some();
        let last = begun.len() - 1;
        for (place, id) in begun.into_iter().enumerate() {
            let added = match self.hook {
                // C14: of those that were taken together, each was added or not.
                Hook::Eq if !whole => self.queue.state(&self.world.key(id)) == Some(State::Queued),
                hook => whole || place < last || hook == Hook::Drop,
            };
            if added && !self.model.contains(&id) {
                self.model.push_back(id);
            }
        }
        assert_eq!(self.queue.len(), self.model.len());
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(item) = self.queue.try_get() else {
                assert!(self.model.is_empty(), "lost {:?}", self.model);
                return;
            };
            assert_eq!(Some(item.id), self.model.pop_front());
            item.done();
        }
    }

    /// Everything at least once: lookups that hit and miss, sweeps by adders and by an idle
    /// consumer, handles, bulks.
    fn script(&mut self, keys: u32) {
        (0..keys).for_each(|id| self.add(id));
        (0..keys).step_by(3).for_each(|id| self.add(id));
        self.take(keys as usize / 2);
        (0..8).for_each(|id| self.add_by_handle(id));
        self.add_all(4..keys / 3);
        self.take(usize::MAX);
        (keys..2 * keys).for_each(|id| self.add(id));
        self.take(keys as usize / 3);
        self.handles.truncate(4);
        self.queue.shrink();
        self.add_all(0..20);
    }
}

/// Runs the script once for every call of `hook` that it makes, that call panicking.
fn survives_panics_of(hook: Hook, config: &Config, keys: u32) {
    for call in 1.. {
        let mut run = Run {
            queue: config.queue(),
            world: Arc::default(),
            hook,
            model: VecDeque::new(),
            handles: Vec::new(),
        };
        run.world.arm(hook, call);
        run.script(keys);
        let over = run.world.disarm();
        // Whatever happened: every key can be added, and comes out once.
        run.take(usize::MAX);
        for id in 0..2 * keys {
            let added = run.queue.add(run.world.key(id));
            assert_eq!(added, Added::Queued, "key {id}, {hook:?} call {call}");
            run.model.push_back(id);
        }
        run.take(keys as usize);
        // With keys queued, idle and pinned; and in the last call of all, too.
        run.world.arm(hook, call % 50 + 1);
        let world = Arc::clone(&run.world);
        drop(run);
        world.disarm();
        world.assert_all_dropped_once();
        if over {
            assert!(call > 50, "the script has only {call} calls of {hook:?}");
            return;
        }
    }
}

#[test] // C14
fn a_key_that_panics_at_any_call_costs_nothing_else() {
    let one_hash = Config {
        hash_bits: 0,
        ..Config::tiny()
    };
    for hook in [Hook::Hash, Hook::Eq, Hook::Drop] {
        // Shards that sweep, and one in which all keys are compared.
        survives_panics_of(hook, &Config::tiny(), 400);
        survives_panics_of(hook, &one_hash, 40);
    }
}

#[test] // C10 C11
fn a_drop_that_panics_in_handle_does_not_pin_the_key_for_ever() {
    let queue = Config::usual().queue();
    let world = Arc::new(World::default());
    drop(queue.handle(world.key(1)));
    world.arm(Hook::Drop, 1);
    let known = world.key(1);
    assert!(attempt(|| drop(queue.handle(known))).is_none());
    queue.shrink();
    // No handle is left to keep the key.
    world.assert_all_dropped_once();
}

#[test] // C5 D5: whichever comparison panics, the delay is pending or the key queued
fn an_add_that_panics_does_not_lose_the_delay_it_supersedes() {
    for call in 1..=3 {
        let (queue, time) = built(|builder| builder.supersede_delays(true));
        let world = Arc::new(World::default());
        queue.add_after(world.key(1), ms(5));
        let key = world.key(1);
        world.arm(Hook::Eq, call);
        let added = attempt(|| queue.add(key));
        world.disarm();
        time.advance(ms(5));
        let fired = queue.fire_due();
        assert_eq!(fired, usize::from(added.is_none()), "{call}: {added:?}");
        assert_eq!(queue.len(), 1);
    }
}

#[test]
fn keys_that_panic_in_several_threads_cost_nobody_else_a_delivery() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        let world = Arc::new(World::default());
        let add = |n: usize| {
            let mut owed = 0;
            for round in 0..20_000 {
                if round % 8 == 0 {
                    world.arm([Hook::Hash, Hook::Eq][n % 2], fastrand::usize(1..8));
                }
                let key = world.key(fastrand::u32(0..300));
                let answer = attempt(|| queue.add(key));
                if let Some(Added::Queued | Added::Deferred) = answer {
                    owed += 1;
                }
            }
            owed
        };
        let (owed, delivered) = thread::scope(|scope| {
            let adders = [0, 1, 2].map(|n| scope.spawn(move || add(n)));
            let workers = [(); 2].map(|()| scope.spawn(|| queue.iter().count()));
            let owed = adders.map(|adder| adder.join().unwrap());
            queue.shut_down_with_drain();
            (owed, workers.map(|worker| worker.join().unwrap()))
        });
        assert_eq!(delivered.iter().sum::<usize>(), owed.iter().sum());
        drop(queue);
        world.assert_all_dropped_once();
    });
}

// ---- others that panic ----------------------------------------------------------------------

#[test] // C7
fn an_item_dropped_while_a_panic_unwinds_is_done() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..10);
        let blown: Option<()> = attempt(|| {
            let one = queue.get().unwrap();
            let batch = queue.get_batch(3).unwrap();
            assert_eq!(queue.add(*one), Added::Deferred);
            let mut items = batch.into_iter();
            let _second = items.next().unwrap();
            resume_unwind(Box::new(Blown))
        });
        assert!(blown.is_none());
        for key in 1..4 {
            assert_eq!(queue.add(key), Added::Queued, "idle again");
        }
        assert_eq!(take_all(&queue), [4, 5, 6, 7, 8, 9, 0, 1, 2, 3]);
        queue.shut_down_with_drain();
    });
}

#[test] // C9 C14
fn an_iterator_that_panics_leaves_what_it_gave_added_and_announced() {
    with_queues(|config| {
        for given in [0, 1, 5, 31, 32, 33, 70, 127, 128, 129, 300] {
            let queue = config.queue();
            let tasks: Vec<_> = (0..100).map(|_| Task::waiting(queue.get_async())).collect();
            let keys = (0..1000_u64).inspect(|key| {
                if *key == given {
                    resume_unwind(Box::new(Blown));
                }
            });
            assert!(attempt(|| queue.add_all(keys)).is_none());
            let wakes: usize = tasks.iter().map(Task::wakes).sum();
            assert_eq!(
                (queue.len(), wakes),
                (given as usize, given.min(100) as usize)
            );
            drop(tasks);
            assert_eq!(take_all(&queue), (0..given).collect::<Vec<_>>());
        }
    });
}

#[test] // C9
fn a_waker_that_panics_costs_no_other_task_its_wake_up() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        let mut first = queue.get_async();
        assert!(poll(&mut first, &panicking_waker()).is_pending());
        let mut others = [(); 4].map(|()| Task::waiting(queue.get_async()));
        // Whether the panic reaches the adder is not promised.
        let _ = catch_unwind(AssertUnwindSafe(|| queue.add_all(0..5)));
        assert_eq!(queue.len(), 5);
        for task in &mut others {
            assert_eq!(task.wakes(), 1);
            assert!(task.output().is_some());
        }
        assert!(poll(&mut first, Waker::noop()).is_ready());
    });
}
