use std::collections::BTreeSet;
use std::slice;

use proptest::prelude::*;

use super::{Begun, Progress, Tracker};

impl Progress {
    fn says_finished(&self, offset: u64) -> bool {
        offset < self.first_unfinished()
            || self.finished().iter().any(|range| range.contains(&offset))
    }
}

fn written(progress: &Progress, room: usize, as_text: bool) -> Progress {
    let first = progress.first_unfinished();
    if as_text {
        let text = progress.to_text(room);
        assert!(text.chars().count() <= room);
        Progress::from_text(first, &text).unwrap()
    } else {
        let bytes = progress.to_bytes(room);
        assert!(bytes.len() <= room);
        Progress::from_bytes(first, &bytes).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Reads the next message.
    Read,
    /// Reads a message again: 0 is the last one that was read, 1 the one before it.
    Late(usize),
    /// Finishes one in hand.
    Finish(usize),
    /// Starts again, with room for so much.
    Restart { room: usize, as_text: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let room = prop_oneof![Just(10_000), 0_usize..40];
    let step = prop_oneof![
        8 => Just(Step::Read),
        1 => (0_usize..20).prop_map(Step::Late),
        6 => any::<usize>().prop_map(Step::Finish),
        1 => (room, any::<bool>()).prop_map(|(room, as_text)| Step::Restart { room, as_text }),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    /// A1. The log has gaps; what is read, finished and restarted is random. Nothing that is not finished is ever called so, and
    /// what was finished is, unless a text was too short for it.
    #[test]
    fn nothing_is_lost_and_only_what_found_no_room_is_repeated(
        gaps in prop::collection::vec(prop_oneof![4 => Just(0_u64), 1 => 1_u64..200], 300),
        start in prop_oneof![Just(0), Just(1 << 40)],
        steps in steps(),
    ) {
        let mut at = start;
        let log: Vec<u64> = gaps.iter().map(|gap| { at += gap + 1; at - 1 }).collect();
        let mut tracker = Tracker::new(start);
        // The index of the next message, what is finished, what workers have, and what the tracker has to know.
        let (mut next, mut done, mut hand, mut known) = (0, BTreeSet::new(), Vec::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Read if next < log.len() => {
                    let begun = tracker.begin(log[next]);
                    prop_assert_eq!(begun == Begun::Finished, known.contains(&log[next]));
                    prop_assert_ne!(begun, Begun::InHand);
                    if begun == Begun::New {
                        done.remove(&log[next]); // It may have been, and is done again.
                        hand.push(log[next]);
                    }
                    next += 1;
                }
                Step::Late(back) if next > back => {
                    let offset = log[next - 1 - back];
                    let begun = tracker.begin(offset);
                    prop_assert_eq!(begun == Begun::InHand, hand.contains(&offset));
                    if begun == Begun::New {
                        hand.push(offset);
                        known.remove(&offset);
                        done.remove(&offset);
                    }
                }
                Step::Finish(which) if !hand.is_empty() => {
                    let offset = hand.swap_remove(which % hand.len());
                    prop_assert!(tracker.finish(offset) && !tracker.finish(offset));
                    done.insert(offset);
                    known.insert(offset);
                }
                Step::Restart { room, as_text } => {
                    let before = tracker.progress();
                    let after = written(&before, room, as_text);
                    prop_assert_eq!(after.first_unfinished(), before.first_unfinished());
                    prop_assert!(room < 10_000 || after == before);
                    known.retain(|offset| after.says_finished(*offset));
                    next = log.partition_point(|offset| *offset < after.first_unfinished());
                    hand.clear();
                    tracker = Tracker::new(after);
                }
                _ => {}
            }
            let progress = tracker.progress();
            prop_assert_eq!(tracker.unfinished(), hand.len());
            for offset in &log {
                let finished = progress.says_finished(*offset);
                prop_assert!(!finished || done.contains(offset), "lost: {}", offset);
                prop_assert!(finished || !known.contains(offset), "forgotten: {}", offset);
            }
            for pair in progress.finished().windows(2) {
                prop_assert!(pair[0].end < pair[1].start && !pair[0].is_empty());
            }
        }
    }

    /// A1. Whatever is read is refused, or says no more than was written.
    #[test]
    fn what_is_foreign_or_damaged_is_refused(
        first in any::<u64>(),
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        text in any::<String>(),
        flip in any::<usize>(),
    ) {
        let known = |read: Result<Progress, crate::ConfigError>| {
            prop_assert!(read.is_err() || read == Ok(Progress::from(first)));
            Ok(())
        };
        known(Progress::from_bytes(first, &bytes))?;
        known(Progress::from_text(first, &text))?;
        let tracker = Tracker::new(1000);
        bytes.iter().for_each(|byte| _ = tracker.begin(1000 + u64::from(*byte)));
        bytes.iter().skip(1).step_by(2).for_each(|byte| _ = tracker.finish(1000 + u64::from(*byte)));
        let progress = tracker.progress();
        let mut written = progress.to_bytes(usize::MAX);
        if !written.is_empty() {
            let other = Progress::from_bytes(progress.first_unfinished() + 1, &written);
            prop_assert!(other.is_err());
            let at = flip % (8 * written.len());
            written[at / 8] ^= 1 << (at % 8);
            prop_assert!(Progress::from_bytes(progress.first_unfinished(), &written).is_err());
        }
    }
}

#[test] // A1
fn the_ends_of_the_numbers_are_no_panic_and_no_loss() {
    let tracker = Tracker::new(u64::MAX - 2);
    for offset in [u64::MAX - 2, u64::MAX - 1, u64::MAX] {
        assert_eq!(tracker.begin(offset), Begun::New);
    }
    assert!(tracker.finish(u64::MAX - 1));
    let progress = tracker.progress();
    assert_eq!(
        progress.finished(),
        slice::from_ref(&(u64::MAX - 1..u64::MAX))
    );
    assert_eq!(written(&progress, 40, true), progress);
    assert!(tracker.finish(u64::MAX) && tracker.finish(u64::MAX - 2));
    assert_eq!(tracker.progress(), Progress::from(u64::MAX));
    let tracker = Tracker::new(tracker.progress());
    assert_eq!(tracker.begin(u64::MAX), Begun::New);

    let tracker = Tracker::new(0);
    assert_eq!(
        (tracker.begin(u64::MAX), tracker.begin(0)),
        (Begun::New, Begun::New)
    );
    assert!(tracker.finish(u64::MAX));
    let read = written(&tracker.progress(), 40, false);
    assert_eq!(read.finished(), slice::from_ref(&(1..u64::MAX)));
}

#[test] // A1
fn what_is_written_is_short() {
    // 60 000 messages, of which the first takes long.
    let tracker = Tracker::new(0);
    (0..60_000).for_each(|offset| _ = tracker.begin(offset));
    (1..60_000).for_each(|offset| _ = tracker.finish(offset));
    assert_eq!(tracker.progress().to_text(4096).chars().count(), 5);
    // Of 30 000 each second one: bits, all of which find room.
    let tracker = Tracker::new(0);
    (0..30_000).for_each(|offset| _ = tracker.begin(offset));
    (1..30_000)
        .step_by(2)
        .for_each(|offset| _ = tracker.finish(offset));
    let progress = tracker.progress();
    assert_eq!(progress.to_bytes(usize::MAX).len(), 5 + 30_000 / 8);
    assert_eq!(written(&progress, 4096, true), progress);
    // And of those that find none, the lowest are kept.
    let short = written(&progress, 100, true);
    assert_eq!(
        short.finished(),
        &progress.finished()[..short.finished().len()]
    );
    assert_eq!(short.finished().len(), (100 * 15 / 8 - 5) * 8 / 2);
}

#[test] // A1: memory is bounded by what is in hand
fn what_was_passed_is_forgotten() {
    let tracker = Tracker::new(0);
    for offset in 0..1000 {
        tracker.begin(2 * offset);
        if offset > 0 {
            tracker.finish(2 * offset);
        }
    }
    assert_eq!(
        (tracker.unfinished(), tracker.progress().finished()),
        (1, slice::from_ref(&(1..1999)))
    );
    let again = Tracker::new(tracker.progress());
    (0..2000).for_each(|offset| _ = again.begin(offset));
    assert_eq!(again.0.lock().remembered.len(), 0);
}

#[test] // A1: memory is bounded by what is in hand
fn a_wide_gap_needs_no_room() {
    let tracker = Tracker::new(0);
    for offset in [0, 1 << 60, (1 << 60) + 5] {
        tracker.begin(offset);
    }
    let progress = tracker.progress();
    for as_text in [false, true] {
        assert_eq!(written(&progress, usize::MAX, as_text), progress);
    }
    assert_eq!(progress.to_bytes(usize::MAX), progress.to_bytes(40));
}
