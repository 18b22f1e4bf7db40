//! The recorder that a queue reports to: its own, or the one installed for the process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Shared = Arc<dyn metrics::Recorder + Send + Sync>;

/// A queue's own recorder; `None` for the recorder that is installed at the time of each report.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Option<Shared>);

impl Recorder {
    pub(crate) fn own(recorder: Shared) -> Self {
        Recorder(Some(recorder))
    }

    pub(super) fn with(&self, f: impl FnOnce(&dyn metrics::Recorder)) {
        match &self.0 {
            Some(own) => f(&**own),
            None => metrics::with_recorder(f),
        }
    }

    /// Returns an identity of the recorder.
    fn address(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |own| Arc::as_ptr(own).cast::<()>().addr())
    }
}

/// The names in use, each with the identity of its recorder.
static NAMES: Mutex<BTreeSet<(usize, String)>> = Mutex::new(BTreeSet::new());

fn names() -> MutexGuard<'static, BTreeSet<(usize, String)>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to report under a name, unique for its recorder.
pub(super) struct Name {
    /// Kept alive, so that its address is not reused.
    pub(super) recorder: Recorder,
    pub(super) name: String,
}

impl Name {
    /// Takes `name`, or the first free one of `name#2`, `name#3` ...
    pub(super) fn take(name: &str, recorder: Recorder) -> Self {
        let address = recorder.address();
        let mut names = names();
        let mut taken = name.to_owned();
        let mut number = 1_u64;
        while !names.insert((address, taken.clone())) {
            number += 1;
            taken = format!("{name}#{number}");
        }
        Name {
            recorder,
            name: taken,
        }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        names().remove(&(self.recorder.address(), std::mem::take(&mut self.name)));
    }
}
