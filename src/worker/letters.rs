//! What is behind [`DeadLetters`](super::DeadLetters).
//!
//! # Protocol
//!
//! All letters are behind one mutex, under which no user code runs: a key is kept as a handle to it, an error as
//! text, and a value behind an `Arc`, of which a list has a share.
//!
//! A key is found by the address of the interned key, which the handle keeps in its place. A letter is *busy* while a
//! thread runs user code for it without the lock: merges two values, or puts the key back. No other thread takes a busy
//! letter out, puts it back or merges into it. So a key that has been put back and is given up again before its letter is
//! taken out gets another letter. It needs no room of its own: room is counted in keys.
//!
//! ```text
//!     a key is given up     it has a letter that is not busy    the new one is merged into that
//!                           it has only busy ones               it gets another one
//!                           it has none                         it needs room
//!     a letter is busy no   its key has another one that is     the newer one is merged into the older, whose values
//!     longer                not busy                            may keep it busy once more
//! ```
//!
//! So a key has one letter that is not busy at most, and at rest one letter in all: whether a put-back is accepted, is
//! refused or panics, there are no more letters than the capacity and one for each call that is putting a letter back.
//! Every panic of user code is caught but that of a put-back, whose guard ends what its letter is busy with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

use super::GivenUp;
use super::by_key::address;
use super::dead_letters::Letter;
use crate::engine::timing::LetterCounts;
use crate::metrics::Event;
use crate::sync::catch_panic::{catch_panic, drop_caught};
use crate::sync::{Arc, Mutex, assert_unlocked};
use crate::{Added, KeyHandle};

pub(super) struct Store<K, V> {
    pub(super) capacity: usize,
    pub(super) counts: Arc<LetterCounts>,
    letters: Mutex<Letters<K, V>>,
}

struct Letters<K, V> {
    next: u64,
    drops_oldest: bool,
    lost: u64,
    by_id: BTreeMap<u64, Kept<K, V>>,
    /// The address of each letter's key, and its number.
    by_key: BTreeSet<(usize, u64)>,
    /// The number of keys that have letters.
    keys: usize,
}

struct Kept<K, V> {
    letter: Letter<K, V>,
    /// The first time by the queue's clock, in nanoseconds.
    since: u64,
    busy: bool,
}

/// What became of a key that is given up.
enum Post<K, V> {
    /// It has a letter. The oldest one may have been taken out for it.
    Kept(Option<Kept<K, V>>),
    Again(Again<K, V>),
    Full(Letter<K, V>),
}

/// The values of two letters that are one now, which is busy until they are merged: the older, and the newer.
struct Again<K, V> {
    id: u64,
    key: KeyHandle<K, V>,
    values: (Arc<V>, Arc<V>),
}

impl<K, V> Letter<K, V> {
    fn share(&self) -> Self {
        Letter {
            id: self.id,
            key: self.key.clone(),
            value: self.value.clone(),
            error: self.error.clone(),
            reason: self.reason,
            attempts: self.attempts,
            first: self.first,
            last: self.last,
        }
    }
}

impl<K, V> Letters<K, V> {
    /// Returns the numbers of a key's letters, the oldest first.
    fn of_key(&self, at: usize) -> impl Iterator<Item = u64> {
        let ids = self.by_key.range((at, 0)..=(at, u64::MAX));
        ids.map(|(_, id)| *id)
    }

    /// Returns the numbers of those that are not busy.
    fn idle_of_key(&self, at: usize) -> impl Iterator<Item = u64> {
        self.of_key(at).filter(|id| !self.by_id[id].busy)
    }

    fn remove(&mut self, id: u64) -> Option<Kept<K, V>> {
        let kept = self.by_id.remove(&id)?;
        let at = address(kept.letter.key.key());
        self.by_key.remove(&(at, id));
        let was_last = self.of_key(at).next().is_none();
        self.keys -= usize::from(was_last);
        Some(kept)
    }

    /// Takes out the oldest letter that is not busy, and makes room by that: its key has no other one.
    fn remove_oldest(&mut self) -> Option<Kept<K, V>> {
        let makes_room = |kept: &&Kept<K, V>| {
            let at = address(kept.letter.key.key());
            !kept.busy && self.of_key(at).count() == 1
        };
        let oldest = self.by_id.values().find(makes_room)?;
        self.remove(oldest.letter.id)
    }

    /// Merges a newer letter of its key into one that is not busy. Returns the values, if both have one.
    fn join(&mut self, id: u64, newer: Letter<K, V>) -> Option<Again<K, V>> {
        let kept = self.by_id.get_mut(&id)?;
        let older = &mut kept.letter;
        older.attempts = older.attempts.saturating_add(newer.attempts);
        (older.error, older.reason, older.last) = (newer.error, newer.reason, newer.last);
        match (older.value.take(), newer.value) {
            (Some(one), Some(other)) => {
                kept.busy = true;
                Some(Again {
                    id,
                    key: newer.key,
                    values: (one, other),
                })
            }
            (one, other) => {
                older.value = one.or(other);
                None
            }
        }
    }

