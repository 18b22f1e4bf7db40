//! The settings of a queue on a board: how its keys, values and groups are shown, and where its failures are.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};
use std::time::Duration;

use keyqueue::worker::{DeadLetters, Failures};
use keyqueue::{GroupCounts, WorkQueue};

use crate::letters::{Kept, LetterStore};
use crate::rows::Group;
use crate::text::{self, Format};

/// The most groups that are shown.
const GROUPS: usize = 100;

/// A queue for a [`Board`](crate::Board), and how it is shown there.
///
/// It does not keep the queue: once the queue is dropped, the board says that it is gone.
///
/// A formatter writes a key, a value or a group: `fmt::Display::fmt`, `fmt::Debug::fmt`, or a closure, which can leave
/// out what is confidential. It is called for each key that is shown or searched; a formatter that panics concerns
/// nothing but the text.
///
/// ```
/// use std::fmt;
/// use std::sync::Arc;
/// use keyqueue::{WorkQueue, worker::{DeadLetters, Failures}};
/// use keyqueue_board::{Board, Shown};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = WorkQueue::builder().group_by(|key: &(u32, String)| key.0).build()?;
/// let queue = Arc::new(queue);
/// let (letters, failures) = (DeadLetters::new(1000)?, Failures::new(1000)?);
/// // ... workers with `dead_letters(&letters)` and `failures(&failures)` ...
/// let shown = Shown::new(&queue, |key, f| write!(f, "{}/{}", key.0, key.1))
///     .groups::<u32>(fmt::Display::fmt)
///     .dead_letters(&letters)
///     .failures(&failures);
/// Board::new().add("mails", shown)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a queue is shown once it is added to a board"]
pub struct Shown<K, V, S> {
    pub(crate) queue: Weak<WorkQueue<K, V, S>>,
    pub(crate) key: Arc<Format<K>>,
    /// `None`: values are not shown, and not taken back.
    pub(crate) value: Option<Arc<Format<V>>>,
    pub(crate) groups: Option<Box<dyn GroupsOf<K, V, S>>>,
    pub(crate) letters: Option<Box<dyn LetterStore>>,
    pub(crate) failures: Option<Failures<K, V>>,
    /// Makes ids of keys.
    pub(crate) ids: RandomState,
}

/// The groups of a queue, whose type the board does not know.
pub(crate) trait GroupsOf<K, V, S>: Send + Sync {
    /// Returns the groups with the most keys, and the number of all.
    fn list(&self, queue: &WorkQueue<K, V, S>) -> (Vec<Group>, usize);

    /// Holds a group, or releases it; returns its name, or `None` if there is none with this id.
    fn hold(&self, queue: &WorkQueue<K, V, S>, id: &str, hold: Duration) -> Option<String>;
}

struct Groups<G> {
    format: Box<Format<G>>,
    ids: RandomState,
}

/// The id of a key or a group on a page: a hash of it, and one of its text, as `Hash` may be the same for what is not equal.
pub(crate) fn id<T: Hash>(ids: &RandomState, of: &T, format: &Format<T>) -> String {
    let text = ids.hash_one(text::shown(of, format, text::WHOLE));
    format!("{:016x}{text:016x}", ids.hash_one(of))
}

/// Whether this is the id. Writes the text only if the first half is.
pub(crate) fn has_id<T: Hash>(ids: &RandomState, of: &T, format: &Format<T>, id: &str) -> bool {
    id.starts_with(&format!("{:016x}", ids.hash_one(of))) && self::id(ids, of, format) == id
}

impl<K, V, S, G> GroupsOf<K, V, S> for Groups<G>
where
    G: Hash + Clone + Send + Sync + 'static,
{
    fn list(&self, queue: &WorkQueue<K, V, S>) -> (Vec<Group>, usize) {
        let groups = queue.groups::<G>();
        let rows = groups.iter().take(GROUPS).map(|counts| Group {
            name: text::shown(&counts.group, &*self.format, text::IN_TABLE),
            id: id(&self.ids, &counts.group, &*self.format),
            queued: counts.queued,
            in_flight: counts.in_flight,
            held_for: counts.held_for,
        });
        (rows.collect(), groups.len())
    }

    fn hold(&self, queue: &WorkQueue<K, V, S>, id: &str, hold: Duration) -> Option<String> {
        let groups = queue.groups::<G>();
        let is_it = |counts: &&GroupCounts<G>| has_id(&self.ids, &counts.group, &*self.format, id);
        let found = groups.iter().find(is_it)?;
        let is_held = queue.hold_group(&found.group, hold);
        is_held.then(|| text::shown(&found.group, &*self.format, text::IN_TABLE))
    }
}

impl<K, V, S> Shown<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Shows a queue whose keys are written by `key`: each time in the same way, or a button of an older page does not find its key.
    pub fn new(
        queue: &Arc<WorkQueue<K, V, S>>,
        key: impl Fn(&K, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Self {
        Shown {
            queue: Arc::downgrade(queue),
            key: Arc::new(key),
            value: None,
            groups: None,
            letters: None,
            failures: None,
            ids: RandomState::new(),
        }
    }

    /// Shows a queue whose keys are written by their `Display`.
    pub fn display(queue: &Arc<WorkQueue<K, V, S>>) -> Self
    where
        K: fmt::Display,
    {
        Self::new(queue, fmt::Display::fmt)
    }

    /// Shows the groups of the queue, whose type is that which its
    /// [`group_by`](keyqueue::Builder::group_by) returns. With another type the queue has no groups for the board.
    pub fn groups<G>(
        mut self,
        group: impl Fn(&G, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Self
    where
        G: Hash + Clone + Send + Sync + 'static,
    {
        self.groups = Some(Box::new(Groups {
            format: Box::new(group),
            ids: RandomState::new(),
        }));
        self
    }

    /// Shows the dead letters of the queue's workers: those of
    /// [`Workers::dead_letters`](keyqueue::worker::Workers::dead_letters). A board keeps them, with their values, also when
    /// the queue is gone, until it is told to [remove](crate::Board::remove) that.
    pub fn dead_letters(self, letters: &DeadLetters<K, V>) -> Self {
        self.kept(letters, None)
    }

    fn kept(mut self, letters: &DeadLetters<K, V>, value: Option<Arc<Format<V>>>) -> Self {
        self.letters = Some(Box::new(Kept {
            letters: letters.clone(),
            key: Arc::clone(&self.key),
            value,
            marks: RandomState::new(),
        }));
        self
    }

    /// Shows the last error and the attempt of each key whose retry is pending: those of
    /// [`Workers::failures`](keyqueue::worker::Workers::failures).
    pub fn failures(mut self, failures: &Failures<K, V>) -> Self {
        self.failures = Some(failures.clone());
        self
    }

    /// Shows the values that wait, and those of dead letters if there are any.
    ///
    /// The formatter of a value that waits runs under the lock of that value, so puts for this key wait for it; it must
    /// not call the queue, nor, with debug assertions, another one.
    pub fn values(
        mut self,
        letters: Option<&DeadLetters<K, V>>,
        value: impl Fn(&V, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Self {
        let value: Arc<Format<V>> = Arc::new(value);
        if let Some(letters) = letters {
            self = self.kept(letters, Some(Arc::clone(&value)));
        }
        self.value = Some(value);
        self
    }
}

impl<K, V, S> fmt::Debug for Shown<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown")
            .field("has_values", &self.value.is_some())
            .field("has_groups", &self.groups.is_some())
            .field("has_dead_letters", &self.letters.is_some())
            .field("has_failures", &self.failures.is_some())
            .finish_non_exhaustive()
    }
}
