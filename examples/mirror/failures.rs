//! Which paths failed, how often, and when they are tried again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How often a path is tried before it is given up.
const ATTEMPTS: u32 = 5;

/// The wait after the first failure; each further one is twice as long (100, 200, 400, 800 ms).
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// What went wrong with one path, the last time.
#[derive(Clone)]
pub(crate) struct Failure {
    attempts: u32,
    given_up: bool,
    error: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (attempts: {})", self.error, self.attempts)
    }
}

#[derive(Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Default)]
struct State {
    failing: BTreeMap<PathBuf, Failure>,
    no_more_waits: bool,
}

impl Failures {
    /// Takes down a failed attempt, and says how long to wait before the next; `None`: given up.
    pub(crate) fn record(&self, path: &Path, error: String) -> Option<Duration> {
        let mut state = self.0.lock().unwrap();
        let last_chance = state.no_more_waits;
        // A path that was given up and is added once more starts afresh.
        let before = state
            .failing
            .get(path)
            .filter(|f| !f.given_up)
            .map_or(0, |f| f.attempts);
        let attempts = before + 1;
        let given_up = last_chance || attempts >= ATTEMPTS;
        state.failing.insert(
            path.to_owned(),
            Failure {
                attempts,
                given_up,
                error,
            },
        );
        (!given_up).then(|| FIRST_WAIT * 2_u32.pow(before))
    }

    /// Forgets the failures of a path that succeeded.
    pub(crate) fn forget(&self, path: &Path) {
        self.0.lock().unwrap().failing.remove(path);
    }

    /// From now on a failed path is given up at once.
    pub(crate) fn no_more_waits(&self) {
        self.0.lock().unwrap().no_more_waits = true;
    }

    /// How many failed paths have another attempt before them.
    pub(crate) fn waiting(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .failing
            .values()
            .filter(|f| !f.given_up)
            .count()
    }

    /// The failed paths that have none.
    pub(crate) fn given_up(&self) -> Vec<(PathBuf, Failure)> {
        let state = self.0.lock().unwrap();
        let given_up = state.failing.iter().filter(|(_, failure)| failure.given_up);
        given_up
            .map(|(path, failure)| (path.clone(), failure.clone()))
            .collect()
    }
}
