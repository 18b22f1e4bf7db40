//! Workers that try the messages of a key one by one (W11).
//!
//! # Protocol
//!
//! A worker takes a key, and with it its value, a list of messages. It takes the list *apart*: the first message is the
//! value of the job, and the rest is held beside the key. When a message is settled, and the key stays in the worker's hand, the
//! next one is the first. The list is *joined* again, the message that is tried before the rest, whenever the value goes back
//! into the queue, where it is merged under what came meanwhile (V3).
//!
//! ```text
//!     take the list apart
//!     for each message, until there is none:
//!         if the turn is over:                     join, add the key, done; the key is at the tail. Nothing is in front
//!             a queue that is shut down            then, so that a list which keeps its memory is not moved
//!             refuses that: the turn goes on
//!         try the message:
//!             success                              forget the failures: tries count for a message
//!             another outcome, such as `Later`     join, add the key by it, done
//!             failure, with retries left           join, retry, done; if that is refused, as below
//!             failure, without                     give the message up alone: dead letter, hook; forget the failures
//!             failure that nobody is told of,      join, leave all for `take_left`, done
//!             after a shut-down
//!     done
//! ```
//!
//! So no later message of a key is tried before an earlier one is done, or given up and reported.
//!
//! | event | what becomes of the messages |
//! | --- | --- |
//! | the list is empty | there are none: the key is done, and its failures are forgotten |
//! | the function panics | as an error |
//! | it fails, asks for another try (as by `Later`) or is cancelled, and has taken its message out of the value | that is lost, as a job alone loses it, and counts as given up; the rest goes back, from its first try |
//! | it returns `RequeueAfter`, and has taken its message | that is done; the rest goes back |
//! | the future is cancelled | all go back in order, the message that was tried before the rest; after a shut-down they are left. With `requeue_cancelled(false)` that message is done, and the rest goes back, from its first try |
//! | it is cancelled between two messages | the rest goes back; behind the last one, the key is done already |
//! | the report of a message is cancelled | as if its work were cancelled |
//! | an abort, of threads | after the message that is tried, the rest goes back; after a shut-down it is left |
//! | a shut-down | the rest is tried, one by one |
//! | a shut-down drops the retry | all that waits is left, or reported together |
//! | a limit or a hold of the group, a pause, an interval | count for the turn: no other begins |
//!
//! The receipts of puts are with the key, and end when it is done: as [`Ended::GivenUp`] if a message
//! was given up that the key had in hand then, and otherwise as they always do.
//!
//! What iterators of the list do is user code. A panic of theirs is caught, and loses the messages that they have, which count
//! as given up. If that is all that the key has, its failures are forgotten.

use std::fmt;
use std::iter;
use std::time::Duration;

use super::{Key, Loop, Workers};
use crate::sync::catch_panic::{catch_panic, drop_caught};
use crate::time::nanos;
use crate::{Added, ConfigError, Ended, Item};

/// How many messages of a key a worker tries, or for how long, before other keys have their turn: see [`Workers::each`].
/// Converted from the number, the time, or both: `each(100)`, `each(Duration::from_secs(1))`, `each((100, Duration::from_secs(1)))`.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    messages: usize,
    time: Duration,
}

impl From<usize> for Turn {
    fn from(messages: usize) -> Self {
        Turn::from((messages, Duration::MAX))
    }
}

impl From<Duration> for Turn {
    fn from(time: Duration) -> Self {
        Turn::from((usize::MAX, time))
    }
}

impl From<(usize, Duration)> for Turn {
    fn from((messages, time): (usize, Duration)) -> Self {
        Turn { messages, time }
    }
}

/// The setting of workers: their turns, and how a list is taken apart.
pub(super) struct Each<V> {
    turn: Turn,
    apart: fn(V) -> Box<dyn Messages<V>>,
}

/// The messages of a key in hand: those behind the one that is tried, or all of them joined.
trait Messages<V>: Send {
    /// Returns whether they are apart.
    fn are_apart(&self) -> bool;

    /// Returns whether they are apart, and there is one more for certain.
    fn have_more(&self) -> bool;

    /// Returns the next message.
    fn next(&mut self) -> Option<V>;

    /// Returns all, `front` before the others; `None` if there are none.
    fn join(&mut self, front: Option<V>) -> Option<V>;

    /// Takes what `join` has returned apart again, and returns what was in front.
    fn part(&mut self, joined: Option<V>) -> Option<V>;

    /// Returns whether nothing was in front when they were joined.
    fn had_no_front(&self) -> bool;
}

struct List<V: IntoIterator> {
    /// `None` if they are joined.
    rest: Option<V::IntoIter>,
    /// How many were in front.
    front: usize,
}

