//! Restarts at random moments, with what is committed as the only memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Intake, Running, Snapshot, Start, Tenure};
use crate::OrderBy;
use crate::bell::Bell;
use crate::lease::Lease;
use crate::metadata::{self, Metadata, Stored};
use crate::record::Inner;

fn tenure(by_key: bool, base: Option<u64>, stored: Option<Stored>) -> Arc<Tenure> {
    let (is_committed, base) = (base.is_some(), base.unwrap_or(0));
    let start = Start {
        base,
        is_committed,
        stored,
        ..Start::default()
    };
    Arc::new(Tenure::new(
        ("topic".into(), 0, 0),
        by_key,
        start,
        Arc::new(Bell::default()),
        Arc::new(Lease::new(Duration::ZERO)),
    ))
}

impl Tenure {
    fn begin_one(&self, record: &Arc<Inner>) -> Intake {
        self.begin(std::slice::from_ref(record))[0]
    }
}

fn record(tenure: &Arc<Tenure>, offset: u64, key: u64) -> Arc<Inner> {
    // Key 0 is none.
    let bytes = key.to_le_bytes();
    let key = (key > 0).then_some(&bytes[..]);
    let payload = offset.to_le_bytes();
    let payload = Some(&payload[..]);
    Arc::new(Inner::of(tenure, offset, key, payload, Instant::now()))
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    /// Finishes the front of the key of this one of the records in hand.
    Finish(usize),
    /// The last one; and one of what has not changed, too.
    Commit(bool, bool),
    /// Ends, and reads on from what is committed.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..20_usize).prop_map(Step::Read),
        12 => any::<usize>().prop_map(Step::Finish),
        3 => any::<(bool, bool)>().prop_map(|(is_last, is_renewal)| Step::Commit(is_last, is_renewal)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// R1, R3. No record is lost, whatever the room of the metadata; and with enough of it, none that was finished and committed is
    /// repeated.
    #[test]
    fn whenever_it_restarts_nothing_is_lost_and_nothing_committed_repeated(
        log in prop::collection::vec((0..6_u64, prop_oneof![9 => Just(0_u64), 1 => 1..50_u64]), 1..300),
        by_key in any::<bool>(),
        how in prop_oneof![
            3 => Just(Metadata::Wide(4096)), 1 => Just(Metadata::Ascii(4096)), 1 => (0..40_usize).prop_map(Metadata::Wide),
            1 => (0..60_usize).prop_map(Metadata::Ascii), 1 => Just(Metadata::Off),
        ],
        steps in steps(),
    ) {
        let mut at = 5;
        let log: Vec<(u64, u64)> = log.into_iter().map(|(key, gap)| { at += gap + 1; (at - 1, key) }).collect();
        let is_roomy = matches!(how, Metadata::Wide(4096) | Metadata::Ascii(4096));
        let mut tenure = tenure(by_key, None, None);
        let (mut next, mut hand) = (0, Vec::<Arc<Inner>>::new());
        // What was done ever; what the tenure has to know of it; and what the last commit has to.
        let (mut done, mut sure, mut known) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut committed: Option<(u64, String)> = None;
        for step in steps {
            match step {
                Step::Read(count) => for _ in 0..count {
                    let Some((offset, key)) = log.get(next).copied() else { break };
                    next += 1;
                    let record = record(&tenure, offset, key);
                    match tenure.begin_one(&record) {
                        Intake::New => {
                            prop_assert!(!known.contains(&offset), "{} is repeated", offset);
                            sure.remove(&offset);
                            hand.push(record);
                        }
                        Intake::Finished => prop_assert!(done.contains(&offset), "{} is lost", offset),
                        Intake::Disorder => prop_assert!(false, "there is none"),
                    }
                },
                Step::Finish(which) if !hand.is_empty() => {
                    let key = hand[which % hand.len()].key().map(<[u8]>::to_vec);
                    let index = match key {
                        // In order, as workers do.
                        Some(key) => hand.iter().position(|record| record.key() == Some(&key)).unwrap_or(0),
                        None => which % hand.len(),
                    };
                    let record = hand.remove(index);
                    prop_assert!(tenure.finish(&record) && !tenure.finish(&record));
                    done.insert(record.offset);
                    sure.insert(record.offset);
                }
                Step::Commit(is_last, is_renewal) => {
                    if let Some(snapshot) = tenure.snapshot(how, is_last, is_renewal) {
                        let characters = snapshot.written.text.chars().count();
                        let fits = match how {
                            Metadata::Wide(most) => characters <= most,
                            Metadata::Ascii(most) => characters <= most && snapshot.written.text.is_ascii(),
                            Metadata::Off => characters == 0,
                        };
                        prop_assert!(fits, "{} characters", characters);
                        // Without a record at the base nothing beyond can be said.
                        let says = is_roomy && !hand.is_empty();
                        known = sure.iter().copied().filter(|_| says).collect();
                        tenure.committed(&snapshot);
                        committed = Some((snapshot.offset as u64, snapshot.written.text));
                        for (offset, _) in &log {
                            let below = *offset < committed.as_ref().map_or(0, |(base, _)| *base);
                            prop_assert!(!below || done.contains(offset), "{} is committed", offset);
                        }
                    }
                }
                Step::Restart => {
                    hand.clear();
                    sure = known.clone();
                    let (base, text) = committed.clone().map_or((None, String::new()), |(base, text)| (Some(base), text));
                    let stored = base.and_then(|base| metadata::read(base, &text));
                    prop_assert_eq!(stored.is_some(), !text.is_empty());
                    tenure = self::tenure(by_key, base, stored);
                    next = log.partition_point(|(offset, _)| Some(*offset) < base);
                }
                Step::Finish(_) => {}
            }
            prop_assert_eq!(tenure.held().0, hand.len());
        }
    }

    /// R1. Whatever text is found beside an offset, it is refused, or is what was written for it.
    #[test]
    fn what_is_foreign_or_damaged_is_ignored(base in any::<u64>(), text in any::<String>(), flip in any::<(usize, u32)>()) {
        prop_assert_eq!(metadata::read(base, &text), None);
        for by_key in [false, true] {
            let tenure = tenure(by_key, None, None);
            let records: Vec<_> = (100..200).map(|offset| record(&tenure, offset, offset % 7)).collect();
            tenure.begin(&records);
            records.iter().filter(|record| record.offset % 7 > 2).for_each(|record| _ = tenure.finish(record));
            for how in [Metadata::Wide(4096), Metadata::Ascii(4096)] {
                let Some(snapshot) = tenure.snapshot(how, true, false) else { continue };
                let written = snapshot.written.text;
                prop_assert!(metadata::read(snapshot.offset as u64, &written).is_some());
                prop_assert_eq!(metadata::read(snapshot.offset as u64 + 1, &written), None);
                let at = flip.0 % written.chars().count();
                let other = |(index, character): (usize, char)| match index == at {
                    true => char::from_u32(u32::from(character) ^ (1 << (flip.1 % 14))).unwrap_or('x'),
                    false => character,
                };
                let damaged: String = written.chars().enumerate().map(other).collect();
                let read = metadata::read(snapshot.offset as u64, &damaged);
                // The version, the fingerprint and the padding are not in the sum: the first two make it another's, the last changes nothing.
                if let Some(read) = read {
                    let whole = metadata::read(snapshot.offset as u64, &written).map(|stored| stored.beyond);
                    prop_assert_eq!(Some(read.beyond), whole);
                }
            }
        }
    }
}

/// The last snapshot of a tenure.
fn last(tenure: &Tenure) -> Snapshot {
    let snapshot = tenure.snapshot(Metadata::default(), true, false);
    snapshot.expect("something has changed")
}

/// What is stored of a tenure with the records 0 to 9 of a key, of which those from 3 on are finished.
fn some_finished() -> Stored {
    let before = tenure(false, None, None);
    let records: Vec<_> = (0..10).map(|offset| record(&before, offset, 1)).collect();
    before.begin(&records);
    let finished = records[3..].iter();
    finished.for_each(|record| _ = before.finish(record));
    metadata::read(0, &last(&before).written.text).expect("it was written")
}

#[test] // R1
fn metadata_about_another_log_is_not_believed() {
    let stored = some_finished();
    // What the record at 5 is, after this first one.
    let then = |offset, key: Option<&[u8]>, payload: &[u8]| {
        let tenure = tenure(false, Some(0), Some(stored.clone()));
        let first = Arc::new(Inner::of(
            &tenure,
            offset,
            key,
            Some(payload),
            Instant::now(),
        ));
        assert_eq!(tenure.begin_one(&first), Intake::New);
        tenure.begin_one(&record(&tenure, 5, 1))
    };
    let (key, payload) = (1_u64.to_le_bytes(), 0_u64.to_le_bytes());
    assert_eq!(then(0, Some(&key), &payload), Intake::Finished);
    // The topic was made again, or the log was cut and written again.
    assert_eq!(then(0, Some(&key), b"another payload"), Intake::New);
    assert_eq!(then(0, Some(b"another key"), &payload), Intake::New);
    assert_eq!(then(0, None, &payload), Intake::New);
    assert_eq!(then(2, Some(&key), &payload), Intake::New);
}

#[test] // R1
fn a_log_that_begins_below_the_offset_is_read_from_there() {
    let tenure = tenure(false, Some(1000), Some(some_finished()));
    for offset in 0..3 {
        assert_eq!(tenure.begin_one(&record(&tenure, offset, 1)), Intake::New);
    }
    let snapshot = tenure.snapshot(Metadata::default(), true, true);
    let snapshot = snapshot.expect("it is a renewal");
    assert_eq!((snapshot.offset, &*snapshot.written.text), (0, ""));
}

#[test] // R1
fn a_record_that_comes_late_is_seen() {
    let tenure = tenure(false, Some(0), None);
    for offset in [0, 5, 6] {
        tenure.begin_one(&record(&tenure, offset, 1));
    }
    for late in [0, 3, 6] {
        assert_eq!(
            tenure.begin_one(&record(&tenure, late, 1)),
            Intake::Disorder
        );
    }
    assert_eq!(tenure.begin_one(&record(&tenure, 7, 1)), Intake::New);
}

#[test] // R1, R3, R5
fn what_a_revocation_finds_waiting_is_unfinished_and_then_gives_its_room_back() {
    let tenure = tenure(false, Some(0), None);
    let records: Vec<_> = (0..10).map(|offset| record(&tenure, offset, 1)).collect();
    tenure.begin(&records);
    let running = Running::enter(&*tenure).expect("it runs");
    assert_eq!((tenure.held().0, tenure.running()), (10, 1));
    tenure.revoke();
    assert!(Running::enter(&*tenure).is_none());
    // What runs may end.
    assert!(tenure.finish(&records[4]));
    drop(running);
    assert_eq!(tenure.running(), 0);
    let last = last(&tenure);
    assert_eq!(last.offset, 0);
    assert!(metadata::read(0, &last.written.text).is_some());
    assert_eq!(tenure.clear().len(), 9);
    assert_eq!(tenure.held(), (0, 0));
}

#[test] // R3: 10 000 records of 200 keys, ten of which are stuck at the start
fn what_is_written_by_key_is_short() {
    let tenure = tenure(true, Some(0), None);
    let records: Vec<_> = (0..10_000)
        .map(|offset| record(&tenure, offset, 1 + offset * 7 % 200))
        .collect();
    tenure.begin(&records);
    let is_stuck = |record: &&Arc<Inner>| record.offset * 7 % 200 < 10;
    records
        .iter()
        .filter(|record| !is_stuck(record))
        .for_each(|record| _ = tenure.finish(record));
    let written = last(&tenure).written;
    assert_eq!(written.left_out, 0);
    assert!(
        written.text.chars().count() < 50,
        "{}",
        written.text.chars().count()
    );
}

#[test] // R3
fn what_has_no_room_in_the_metadata_is_counted() {
    let tenure = tenure(false, Some(0), None);
    let records: Vec<_> = (0..400).map(|offset| record(&tenure, offset, 0)).collect();
    tenure.begin(&records);
    let odd = records.iter().filter(|record| record.offset % 2 == 1);
    odd.for_each(|record| _ = tenure.finish(record));
    let snapshot = tenure.snapshot(Metadata::Wide(20), true, false);
    let written = snapshot.expect("something has changed").written;
    let stored = metadata::read(0, &written.text).expect("some have room");
    assert!(stored.beyond.end() > 0 && written.left_out > 0);
    assert_eq!(stored.beyond.end() + written.left_out, 400);
}

#[test] // R2, R5
fn the_function_of_an_order_is_called_once_for_each_record() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let order = OrderBy::by(move |record| {
        counter.fetch_add(1, Ordering::Relaxed);
        record.payload().map(<[u8]>::to_vec)
    });
    let tenure = tenure(false, Some(0), None);
    let records: Vec<_> = (0..4).map(|offset| record(&tenure, offset, 1)).collect();
    tenure.begin(&records);
    let keys: Vec<_> = records.iter().map(|record| order.key(record)).collect();
    tenure.failed(keys[1].clone());
    for _ in 0..3 {
        tenure.look_at_failing(&order, 2, usize::MAX);
        assert_eq!(order.key(&records[1]), keys[1]);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[test] // R5
fn a_record_that_is_larger_than_half_of_the_bytes_is_no_crowd() {
    let tenure = tenure(false, Some(0), None);
    let records: Vec<_> = (0..3).map(|offset| record(&tenure, offset, 1)).collect();
    tenure.begin(&records);
    let order = OrderBy::by(|record| Some(record.offset().to_string().into_bytes()));
    let keys: Vec<_> = records.iter().map(|record| order.key(record)).collect();
    let is_crowd = |fails: usize| {
        let key = &keys[fails];
        tenure.failed(key.clone());
        tenure.look_at_failing(&order, 3, 0);
        tenure.succeeded(&records[0], &order, true);
        tenure.failed(key.clone())
    };
    assert_eq!([1, 2].map(is_crowd), [false, true]);
}

#[test] // R5
fn a_key_that_is_delayed_on_purpose_does_not_fail_and_has_not_succeeded() {
    let tenure = tenure(false, Some(0), None);
    let records: Vec<_> = (0..3).map(|offset| record(&tenure, offset, 1)).collect();
    tenure.begin(&records);
    let order = OrderBy::by(|record| Some(record.offset().to_string().into_bytes()));
    let keys: Vec<_> = records.iter().map(|record| order.key(record)).collect();
    let fails = |key: usize, most| {
        tenure.failed(keys[key].clone());
        tenure.look_at_failing(&order, most, usize::MAX);
        tenure.failed(keys[key].clone())
    };
    assert!(!fails(0, 0) && !fails(1, 0));
    tenure.succeeded(&records[0], &order, false);
    assert!(!fails(1, 0));
    tenure.succeeded(&records[2], &order, true);
    assert!(fails(1, 0) && !fails(1, 1));
}
