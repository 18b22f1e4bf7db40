//! An action on all dead letters that match, which goes on when its request has ended.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::board::lock;
use crate::letters::{LetterStore, Verb, act_on, runs, worse};
use crate::rows::Letter;
use crate::source::{Done, Refused, Upto, Which};
use crate::text;

/// An action on all letters that match, which goes on when its request has ended.
pub(crate) struct Job {
    /// Names it in the form that stops it, so that no other one is stopped.
    pub(crate) number: u64,
    pub(crate) verb: Verb,
    pub(crate) search: String,
    /// How many were meant when it began, or at most were if no question has counted them; 0 until the store has told that.
    pub(crate) total: AtomicUsize,
    pub(crate) done: AtomicUsize,
    stop: AtomicBool,
    /// When it ended, and why before its end.
    pub(crate) ended: OnceLock<(Instant, Option<String>)>,
}

/// The last action on all letters of a queue or a fleet.
#[derive(Default)]
pub(crate) struct Last {
    pub(crate) job: Option<Arc<Job>>,
    /// None begins any more.
    is_closed: bool,
}

pub(crate) type LastJob = Mutex<Last>;

impl Job {
    pub(crate) fn is_going_on(&self) -> bool {
        self.ended.get().is_none()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let ended = self.ended.get();
        // Ordering: Relaxed; counts that nothing else depends on.
        serde_json::json!({
            "search": self.search,
            "count": self.done.load(Ordering::Relaxed),
            "total": self.total.load(Ordering::Relaxed),
            "ended": ended.is_some(),
            "why": ended.and_then(|(_, why)| why.as_ref()),
        })
    }
}

/// Ends a job, also if a function of the user panics.
struct Ends<'a>(&'a Job, Option<String>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let _ = self.0.ended.set((Instant::now(), self.1.take()));
    }
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
    let job = Arc::new(Job {
        // Replicas and later processes have others: a random one.
        number: RandomState::new().hash_one(0),
        verb,
        search: text::cut(search, text::IN_TABLE),
        total: AtomicUsize::new(said.unwrap_or(0)),
        done: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        ended: OnceLock::new(),
    });
    {
        let mut last = lock(last);
        if last.is_closed {
            return Err(Refused::Stopped);
        }
        if last.job.as_ref().is_some_and(|job| job.is_going_on()) {
            return Err(Refused::Busy);
        }
        last.job = Some(Arc::clone(&job));
    }
    let mut ends = Ends(&job, Some("the board has failed".into()));
    // Ordering: Relaxed, here and below; counts that nothing else depends on.
    let ended = store.len().and_then(|left| {
        if said.is_none() {
            // No more than that.
            job.total.store(left, Ordering::Relaxed);
        }
        each(store, &job, search, upto, left)
    });
    let count = job.done.load(Ordering::Relaxed);
    if ended.is_ok() && said.is_none() {
        job.total.store(count, Ordering::Relaxed);
    }
    ends.1 = ended.as_ref().err().map(Refused::to_string);
    match ended {
        Err(refused) if count == 0 => Err(refused),
        ended => Ok(Done {
            count,
            is_partial: ended.is_err(),
            why: ended.err(),
            subject: format!("all with {:?}", job.search),
        }),
    }
}

/// Ends the action with this number before its end.
pub(crate) fn stop(last: &LastJob, number: u64) -> Result<Done, Refused> {
    let last = lock(last);
    let meant = last.job.as_ref().filter(|job| job.number == number);
    let job = (meant.filter(|job| job.is_going_on())).ok_or(Refused::HasEnded)?;
    // Ordering: Relaxed; the thread that reads it writes nothing for this one.
    job.stop.store(true, Ordering::Relaxed);
    Ok(Done {
        is_partial: true,
        subject: format!("the action on all with {:?}", job.search),
        ..Done::default()
    })
}

/// Ends the action that goes on, and lets no other one begin.
pub(crate) fn close(last: &LastJob) {
    let mut last = lock(last);
    last.is_closed = true;
    if let Some(job) = &last.job {
        // Ordering: Relaxed, as in `stop`.
        job.stop.store(true, Ordering::Relaxed);
    }
}

/// Does something to all letters that match, the oldest first, until it is told to stop.
fn each(
    store: &dyn LetterStore,
    job: &Job,
    search: &str,
    upto: Upto,
    mut left: usize,
) -> Result<(), Refused> {
    let (mut from, mut refused) = (0, None);
    let mut all = || {
        // Those that come meanwhile, such as a key that fails again, are not meant.
        while left > 0 {
            let mut page = store.page(from, store.step().min(left), text::WHOLE)?;
            let Some(newest) = page.last() else { break };
            from = newest.id.number.saturating_add(1);
            left -= page.len();
            let is_upto = |letter: &Letter| letter.id.number <= upto.0 && letter.nanos() <= upto.1;
            page.retain(|letter| is_upto(letter) && letter.matches(search));
            for run in runs(store, &page) {
                let now = act_together(store, job, run)?;
                refused = worse(refused.take(), now);
            }
            if from > upto.0 {
                break;
            }
        }
        Ok(())
    };
    let ended = all();
    worse(refused, ended.err()).map_or(Ok(()), Err)
}

