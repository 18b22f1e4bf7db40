//! Dead letters without the types of their keys and values: what a board reads of them, and does to them.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyqueue::Added;
use keyqueue::worker::{DeadLetters, Reason};

use crate::board::lock;
use crate::rows::{Errors, First, Letter, Letters, Place, Sort, Wanted, by_number, by_text};
use crate::source::{Done, LetterId, Refused, Which};
use crate::text::{self, Format};

/// The letters that are read at once.
const STEP: usize = 256;
/// The letters that something is done to at once, where that waits for a server.
const TOGETHER: usize = 64;

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

    /// Puts back or drops the letters with these numbers, in any order, and returns what came of each.
    fn act(&self, verb: Verb, numbers: &[u64]) -> Vec<Result<(), Refused>>;

    fn len(&self) -> Result<usize, Refused>;

    /// Returns how many letters it can keep. `None`: any number.
    fn capacity(&self) -> Option<usize>;

    /// Returns how many letters it has not kept.
    fn lost(&self) -> u64;
}

/// An action on all letters that match, which goes on when its request has ended.
pub(crate) struct Job {
    pub(crate) verb: Verb,
    pub(crate) search: String,
    /// How many were meant when it began.
    pub(crate) total: usize,
    pub(crate) done: AtomicUsize,
    pub(crate) stop: AtomicBool,
    /// When it ended, and why before its end.
    pub(crate) ended: OnceLock<(Instant, Option<String>)>,
}

/// The last action on all letters of a queue or a fleet.
pub(crate) type LastJob = Mutex<Option<Arc<Job>>>;

impl Job {
    pub(crate) fn is_going_on(&self) -> bool {
        self.ended.get().is_none()
    }
}

/// Ends a job, also if a function of the user panics.
struct Ends<'a>(&'a Job, Option<String>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let _ = self.0.ended.set((Instant::now(), self.1.take()));
    }
}

