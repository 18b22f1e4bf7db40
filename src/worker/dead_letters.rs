//! Keys that were given up, kept: the public face of [`super::letters`].

use std::fmt;
use std::hash::Hash;
use std::time::SystemTime;

use super::letters::Store;
use super::settle::Lost;
use super::{GivenUp, Reason, Workers};
use crate::sync::Arc;
use crate::{Added, ConfigError, KeyHandle};

/// A bounded store of keys that workers have given up, each with its value, error and times; see
/// [`Workers::dead_letters`]. A clone is another handle to the same store.
///
/// Each key has one letter. If it is given up again, its attempts and its last time go on, and its value is merged
/// under the new one by the queue's merge function. So it is if that happens while the letter is put
/// back, and the put-back is refused or panics; until that is known, the store has another letter of the key, which needs no
/// room.
///
/// It is in memory: what has to survive the process goes elsewhere, from here or from
/// [`on_give_up`](Workers::on_give_up). It keeps the queue's memory for its keys, but does not keep the queue open.
/// With feature `metrics`, its size and the age of its oldest letter are series of each queue that its workers are
/// over ([`docs::metrics`](crate::docs::metrics)).
///
/// The page [workers](crate::docs::how_to::workers#dead-letters-put-back) puts letters back. Here the queue is shut down, and
/// refuses that:
///
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::worker::{DeadLetters, Verdict, Workers};
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let queue = WorkQueue::from_iter(["good", "bad"]);
/// let letters = DeadLetters::new(1000)?;
/// # queue.shut_down();
/// Workers::new(&queue).concurrency(1).dead_letters(&letters).run(|job| match *job {
///     "good" => Verdict::Ok(Default::default()),
///     _ => Verdict::GiveUp("it is bad"),
/// })?;
///
/// let letter = letters.list().pop().unwrap();
/// assert_eq!((*letter.key, &*letter.error, letter.attempts), ("bad", "it is bad", 1));
/// assert_eq!(letters.put_back(letter.id), Some(keyqueue::Added::ShutDown)); // and stays here
/// drop(letters.remove(letter.id));
/// assert!(letters.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct DeadLetters<K, V = ()>(Arc<Store<K, V>>);

/// A key that was given up, in [`DeadLetters`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Letter<K, V = ()> {
    /// The number of the letter in its store, in the order of the first times.
    pub id: u64,
    /// The key, to which the handle derefs.
    pub key: KeyHandle<K, V>,
    /// The value; `None` if the function took it, and in a queue without values.
    pub value: Option<Arc<V>>,
    /// The last failure, as text, written with `{:#}`.
    pub error: String,
    /// Why it was given up the last time.
    pub reason: Reason,
    /// The number of tries until it was given up, of all times.
    pub attempts: u64,
    /// When it was given up for the first time since the letter is here, by the system's clock.
    pub first: SystemTime,
    /// When it was given up the last time.
    pub last: SystemTime,
}

impl<K, V> DeadLetters<K, V> {
    /// Creates a store of at most `capacity` letters, above 0. When it is full, further keys are not kept: see
    /// [`Workers::dead_letters`].
    ///
    /// # Errors
    ///
    /// Returns an error if `capacity` is 0.
    pub fn new(capacity: usize) -> Result<Self, ConfigError> {
        ConfigError::check_range("dead letters", "capacity", 1..=usize::MAX, capacity)?;
        Ok(DeadLetters(Arc::new(Store::new(capacity))))
    }

    /// Drops the oldest letter, by its first time, when the store is full and another key is given up.
    #[must_use]
    pub fn drop_oldest(self) -> Self {
        self.0.drop_oldest();
        self
    }

    /// Returns the letters, the oldest first, with shares of their values.
    #[must_use]
    pub fn list(&self) -> Vec<Letter<K, V>> {
        self.page(0, usize::MAX)
    }

    /// Returns at most `max` letters whose [`id`](Letter::id) is `from` or above, the oldest first (X2): a page of them,
    /// or one. Workers that give keys up wait only while these are copied.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::{DeadLetters, Job, Verdict, Workers};
    /// # let queue = WorkQueue::from_iter([1, 2, 3]);
    /// # queue.shut_down();
    /// let letters = DeadLetters::new(1000)?;
    /// # let workers = Workers::new(&queue).concurrency(1).dead_letters(&letters);
    /// workers.run(|job: Job<u32>| Verdict::GiveUp(format!("{} is a number", *job)))?; // 1, 2, 3
    /// let page = letters.page(0, 2);
    /// assert_eq!([1, 2], [*page[0].key, *page[1].key]);
    /// assert_eq!(*letters.page(page[1].id + 1, 2)[0].key, 3);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn page(&self, from: u64, max: usize) -> Vec<Letter<K, V>> {
        self.0.page(from, max)
    }

    /// Returns the most letters that the store keeps.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Takes a letter out; dropping it drops the key for good. Returns `None` if there is no such letter, or if it is
    /// just being put back or its key is given up again.
    pub fn remove(&self, id: u64) -> Option<Letter<K, V>> {
        self.0.remove(id, |_| true)
    }

    /// Takes a letter out as [`remove`](Self::remove) does, unless its key was given up again since `letter` was listed: what
    /// somebody has not seen stays (X1).
    pub fn remove_unchanged(&self, letter: &Letter<K, V>) -> Option<Letter<K, V>> {
        let is_same = |now: &Letter<K, V>| now.attempts == letter.attempts;
        self.0.remove(letter.id, is_same)
    }

    /// Returns the number of letters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.counts.len()
    }

    /// Returns whether there are no letters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many letters the store has not kept, because it was full: keys that it has not taken, and the
    /// oldest ones that it has [dropped](Self::drop_oldest).
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }
}

