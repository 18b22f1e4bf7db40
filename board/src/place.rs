//! What has a name on a board: a queue of this process, or a fleet of replicas. Both have dead letters and actions.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use crate::bulk::{self, LastJob};
use crate::letters::{self, LetterStore, Verb};
use crate::pages::counted;
use crate::source::{Done, KeyId, Refused, Task, Which};
use crate::text;

/// How long the letters are counted that an action on all of them is about.
const COUNT: Duration = Duration::from_secs(2);

/// What a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Queue,
    Fleet,
}

impl Kind {
    /// Returns the kind of the page with this path, which begins at the root of the board.
    pub(crate) fn of(path: &str) -> Self {
        match path.trim_start_matches('/').split('/').next() {
            Some("f") => Kind::Fleet,
            _ => Kind::Queue,
        }
    }

    /// Returns the first segment of the paths of its pages.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Kind::Queue => "q",
            Kind::Fleet => "f",
        }
    }

    /// Returns what it is called on pages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Queue => "queue",
            Kind::Fleet => "fleet",
        }
    }
}

/// Makes a random [`Place::mark`].
pub(crate) fn mark() -> String {
    format!("{:016x}", RandomState::new().hash_one(0))
}

pub(crate) trait Place: Send + Sync {
    /// Returns the dead letters, or why there are none, or where they are.
    fn letters(&self) -> Result<&dyn LetterStore, String>;

    /// The last action on all of them.
    fn last_job(&self) -> &LastJob;

    /// Returns what a restart of the process changes, and an addition of another queue under the same name. A page that has
    /// another one is about something else. Of a fleet it is the same in all replicas.
    fn mark(&self) -> &str;

    /// Returns the text of a key.
    fn key(&self, key: &KeyId) -> Result<String, Refused>;

    /// Does what has nothing to do with dead letters.
    fn act_on_keys(&self, task: &Task) -> Result<Done, Refused>;

    /// Whether a letter that is put back may replace a newer message of its key.
    fn replaces_newer(&self) -> bool {
        false
    }

    /// Makes the next look a new one, after an action.
    fn forget(&self);

    /// Does what somebody may do who has been checked. Returns how many keys, letters, groups or queues it was done to.
    fn act(&self, task: &Task) -> Result<Done, Refused> {
        let done = match task {
            Task::Letters(verb, which) => {
                let store = self.letters().map_err(|_| Refused::NoLetters)?;
                bulk::act(store, self.last_job(), *verb, which)
            }
            Task::StopLetters(number) => bulk::stop(self.last_job(), *number),
            task => self.act_on_keys(task),
        };
        self.forget();
        done
    }

    /// Returns what is asked before something is done that cannot be undone, or to many, and narrows the task to what the
    /// question names. `None`: it is done without a question.
    fn question(&self, name: &str, task: &mut Task) -> Result<Option<String>, Refused> {
        let quoted = |text: &str| format!("“{}”", text::cut(text, text::IN_TABLE));
        Ok(Some(match task {
            Task::Letters(Verb::PutBack, Which::These(ids))
                if ids.len() == 1 && !self.replaces_newer() =>
            {
                return Ok(None);
            }
            Task::Letters(verb, which) => {
                let store = self.letters().map_err(|_| Refused::NoLetters)?;
                let mut is_partial = false;
                let what = match which {
                    Which::These(ids) if ids.len() == 1 => {
                        format!(
                            "the dead letter of {}",
                            quoted(&letters::one(store, ids[0])?.key)
                        )
                    }
                    Which::These(ids) => {
                        format!("the {} dead letters that you have ticked", ids.len())
                    }
                    Which::All { search, upto, said } => {
                        let count;
                        (count, *upto, is_partial) = letters::count(store, search, COUNT)?;
                        *said = Some(count);
                        match &**search {
                            "" => counted(count, "dead letter"),
                            search => format!(
                                "{} with the text {}",
                                counted(count, "dead letter"),
                                quoted(search)
                            ),
                        }
                    }
                };
                let of = match is_partial {
                    true => " There was no time to look at all letters: the later ones stay.",
                    false => "",
                };
                let warning = match verb {
                    Verb::Drop => " What is dropped is lost.",
                    Verb::PutBack if self.replaces_newer() => {
                        " A letter replaces a newer message of its key that waits."
                    }
                    Verb::PutBack => "",
                };
                let verb = match verb {
                    Verb::PutBack => "Put back",
                    Verb::Drop => "Drop",
                };
                format!("{verb} {what}?{of}{warning}")
            }
            Task::DropKey(key) => {
                format!(
                    "Drop the key {}? Its delay and its value are lost.",
                    quoted(&self.key(key)?)
                )
            }
            Task::Drain => format!(
                "Drain the queue {}? It refuses adds from then on, until the process starts again. What is delayed is dropped, unless the queue was built with `drain_delays`.",
                quoted(name)
            ),
            _ => return Ok(None),
        }))
    }
}
