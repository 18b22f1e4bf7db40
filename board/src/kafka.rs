//! A consumer of keyqueue-kafka in this process.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use keyqueue_kafka::dead_letter::{self, Letters};
use keyqueue_kafka::{Consumer, Error, PartitionStatus};
use serde_json::Value;

use crate::fleet::{Cell, Column, Partitioned, Partitions};
use crate::letters::{LetterStore, Verb};
use crate::place;
use crate::rows::Letter;
use crate::source::{LetterId, Refused};
use crate::text;

/// For how long letters that were refused together are tried in parts.
const APART: Duration = Duration::from_secs(30);
/// The key that is shown of a record without one.
const NO_KEY: &str = "(no key)";
const COLUMNS: [Column; 14] = [
    ("topic", "Topic"),
    ("partition", "Partition"),
    ("base", "Base"),
    ("finished_beyond", "Finished beyond"),
    ("committed", "Committed"),
    ("records", "Held"),
    ("bytes", "Bytes"),
    ("running", "Running"),
    ("failing", "Failing"),
    ("oldest", "Oldest key"),
    ("oldest_for", "For"),
    ("doing", "State"),
    ("attempts", "Failures"),
    ("error", "Last error"),
];

/// A consumer, and the reader of its dead letters.
pub(crate) struct Kafka {
    consumer: Consumer,
    letters: Option<Letters>,
    /// Each process numbers the letters in the order in which it finds them.
    mark: String,
}

impl Kafka {
    pub(crate) fn new(consumer: Consumer) -> Self {
        let letters = consumer.dead_letters();
        Kafka {
            consumer,
            letters,
            mark: place::mark(),
        }
    }
}

impl Partitioned for Kafka {
    fn about(&self) -> String {
        format!("group {}", self.consumer.status().group)
    }

    fn look(&self) -> Result<Partitions, Refused> {
        let mut status = self.consumer.status();
        let of = &mut status.partitions;
        let oldest = |of: &PartitionStatus| {
            let oldest = of.oldest.as_ref();
            oldest.map_or((false, Duration::ZERO), |oldest| {
                (oldest.is_stalled, oldest.age)
            })
        };
        of.sort_by_key(|of| Reverse(oldest(of)));
        let stalled = of.iter().filter(|of| oldest(of).0).count() as u64;
        let sum =
            |of_one: fn(&PartitionStatus) -> usize| of.iter().map(of_one).sum::<usize>() as u64;
        let held = sum(|of| of.records);
        let errors = status.commit_errors;
        let last = status.last_error.as_deref();
        let last = last.map(|error| text::cut(error, text::WHOLE));
        let held_up = status.held_up.map(|time| {
            format!(
                "Nothing begins, for {} s: brokers have taken no commit for too long",
                time.as_secs()
            )
        });
        let last = last.map(|error| format!("The last error of the client: {error}"));
        let unread = status.unread;
        let name = |(topic, partition): &(String, i32)| format!("{topic} {partition}");
        let names: Vec<_> = unread.iter().map(name).collect();
        let not_read = (!names.is_empty()).then(|| {
            let names = text::cut(&names.join(", "), text::WHOLE);
            format!("These partitions could not be read, and were not since: {names}")
        });
        let now: Vec<_> = held_up.into_iter().chain(not_read).collect();
        Ok(Partitions {
            // It does not say whether it is connected, nor when its last error was.
            server: now.first().cloned().unwrap_or_default(),
            notes: now.into_iter().chain(last).collect(),
            numbers: vec![
                ("unread", unread.len() as u64, !unread.is_empty()),
                ("stalled", stalled, stalled > 0),
                ("held", held, false),
                ("running", sum(|of| of.running), false),
                ("failing", sum(|of| of.failing), false),
                ("finished", status.finished, false),
                ("remembered", status.remembered, false),
                ("retries", status.retries, false),
                ("dead letters", status.dead_letters, false),
                ("skipped", status.skipped, false),
                ("commit errors", errors, errors > 0),
            ],
            caption: "The partitions that this consumer has, those with the oldest unfinished record first",
            columns: &COLUMNS,
            rows: of.iter().map(cells).collect(),
            unowned: None,
            messages: held,
            // It has counted those that it has written, and not those that are there.
            dead_letters: None,
            json: Value::Null,
        })
    }

    fn mark(&self) -> &str {
        &self.mark
    }

