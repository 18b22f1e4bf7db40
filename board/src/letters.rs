//! Dead letters without the types of their keys and values: what a board reads of them, and does to them.

use std::any::TypeId;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use keyqueue::Added;
use keyqueue::worker::{DeadLetters, Reason};

use crate::rows::{Errors, First, Letter, Letters, Place, Sort, Wanted, by_number, by_text};
use crate::source::{Done, LetterId, Refused, Upto};
use crate::text::{self, Format};

/// The letters that something is done to at once, where that waits for a server.
pub(crate) const TOGETHER: usize = 64;

/// The most different errors of letters.
const ERRORS: usize = 10_000;

/// What can be done to a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    PutBack,
    Drop,
}

/// A store of dead letters, in this process or on the server of a fleet.
pub(crate) trait LetterStore: Send + Sync {
    /// Returns at most `max` letters from this number on, each text of at most `most` bytes.
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused>;

    /// Puts back or drops these letters, in any order, and returns what came of each. One that has changed is another one.
    fn act(&self, verb: Verb, ids: &[LetterId]) -> Vec<Result<(), Refused>>;

    fn len(&self) -> Result<usize, Refused>;

    /// Returns whether a letter has a key, and so a place in the order of those with the same one.
    fn has_key(&self, _: &Letter) -> bool {
        true
    }

    /// Returns how many letters are read at once where all are looked at.
    fn step(&self) -> usize {
        256
    }

    /// Returns how many letters it can keep. `None`: any number.
    fn capacity(&self) -> Option<usize> {
        None
    }

    /// Returns how many letters it has not kept.
    fn lost(&self) -> u64 {
        0
    }
}

/// Calls `f` with the letters that match, from a number on, until it returns that it has enough, or the time is over. Returns
/// the number from which on it has not looked.
fn visit(
    store: &dyn LetterStore,
    search: &str,
    within: Duration,
    from: u64,
    step: usize,
    mut f: impl FnMut(Letter) -> bool,
) -> Result<Option<u64>, Refused> {
    let (end, mut next) = (Instant::now() + within, Some(from));
    while let Some(from) = next
        && Instant::now() < end
    {
        let page = store.page(from, step, text::WHOLE)?;
        let last = page.last().filter(|_| page.len() == step);
        next = last.and_then(|letter| letter.id.number.checked_add(1));
        let is_meant = |letter: &Letter| search.is_empty() || letter.matches(search);
        if page
            .into_iter()
            .filter(is_meant)
            .fold(false, |_, letter| f(letter))
        {
            break;
        }
    }
    Ok(next)
}

/// Returns a page of the letters that match.
pub(crate) fn page(store: &dyn LetterStore, wanted: &Wanted) -> Result<Letters, Refused> {
    let mut letters = Letters {
        len: store.len()?,
        capacity: store.capacity(),
        lost: store.lost(),
        ..Letters::default()
    };
    let rows = &mut letters.rows;
    let (search, within, max) = (&*wanted.search, wanted.within, wanted.max);
    let Some(sort) = wanted.sort else {
        letters.next = visit(store, search, within, wanted.from, max, |letter| {
            rows.push(letter.brief());
            rows.len() >= max
        })?;
        return Ok(letters);
    };
    let (mut first, mut sorted) = (First::new(wanted.skipped() + max), 0);
    let left = visit(store, search, within, 0, store.step(), |letter| {
        sorted += 1;
        first.push(place(&letter, sort), letter.brief());
        false
    })?;
    rows.extend(first.into_iter().skip(wanted.skipped()));
    letters.is_partial = left.is_some();
    letters.next = wanted.next(sorted);
    Ok(letters)
}

/// Returns where a letter is in a sorted list.
fn place(letter: &Letter, sort: Sort) -> Place {
    match sort {
        Sort::Age => by_number(Some(-i128::from(letter.nanos()))),
        Sort::Attempts => by_number(Some(-i128::from(letter.attempts))),
        Sort::Error => by_text(Some(&letter.error)),
        Sort::Due => by_number(None),
    }
}

/// Returns the first errors of the letters that match, those of the most letters first, how many there are, and whether there was no
/// time for all.
pub(crate) fn errors(
    store: &dyn LetterStore,
    wanted: &Wanted,
) -> Result<(Vec<Errors>, usize, bool), Refused> {
    let mut found: HashMap<String, (usize, SystemTime)> = HashMap::new();
    let (search, within) = (&*wanted.search, wanted.within);
    let left = visit(store, search, within, 0, store.step(), |letter| {
        let (count, last) = found.entry(alike(&letter)).or_insert((0, letter.last));
        (*count, *last) = (*count + 1, letter.last.max(*last));
        found.len() >= ERRORS
    })?;
    let errors = found.into_iter();
    let errors = errors.map(|(error, (count, last))| Errors { error, count, last });
    let mut errors: Vec<_> = errors.collect();
    errors.sort_by(|a, b| (b.count, &a.error).cmp(&(a.count, &b.error)));
    let count = errors.len();
    errors.truncate(wanted.max);
    Ok((errors, count, left.is_some()))
}

