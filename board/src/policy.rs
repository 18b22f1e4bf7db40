//! What an operator may do, and who decides that.

use std::fmt;
use std::str::FromStr;

use http::request::Parts;
use serde::{Deserialize, Serialize};

/// What can be done from a [`Board`](crate::Board), if its [policy](crate::Board::allow) allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Add the key of a dead letter to its queue again, or those of all letters that match.
    PutBack,
    /// Drop a dead letter for good, or all that match.
    DropLetter,
    /// End the delay of a key, and add it.
    RunNow,
    /// Cancel the delay of a key; in a queue of values, also take back the value of a queued one.
    DropKey,
    /// Hold a group for a time.
    HoldGroup,
    /// End the hold of a group.
    ReleaseGroup,
    /// Deliver nothing until a resume.
    Pause,
    /// End a pause.
    Resume,
    /// Shut the queue down once what is queued is done.
    Drain,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 9] = [
        Action::PutBack,
        Action::DropLetter,
        Action::RunNow,
        Action::DropKey,
        Action::HoldGroup,
        Action::ReleaseGroup,
        Action::Pause,
        Action::Resume,
        Action::Drain,
    ];

    /// Returns its name in forms and in events, such as `put_back`.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 9] = [
            "put_back",
            "drop_letter",
            "run_now",
            "drop_key",
            "hold_group",
            "release_group",
            "pause",
            "resume",
            "drain",
        ];
        NAMES[self as usize]
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Action {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let found = Action::ALL.into_iter().find(|action| action.name() == name);
        found.ok_or(())
    }
}

/// What somebody asks for: the argument of a [policy](crate::Board::allow).
#[derive(Debug)]
#[non_exhaustive]
pub struct Asked<'r> {
    /// What is to be done.
    pub action: Action,
    /// The name of the queue, or of the fleet.
    pub queue: &'r str,
    /// The request, without its body: headers, and the extensions that a layer before the board has set, such as the
    /// user who has logged in. It is also called with the request of a page, to decide which buttons that shows.
    pub request: &'r Parts,
}

/// Returns who asks if that is allowed, and otherwise `None`.
pub(crate) type Policy = dyn Fn(&Asked<'_>) -> Option<String> + Send + Sync;