    /// Ends what a letter is busy with, and makes one of two letters of its key that are not busy. Returns their values,
    /// if both have one.
    fn end(&mut self, id: u64) -> Option<Again<K, V>> {
        let kept = self.by_id.get_mut(&id)?;
        kept.busy = false;
        let at = address(kept.letter.key.key());
        let mut idle = self.idle_of_key(at);
        let (older, newer) = (idle.next()?, idle.next()?);
        drop(idle);
        let newer = self.remove(newer)?;
        self.join(older, newer.letter)
    }
}

impl<K, V> Store<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Store {
            capacity,
            counts: Arc::default(),
            letters: Mutex::new(Letters {
                next: 0,
                drops_oldest: false,
                lost: 0,
                by_id: BTreeMap::new(),
                by_key: BTreeSet::new(),
                keys: 0,
            }),
        }
    }

    pub(super) fn drop_oldest(&self) {
        self.letters.lock().drops_oldest = true;
    }

    /// Returns at most `max` letters from this number on.
    pub(super) fn page(&self, from: u64, max: usize) -> Vec<Letter<K, V>> {
        let letters = self.letters.lock();
        let kept = letters.by_id.range(from..).take(max);
        kept.map(|(_, kept)| kept.letter.share()).collect()
    }

    /// Takes a letter out, unless it is busy or is not meant.
    pub(super) fn remove(
        &self,
        id: u64,
        is_meant: impl FnOnce(&Letter<K, V>) -> bool,
    ) -> Option<Letter<K, V>> {
        self.with(|letters| {
            let kept = letters.by_id.get(&id)?;
            (!kept.busy && is_meant(&kept.letter)).then_some(())?;
            Some(letters.remove(id)?.letter)
        })
    }

    pub(super) fn lost(&self) -> u64 {
        self.letters.lock().lost
    }

    /// Changes the letters, and what is counted of them.
    fn with<R>(&self, change: impl FnOnce(&mut Letters<K, V>) -> R) -> R {
        let mut letters = self.letters.lock();
        let result = change(&mut letters);
        let oldest = letters.by_id.values().next();
        let oldest = oldest.map(|kept| (kept.letter.key.parts().0.timer.clock(), kept.since));
        self.counts.set(letters.by_id.len(), oldest);
        result
    }

    /// Keeps a key that is given up: `letter`, whose value `take` returns. Runs no user code.
    fn post(&self, mut letter: Letter<K, V>, take: impl FnOnce() -> Option<V>) -> Post<K, V> {
        let at = address(letter.key.key());
        let since = letter.key.parts().0.timer.clock().nanos();
        self.with(|letters| {
            let mut dropped = None;
            let is_new = letters.of_key(at).next().is_none();
            if is_new && letters.keys >= self.capacity {
                if letters.drops_oldest {
                    dropped = letters.remove_oldest();
                }
                letter.key.parts().0.note(Event::LetterLost);
                letters.lost += 1;
                if dropped.is_none() {
                    return Post::Full(letter);
                }
            }
            letter.value = take().map(Arc::new);
            let idle = letters.idle_of_key(at).next();
            if let Some(id) = idle {
                let again = letters.join(id, letter);
                return again.map_or(Post::Kept(None), Post::Again);
            }
            let id = letters.next;
            letters.next += 1;
            letters.keys += usize::from(is_new);
            letters.by_key.insert((at, id));
            letter.id = id;
            let kept = Kept {
                letter,
                since,
                busy: false,
            };
            letters.by_id.insert(id, kept);
            Post::Kept(dropped)
        })
    }

    /// Keeps a key that is given up, with the value that `take` returns, and merges it into an older one. Returns
    /// whether there was room; if not, `take` was not called.
    pub(super) fn keep<E: fmt::Display>(
        &self,
        key: KeyHandle<K, V>,
        given_up: &GivenUp<E, V>,
        take: impl FnOnce() -> Option<V>,
    ) -> bool
    where
        V: Clone,
    {
        assert_unlocked();
        let now = SystemTime::now();
        let error = catch_panic(|| format!("{:#}", given_up.failure));
        let letter = Letter {
            id: 0,
            key,
            value: None,
            error: error.unwrap_or_else(|message| format!("its text panicked: {message}")),
            reason: given_up.reason,
            attempts: u64::from(given_up.retries) + 1,
            first: now,
            last: now,
        };
        match self.post(letter, take) {
            // The drop of a value is user code.
            Post::Kept(dropped) => drop_caught(dropped),
            Post::Again(again) => self.merge(Some(again)),
            Post::Full(letter) => {
                drop_caught(letter);
                return false;
            }
        }
        true
    }

    /// Merges values until there are no more that came meanwhile. The panic hook reports a panic of user code, which
    /// costs one of two values at most.
    fn merge(&self, mut again: Option<Again<K, V>>)
    where
        V: Clone,
    {
        while let Some(Again { id, key, values }) = again {
            assert_unlocked();
            let merged = match (own(values.0), own(values.1)) {
                (Ok(mut older), Ok(newer)) => {
                    let _ = catch_panic(|| key.merge(&mut older, newer));
                    Arc::new(older)
                }
                (older, newer) => {
                    drop_caught(older);
                    newer.map_or_else(|shared| shared, Arc::new)
                }
            };
            again = self.with(|letters| {
                letters.by_id.get_mut(&id)?.letter.value = Some(merged);
                letters.end(id)
            });
        }
    }

    /// Makes a letter busy, and returns a share of it; `None` if there is no such letter, or it is busy.
    fn begin(&self, id: u64) -> Option<Letter<K, V>> {
        let mut letters = self.letters.lock();
        let kept = letters.by_id.get_mut(&id).filter(|kept| !kept.busy)?;
        // Panics if the key has too many handles.
        let letter = kept.letter.share();
        kept.busy = true;
        Some(letter)
    }

    /// Puts a key back by `add`. Its letter stays if that is refused, or panics.
    pub(super) fn put_back(
        &self,
        id: u64,
        add: impl FnOnce(&Letter<K, V>) -> Option<Added>,
    ) -> Option<Added>
    where
        V: Clone,
    {
        let busy = Busy {
            letter: Some(self.begin(id)?),
            id,
            store: self,
        };
        let added = add(busy.letter.as_ref()?)?;
        if added.is_accepted() {
            // The guard has a share of the value, whose drop is user code.
            drop(self.with(|letters| letters.remove(id)));
        }
        Some(added)
    }
}