/// Returns the first line of an error, with `…` for the key of the letter and for numbers.
fn alike(letter: &Letter) -> String {
    let line = letter.error.split("\\n").next().unwrap_or_default();
    let line = match letter.key.len() {
        // A short one may be anywhere.
        0..4 => line.to_owned(),
        _ => line.replace(&letter.key, "…"),
    };
    let is_digit = |char: char| char.is_ascii_digit();
    let mut alike = String::new();
    for part in line.split_inclusive(is_digit) {
        alike.push_str(part.trim_end_matches(is_digit));
        if part.ends_with(is_digit) && !alike.ends_with('…') {
            alike.push('…');
        }
    }
    text::cut(&alike, text::IN_TABLE)
}

/// Returns a letter with all of its text.
pub(crate) fn one(store: &dyn LetterStore, id: LetterId) -> Result<Letter, Refused> {
    let found = store.page(id.number, 1, text::LINES)?.pop();
    match found.filter(|letter| letter.id.number == id.number) {
        None => Err(Refused::NoLetter(id.number)),
        Some(letter) if letter.id != id => Err(Refused::OtherLetter(id.number)),
        Some(letter) => Ok(letter),
    }
}

/// Returns how many letters match, with their highest number and latest time: what is asked about is what is meant. After `within` it
/// is of those that were found until then, and returns `true` as well.
pub(crate) fn count(
    store: &dyn LetterStore,
    search: &str,
    within: Duration,
) -> Result<(usize, Upto, bool), Refused> {
    let (mut count, mut upto) = (0, (0, 0));
    let left = visit(store, search, within, 0, store.step(), |letter| {
        count += 1;
        upto = (letter.id.number, letter.nanos().max(upto.1));
        false
    })?;
    Ok((count, upto, left.is_some()))
}

/// Returns the runs of letters that something is done to together. Two letters of a key are in different ones, so that the newer
/// one is the last.
pub(crate) fn runs<'l>(store: &dyn LetterStore, letters: &'l [Letter]) -> Vec<&'l [Letter]> {
    let (mut runs, mut first, mut keys) = (Vec::new(), 0, HashSet::new());
    for (at, letter) in letters.iter().enumerate() {
        if at - first == TOGETHER || keys.contains(&letter.key) {
            runs.push(&letters[first..at]);
            first = at;
            keys.clear();
        }
        if store.has_key(letter) {
            keys.insert(&letter.key);
        }
    }
    if first < letters.len() {
        runs.push(&letters[first..]);
    }
    runs
}

pub(crate) fn act_on(
    store: &dyn LetterStore,
    verb: Verb,
    ids: &[LetterId],
) -> Result<Done, Refused> {
    let (mut done, mut left, mut meant) = (Done::default(), None, Vec::new());
    // Those that somebody else was faster with, or that are refused, stay where they are.
    for id in ids {
        match one(store, *id) {
            Ok(letter) => meant.push(letter),
            Err(refused) => left = Some(refused),
        }
    }
    meant.sort_by_key(|letter| letter.id.number);
    for run in runs(store, &meant) {
        let ids: Vec<_> = run.iter().map(|letter| letter.id).collect();
        for (letter, did) in run.iter().zip(store.act(verb, &ids)) {
            if let Err(refused) = did {
                left = worse(left, Some(refused));
                continue;
            }
            if done.count > 0 {
                done.subject.push_str(", ");
            }
            done.subject += &text::cut(&letter.key, text::IN_TABLE);
            done.count += 1;
        }
    }
    done.is_partial = left.is_some();
    match left {
        Some(refused) if done.count == 0 => Err(refused),
        why => Ok(Done { why, ..done }),
    }
}

/// Returns which of two refusals is told: what is perhaps done rather than what is not, and the later one of the same kind.
pub(crate) fn worse(before: Option<Refused>, now: Option<Refused>) -> Option<Refused> {
    let is_perhaps = |why: &Option<Refused>| matches!(why, Some(Refused::Perhaps(_)));
    match is_perhaps(&before) && !is_perhaps(&now) {
        true => before,
        false => now.or(before),
    }
}