    fn letters(&self) -> Result<&dyn LetterStore, String> {
        let letters = self.letters.as_ref();
        let letters = letters.ok_or("This consumer has no topic for dead letters.")?;
        Ok(letters)
    }
}

impl LetterStore for Letters {
    fn page(&self, from: u64, max: usize, most: usize) -> Result<Vec<Letter>, Refused> {
        let letters = self.read().map_err(refused)?;
        let wanted = letters.iter().skip_while(|letter| letter.number < from);
        Ok(wanted.take(max).map(|letter| row(letter, most)).collect())
    }

    fn act(&self, verb: Verb, ids: &[LetterId]) -> Vec<Result<(), Refused>> {
        let numbers: Vec<_> = ids.iter().map(|id| id.number).collect();
        let end = Instant::now() + APART;
        let act = |numbers: &[u64]| match verb {
            Verb::PutBack => self.put_back(numbers).map_err(refused),
            Verb::Drop => self.discard(numbers).map_err(refused),
        };
        // If no letter can be read, brokers are away.
        let may_go_on = || Instant::now() < end && self.read().is_ok();
        let letters = self.read().unwrap_or_default();
        // One that is not there is in no topic.
        let topic = |number| {
            let found = letters.binary_search_by_key(&number, |letter| letter.number);
            found.ok().map(|at| &letters[at].place.topic)
        };
        in_parts(&numbers, topic, act, may_go_on)
    }

    fn has_key(&self, letter: &Letter) -> bool {
        letter.key != NO_KEY
    }

    fn len(&self) -> Result<usize, Refused> {
        Ok(self.read().map_err(refused)?.len())
    }
}

/// Brokers take all of these or none. The cause may be one of them, or a topic that is gone: so what they refuse is tried while it may go
/// on, first each topic by itself, then in halves, a try of each topic in turn. Those of a topic that are taken are so in their order.
fn in_parts<T: Ord>(
    numbers: &[u64],
    topic: impl Fn(u64) -> T,
    act: impl Fn(&[u64]) -> Result<Vec<bool>, Refused>,
    may_go_on: impl Fn() -> bool,
) -> Vec<Result<(), Refused>> {
    let of = |at: &usize| topic(numbers[*at]);
    let mut came = vec![Ok(()); numbers.len()];
    let mut all: Vec<_> = (0..numbers.len()).collect();
    all.sort_by_key(of);
    // The parts of each topic, the next one last, each with why it was refused as a part of a larger one.
    let mut topics = VecDeque::from([vec![(&all[..], None::<Refused>)]]);
    while let Some(mut parts) = topics.pop_front() {
        let Some((part, before)) = parts.pop() else {
            continue;
        };
        let unsent = before.clone().filter(|_| !may_go_on());
        let is_whole = unsent.is_some() || part.len() <= 1;
        // Brokers may have committed it, although they have not said so.
        let perhaps = before.filter(|before| matches!(before, Refused::Perhaps(_)));
        let say = |refused: Refused| perhaps.clone().unwrap_or(refused);
        let meant: Vec<_> = part.iter().map(|at| numbers[*at]).collect();
        match unsent.map_or_else(|| act(&meant), Err) {
            Ok(ended) => {
                for (at, was_there) in part.iter().zip(ended) {
                    if !was_there {
                        came[*at] = Err(say(Refused::NoLetter(numbers[*at])));
                    }
                }
            }
            Err(refused) if is_whole => {
                for at in part {
                    came[*at] = Err(say(refused.clone()));
                }
            }
            Err(refused) => {
                let with = |part| (part, Some(say(refused.clone())));
                let of_topics: Vec<_> = part.chunk_by(|one, next| of(one) == of(next)).collect();
                if of_topics.len() > 1 {
                    topics.extend(of_topics.into_iter().map(|part| vec![with(part)]));
                } else {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first].map(with));
                }
            }
        }
        topics.push_back(parts);
    }
    came
}

fn refused(error: Error) -> Refused {
    let why = text::cut(&error.to_string(), text::WHOLE);
    match error {
        Error::Unconfirmed { .. } => Refused::Perhaps(why),
        _ => Refused::Server(why),
    }
}

