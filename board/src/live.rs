//! How a board reads a running queue: in bounded steps, as text.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use keyqueue::{Added, Cursor, KeySnapshot, Listed, State, WorkQueue};

use crate::letters::LetterStore;
use crate::rows::{Census, First, Keys, Place, Row, Sort, Summary, Wanted, by_number, by_text};
use crate::shown::{Shown, has_id, id};
use crate::source::{Done, KeyId, Refused, Source, Task, Totals};
use crate::text;

/// The keys that are looked at before the time is checked.
const STEP: usize = 256;
/// The most keys in hand that are shown.
const IN_HAND: usize = 50;
/// How long the key of an action is looked for, by somebody who may act.
pub(crate) const FIND: Duration = Duration::from_secs(5);

fn name_of(state: State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Queued => "queued",
        State::Processing => "processing",
        State::Dirty => "processing, added again",
        _ => "unknown",
    }
}

impl<K, V, S> Shown<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn row(&self, key: &KeySnapshot<'_, K, V>, at: Cursor, most: usize) -> Row {
        let failure = self.failures.as_ref().and_then(|all| all.of(key));
        let value = self
            .value
            .as_ref()
            .and_then(|format| key.with_value(|waits| Some(text::shown(waits?, &**format, most))));
        Row {
            key: text::shown(key.key(), &*self.key, most),
            id: id(&self.ids, key.key(), &*self.key),
            at: at.to_bits(),
            state: name_of(key.state()),
            level: key.level(),
            age: key.age(),
            held: key.held(),
            due_in: key.due_in(),
            requeues: key.requeues(),
            attempt: failure.as_ref().map(|failure| failure.attempt),
            error: failure.map(|failure| text::cut(&failure.error, most)),
            value,
        }
    }

    /// Returns where a key is in a sorted list.
    fn place(&self, key: &KeySnapshot<'_, K, V>, sort: Sort) -> Place {
        // Keys are seen one after the other, so their ages are not exact.
        let millis = |time: Option<Duration>| Some(time?.as_millis() as i128);
        let failure = || self.failures.as_ref().and_then(|all| all.of(key));
        match sort {
            Sort::Age => by_number(millis(key.held().or(key.age())).map(|age| -age)),
            Sort::Due => by_number(millis(key.due_in())),
            Sort::Attempts => {
                let attempts = failure().map_or(key.requeues(), |failure| failure.attempt);
                by_number(Some(-i128::from(attempts)))
            }
            Sort::Error => by_text(failure().as_ref().map(|failure| &*failure.error)),
        }
    }

    /// Calls `f` with a key, if the queue has it.
    fn with_key<R>(
        &self,
        queue: &WorkQueue<K, V, S>,
        wanted: &KeyId,
        within: Duration,
        f: impl FnOnce(&KeySnapshot<'_, K, V>, Cursor) -> R,
    ) -> Option<R> {
        let is_wanted =
            |key: &&KeySnapshot<'_, K, V>| has_id(&self.ids, key.key(), &*self.key, &wanted.id);
        let at = Cursor::from_bits(wanted.at);
        // It was seen on a page of one of these lists that begins there.
        for listed in [
            Listed::All,
            Listed::Queued,
            Listed::Processing,
            Listed::Delayed,
        ] {
            let hint = queue.page(at, listed, 4 * STEP);
            if let Some(key) = hint.keys.iter().find(is_wanted) {
                return Some(f(key, at));
            }
        }
        let end = Instant::now() + within;
        let mut next = Some(Cursor::default());
        while let Some(from) = next
            && Instant::now() < end
        {
            let page = queue.page(from, Listed::All, STEP);
            if let Some(key) = page.keys.iter().find(is_wanted) {
                return Some(f(key, from));
            }
            next = page.next;
        }
        None
    }
}