impl<V> Messages<V> for List<V>
where
    V: IntoIterator<IntoIter: Send> + FromIterator<<V as IntoIterator>::Item>,
{
    fn are_apart(&self) -> bool {
        self.rest.is_some()
    }

    fn have_more(&self) -> bool {
        self.rest
            .as_ref()
            .is_some_and(|rest| rest.size_hint().0 > 0)
    }

    fn next(&mut self) -> Option<V> {
        let message = self.rest.as_mut()?.next()?;
        Some(iter::once(message).collect())
    }

    fn join(&mut self, front: Option<V>) -> Option<V> {
        let Some(rest) = self.rest.take() else {
            return front;
        };
        let front: Vec<_> = front.into_iter().flatten().collect();
        self.front = front.len();
        if self.front == 0 && rest.size_hint().0 > 0 {
            // A `VecDeque` takes over the memory of its iterator, whatever its length.
            return Some(rest.collect());
        }
        let mut all = front.into_iter().chain(rest).peekable();
        all.peek()?;
        Some(all.collect())
    }

    fn part(&mut self, joined: Option<V>) -> Option<V> {
        if self.are_apart() {
            return joined;
        }
        let mut rest = joined?.into_iter();
        let front = (self.front > 0).then(|| rest.by_ref().take(self.front).collect());
        self.rest = Some(rest);
        front
    }

    fn had_no_front(&self) -> bool {
        self.rest.is_none() && self.front == 0
    }
}

/// What a worker holds beside a key: the messages of its value, or nothing, if the value is tried as a whole.
pub(super) struct Rest<V>(Option<Box<dyn Messages<V>>>);

impl<V> Rest<V> {
    pub(super) fn none() -> Self {
        Rest(None)
    }

    /// Returns whether the key stays in hand, for the next message.
    pub(super) fn goes_on(&self) -> bool {
        self.0.as_ref().is_some_and(|messages| messages.are_apart())
    }

    /// Loads the next message as the value of the key, unless one is loaded. Returns false if there is none.
    pub(super) fn load<K>(&mut self, item: &mut Item<'_, K, V>) -> bool {
        self.change(item, |messages, loaded| loaded.or_else(|| messages.next()));
        item.loaded().is_some_and(|loaded| loaded.is_some())
    }

    /// Drops the message that is done or given up, if the key stays in hand. Returns whether it does.
    pub(super) fn pass<K>(&mut self, item: &mut Item<'_, K, V>) -> bool {
        let goes_on = self.goes_on();
        if goes_on {
            drop_caught(item.take());
            item.go_on();
        }
        goes_on
    }

    /// Makes the value of the key whole again. A message that the function has taken is given up.
    pub(super) fn join<K>(&mut self, item: &mut Item<'_, K, V>) {
        let were_apart = self.goes_on();
        self.join_behind(item);
        if were_apart && self.has_lost_its_front() {
            item.end_as(Ended::GivenUp);
            item.go_on();
        }
    }

    /// The same, if what the function has taken is done.
    pub(super) fn join_behind<K>(&mut self, item: &mut Item<'_, K, V>) {
        self.change(item, |messages, front| messages.join(front));
    }

    /// Returns whether there is one more message for certain.
    fn has_more(&self) -> bool {
        // If that panics, the next message is asked for.
        let messages = self.0.as_ref();
        messages.is_some_and(|messages| catch_panic(|| messages.have_more()).unwrap_or(false))
    }

    /// Takes it apart again: it did not go back.
    pub(super) fn part<K>(&mut self, item: &mut Item<'_, K, V>) {
        self.change(item, |messages, joined| messages.part(joined));
    }

    /// Returns whether the function has taken its message, before the value was joined.
    pub(super) fn has_lost_its_front(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|messages| messages.had_no_front())
    }

    fn change<K>(
        &mut self,
        item: &mut Item<'_, K, V>,
        change: impl FnOnce(&mut dyn Messages<V>, Option<V>) -> Option<V>,
    ) {
        if let (Some(messages), Some(loaded)) = (&mut self.0, item.loaded()) {
            let before = loaded.take();
            match catch_panic(|| change(&mut **messages, before)) {
                Ok(value) => *loaded = value,
                Err(_) => item.end_as(Ended::GivenUp),
            }
        }
    }
}

impl<V> Drop for Rest<V> {
    fn drop(&mut self) {
        // That of an iterator is user code.
        drop_caught(self.0.take());
    }
}