/// Calls `f` with the letters that match, from a number on, until it returns that it has enough, or the time is over. Returns
/// the number from which on it has not looked.
fn visit(
    store: &dyn LetterStore,
    wanted: &Wanted,
    mut next: Option<u64>,
    step: usize,
    mut f: impl FnMut(Letter) -> bool,
) -> Result<Option<u64>, Refused> {
    let end = Instant::now() + wanted.within;
    let search = &*wanted.search;
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
    let Some(sort) = wanted.sort else {
        letters.next = visit(store, wanted, Some(wanted.from), wanted.max, |letter| {
            rows.push(letter.brief());
            rows.len() >= wanted.max
        })?;
        return Ok(letters);
    };
    let (mut first, mut sorted) = (First::new(wanted.skipped() + wanted.max), 0);
    let left = visit(store, wanted, Some(0), STEP, |letter| {
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
    let age = || letter.last.duration_since(UNIX_EPOCH).unwrap_or_default();
    match sort {
        Sort::Age => by_number(Some(-(age().as_nanos() as i128))),
        Sort::Attempts => by_number(Some(-i128::from(letter.attempts))),
        Sort::Error => by_text(Some(&letter.error)),
        Sort::Due => by_number(None),
    }
}

/// Returns the errors of the letters that match, those of the most letters first, and whether there was no time for all.
pub(crate) fn errors(
    store: &dyn LetterStore,
    wanted: &Wanted,
) -> Result<(Vec<Errors>, bool), Refused> {
    let mut found: HashMap<String, (usize, SystemTime)> = HashMap::new();
    let left = visit(store, wanted, Some(0), STEP, |letter| {
        let (count, last) = found.entry(alike(&letter)).or_insert((0, letter.last));
        (*count, *last) = (*count + 1, letter.last.max(*last));
        found.len() >= ERRORS
    })?;
    let errors = found.into_iter();
    let errors = errors.map(|(error, (count, last))| Errors { error, count, last });
    let mut errors: Vec<_> = errors.collect();
    errors.sort_by(|a, b| (b.count, &a.error).cmp(&(a.count, &b.error)));
    errors.truncate(wanted.max);
    Ok((errors, left.is_some()))
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

/// Counts the letters that match, and returns the number of the newest one: what is asked about is what is meant. After
/// `within` it is of those that were found until then.
pub(crate) fn count(
    store: &dyn LetterStore,
    search: &str,
    within: Duration,
) -> Result<(usize, u64), Refused> {
    let end = Instant::now() + within;
    let (mut count, mut from, mut newest) = (0, 0, 0);
    while Instant::now() < end {
        let page = store.page(from, STEP, text::WHOLE)?;
        let Some(last) = page.last() else { break };
        from = last.id.number.saturating_add(1);
        for letter in page.iter().filter(|letter| letter.matches(search)) {
            (count, newest) = (count + 1, letter.id.number);
        }
    }
    Ok((count, newest))
}

/// Does something to letters: to these, or to all that match.
pub(crate) fn act(
    store: &dyn LetterStore,
    last: &LastJob,
    verb: Verb,
    which: &Which,
) -> Result<Done, Refused> {
    let (search, upto, said) = match which {
        Which::These(ids) => return act_on(store, verb, ids),
        Which::All { search, upto, said } => (search, *upto, *said),
    };
    let left = store.len()?;
    let job = Arc::new(Job {
        verb,
        search: text::cut(search, text::IN_TABLE),
        total: said.unwrap_or(left),
        done: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        ended: OnceLock::new(),
    });
    {
        let mut last = lock(last);
        if last.as_ref().is_some_and(|job| job.is_going_on()) {
            return Err(Refused::Busy);
        }
        *last = Some(Arc::clone(&job));
    }
    let mut ends = Ends(&job, Some("the board has failed".into()));
    let ended = each(store, &job, search, upto, left);
    // Ordering: Relaxed, here and below; counts that nothing else depends on.
    let count = job.done.load(Ordering::Relaxed);
    ends.1 = ended.as_ref().err().map(Refused::to_string);
    match ended {
        Err(refused) if count == 0 => Err(refused),
        ended => Ok(Done {
            count,
            is_partial: ended.is_err(),
            subject: format!("all with {:?}", job.search),
        }),
    }
}

fn act_on(store: &dyn LetterStore, verb: Verb, ids: &[LetterId]) -> Result<Done, Refused> {
    let mut done = Done::default();
    for id in ids {
        let did = one(store, *id).and_then(|letter| {
            store.act(verb, &[id.number]).pop().unwrap_or(Ok(()))?;
            Ok(letter)
        });
        match did {
            Ok(letter) => {
                if done.count > 0 {
                    done.subject.push_str(", ");
                }
                done.subject += &text::cut(&letter.key, text::IN_TABLE);
                done.count += 1;
            }
            Err(refused) if ids.len() == 1 => return Err(refused),
            // Those that somebody else was faster with, or that are refused, stay where they are.
            Err(_) => done.is_partial = true,
        }
    }
    Ok(done)
}

/// Does something to all letters that match, the oldest first, until it is told to stop.
fn each(
    store: &dyn LetterStore,
    job: &Job,
    search: &str,
    upto: u64,
    mut left: usize,
) -> Result<(), Refused> {
    let (mut from, mut refused) = (0, None);
    // Those that come meanwhile, such as a key that fails again, are not meant.
    while left > 0 {
        let page = store.page(from, STEP.min(left), text::WHOLE)?;
        let Some(newest) = page.last() else { break };
        from = newest.id.number.saturating_add(1);
        left -= page.len();
        let meant =
            (page.iter()).filter(|letter| letter.id.number <= upto && letter.matches(search));
        let (mut together, mut keys) = (Vec::new(), HashSet::new());
        for letter in meant {
            // Two letters of a key one after the other, so that the newer one is the last.
            if together.len() == TOGETHER || !keys.insert(&letter.key) {
                refused = act_together(store, job, &mut together)?.or(refused);
                keys.clear();
                keys.insert(&letter.key);
            }
            together.push(letter.id.number);
        }
        refused = act_together(store, job, &mut together)?.or(refused);
        if from > upto {
            break;
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Returns why some of them were left, if some were: a server may be slow to one request. If all were, that is the end.
fn act_together(
    store: &dyn LetterStore,
    job: &Job,
    numbers: &mut Vec<u64>,
) -> Result<Option<Refused>, Refused> {
    if job.stop.load(Ordering::Relaxed) {
        return Err(Refused::Stopped);
    }
    let (mut left, mut refused) = (0, None);
    for did in store.act(job.verb, numbers) {
        match did {
            Ok(()) => _ = job.done.fetch_add(1, Ordering::Relaxed),
            // Another thread has it.
            Err(Refused::NoLetter(_) | Refused::Keyless) => {}
            Err(why) => (left, refused) = (left + 1, Some(why)),
        }
    }
    match (left == numbers.len(), refused) {
        (true, Some(refused)) => Err(refused),
        (_, refused) => {
            numbers.clear();
            Ok(refused)
        }
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
    marks: &RandomState,
) -> Letter {
    let number = letter.id;
    Letter {
        id: LetterId {
            number,
            mark: marks.hash_one(number),
        },
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

    fn act(&self, verb: Verb, numbers: &[u64]) -> Vec<Result<(), Refused>> {
        let act = |id: &u64| match verb {
            Verb::PutBack => accepted(*id, self.letters.put_back(*id)),
            Verb::Drop => (self.letters.remove(*id).map(drop)).ok_or(Refused::NoLetter(*id)),
        };
        numbers.iter().map(act).collect()
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
    use super::*;

    /// A hundred letters on a server that is slow to some requests: to those for numbers from here on.
    struct Slow(u64, Mutex<Vec<u64>>);

    impl LetterStore for Slow {
        fn page(&self, from: u64, max: usize, _: usize) -> Result<Vec<Letter>, Refused> {
            let letter = |number: u64| Letter {
                id: LetterId { number, mark: 0 },
                key: number.to_string(),
                value: None,
                error: String::new(),
                reason: None,
                attempts: 1,
                first: None,
                last: UNIX_EPOCH,
            };
            Ok((from.max(1)..=100).take(max).map(letter).collect())
        }

        fn act(&self, _: Verb, numbers: &[u64]) -> Vec<Result<(), Refused>> {
            let act = |number: &u64| {
                if self.0 == 1 || *number >= self.0 && number.is_multiple_of(2) {
                    return Err(Refused::Server("slow".into()));
                }
                lock(&self.1).push(*number);
                Ok(())
            };
            numbers.iter().map(act).collect()
        }

        fn len(&self) -> Result<usize, Refused> {
            Ok(100)
        }

        fn capacity(&self) -> Option<usize> {
            None
        }

        fn lost(&self) -> u64 {
            0
        }
    }

    #[test] // X5
    fn a_letter_that_a_server_is_slow_to_does_not_end_an_action_on_all_but_a_server_that_is_away_does()
     {
        let (search, upto, said) = (String::new(), u64::MAX, None);
        let all = Which::All { search, upto, said };
        for (slow_from, done) in [(101, 100), (2, 50), (1, 0)] {
            let (store, last) = (Slow(slow_from, Mutex::default()), LastJob::default());
            let did = act(&store, &last, Verb::PutBack, &all);
            assert_eq!(lock(&store.1).len(), done);
            assert_eq!(did.map_or(0, |did| did.count), done);
            let job = lock(&last).clone().unwrap();
            let why = &job.ended.get().unwrap().1;
            assert_eq!(why.as_deref(), (done < 100).then_some("slow"));
        }
    }
}
