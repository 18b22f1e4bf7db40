//! A consumer of keyqueue-kafka in this process.

use std::cmp::Reverse;
use std::time::Duration;

use keyqueue_kafka::{Consumer, Doing, PartitionStatus};
use serde_json::Value;

use crate::fleet::{Cell, Column, Partitioned, Partitions};
use crate::letters::LetterStore;
use crate::source::Refused;
use crate::text;

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

impl Partitioned for Consumer {
    fn about(&self) -> String {
        format!("group {}", self.status().group)
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn look(&self) -> Result<Partitions, Refused> {
        let mut status = self.status();
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
        Ok(Partitions {
            notes: last
                .map(|error| format!("The last error of the client: {error}"))
                .into_iter()
                .collect(),
            numbers: vec![
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
            bad: stalled,
            messages: held,
            dead_letters: Some(status.dead_letters),
            json: Value::Null,
        })
    }

    fn letters(&self) -> Result<&dyn LetterStore, String> {
        Err(match self.status().dead_letter_topic {
            None => "This consumer has no topic for dead letters.".into(),
            Some(topic) => format!(
                "The dead letters are records of the topic {}. To put one back, produce its key and its payload to the topic in its headers: nothing can be taken out of a topic, so the board could not tell which ones are back.",
                text::cut(&topic, text::IN_TABLE)
            ),
        })
    }
}

fn cells(of: &PartitionStatus) -> Vec<Cell> {
    let (oldest, number) = (of.oldest.as_ref(), |number: usize| {
        Cell::Number(Some(number as u64))
    });
    let is_stalled = oldest.is_some_and(|oldest| oldest.is_stalled);
    let doing = match oldest.map(|oldest| oldest.doing) {
        _ if of.is_leaving => "given back",
        None => "idle",
        Some(Doing::Waiting) => "waits",
        Some(Doing::Running) => "runs",
        Some(Doing::BackingOff) => "waits for a retry",
        Some(Doing::Unburied) => "waits for its dead letter",
        Some(_) => "unknown",
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
        Cell::Text(oldest.map(|oldest| oldest.key.clone().unwrap_or_else(|| "(no key)".into()))),
        Cell::Time(oldest.map(|oldest| oldest.age)),
        Cell::State(doing, is_stalled),
        Cell::Number(oldest.map(|oldest| oldest.attempts.into())),
        Cell::Text(oldest.and_then(|oldest| oldest.error.clone())),
    ]
}
