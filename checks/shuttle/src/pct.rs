//! Probabilistic concurrency testing (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of
//! Finding Bugs", 2010): of the threads that can run, the one with the highest priority does. Priorities are random,
//! and at a few random steps the thread that runs gets the lowest one.
//!
//! shuttle's own scheduler draws these steps below the length of the longest run so far. Where runs differ in length,
//! as those that draw what they do, most of such steps are behind the end of a run, which is then without any. This one
//! draws them below the length of some earlier run. A bug that needs one change then shows ten times as soon.

use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};

/// The most changes of priorities in a run.
const CHANGES: usize = 6;

/// How many lengths are remembered.
const LENGTHS: usize = 64;

pub(crate) struct Pct {
    /// Counts the runs, and is the source of what they draw: so a run can be replayed.
    runs: RandomScheduler,
    rng: fastrand::Rng,
    /// Of each thread; the highest runs.
    priorities: Vec<i64>,
    lowest: i64,
    /// The steps at which priorities change.
    changes: Vec<usize>,
    /// The steps of this run at which there was a choice.
    steps: usize,
    lengths: Vec<usize>,
}

impl Pct {
    pub(crate) fn new(schedules: usize) -> Self {
        Pct {
            runs: RandomScheduler::new(schedules),
            rng: fastrand::Rng::with_seed(0),
            priorities: Vec::new(),
            lowest: 0,
            changes: Vec::new(),
            steps: 0,
            lengths: Vec::new(),
        }
    }
}

impl Scheduler for Pct {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.runs.new_execution()?;
        // Not what the run draws from, so that the two are independent.
        let rng = &mut self.rng;
        *rng = fastrand::Rng::with_seed(!schedule.seed);
        if self.steps > 0 {
            match self.lengths.len() {
                LENGTHS => self.lengths[rng.usize(..LENGTHS)] = self.steps,
                _ => self.lengths.push(self.steps),
            }
        }
        let length = rng.choice(&self.lengths).copied().unwrap_or(LENGTHS);
        let changes = rng.usize(..=CHANGES);
        self.changes = (0..changes).map(|_| rng.usize(..length)).collect();
        self.priorities.clear();
        (self.lowest, self.steps) = (0, 0);
        Some(schedule)
    }

    fn next_task(&mut self, ready: &[&Task], last: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let number = |task: &&Task| usize::from(task.id());
        let known = ready.iter().map(number).max()? + 1;
        while self.priorities.len() < known {
            self.priorities.push(self.rng.i64(1..));
        }
        if ready.len() > 1 {
            let changes = yields || self.changes.contains(&self.steps);
            if let Some(last) = last.filter(|_| changes) {
                self.lowest -= 1;
                self.priorities[usize::from(last)] = self.lowest;
            }
            self.steps += 1;
        }
        let first = ready
            .iter()
            .max_by_key(|task| self.priorities[number(task)]);
        first.map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.runs.next_u64()
    }
}
