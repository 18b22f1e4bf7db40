//! The recorder that a queue reports to: its own, or the one installed for the process.

use std::collections::BTreeSet;
use std::iter;
use std::sync::{Arc, Mutex};

use super::lock;

type Shared = Arc<dyn metrics::Recorder + Send + Sync>;

/// A queue's own recorder; `None` for the recorder that is installed at the time of each report.
#[derive(Clone, Default)]
pub(crate) struct Recorder(pub(crate) Option<Shared>);

impl Recorder {
    pub(super) fn with(&self, f: impl FnOnce(&dyn metrics::Recorder)) {
        match &self.0 {
            Some(own) => f(&**own),
            None => metrics::with_recorder(f),
        }
    }

    fn address(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |own| Arc::as_ptr(own).cast::<()>().addr())
    }
}

/// The names in use, each with the identity of its recorder.
static NAMES: Mutex<BTreeSet<(usize, String)>> = Mutex::new(BTreeSet::new());

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
        let mut names = lock(&NAMES);
        let numbered = (2_u64..).map(|number| format!("{name}#{number}"));
        let mut candidates = iter::once(name.to_owned()).chain(numbered);
        let name = candidates.find(|name| names.insert((address, name.clone())));
        Name {
            recorder,
            name: name.expect("the numbers do not end"),
        }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        lock(&NAMES).remove(&(self.recorder.address(), std::mem::take(&mut self.name)));
    }
}