/// The letters of a queue's workers.
pub(crate) struct Kept<K, V> {
    pub(crate) letters: DeadLetters<K, V>,
    pub(crate) key: Arc<Format<K>>,
    /// `None`: values are not shown.
    pub(crate) value: Option<Arc<Format<V>>>,
    /// Makes the marks of letters.
    pub(crate) marks: RandomState,
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

fn id_of<K, V>(letter: &keyqueue::worker::Letter<K, V>, marks: &RandomState) -> LetterId {
    let number = letter.id;
    LetterId {
        number,
        // Each time that its key is given up again adds tries.
        mark: marks.hash_one((number, letter.attempts)),
    }
}

fn row<K, V>(
    letter: &keyqueue::worker::Letter<K, V>,
    key: &Format<K>,
    value: Option<String>,
    most: usize,
    marks: &RandomState,
) -> Letter {
    Letter {
        id: id_of(letter, marks),
        key: text::shown(letter.key.key(), key, most),
        value,
        error: text::cut(&letter.error, most),
        reason: Some(why(letter.reason)),
        attempts: letter.attempts,
        first: Some(letter.first),
        last: letter.last,
    }
}

impl<K, V> LetterStore for Kept<K, V>
where
    K: Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused> {
        let letters = self.letters.page(from, max);
        let rows = letters.iter().map(|letter| {
            let value = letter.value.as_deref().zip(self.value.as_ref());
            let value = value.map(|(value, format)| text::shown(value, &**format, most));
            row(letter, &*self.key, value, most, &self.marks)
        });
        Ok(rows.collect())
    }

    fn act(&self, verb: Verb, ids: &[LetterId]) -> Vec<Result<(), Refused>> {
        let act = |id: &LetterId| {
            let number = id.number;
            let look = || {
                let letter = self.letters.page(number, 1).pop();
                let letter = letter.filter(|letter| letter.id == number);
                let letter = letter.ok_or(Refused::NoLetter(number))?;
                if id_of(&letter, &self.marks) != *id {
                    return Err(Refused::OtherLetter(number));
                }
                Ok(letter)
            };
            let letter = look()?;
            match verb {
                Verb::PutBack => match self.letters.put_back(number) {
                    Some(Added::ShutDown) => Err(Refused::ShutDown),
                    Some(_) => Ok(()),
                    None => match look()?.value {
                        None if TypeId::of::<V>() != TypeId::of::<()>() => Err(Refused::NoValue),
                        _ => Err(Refused::NoLetter(number)),
                    },
                },
                // What its key is given up with from here on stays.
                Verb::Drop => (self.letters.remove_unchanged(&letter).map(drop))
                    // One that is as it was is handled by another thread.
                    .ok_or_else(|| look().err().unwrap_or(Refused::NoLetter(number))),
            }
        };
        ids.iter().map(act).collect()
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

#[cfg(test)]
mod tests {
    use keyqueue::WorkQueue;
    use keyqueue::worker::{Job, Verdict, Workers};

    use super::*;

    #[test] // X5
    fn a_letter_whose_value_its_worker_has_taken_says_so_and_can_be_dropped() {
        let queue = WorkQueue::builder().merge(keyqueue::merge::latest);
        let queue: WorkQueue<&str, u32> = queue.build().unwrap();
        let letters = DeadLetters::new(1).unwrap();
        queue.put("a", 1);
        queue.shut_down();
        let workers = Workers::new(&queue).concurrency(1).dead_letters(&letters);
        let run = workers.run(|mut job| {
            assert_eq!(job.take(), Some(1));
            Verdict::GiveUp("no route")
        });
        run.unwrap();
        let kept = Kept {
            letters,
            key: Arc::new(|key: &&str, f: &mut std::fmt::Formatter<'_>| f.write_str(key)),
            value: None,
            marks: RandomState::new(),
        };
        let id = kept.page(0, 1, text::WHOLE).unwrap()[0].id;
        assert_eq!(kept.act(Verb::PutBack, &[id]), [Err(Refused::NoValue)]);
        assert_eq!(kept.act(Verb::Drop, &[id]), [Ok(())]);
    }

    #[test] // X5
    fn a_letter_that_changes_after_the_look_at_it_stays() {
        let (queue, letters) = (WorkQueue::new(), DeadLetters::new(1).unwrap());
        let workers = Workers::new(&queue).concurrency(1).dead_letters(&letters);
        let fails = |_: Job<'_, &str>| Verdict::GiveUp("no route");
        let running = workers.spawn(fails).unwrap();
        let kept = Kept {
            letters: letters.clone(),
            key: Arc::new(|key: &&str, f: &mut std::fmt::Formatter<'_>| f.write_str(key)),
            value: None,
            marks: RandomState::new(),
        };
        let given_up = |attempts| {
            queue.add("a");
            loop {
                let page = kept.page(0, 1, text::WHOLE).unwrap();
                if let Some(letter) = page.first().filter(|letter| letter.attempts == attempts) {
                    return letter.id;
                }
                std::thread::yield_now();
            }
        };
        let (seen, now) = (given_up(1), given_up(2));
        for verb in [Verb::Drop, Verb::PutBack] {
            assert_eq!(kept.act(verb, &[seen]), [Err(Refused::OtherLetter(0))]);
        }
        assert_eq!(kept.act(Verb::Drop, &[now]), [Ok(())]);
        assert_eq!(kept.act(Verb::Drop, &[now]), [Err(Refused::NoLetter(0))]);
        queue.shut_down();
        running.join();
    }
}