/// Returns the value, or a clone if it is shared, unless `Clone` panics.
fn own<V: Clone>(value: Arc<V>) -> Result<V, Arc<V>> {
    Arc::try_unwrap(value).or_else(|shared| match catch_panic(|| V::clone(&shared)) {
        Ok(clone) => {
            drop_caught(shared);
            Ok(clone)
        }
        Err(_) => Err(shared),
    })
}

/// Ends what a letter is busy with.
struct Busy<'s, K, V: Clone> {
    letter: Option<Letter<K, V>>,
    id: u64,
    store: &'s Store<K, V>,
}

impl<K, V: Clone> Drop for Busy<'_, K, V> {
    fn drop(&mut self) {
        // Before the values are merged: one that is not shared need not be cloned.
        drop_caught(self.letter.take());
        let again = self.store.with(|letters| letters.end(self.id));
        self.store.merge(again);
    }
}

#[cfg(test)]
pub(super) use tests::given_up;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::WorkQueue;
    use crate::worker::{Failure, Reason};

    pub(crate) fn given_up<V>() -> GivenUp<&'static str, V> {
        GivenUp {
            failure: Failure::Error("no route"),
            value: None,
            retries: 0,
            reason: Reason::GiveUp,
        }
    }

    // X1 C11
    #[test]
    #[cfg_attr(miri, ignore = "asks the system for the date")]
    fn a_letter_whose_put_back_gets_no_handle_is_not_busy() {
        let queue = WorkQueue::<&str>::new();
        let store = Store::<&str, ()>::new(1);
        let handle = queue.handle("a");
        handle.pin().state().pin_most_handles();
        // The store takes the key all the same.
        assert!(store.keep(handle.share(), &given_up(), || None));
        let put_back = || store.put_back(0, |letter| Some(letter.key.add()));
        assert!(catch_unwind(AssertUnwindSafe(put_back)).is_err());
        assert!(store.remove(0, |_| true).is_some());
    }

    // X1
    #[test]
    #[cfg_attr(miri, ignore = "asks the system for the date")]
    fn a_key_that_fails_again_while_it_is_put_back_has_the_place_of_its_letter() {
        let queue = WorkQueue::<&str>::new();
        for drops_oldest in [false, true] {
            let store = Store::<&str, ()>::new(2);
            if drops_oldest {
                store.drop_oldest();
            }
            let give_up = |key| store.keep(queue.handle(key), &given_up(), || None);
            assert!(give_up("older") && give_up("a"));
            let add = |letter: &Letter<&str>| {
                let added = letter.key.add();
                // As a worker does that is faster.
                assert!(give_up("a"), "there is room");
                Some(added)
            };
            let added = store.put_back(1, add);
            assert!(added.is_some_and(Added::is_accepted));
            let kept: Vec<_> = store.page(0, 9).iter().map(|letter| *letter.key).collect();
            assert_eq!((&kept[..], store.lost()), (&["older", "a"][..], 0));
        }
    }
}
