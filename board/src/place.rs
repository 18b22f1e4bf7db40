//! What has a name on a board: a queue of this process, or a fleet of replicas. Both have dead letters and actions.

use crate::board::Entry;
use crate::letters::LetterStore;
use crate::source::{Done, Refused, Task};

/// What a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Queue,
    #[cfg(feature = "nats")]
    Fleet,
}

impl Kind {
    /// Returns the kind of the page with this path, which begins at the root of the board.
    pub(crate) fn of(path: &str) -> Self {
        match path.trim_start_matches('/').split('/').next() {
            #[cfg(feature = "nats")]
            Some("f") => Kind::Fleet,
            _ => Kind::Queue,
        }
    }

    /// Returns the first segment of the paths of its pages.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Kind::Queue => "q",
            #[cfg(feature = "nats")]
            Kind::Fleet => "f",
        }
    }

    /// Returns what it is called on pages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Queue => "queue",
            #[cfg(feature = "nats")]
            Kind::Fleet => "fleet",
        }
    }
}

pub(crate) trait Place: Send + Sync {
    /// Returns the dead letters; `None` if the board does not know them, or there are none.
    fn letter_store(&self) -> Option<&dyn LetterStore>;

    /// Does what somebody may do who has been checked. Returns how many keys, letters, groups or queues it was done to.
    fn act(&self, task: &Task) -> Result<Done, Refused>;
}

impl Place for Entry {
    fn letter_store(&self) -> Option<&dyn LetterStore> {
        self.source.letter_store()
    }

    fn act(&self, task: &Task) -> Result<Done, Refused> {
        let done = self.source.act(task);
        self.forget_census();
        done
    }
}
