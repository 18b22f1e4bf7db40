//! Dead letters without the types of their keys and values.

use std::sync::Arc;

use keyqueue::worker::{DeadLetters, Reason, ValueDeadLetters};
use keyqueue::{Added, Valued};

use crate::rows::Letter;
use crate::text::{self, Format};

/// A store of dead letters.
pub(crate) trait LetterStore: Send + Sync {
    /// Returns at most `max` letters from this number on, each text of at most `most` bytes.
    fn page(&self, from: u64, max: usize, most: usize) -> Vec<Letter>;

    fn put_back(&self, id: u64) -> Option<Added>;

    /// Takes a letter out and drops it; returns whether it was there.
    fn remove(&self, id: u64) -> bool;

    fn len(&self) -> usize;

    fn capacity(&self) -> usize;

    fn lost(&self) -> u64;
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
        other => format!("{other:?}"),
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
        reason: why(letter.reason),
        attempts: letter.attempts,
        first: letter.first,
        last: letter.last,
    }
}

impl<K: Send + Sync + 'static> LetterStore for KeyLetters<K> {
    fn page(&self, from: u64, max: usize, most: usize) -> Vec<Letter> {
        let letters = self.letters.page(from, max);
        let rows = letters.iter();
        rows.map(|letter| row(letter, &*self.key, None, most))
            .collect()
    }

    fn put_back(&self, id: u64) -> Option<Added> {
        self.letters.put_back(id)
    }

    fn remove(&self, id: u64) -> bool {
        self.letters.remove(id).is_some()
    }

    fn len(&self) -> usize {
        self.letters.len()
    }

    fn capacity(&self) -> usize {
        self.letters.capacity()
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
    fn page(&self, from: u64, max: usize, most: usize) -> Vec<Letter> {
        let letters = self.letters.page(from, max);
        let rows = letters.iter().map(|letter| {
            let value = letter.value.as_deref();
            let value = value.map(|value| text::shown(value, &*self.value, most));
            row(letter, &*self.key, value, most)
        });
        rows.collect()
    }

    fn put_back(&self, id: u64) -> Option<Added> {
        self.letters.put_back(id)
    }

    fn remove(&self, id: u64) -> bool {
        self.letters.remove(id).is_some()
    }

    fn len(&self) -> usize {
        self.letters.len()
    }

    fn capacity(&self) -> usize {
        self.letters.capacity()
    }

    fn lost(&self) -> u64 {
        self.letters.lost()
    }
}
