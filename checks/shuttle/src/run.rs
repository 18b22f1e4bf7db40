//! How a scenario is run: under which schedulers, how often, and again if it failed.

use std::cell::RefCell;
use std::env;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use shuttle::scheduler::{RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner, current};

use crate::pct::Pct;

/// How many schedules of each scheduler, in place of 6000.
const SCHEDULES: &str = "KEYQUEUE_SCHEDULES";
const USUALLY: usize = 6000;
/// A schedule that shuttle has printed, to be run in place of drawn ones.
const REPLAY: &str = "KEYQUEUE_REPLAY";

/// A run with this many steps does not end: fifty times those that the longest take.
const ENDLESS: usize = 100_000;

thread_local! {
    /// What the run in progress has drawn. All threads of a run are one for the system.
    static DRAWN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes what a run has drawn, which is printed if it fails.
pub fn note(drawn: &impl Debug) {
    DRAWN.set(format!("{drawn:?}"));
}

/// Runs `scenario` under many schedules of each scheduler, and prints how long that took.
///
/// A deadlock, and a run without an end, fail it as a panic does.
pub fn check(name: &str, scenario: fn()) {
    check_often(name, 1, scenario);
}

/// [`check`], with this many times as many schedules: for scenarios that are short, or draw much.
pub fn check_often(name: &str, times: usize, scenario: fn()) {
    if let Ok(schedule) = env::var(REPLAY) {
        let replay = ReplayScheduler::new_from_encoded(&schedule);
        return run(name, "replay", replay, scenario);
    }
    let number = env::var(SCHEDULES);
    let schedules = number.map_or(USUALLY, |number| number.parse().expect(SCHEDULES)) * times;
    run(name, "random", RandomScheduler::new(schedules), scenario);
    run(name, "pct", Pct::new(schedules), scenario);
}

pub(crate) fn config() -> Config {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(ENDLESS);
    // That orderings are not looked at: README.md says it.
    config.silence_warnings = true;
    // shuttle's own is 60 kB; the timer's wheel is made on the stack.
    config.stack_size = 1 << 18;
    // The drops of a failed run would wait for threads that are stopped.
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    config
}

/// Prints in which schedule the scenario fails, if it does.
fn run(name: &str, how: &str, scheduler: impl Scheduler + 'static, scenario: fn()) {
    let (begun, steps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, total) = (Arc::clone(&begun), Arc::clone(&steps));
    let began = Instant::now();
    let runner = Runner::new(scheduler, config());
    let ran = catch_unwind(AssertUnwindSafe(|| {
        runner.run(move || {
            // Ordering: Relaxed; counts, and one thread runs all.
            counted.fetch_add(1, Ordering::Relaxed);
            scenario();
            total.fetch_add(current::context_switches(), Ordering::Relaxed);
        })
    }));
    let runs = ran.unwrap_or_else(|panic| {
        let drawn = DRAWN.take();
        println!("scenario {name}, {how}: failed in schedule {begun:?} {drawn}");
        resume_unwind(panic)
    });
    let seconds = began.elapsed().as_secs_f32();
    // Ordering: Relaxed; as above.
    let steps = steps.load(Ordering::Relaxed) / runs.max(1);
    println!("scenario {name}, {how}: {runs} schedules of {steps} steps, {seconds:.1} s");
}