/// Returns why some of them were left, if some were: a server may be slow to one request. If all were, and none can be read, that is the
/// end.
fn act_together(
    store: &dyn LetterStore,
    job: &Job,
    run: &[Letter],
) -> Result<Option<Refused>, Refused> {
    if job.stop.load(Ordering::Relaxed) {
        return Err(Refused::Stopped);
    }
    let ids: Vec<_> = run.iter().map(|letter| letter.id).collect();
    let (mut left, mut refused) = (0, None);
    for did in store.act(job.verb, &ids) {
        match did {
            Ok(()) => _ = job.done.fetch_add(1, Ordering::Relaxed),
            // Another thread has it, or its key was given up again.
            Err(Refused::NoLetter(_) | Refused::OtherLetter(_)) => {}
            Err(why) => {
                left += usize::from(!matches!(why, Refused::Keyless | Refused::NoValue));
                refused = worse(refused, Some(why));
            }
        }
    }
    match (left == ids.len(), refused) {
        (true, Some(refused)) if store.page(0, 1, 0).is_err() => Err(refused),
        (_, refused) => Ok(refused),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::pages::said;
    use crate::policy::Action;
    use crate::source::LetterId;

    /// A hundred letters on a server that is slow to some requests: to those for numbers from here on; 0: to the first; 1: it is away
    /// from the first on; 2: it is away from the second page on; `u64::MAX`: it does not count them. It has a list of what was done for each request.
    struct Slow(u64, Mutex<Vec<Vec<u64>>>);

    impl LetterStore for Slow {
        fn page(&self, from: u64, max: usize, _: usize) -> Result<Vec<Letter>, Refused> {
            assert!(max <= self.step(), "{max}");
            if self.0 <= 2 && self.0 > 0 && !lock(&self.1).is_empty() {
                return Err(Refused::Server("away".into()));
            }
            let letter = |number: u64| Letter {
                id: LetterId { number, mark: 0 },
                key: (number % 70).to_string(),
                value: None,
                error: String::new(),
                reason: None,
                attempts: 1,
                first: None,
                last: UNIX_EPOCH,
            };
            Ok((from.max(1)..=100).take(max).map(letter).collect())
        }

        fn act(&self, _: Verb, ids: &[LetterId]) -> Vec<Result<(), Refused>> {
            let mut done = Vec::new();
            let act = |id: &LetterId| {
                let is_slow = match self.0 {
                    0 => id.number <= 30,
                    1 => true,
                    from => id.number >= from && id.number.is_multiple_of(2),
                };
                if is_slow {
                    return Err(Refused::Perhaps("slow".into()));
                }
                done.push(id.number);
                Ok(())
            };
            let came = ids.iter().map(act).collect();
            lock(&self.1).push(done);
            came
        }

        fn has_key(&self, letter: &Letter) -> bool {
            letter.key != "3"
        }

        fn step(&self) -> usize {
            30
        }

        fn len(&self) -> Result<usize, Refused> {
            match self.0 {
                u64::MAX => Err(Refused::Server("away".into())),
                _ => Ok(100),
            }
        }
    }

    #[test] // X5
    fn a_letter_that_a_server_is_slow_to_does_not_end_an_action_on_all_but_a_server_that_is_away_does()
     {
        let all = Which::All {
            search: String::new(),
            upto: (u64::MAX, u64::MAX),
            said: None,
        };
        for (slow_from, done) in [(101, 100), (2, 15), (0, 70), (1, 0), (u64::MAX, 0)] {
            let (store, last) = (Slow(slow_from, Mutex::default()), LastJob::default());
            let did = act(&store, &last, Verb::PutBack, &all);
            assert_eq!(lock(&store.1).concat().len(), done);
            assert_eq!(lock(&store.1).len() == 1, matches!(slow_from, 1 | 2));
            let told = did.as_ref().map(|did| said(Action::PutBack, did));
            let why = match slow_from {
                101 => None,
                u64::MAX => Some("away"),
                _ => Some("perhaps done: slow"),
            };
            let told_is = match why {
                None => Ok("100 put back into the queue.".into()),
                Some(why) if done > 0 => Ok(format!(
                    "Not all: {done} put back into the queue. The rest: {why}."
                )),
                Some(_) => Err(did.as_ref().err().unwrap()),
            };
            assert_eq!(told, told_is);
            let job = lock(&last).job.clone().unwrap();
            // The bar has an end, also that of an action that has not begun.
            assert_eq!(job.ended.get().unwrap().1.as_deref(), why);
        }
    }

    #[test] // X5
    fn letters_that_are_ticked_are_done_together_but_those_of_a_key_in_their_order() {
        let store = Slow(101, Mutex::default());
        // 75 has the key of 5. What 3 and 73 show is no key.
        let ids = [75, 3, 73, 5, 4].map(|number| LetterId { number, mark: 0 });
        let did = act(
            &store,
            &LastJob::default(),
            Verb::PutBack,
            &Which::These(ids.into()),
        )
        .unwrap();
        assert_eq!((did.count, &*did.subject), (5, "3, 4, 5, 3, 5"));
        assert_eq!(*lock(&store.1), [vec![3, 4, 5, 73], vec![75]]);
        let ids = [3, 4, 5].map(|number| LetterId { number, mark: 0 });
        let did = act(
            &Slow(4, Mutex::default()),
            &LastJob::default(),
            Verb::PutBack,
            &Which::These(ids.into()),
        )
        .unwrap();
        assert_eq!((did.count, did.is_partial), (2, true));
        assert_eq!(did.why, Some(Refused::Perhaps("slow".into())));
        // What is perhaps done is said first, also of several runs.
        for two in [["perhaps", "away"], ["away", "perhaps"]] {
            let [first, then] = two.map(|why| match why {
                "away" => Some(Refused::Server(why.into())),
                why => Some(Refused::Perhaps(why.into())),
            });
            let told = Some(Refused::Perhaps("perhaps".into()));
            assert_eq!(worse(worse(first, then), None), told);
        }
        let some = vec![
            LetterId { number: 3, mark: 1 },
            LetterId { number: 4, mark: 0 },
        ];
        let did = act(
            &Slow(1, Mutex::default()),
            &LastJob::default(),
            Verb::PutBack,
            &Which::These(some),
        );
        assert_eq!(did.unwrap_err(), Refused::Perhaps("slow".into()));
        // A server is not asked for what is not there.
        let gone = vec![LetterId { number: 3, mark: 1 }];
        assert!(
            act(
                &store,
                &LastJob::default(),
                Verb::PutBack,
                &Which::These(gone)
            )
            .is_err()
        );
        assert_eq!(lock(&store.1).len(), 2);
    }

    #[test] // X5
    fn a_stop_ends_the_action_that_was_shown_and_no_later_one() {
        let job = |number| Job {
            number,
            verb: Verb::PutBack,
            search: String::new(),
            total: AtomicUsize::new(2),
            done: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            ended: OnceLock::new(),
        };
        let last = LastJob::default();
        lock(&last).job = Some(Arc::new(job(2)));
        let going_on = lock(&last).job.clone().unwrap();
        let letters = Slow(101, Mutex::default()).page(0, 2, 0).unwrap();
        assert_eq!(stop(&last, 1), Err(Refused::HasEnded));
        assert_eq!(
            act_together(&Slow(101, Mutex::default()), &going_on, &letters[..1]),
            Ok(None)
        );
        let told = said(Action::PutBack, &stop(&last, 2).unwrap());
        assert_eq!(told, "It is being stopped.");
        let stopped = act_together(&Slow(101, Mutex::default()), &going_on, &letters[1..2]);
        assert_eq!(stopped, Err(Refused::Stopped));
        drop(Ends(&going_on, None));
        assert_eq!(stop(&last, 2), Err(Refused::HasEnded));
    }

    #[test] // X5
    fn a_board_that_is_closed_ends_the_action_on_all_letters_and_begins_no_other_one() {
        /// Closes its board at the first request for letters.
        struct Closes(Slow, Arc<LastJob>);

        impl LetterStore for Closes {
            fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused> {
                self.0.page(from, max, most)
            }

            fn act(&self, verb: Verb, ids: &[LetterId]) -> Vec<Result<(), Refused>> {
                close(&self.1);
                self.0.act(verb, ids)
            }

            fn step(&self) -> usize {
                self.0.step()
            }

            fn len(&self) -> Result<usize, Refused> {
                self.0.len()
            }
        }

        let last = Arc::new(LastJob::default());
        let store = Closes(Slow(101, Mutex::default()), Arc::clone(&last));
        let all = Which::All {
            search: String::new(),
            upto: (u64::MAX, u64::MAX),
            said: None,
        };
        let did = act(&store, &last, Verb::Drop, &all).unwrap();
        assert_eq!((did.count, did.why), (30, Some(Refused::Stopped)));
        assert!(!lock(&last).job.as_ref().unwrap().is_going_on());
        let did = act(&store, &last, Verb::Drop, &all);
        assert_eq!(did.unwrap_err(), Refused::Stopped);
    }
}
