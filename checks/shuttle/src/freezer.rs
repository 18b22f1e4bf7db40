//! A scheduler that stops one thread, the *victim*, inside its operation, and checks that the *others* go on.
//!
//! In the first execution the victim is frozen before the first step of its operation, in the next one before the
//! second, and so on, until the operation ends before that step. A step is whatever shuttle switches threads at: an
//! access to an atomic, the locking or unlocking of a mutex, a yield. While the victim is frozen only the others run,
//! in a random order, until both have ended. If both are blocked, or one of them makes more steps in an operation than
//! any takes, that is a failure, which is noted; then the victim goes on, so that the execution ends.

use std::backtrace::Backtrace;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{FailurePersistence, Runner, thread};

use crate::run::config;

/// No operation takes as many steps.
const ENOUGH: usize = 3000;

/// The tasks in the order of their creation; those from `OTHERS` on are the others.
const MAIN: usize = 0;
const VICTIM: usize = 1;
const OTHERS: usize = 2;

#[derive(Default, PartialEq, Debug)]
enum Phase {
    #[default]
    Before,
    Inside,
    After,
}

#[derive(Default, Debug)]
struct State {
    /// Where the victim is.
    phase: Phase,
    /// What each of the others is doing, and the steps that it has made in it.
    doing: [(&'static str, usize); 2],
    /// How many of the others have ended.
    ended: usize,
}

/// What the threads tell the scheduler. The mutex is one of std, whose use is no step.
#[derive(Clone, Default, Debug)]
pub struct Stage(Arc<Mutex<State>>);

/// The thread that performs an operation.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// Any, for an operation that is not tested.
    Aside,
    /// The victim, for the one operation in which it is frozen.
    Victim,
    /// One of the others.
    Other(usize),
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an operation.
    pub fn call<T>(&self, caller: Caller, name: &'static str, operation: impl FnOnce() -> T) -> T {
        let note = |name, phase| match caller {
            Caller::Aside => {}
            Caller::Victim => self.lock().phase = phase,
            Caller::Other(which) => self.lock().doing[which] = (name, 0),
        };
        note(name, Phase::Inside);
        let returned = operation();
        note("", Phase::After);
        returned
    }

    /// Runs a victim, which begins alone, and two others; returns when all have ended.
    pub fn run(&self, victim: impl FnOnce() + Send, other: impl Fn(usize) + Sync) {
        let other = &other;
        thread::scope(|scope| {
            scope.spawn(victim);
            for which in [0, 1] {
                scope.spawn(move || {
                    other(which);
                    self.lock().ended += 1;
                });
            }
        });
    }
}

/// Runs `execution` with the victim frozen before each of its steps, once for each seed. Returns
/// where in the sources of the queue the victim was while others did not go on, if the build has
/// line tables.
///
/// If `mixed`, the others run before the freeze, too, and the victim's steps depend on the seed.
pub fn freeze(
    mixed: bool,
    seeds: u64,
    execution: impl Fn(&Stage) + Send + Sync + 'static,
) -> BTreeSet<String> {
    let stage = Stage::default();
    let failures = Arc::<Mutex<BTreeSet<_>>>::default();
    let freezer = Freezer {
        stage: stage.clone(),
        failures: Arc::clone(&failures),
        mixed,
        seeds: 0..seeds,
        random: RandomScheduler::new_from_seed(0, 1),
        until: 0,
        made: 0,
        frozen: None,
        failed: false,
    };
    let mut config = config();
    // A schedule cannot be replayed without the freezer.
    config.failure_persistence = FailurePersistence::None;
    Runner::new(freezer, config).run(move || execution(&stage));
    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *failures)
}

struct Freezer {
    stage: Stage,
    failures: Arc<Mutex<BTreeSet<String>>>,
    mixed: bool,
    seeds: std::ops::Range<u64>,
    random: RandomScheduler,
    /// The number of steps before the freeze, and how many of them the victim has made.
    until: usize,
    made: usize,
    frozen: Option<Backtrace>,
    /// Whether this execution is noted as a failure.
    failed: bool,
}

impl Freezer {
    fn fail(&mut self, operations: &[&'static str]) {
        let trace = self.frozen.as_ref().map(Backtrace::to_string);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        let in_queue = |line: &str| {
            let path = Path::new(line.trim().strip_prefix("at ")?);
            let path = path.strip_prefix(root?).ok()?.to_str()?;
            (path.starts_with("src/") && !path.starts_with("src/sync/")).then(|| path.to_owned())
        };
        let mut lines = trace.as_deref().unwrap_or_default().lines();
        let place = lines.find_map(in_queue);
        let place = place.as_deref().unwrap_or("an unknown place");
        let step = self.until;
        let failure = format!("frozen in {place}, before its step {step}, it stops {operations:?}");
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.insert(failure);
        self.failed = true;
    }
}

impl Scheduler for Freezer {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.until += 1;
        if self.frozen.take().is_none() {
            let first = self.seeds.start == 0;
            assert!(first || self.until > 1, "the victim made no step");
            self.seeds.next()?;
            self.until = 0;
        }
        self.random = RandomScheduler::new_from_seed(self.seeds.start, 1);
        (self.made, self.failed) = (0, false);
        *self.stage.lock() = State::default();
        Some(Schedule::new(self.seeds.start))
    }

    fn next_task(&mut self, ready: &[&Task], last: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let is = |task: &Task, which| usize::from(task.id()) == which;
        let find = |which| {
            let mut ready = ready.iter();
            ready.find(|task| is(task, which)).map(|task| task.id())
        };
        let stage = self.stage.clone();
        let mut stage = stage.lock();
        let inside = stage.phase == Phase::Inside && stage.ended < 2 && !self.failed;
        if inside && self.frozen.is_none() && last.map(usize::from) == Some(VICTIM) {
            // The victim has come to its next step.
            if self.made == self.until {
                self.frozen = Some(Backtrace::force_capture());
            }
            self.made += 1;
        }
        // It starts the others, and then waits for them.
        if let Some(main) = find(MAIN) {
            return Some(main);
        }
        let frozen = inside && self.frozen.is_some();
        let alone = stage.phase == Phase::Before || inside && !self.mixed && !frozen;
        if let (true, Some(victim)) = (alone, find(VICTIM)) {
            return Some(victim);
        }
        let mut able = ready.to_vec();
        able.retain(|task| !frozen || !is(task, VICTIM));
        if able.is_empty() {
            self.fail(&stage.doing.map(|(operation, _)| operation));
            return find(VICTIM);
        }
        let next = self.random.next_task(&able, last, yields)?;
        let other = usize::from(next).checked_sub(OTHERS);
        if let Some((operation, steps)) = other.map(|which| &mut stage.doing[which]) {
            *steps += 1;
            if frozen && *steps > ENOUGH {
                self.fail(&[*operation]);
            }
        }
        Some(next)
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}