impl<K, V, S> Source for Shown<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn summary(&self) -> Option<Summary> {
        let queue = self.queue.upgrade()?;
        let paused = queue.paused();
        Some(Summary {
            name: String::new(),
            queued: queue.len(),
            state: if queue.is_shutting_down() && queue.is_empty() {
                Summary::SHUT_DOWN
            } else if queue.is_shutting_down() {
                Summary::DRAINING
            } else if paused == Some(true) {
                Summary::PAUSED
            } else {
                Summary::OPEN
            },
            pausable: paused.is_some(),
            paused: paused == Some(true),
            dead_letters: (self.letters.as_ref()).and_then(|letters| letters.len().ok()),
        })
    }

    fn totals(&self) -> Option<Totals> {
        #[cfg(feature = "metrics")]
        {
            let totals = self.queue.upgrade()?.totals()?;
            Some(Totals {
                delivered: totals.delivered,
                ended: totals.ended,
                failed: totals.failed,
                queue_time: totals.queue_time,
                work_time: totals.work_time,
            })
        }
        #[cfg(not(feature = "metrics"))]
        None
    }

    fn census(&self, within: Duration) -> Option<Census> {
        let queue = self.queue.upgrade()?;
        let began = Instant::now();
        let mut census = Census {
            at: Some(SystemTime::now()),
            ..Census::default()
        };
        let mut in_hand = First::new(IN_HAND);
        let mut next = Some(Cursor::default());
        while let Some(from) = next {
            if began.elapsed() >= within {
                census.is_partial = true;
                break;
            }
            let page = queue.page(from, Listed::Processing, STEP);
            census.queued += page.counts.queued;
            census.processing += page.counts.processing;
            census.delayed += page.counts.delayed;
            census.levels.resize(page.counts.by_level.len(), 0);
            for (all, more) in census.levels.iter_mut().zip(&page.counts.by_level) {
                *all += more;
            }
            for key in page.keys {
                in_hand.push(Reverse(key.held()), (key, from));
            }
            next = page.next;
        }
        let rows = in_hand.into_iter();
        let rows = rows.map(|(key, at)| self.row(&key, at, text::IN_TABLE));
        census.in_hand = rows.collect();
        if let Some(groups) = self.groups.as_ref().filter(|_| !census.is_partial) {
            (census.groups, census.group_count) = groups.list(&queue);
        }
        census.took = began.elapsed();
        Some(census)
    }

    fn keys(&self, wanted: &Wanted) -> Option<Keys> {
        let queue = self.queue.upgrade()?;
        let end = Instant::now() + wanted.within;
        let (mut keys, mut sorted) = (Keys::default(), 0);
        let mut first = First::new(wanted.skipped() + wanted.max);
        let mut next = Some(match wanted.sort {
            Some(_) => Cursor::default(),
            None => Cursor::from_bits(wanted.from),
        });
        let is_search = !wanted.search.is_empty();
        while let Some(from) = next
            && keys.rows.len() < wanted.max
            && Instant::now() < end
        {
            let max = match wanted.sort.is_some() || is_search {
                true => STEP,
                false => wanted.max - keys.rows.len(),
            };
            let page = queue.page(from, wanted.listed, max);
            keys.looked += page.counts.queued + page.counts.processing + page.counts.delayed;
            for key in page.keys {
                let text = || text::shown(key.key(), &*self.key, text::WHOLE);
                if is_search && !text::finds(&wanted.search, &text()) {
                    continue;
                }
                match wanted.sort {
                    None => keys.rows.push(self.row(&key, from, text::IN_TABLE)),
                    Some(sort) => {
                        sorted += 1;
                        first.push(self.place(&key, sort), (key, from));
                    }
                }
            }
            next = page.next;
        }
        keys.next = next.map(Cursor::to_bits);
        if wanted.sort.is_some() {
            keys.is_partial = keys.next.is_some();
            keys.next = wanted.next(sorted);
            let rows = first.into_iter().skip(wanted.skipped());
            keys.rows = rows
                .map(|(key, at)| self.row(&key, at, text::IN_TABLE))
                .collect();
        }
        Some(keys)
    }

    fn key(&self, key: &KeyId, within: Duration) -> Option<Row> {
        let queue = self.queue.upgrade()?;
        self.with_key(&queue, key, within, |key, at| {
            self.row(key, at, text::LINES)
        })
    }

    fn letter_store(&self) -> Option<&dyn LetterStore> {
        self.letters.as_deref()
    }

    fn act(&self, task: &Task) -> Result<Done, Refused> {
        let queue = self.queue.upgrade().ok_or(Refused::Gone)?;
        match task {
            // The place does that.
            Task::Letters(..) | Task::StopLetters(_) => Err(Refused::NoLetters),
            Task::RunNow(key) => {
                if queue.is_shutting_down() {
                    return Err(Refused::ShutDown);
                }
                let added = self.with_key(&queue, key, FIND, |key, _| {
                    let added = queue.run_now(key.key());
                    (text::shown(key.key(), &*self.key, text::IN_TABLE), added)
                });
                match added.ok_or(Refused::NoKey)? {
                    (_, None) => Err(Refused::NotDelayed),
                    (_, Some(Added::ShutDown)) => Err(Refused::ShutDown),
                    (subject, Some(_)) => Ok(Done::one(subject)),
                }
            }
            Task::DropKey(key) => {
                let dropped = self.with_key(&queue, key, FIND, |key, _| {
                    let cancelled = queue.cancel(key.key());
                    let taken = self.value.is_some() && queue.remove(key.key()).is_some();
                    (taken || cancelled).then(|| text::shown(key.key(), &*self.key, text::IN_TABLE))
                });
                let dropped = dropped.ok_or(Refused::NoKey)?;
                dropped.map(Done::one).ok_or(Refused::NothingToDrop)
            }
            Task::Hold(id, hold) => {
                let groups = self.groups.as_ref();
                let held = groups.and_then(|groups| groups.hold(&queue, id, *hold));
                held.map(Done::one).ok_or(Refused::NoGroup)
            }
            Task::Pause => {
                let paused = queue.pause();
                let refused = paused.map_err(|error| Refused::NotPausable(error.to_string()));
                refused.map(|()| Done::one(String::new()))
            }
            Task::Resume => {
                queue.resume();
                Ok(Done::one(String::new()))
            }
            Task::Drain => {
                // One that is shut down is draining, or has ended.
                if !queue.is_shutting_down() {
                    let thread = thread::Builder::new().name("board drain".into());
                    let drain = thread.spawn(move || queue.shut_down_with_drain());
                    drain.map_err(|error| Refused::NoThread(error.to_string()))?;
                }
                Ok(Done::one(String::new()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use servers::until;

    use super::*;

    #[test] // X4
    fn a_look_that_is_out_of_time_says_that_it_is_not_of_all_keys() {
        let queue = Arc::new(WorkQueue::from_iter(0..1000));
        let shown = Shown::display(&queue);
        let none = shown.census(Duration::ZERO).unwrap();
        assert!(none.is_partial && none.queued == 0);
        // A place from before the table has grown, of a key that is there, and a key that is not.
        let id = id(&shown.ids, &7, &*shown.key);
        let moved = KeyId { id, at: u64::MAX };
        assert!(shown.key(&moved, FIND).is_some() && shown.key(&moved, Duration::ZERO).is_none());
        let all = shown.census(FIND).unwrap();
        assert!(!all.is_partial && all.queued == 1000);
        drop(queue);
        assert!(shown.census(FIND).is_none());
    }

    #[test] // X5
    fn a_key_is_found_where_a_list_of_few_of_many_keys_has_it() {
        let queue = Arc::new(WorkQueue::from_iter(0..20_000));
        let held: Vec<_> = (0..20).map(|_| queue.try_get().unwrap()).collect();
        for key in (20_000..40_000).step_by(1000) {
            queue.add_after(key, FIND * 100);
        }
        let delayed = Arc::new(WorkQueue::from_iter(0..20));
        for key in 20..20_000 {
            delayed.add_after(key, FIND * 100);
        }
        for (listed, queue) in [
            (Listed::Processing, &queue),
            (Listed::Delayed, &queue),
            (Listed::Queued, &delayed),
        ] {
            let shown = Shown::display(queue);
            let wanted = Wanted {
                listed,
                max: 50,
                within: FIND,
                search: String::new(),
                sort: None,
                from: 0,
            };
            let rows = shown.keys(&wanted).unwrap().rows;
            assert_eq!(rows.len(), 20);
            for row in rows {
                let id = KeyId {
                    id: row.id,
                    at: row.at,
                };
                assert!(shown.key(&id, Duration::ZERO).is_some(), "{}", row.key);
            }
        }
        drop(held);
    }

    /// All keys of a tenant have the same hash, as have all groups.
    #[derive(Clone, PartialEq, Eq)]
    struct Coarse(u32);

    impl Hash for Coarse {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }

    #[test] // X5
    fn an_action_is_of_the_key_or_the_group_that_was_shown_whatever_its_hash_is() {
        let builder = WorkQueue::builder().group_by(Coarse::clone);
        let queue = Arc::new(builder.build().unwrap());
        for key in 0..20 {
            queue.add_after(Coarse(key), FIND * 100);
        }
        let write = |key: &Coarse, f: &mut std::fmt::Formatter<'_>| write!(f, "key {}", key.0);
        let shown = Shown::new(&queue, write).groups(write);
        let wanted = Wanted {
            listed: Listed::Delayed,
            max: 50,
            within: FIND,
            search: String::new(),
            sort: None,
            from: 0,
        };
        for row in shown.keys(&wanted).unwrap().rows {
            let (id, at) = (row.id, row.at);
            let done = shown.act(&Task::RunNow(KeyId { id, at })).unwrap();
            assert_eq!(done.subject, row.key);
        }
        let groups = shown.groups.as_ref().unwrap().list(&queue).0;
        assert_eq!(groups.len(), 20);
        for group in groups {
            let done = shown.act(&Task::Hold(group.id, FIND)).unwrap();
            assert_eq!(done.subject, group.name);
        }
        assert_eq!(queue.len(), 20);
    }

    #[tokio::test] // X5 S1
    async fn a_drain_is_begun_once_and_goes_on_to_its_end() {
        let queue = Arc::new(WorkQueue::builder().drain_delays(true).build().unwrap());
        let shown = Shown::display(&queue);
        queue.add(1);
        shown.act(&Task::Drain).unwrap();
        queue.closed().await;
        shown.act(&Task::Drain).unwrap();
        // Only the first one has it.
        assert_eq!(Arc::strong_count(&queue), 2);
        drop(queue);
        let still = shown.queue.upgrade().unwrap();
        assert_eq!(still.try_get().unwrap().retry(), Added::Deferred);
        drop(still.try_get().unwrap());
        drop(still);
        let gone = async || shown.queue.strong_count() == 0;
        until("it has ended", gone).await;
    }
}