impl<K: Send + Sync + 'static, V: Clone + Send + 'static> DeadLetters<K, V> {
    /// Adds the key of a letter to its queue again, with a clone of its value if keys carry some, and takes the letter out.
    /// The value counts as newer than one that waits for its delivery, with which it is merged. Returns what
    /// [`add`](crate::WorkQueue::add) or [`put`](crate::WorkQueue::put) does: if the queue is shut down, the letter stays.
    /// Returns `None` if there is no such letter, if another thread is just putting it back, or if it has no value and keys
    /// carry some.
    #[must_use = "a key that is refused stays in the store"]
    pub fn put_back(&self, id: u64) -> Option<Added> {
        self.0.put_back(id, |letter| {
            let carries = letter.key.parts().0.values().is_some();
            match &letter.value {
                Some(value) => Some(letter.key.put(V::clone(value))),
                None => (!carries).then(|| letter.key.add()),
            }
        })
    }
}

impl<K, V, E> Workers<'_, K, V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: fmt::Display,
{
    /// Keeps each key that is given up in `letters`, instead of calling the hook of
    /// [`on_give_up`](Self::on_give_up).
    ///
    /// | a key is given up | and then |
    /// | --- | --- |
    /// | for its failures: [`MaxRetries`](Reason::MaxRetries), [`GiveUp`](Reason::GiveUp), [`Limiter`](Reason::Limiter), [`Crowded`](Reason::Crowded) | is in the store |
    /// | for its failures, and the store is full | goes to the hook; without one it is dropped; [`lost`](DeadLetters::lost) counts it |
    /// | because the queue is shut down: [`ShutDown`](Reason::ShutDown), [`Dropped`](Reason::Dropped) | goes to the hook; without one it is left for [`take_left`](crate::WorkQueue::take_left) |
    ///
    /// So each is in one place (S13, X1). The hook of [`on_error`](Self::on_error) is called in any case, before.
    /// Several `Workers` may share a store. Default: none.
    ///
    /// ```
    /// use keyqueue::worker::{DeadLetters, Workers};
    /// use keyqueue::{WorkQueue, merge};
    ///
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// let letters = DeadLetters::new(1000)?;
    /// queue.put("a", vec![1, 2]);
    /// # queue.shut_down();
    /// let workers = Workers::new(&queue).max_retries(0).concurrency(1);
    /// workers.dead_letters(&letters).run(|_| Err::<(), _>("no route"))?;
    /// let letter = letters.list().pop().unwrap();
    /// assert_eq!(*letter.value.unwrap(), [1, 2]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn dead_letters(mut self, letters: &DeadLetters<K, V>) -> Self {
        let store = Arc::clone(&letters.0);
        self.inner.queue.core.watch_letters(&store.counts);
        let keep = move |lost: &mut Lost<'_, '_, K, V>, given_up: &GivenUp<E, V>| {
            let key = lost.handle();
            store.keep(key, given_up, || lost.take_value())
        };
        self.inner.dead_letters = Some(Box::new(keep));
        self
    }
}

impl<K, V> Clone for DeadLetters<K, V> {
    fn clone(&self) -> Self {
        DeadLetters(Arc::clone(&self.0))
    }
}

impl<K, V> fmt::Debug for DeadLetters<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("len", &self.len())
            .field("capacity", &self.0.capacity)
            .field("lost", &self.lost())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::letters::given_up;
    use super::*;
    use crate::{WorkQueue, merge};

    // X1
    #[test]
    #[cfg_attr(miri, ignore = "asks the system for the date")]
    fn a_letter_without_a_value_stays() {
        let queue = WorkQueue::<u64>::builder()
            .merge(merge::sum::<u32>)
            .build()
            .unwrap();
        let letters = DeadLetters::new(1).unwrap();
        // As of a function that has taken the value.
        let key = queue.handle(1);
        assert!(letters.0.keep(key, &given_up(), || None));
        let id = letters.list()[0].id;
        assert_eq!((letters.put_back(id), letters.len()), (None, 1));
        assert!(queue.is_empty() && letters.put_back(id).is_none());
    }

    // X1
    #[test]
    #[cfg_attr(miri, ignore = "asks the system for the date")]
    fn a_letter_that_has_changed_since_it_was_listed_stays() {
        let queue = WorkQueue::<u64>::new();
        let letters = DeadLetters::new(1).unwrap();
        let give_up = || letters.0.keep(queue.handle(1), &given_up(), || None);
        assert!(give_up());
        let seen = letters.list().pop().unwrap();
        assert!(give_up());
        assert!(letters.remove_unchanged(&seen).is_none());
        let now = letters.list().pop().unwrap();
        assert_eq!(now.attempts, 2);
        assert!(letters.remove_unchanged(&now).is_some() && letters.is_empty());
    }
}
