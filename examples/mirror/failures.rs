//! Which paths failed, and which of them were given up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// By path: `None` while another attempt is to come, else why there is none.
#[derive(Default)]
pub(crate) struct Failures(Mutex<BTreeMap<PathBuf, Option<String>>>);

impl Failures {
    /// Notes a failed attempt, of which there may be more.
    pub(crate) fn note(&self, path: &Path) {
        self.0.lock().unwrap().insert(path.to_owned(), None);
    }

    pub(crate) fn give_up(&self, path: &Path, why: String) {
        self.0.lock().unwrap().insert(path.to_owned(), Some(why));
    }

    /// Forgets the failures of a path that succeeded.
    pub(crate) fn forget(&self, path: &Path) {
        self.0.lock().unwrap().remove(path);
    }

    /// How many failed paths have another attempt before them.
    pub(crate) fn waiting(&self) -> usize {
        let failing = self.0.lock().unwrap();
        failing.values().filter(|why| why.is_none()).count()
    }

    /// The paths that have none, with the reasons.
    pub(crate) fn given_up(&self) -> Vec<(PathBuf, String)> {
        let failing = self.0.lock().unwrap();
        let given_up = failing.iter().filter_map(|(path, why)| {
            let why = why.clone()?;
            Some((path.clone(), why))
        });
        given_up.collect()
    }
}
