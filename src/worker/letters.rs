//! What is behind [`DeadLetters`](super::DeadLetters).
//!
//! # Protocol
//!
//! All letters are behind one mutex, under which no user code runs: a key is kept as a handle to it, an error as
//! text, and a value behind an `Arc`, of which a list has a share.
//!
//! A key has one letter, found by the address of the interned key, which the handle keeps in its place. A letter is
//! *busy* while a thread runs user code for it without the lock: merges the value of a key that is given up again,
//! or puts the key back. Another thread neither takes it out nor puts it back then; a key that is given up meanwhile,
//! which has been put back and failed again, gets a new letter. That needs no room, for the busy letter is about to be taken
//! out. If it is not (the queue has been shut down and refuses the key, or user code panics), both letters stay, and the
//! store has one more than its capacity.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::SystemTime;

use super::GivenUp;
use super::by_key::address;
use super::dead_letters::Letter;
use crate::engine::timing::LetterCounts;
use crate::metrics::Event;
use crate::sync::catch_panic::catch_panic;
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
    by_key: HashMap<usize, u64>,
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
    /// It has had one, which is busy now, with this value: to be merged with the new one.
    Again(u64, Arc<V>, V),
    Full,
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
    fn remove(&mut self, id: u64) -> Option<Kept<K, V>> {
        let kept = self.by_id.remove(&id)?;
        let at = address(kept.letter.key.key());
        if self.by_key.get(&at) == Some(&id) {
            self.by_key.remove(&at);
        }
        Some(kept)
    }

    /// Takes out the oldest letter that is not busy.
    fn remove_oldest(&mut self) -> Option<Kept<K, V>> {
        let oldest = self.by_id.values().find(|kept| !kept.busy)?;
        self.remove(oldest.letter.id)
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
                by_key: HashMap::new(),
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

    /// Takes a letter out, unless it is busy.
    pub(super) fn remove(&self, id: u64) -> Option<Letter<K, V>> {
        self.with(|letters| {
            letters.by_id.get(&id).filter(|kept| !kept.busy)?;
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
        let oldest = letters.by_id.values().next().map(|kept| kept.since);
        self.counts.set(letters.by_id.len(), oldest);
        result
    }

    /// Keeps a key that is given up: `letter`, whose value `take` returns. Runs no user code.
    fn post(&self, mut letter: Letter<K, V>, take: impl FnOnce() -> Option<V>) -> Post<K, V> {
        let at = address(letter.key.key());
        let since = letter.key.parts().0.timer.clock().rough_nanos();
        self.with(|letters| {
            let known = letters.by_key.get(&at).copied();
            let known = known.and_then(|id| letters.by_id.get_mut(&id));
            // The letter of this key that is being put back, if one is: it is about to be taken out.
            let leaving = usize::from(known.as_ref().is_some_and(|kept| kept.busy));
            if let Some(kept) = known.filter(|kept| !kept.busy) {
                let known = &mut kept.letter;
                known.attempts = known.attempts.saturating_add(letter.attempts);
                (known.error, known.reason, known.last) =
                    (letter.error, letter.reason, letter.last);
                return match (known.value.take(), take()) {
                    (Some(older), Some(newer)) => {
                        kept.busy = true;
                        Post::Again(known.id, older, newer)
                    }
                    (older, newer) => {
                        known.value = older.or_else(|| newer.map(Arc::new));
                        Post::Kept(None)
                    }
                };
            }
            let mut dropped = None;
            if letters.by_key.len() - leaving >= self.capacity {
                if letters.drops_oldest {
                    dropped = letters.remove_oldest();
                }
                letter.key.parts().0.note(Event::LetterLost);
                letters.lost += 1;
                if dropped.is_none() {
                    return Post::Full;
                }
            }
            let id = letters.next;
            letters.next += 1;
            letters.by_key.insert(at, id);
            letter.id = id;
            letter.value = take().map(Arc::new);
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
        key: KeyHandle<K>,
        given_up: &GivenUp<E>,
        take: impl FnOnce() -> Option<V>,
        merge: impl FnOnce(&mut V, V),
    ) -> bool
    where
        V: Clone,
    {
        assert_unlocked();
        let now = SystemTime::now();
        let error = catch_panic(|| given_up.failure.to_string());
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
            Post::Kept(dropped) => {
                // The drop of a value is user code.
                let _ = catch_panic(|| drop(dropped));
                true
            }
            Post::Again(id, older, newer) => {
                // The panic hook reports a panic of user code, which costs one of the two values at most.
                let merged = match catch_panic(|| Arc::unwrap_or_clone(older)) {
                    Ok(mut merged) => {
                        let _ = catch_panic(|| merge(&mut merged, newer));
                        merged
                    }
                    Err(_) => newer,
                };
                self.with(|letters| {
                    if let Some(kept) = letters.by_id.get_mut(&id) {
                        kept.letter.value = Some(Arc::new(merged));
                        kept.busy = false;
                    }
                });
                true
            }
            Post::Full => false,
        }
    }

    /// Makes a letter busy, and returns a share of it; `None` if there is no such letter, or it is busy.
    fn begin(&self, id: u64) -> Option<Letter<K, V>> {
        let mut letters = self.letters.lock();
        let kept = letters.by_id.get_mut(&id).filter(|kept| !kept.busy)?;
        kept.busy = true;
        Some(kept.letter.share())
    }

    /// Puts a key back by `add`. Its letter stays if that is refused, or panics.
    pub(super) fn put_back(
        &self,
        id: u64,
        add: impl FnOnce(&Letter<K, V>) -> Option<Added>,
    ) -> Option<Added> {
        let letter = self.begin(id)?;
        let _busy = Busy(self, id);
        let added = add(&letter)?;
        if added.is_accepted() {
            // The drop of the value is user code.
            drop(self.with(|letters| letters.remove(id)));
        }
        Some(added)
    }
}

/// Ends what a letter is busy with.
struct Busy<'s, K, V>(&'s Store<K, V>, u64);

impl<K, V> Drop for Busy<'_, K, V> {
    fn drop(&mut self) {
        if let Some(kept) = self.0.letters.lock().by_id.get_mut(&self.1) {
            kept.busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use crate::worker::{Failure, Reason};

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
            let give_up = |key| {
                let given_up = GivenUp {
                    failure: Failure::Error("no route"),
                    retries: 0,
                    reason: Reason::GiveUp,
                };
                store.keep(queue.handle(key), &given_up, || None, |(), ()| ())
            };
            assert!(give_up("older") && give_up("a"));
            let added = store.put_back(1, |letter| {
                let added = letter.key.add();
                // As a worker does that is faster.
                assert!(give_up("a"), "there is room");
                Some(added)
            });
            assert!(added.is_some_and(Added::is_accepted));
            let kept: Vec<_> = store.page(0, 9).iter().map(|letter| *letter.key).collect();
            assert_eq!((&kept[..], store.lost()), (&["older", "a"][..], 0));
        }
    }
}