fn row(letter: &dead_letter::Letter, most: usize) -> Letter {
    // One byte too many shows that there are more.
    let shown = |bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(most + 1)];
        text::cut(&String::from_utf8_lossy(bytes), most)
    };
    let place = &letter.place;
    let mut mark = DefaultHasher::new(); // of fixed keys, so that all replicas have the same
    letter.name.hash(&mut mark);
    Letter {
        id: LetterId {
            number: letter.number,
            mark: mark.finish(),
        },
        key: letter.key.as_deref().map_or(NO_KEY.into(), shown),
        value: letter.payload.as_deref().map(shown),
        error: text::cut(&letter.error, most),
        reason: Some(format!(
            "{}, partition {}, offset {}",
            text::cut(&place.topic, most),
            place.partition,
            place.offset
        )),
        attempts: letter.attempts,
        first: Some(letter.first),
        last: letter.last,
    }
}

fn cells(of: &PartitionStatus) -> Vec<Cell> {
    let (oldest, number) = (of.oldest.as_ref(), |number: usize| {
        Cell::Number(Some(number as u64))
    });
    let is_stalled = oldest.is_some_and(|oldest| oldest.is_stalled);
    let doing = match oldest.map(|oldest| oldest.doing) {
        _ if of.is_leaving => "given back".into(),
        None => "idle".into(),
        Some(doing) => doing.to_string().into(),
    };
    vec![
        Cell::Text(Some(of.topic.clone())),
        Cell::Number(u64::try_from(of.partition).ok()),
        Cell::Number(Some(of.base)),
        Cell::Number(Some(of.finished_beyond)),
        Cell::Number(of.committed.and_then(|offset| u64::try_from(offset).ok())),
        number(of.records),
        number(of.bytes),
        number(of.running),
        number(of.failing),
        Cell::Text(oldest.map(|oldest| oldest.key.clone().unwrap_or_else(|| NO_KEY.into()))),
        Cell::Time(oldest.map(|oldest| oldest.age)),
        Cell::State(doing, is_stalled),
        Cell::Number(oldest.map(|oldest| oldest.attempts.into())),
        Cell::Text(oldest.and_then(|oldest| oldest.error.clone())),
    ]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test] // X5
    fn letters_that_brokers_refuse_keep_few_others_and_none_of_another_topic_waiting() {
        let numbers: Vec<_> = (1..=64).collect();
        let (tries, done) = <(RefCell<Vec<_>>, RefCell<Vec<_>>)>::default();
        // The topic of odd ones is gone.
        let topic = |number| number % 2 == 0;
        let act = |part: &[u64]| {
            tries.borrow_mut().push(part.len());
            if part.iter().any(|number| number % 2 == 1 || *number == 2) {
                return Err(Refused::Server("gone".into()));
            }
            done.borrow_mut().extend_from_slice(part);
            Ok(vec![true; part.len()])
        };
        // One try of all, and eleven of each topic: 32, 16, 8, 4, 2, 1, 1, 2, 4, 8 and 16.
        let came = in_parts(&numbers, topic, act, || tries.borrow().len() < 23);
        assert_eq!(tries.borrow()[..5], [64, 32, 32, 16, 16]);
        assert!(done.borrow().iter().copied().eq((4..=64).step_by(2)));
        for (number, came) in numbers.iter().zip(came) {
            let is_done = done.borrow().contains(number);
            assert_eq!(came.is_ok(), is_done, "{number}: {came:?}");
        }
        let refuse = |_: &[u64]| Err(Refused::Server("away".into()));
        assert_eq!(in_parts(&[], topic, refuse, || true), []);
    }

    #[test] // X5
    fn what_is_perhaps_done_is_not_called_refused_by_later_tries() {
        let perhaps = Refused::Perhaps("slow".into());
        let tries = RefCell::new(0);
        // Of both, of the first, and of the second.
        let act = |_: &[u64]| {
            *tries.borrow_mut() += 1;
            match *tries.borrow() {
                1 => Err(perhaps.clone()),
                2 => Err(Refused::Server("away".into())),
                _ => Ok(vec![false]),
            }
        };
        let came = in_parts(&[1, 2], |_| 0, act, || true);
        assert_eq!(came, vec![Err(perhaps.clone()); 2]);
        let came = in_parts(&[1], |_| 0, |_| Ok(vec![false]), || true);
        assert_eq!(came, [Err(Refused::NoLetter(1))]);
        let came = in_parts(&[1, 2], |_| 0, |_| Err(perhaps.clone()), || false);
        assert_eq!(came, vec![Err(perhaps.clone()); 2]);
    }
}
