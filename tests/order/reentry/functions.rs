//! `group_by`, the weight of a group, and its `Hash`, `Eq`, `Clone` and `Drop`, each calling the queue.
//!
//! No lock of the crate is held when they run, so each may make any call.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::common::calls::{Call, everything};
use crate::common::timed::{HOUR, MS, secs};
use crate::common::{eventually, watchdog};
use keyqueue::{Builder, Clock, MockClock, WorkQueue};

type Queue = WorkQueue<u64>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    By,
    Weight,
    Hash,
    Eq,
    Clone,
    Drop,
}

use Function::{By, Weight};

/// What the groups of one queue share: the function that makes the next call, and the call.
#[derive(Default)]
struct World {
    queue: OnceLock<Weak<Queue>>,
    armed: Mutex<Option<(Function, Call<u64>)>>,
    returned: AtomicUsize,
}

impl World {
    /// Makes the call that `function` is armed with, once: not in the calls that it makes.
    fn called(&self, function: Function) {
        let armed = {
            let mut armed = self.armed.lock().unwrap();
            armed.take_if(|(armed, _)| *armed == function)
        };
        let queue = self.queue.get().and_then(Weak::upgrade);
        if let (Some((_, call)), Some(queue)) = (armed, queue) {
            call(&queue);
            self.returned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The keys `n`, `n + 10`, `n + 20` and so on.
struct Group(u64, Arc<World>);

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.called(Function::Hash);
        self.0.hash(state);
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.1.called(Function::Eq);
        self.0 == other.0
    }
}

impl Eq for Group {}

impl Clone for Group {
    fn clone(&self) -> Self {
        self.1.called(Function::Clone);
        Group(self.0, Arc::clone(&self.1))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.1.called(Function::Drop);
    }
}

/// Everything, and what needs to know the type of the groups.
fn all_calls(queue: &Queue) {
    everything(queue, |n| n);
    let groups = queue.groups::<Group>();
    for group in groups.iter().take(2) {
        assert!(queue.hold_group(&group.group, HOUR));
        assert!(queue.hold_group(&group.group, Duration::ZERO));
    }
}

/// What the functions call.
const CALLS: [Call<u64>; 4] = [
    |queue| _ = queue.len(),
    all_calls,
    |queue| _ = queue.shut_down(),
    |queue| _ = queue.shut_down_now(),
];

/// A queue that knows group 1, which has a queued key, and does not know group 2.
struct Run {
    world: Arc<World>,
    queue: Arc<Queue>,
    time: MockClock,
}

impl Run {
    fn new(set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> Self {
        let (clock, time) = Clock::mock();
        Self::with(time, |builder| set(builder.clock(clock).manual_timers()))
    }

    fn with(time: MockClock, set: impl FnOnce(Builder<u64>) -> Builder<u64>) -> Self {
        let world = Arc::new(World::default());
        let [by, weighs] = [(); 2].map(|()| Arc::clone(&world));
        let builder = set(WorkQueue::builder().drain_delays(true));
        let builder = builder.group_by(move |key: &u64| {
            by.called(By);
            Group(key % 10, Arc::clone(&by))
        });
        let builder = builder.group_weight(move |_: &Group| {
            weighs.called(Weight);
            1
        });
        let queue = Arc::new(builder.build().unwrap());
        world.queue.set(Arc::downgrade(&queue)).unwrap();
        queue.add(1);
        Run { world, queue, time }
    }

    fn group(&self, n: u64) -> Group {
        Group(n, Arc::clone(&self.world))
    }

    fn arm(&self, function: Function, call: Call<u64>) {
        *self.world.armed.lock().unwrap() = Some((function, call));
    }

    fn returned(&self) -> usize {
        self.world.returned.load(Ordering::SeqCst)
    }

    /// Asserts that the armed function has made its call, and that nothing is locked.
    fn assert_called(&self, function: Function) {
        assert_eq!(self.returned(), 1, "calls by {function:?}");
        std::thread::scope(|scope| _ = scope.spawn(|| self.queue.shut_down()));
    }
}

/// Runs `step` once for each of these functions and each call that it makes.
fn each(functions: &[Function], run: impl Fn() -> Run, step: impl Fn(&Run, Function, Call<u64>)) {
    let _watchdog = watchdog(30);
    for function in functions {
        for call in CALLS {
            let run = run();
            step(&run, *function, call);
            run.assert_called(*function);
        }
    }
}

/// A new key of group 1, and one of group 2, call all of these.
const OF_AN_ADD: [Function; 5] = [By, Weight, Function::Hash, Function::Eq, Function::Drop];

#[test] // S15 G1
fn the_functions_of_a_group_may_call_the_queue_in_an_add() {
    each(
        &OF_AN_ADD,
        || Run::new(|builder| builder),
        |run, function, call| {
            run.arm(function, call);
            run.queue.add(11);
            run.queue.add(2);
        },
    );
}

#[test] // S15 G1 D4
fn the_functions_of_a_group_may_call_the_queue_when_a_delay_ends() {
    each(
        &OF_AN_ADD,
        || Run::new(|builder| builder),
        |run, function, call| {
            run.queue.add_after(11, secs(1));
            run.queue.add_after(2, secs(1));
            run.time.advance(secs(1));
            run.arm(function, call);
            run.queue.fire_due();
        },
    );
}

#[test] // S15 G1 D4 S6
fn the_functions_of_a_group_may_call_the_queue_in_the_timers_thread() {
    let run = || Run::with(Clock::mock().1, |builder| builder);
    each(&OF_AN_ADD, run, |run, function, call| {
        run.arm(function, call);
        run.queue.add_after(11, MS);
        run.queue.add_after(2, MS);
        eventually("the call returns", || run.returned() == 1);
    });
}

#[test] // S15 G1 S5 S7
fn the_functions_of_a_group_may_call_the_queue_while_a_drain_delivers_delays() {
    each(
        &OF_AN_ADD,
        || Run::new(|builder| builder),
        |run, function, call| {
            run.queue.add_after(11, HOUR);
            run.queue.add_after(2, HOUR);
            run.arm(function, call);
            let _ = run.queue.drain_timeout(Duration::ZERO);
        },
    );
}

#[test] // S15 G6
fn the_functions_of_a_group_may_call_the_queue_while_it_is_held_and_released() {
    let functions = [
        Weight,
        Function::Hash,
        Function::Eq,
        Function::Clone,
        Function::Drop,
    ];
    each(
        &functions,
        || Run::new(|builder| builder),
        |run, function, call| {
            let [known, new] = [1, 2].map(|n| run.group(n));
            run.arm(function, call);
            for group in [&known, &new] {
                assert!(run.queue.hold_group(group, HOUR));
                assert!(run.queue.hold_group(group, Duration::ZERO));
            }
        },
    );
}

#[test] // S15 G1
fn the_functions_of_a_group_may_call_the_queue_while_groups_are_listed_and_forgotten() {
    each(
        &[Function::Clone],
        || Run::new(|builder| builder),
        |run, function, call| {
            run.arm(function, call);
            assert_eq!(run.queue.groups::<Group>().len(), 1);
        },
    );
    each(
        &[Function::Drop],
        || Run::new(|builder| builder),
        |run, function, call| {
            run.queue.try_get().unwrap().done();
            run.arm(function, call);
            run.queue.shrink();
        },
    );
}