impl<K, V, E> Workers<'_, K, V, E> {
    /// Tries the messages of a key one by one (W11): for values that are lists, as a `Vec` or a `VecDeque` with
    /// [`merge::append`](crate::merge::append).
    ///
    /// The value of each job is a list of one message, the first of those that wait for the key. When it is done, the function is
    /// called for the next one. So tries are counted for a message. A message that fails goes back in front of the others, and
    /// the key is retried. A message that is given up is reported alone, or kept as a [dead letter](Self::dead_letters), and the
    /// next one is tried immediately. With [`adds_wait_for_retries`](crate::Builder::adds_wait_for_retries) a message that is put
    /// during a back-off does not cut it short.
    ///
    /// `turn` is how many messages of a key are tried in a row, above 0, or for how long, or both; at least one is tried. If some
    /// are left then, they go back in front of those that were put since the delivery, and the key goes to the tail of the queue.
    /// In a queue that is shut down the turn goes on, since the key would be refused. A key whose list is empty is done, and its
    /// failures are forgotten.
    ///
    /// A [receipt](crate::Receipt) ends when all messages that the key had in hand are done or given up: as
    /// [`GivenUp`](crate::Ended::GivenUp) if one of them was given up. A shut-down that drops a retry reports all messages of the
    /// key together. Metrics count the outcome of each message, and a span is that of a message; a delivery, and its
    /// [queue time](super::Job::queue_time), are the key's.
    ///
    /// The list must keep order: its iterator must return the messages in the order in which the list was collected. Functions of
    /// [batches](Self::run_batches) are refused with an error. What a turn leaves of a `Vec` is moved within it, so for lists that are
    /// much longer than a turn use a `VecDeque`, which stays as it is.
    ///
    /// ```
    /// use keyqueue::worker::{DeadLetters, Workers};
    /// use keyqueue::{WorkQueue, merge};
    /// use std::sync::Mutex;
    ///
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("account", vec![1, 2, 3]);
    /// queue.shut_down();
    /// let (done, letters) = (Mutex::new(Vec::new()), DeadLetters::new(10)?);
    /// let workers = Workers::new(&queue).concurrency(1).dead_letters(&letters);
    /// workers.each(100).run(|job| match job.value()[0] {
    ///     2 => job.give_up("it is even"),
    ///     number => Ok(done.lock().unwrap().push(number)),
    /// })?;
    /// assert_eq!(done.into_inner().unwrap(), [1, 3]);
    /// assert_eq!(letters.list()[0].value.as_deref(), Some(&vec![2]));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn each(mut self, turn: impl Into<Turn>) -> Self
    where
        V: IntoIterator<IntoIter: Send + 'static>
            + FromIterator<<V as IntoIterator>::Item>
            + 'static,
    {
        self.inner.each = Some(Each {
            turn: turn.into(),
            apart: |value| {
                let rest = Some(value.into_iter());
                Box::new(List::<V> { rest, front: 0 })
            },
        });
        self
    }
}

/// A turn of a key.
pub(super) struct Begun {
    tried: usize,
    most: usize,
    /// By the queue's clock.
    until: Option<u64>,
}

impl<K, V, E> Loop<'_, K, V, E> {
    /// Checks the setting.
    pub(super) fn check_each(&self) -> Result<(), ConfigError> {
        let Some(each) = &self.each else {
            return Ok(());
        };
        ConfigError::check_range("workers", "each", 1..=usize::MAX, each.turn.messages)
    }

    /// Refuses the setting, for functions of batches.
    pub(super) fn refuse_each(&self) -> Result<(), ConfigError> {
        match self.each {
            None => Ok(()),
            Some(_) => {
                let (rule, set) = ("must not be set for batches", format_args!("set"));
                Err(ConfigError::new("workers", "each", rule, set))
            }
        }
    }
}

impl<K: Key, V: Send + 'static, E: fmt::Display> Loop<'_, K, V, E> {
    /// Takes the value of a key apart, and begins its turn. Returns also whether there is something to try.
    pub(super) fn begin(&self, item: &mut Item<'_, K, V>) -> (Rest<V>, Begun, bool) {
        let (tried, most, until) = (0, 1, None);
        let Some(Each { turn, apart }) = &self.each else {
            return (Rest::none(), Begun { tried, most, until }, true);
        };
        let value = item.take();
        let mut rest = Rest(value.and_then(|value| catch_panic(|| apart(value)).ok()));
        if rest.0.is_none() {
            item.end_as(Ended::GivenUp);
        }
        let until = (turn.time != Duration::MAX).then(|| {
            let now = self.queue.core.timer.clock().nanos();
            now.saturating_add(nanos::saturating(turn.time))
        });
        let most = turn.messages;
        let is_loaded = rest.load(item);
        if !is_loaded {
            // The message that has failed before is gone.
            self.forget_last(item);
            self.forget(item);
        }
        (rest, Begun { tried, most, until }, is_loaded)
    }

    /// Passes from what is done or given up of a key to its next message. Returns false if there is none, or if the turn is over
    /// or the workers are stopped: then the key is added.
    pub(super) fn goes_on(
        &self,
        turn: &mut Begun,
        (item, rest): (&mut Item<'_, K, V>, &mut Rest<V>),
        is_stopped: bool,
    ) -> bool {
        if !rest.pass(item) {
            return false;
        }
        let clock = self.queue.core.timer.clock();
        turn.tried += 1;
        let is_over =
            || turn.tried >= turn.most || turn.until.is_some_and(|until| clock.nanos() >= until);
        if is_stopped || is_over() {
            // If it is not known whether there is a next one, that is in front then.
            if !(rest.has_more() || rest.load(item)) {
                return false;
            }
            rest.join_behind(item);
            // A queue that is shut down refuses the key; then it is left, if the workers are stopped.
            let added = catch_panic(|| match is_stopped {
                true => item.add(),
                false => item.try_add(),
            });
            if is_stopped || added.is_ok_and(Added::is_accepted) {
                return false;
            }
            rest.part(item);
            // It is refused for good.
            (turn.most, turn.until) = (usize::MAX, None);
        }
        rest.load(item)
    }
}
