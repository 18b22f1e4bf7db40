//! Dead letters without the types of their keys and values: what a board reads of them, and does to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyqueue::worker::{DeadLetters, Reason, ValueDeadLetters};
use keyqueue::{Added, Valued};

use crate::rows::{Letter, Letters};
use crate::source::{Done, Refused, Which};
use crate::text::{self, Format};

/// The letters that are read at once.
const STEP: usize = 256;

/// A store of dead letters, in this process or on the server of a fleet.
pub(crate) trait LetterStore: Send + Sync {
    /// Returns at most `max` letters from this number on, each text of at most `most` bytes.
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused>;

    fn put_back(&self, id: u64) -> Result<(), Refused>;

    /// Takes a letter out and drops it.
    fn remove(&self, id: u64) -> Result<(), Refused>;

    fn len(&self) -> Result<usize, Refused>;

    /// Returns how many letters it can keep. `None`: any number.
    fn capacity(&self) -> Option<usize>;

    /// Returns how many letters it has not kept.
    fn lost(&self) -> u64;
}

/// Returns a page of the letters that match.
pub(crate) fn page(
    store: &dyn LetterStore,
    from: u64,
    max: usize,
    search: &str,
    within: Duration,
) -> Result<Letters, Refused> {
    let end = Instant::now() + within;
    let mut letters = Letters {
        len: store.len()?,
        capacity: store.capacity(),
        lost: store.lost(),
        ..Letters::default()
    };
    let mut next = Some(from);
    while let Some(from) = next
        && letters.rows.len() < max
        && Instant::now() < end
    {
        let page = store.page(from, max, text::WHOLE)?;
        let last = page.last().filter(|_| page.len() == max);
        next = last.and_then(|letter| letter.id.checked_add(1));
        let is_meant = |letter: &Letter| search.is_empty() || letter.matches(search);
        let rows = page.into_iter().filter(is_meant).map(Letter::brief);
        letters.rows.extend(rows);
    }
    letters.next = next;
    Ok(letters)
}

/// Returns a letter with all of its text.
pub(crate) fn one(store: &dyn LetterStore, id: u64) -> Result<Letter, Refused> {
    let found = store.page(id, 1, text::WHOLE)?.pop();
    let found = found.filter(|letter| letter.id == id);
    found.ok_or(Refused::NoLetter(id))
}

pub(crate) fn put_back(store: &dyn LetterStore, which: &Which) -> Result<Done, Refused> {
    each(store, which, |id| store.put_back(id))
}

pub(crate) fn remove(store: &dyn LetterStore, which: &Which) -> Result<Done, Refused> {
    each(store, which, |id| store.remove(id))
}

/// Does something to one letter, or to all that match.
fn each(
    store: &dyn LetterStore,
    which: &Which,
    act: impl Fn(u64) -> Result<(), Refused>,
) -> Result<Done, Refused> {
    let (search, within) = match which {
        Which::One(id) => {
            let subject = one(store, *id)?.key;
            act(*id)?;
            return Ok(Done::one(text::cut(&subject, text::IN_TABLE)));
        }
        Which::All(search, within) => (search, *within),
    };
    let end = Instant::now() + within;
    let (mut done, mut from) = (Done::default(), 0);
    done.subject = format!("all with {:?}", text::cut(search, text::IN_TABLE));
    let partial = |done| {
        Ok(Done {
            is_partial: true,
            ..done
        })
    };
    // Those that come meanwhile, such as a key that fails again, are not meant.
    let mut left = store.len()?;
    while left > 0 {
        let page = match store.page(from, STEP.min(left), text::WHOLE) {
            Ok(page) => page,
            Err(_) if done.count > 0 => return partial(done),
            Err(refused) => return Err(refused),
        };
        let Some(newest) = page.last() else { break };
        from = newest.id.saturating_add(1);
        left -= page.len();
        for letter in page.iter().filter(|letter| letter.matches(search)) {
            if Instant::now() >= end {
                return partial(done);
            }
            match act(letter.id) {
                Ok(()) => done.count += 1,
                // Another thread has it.
                Err(Refused::NoLetter(_)) => {}
                #[cfg(feature = "nats")]
                Err(Refused::Keyless) => {}
                Err(refused) if done.count == 0 => return Err(refused),
                Err(_) => return partial(done),
            }
        }
        if Instant::now() >= end {
            return partial(done);
        }
    }
    Ok(done)
}

pub(crate) struct KeyLetters<K> {
    pub(crate) letters: DeadLetters<K>,
    pub(crate) key: Arc<Format<K>>,
}

pub(crate) struct ValueLetters<K, V> {
    pub(crate) letters: ValueDeadLetters<K, V>,
    pub(crate) key: Arc<Format<Valued<K, V>>>,
    pub(crate) value: Arc<Format<V>>,
}

fn why(reason: Reason) -> String {
    match reason {
        Reason::MaxRetries => "no retries left".into(),
        Reason::GiveUp => "given up by the worker".into(),
        Reason::Limiter => "the rate limiter panicked".into(),
        Reason::Crowded => "too many retries wait, and others succeed".into(),
        other => format!("{other:?}"),
    }
}

/// What a queue says to a letter that is put back; `None` if there is no letter.
fn accepted(id: u64, added: Option<Added>) -> Result<(), Refused> {
    match added {
        Some(Added::ShutDown) => Err(Refused::ShutDown),
        Some(_) => Ok(()),
        None => Err(Refused::NoLetter(id)),
    }
}

fn row<K, V>(
    letter: &keyqueue::worker::Letter<K, V>,
    key: &Format<K>,
    value: Option<String>,
    most: usize,
) -> Letter {
    Letter {
        id: letter.id,
        key: text::shown(letter.key.key(), key, most),
        value,
        error: text::cut(&letter.error, most),
        reason: Some(why(letter.reason)),
        attempts: letter.attempts,
        first: Some(letter.first),
        last: letter.last,
    }
}

impl<K: Send + Sync + 'static> LetterStore for KeyLetters<K> {
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused> {
        let letters = self.letters.page(from, max);
        let rows = letters.iter();
        Ok(rows
            .map(|letter| row(letter, &*self.key, None, most))
            .collect())
    }

    fn put_back(&self, id: u64) -> Result<(), Refused> {
        accepted(id, self.letters.put_back(id))
    }

    fn remove(&self, id: u64) -> Result<(), Refused> {
        let removed = self.letters.remove(id);
        removed.map(drop).ok_or(Refused::NoLetter(id))
    }

    fn len(&self) -> Result<usize, Refused> {
        Ok(self.letters.len())
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.letters.capacity())
    }

    fn lost(&self) -> u64 {
        self.letters.lost()
    }
}

impl<K, V> LetterStore for ValueLetters<K, V>
where
    K: Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused> {
        let letters = self.letters.page(from, max);
        let rows = letters.iter().map(|letter| {
            let value = letter.value.as_deref();
            let value = value.map(|value| text::shown(value, &*self.value, most));
            row(letter, &*self.key, value, most)
        });
        Ok(rows.collect())
    }

    fn put_back(&self, id: u64) -> Result<(), Refused> {
        accepted(id, self.letters.put_back(id))
    }

    fn remove(&self, id: u64) -> Result<(), Refused> {
        let removed = self.letters.remove(id);
        removed.map(drop).ok_or(Refused::NoLetter(id))
    }

    fn len(&self) -> Result<usize, Refused> {
        Ok(self.letters.len())
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.letters.capacity())
    }

    fn lost(&self) -> u64 {
        self.letters.lost()
    }
}
