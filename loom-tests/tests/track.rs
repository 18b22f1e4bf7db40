//! The tracker of a log, with workers that finish messages beside a reader and a snapshot.
#![cfg(keyqueue_loom)]

use std::sync::atomic::Ordering::Relaxed;

use keyqueue::track::{Begun, Progress, Tracker};
use keyqueue_loom_tests::{check, spawn};
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;

/// A1. Two workers finish, and store that they do before; a third thread stores the progress. Each progress says no more than was
/// stored, and the last one all of it.
#[test]
fn a_progress_beside_workers_says_no_more_than_they_have_done() {
    check("track_progress", 4, || {
        let tracker = Arc::new(Tracker::new(0));
        let done = Arc::new([(); 3].map(|()| AtomicBool::new(false)));
        assert_eq!(
            (tracker.begin(0), tracker.begin(2)),
            (Begun::New, Begun::New)
        );
        let finish = |offset: u64| {
            let (tracker, done) = (Arc::clone(&tracker), Arc::clone(&done));
            spawn(move || {
                done[offset as usize].store(true, Relaxed);
                assert!(tracker.finish(offset));
            })
        };
        let workers = [finish(0), finish(2)];
        let progress = tracker.progress();
        let says = |offset: u64| {
            let beyond = |progress: &Progress| {
                progress
                    .finished()
                    .iter()
                    .any(|range| range.contains(&offset))
            };
            offset < progress.first_unfinished() || beyond(&progress)
        };
        for offset in [0, 2] {
            assert!(
                !says(offset) || done[offset as usize].load(Relaxed),
                "{progress:?}"
            );
        }
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(tracker.progress(), Progress::from(3));
    });
}

/// A1. A worker finishes a message while the reader begins the next one, as after a restart.
#[test]
fn a_message_that_is_finished_beside_the_reader_is_finished() {
    check("track_reader", 4, || {
        let stored = {
            let tracker = Tracker::new(0);
            (0..3).for_each(|offset| _ = tracker.begin(offset));
            tracker.finish(1);
            tracker.progress()
        };
        let tracker = Arc::new(Tracker::new(stored));
        assert_eq!(tracker.begin(0), Begun::New);
        let worker = {
            let tracker = Arc::clone(&tracker);
            spawn(move || assert!(tracker.finish(0)))
        };
        assert_eq!(
            (tracker.begin(1), tracker.begin(2)),
            (Begun::Finished, Begun::New)
        );
        worker.join().unwrap();
        assert_eq!(tracker.progress(), Progress::from(2));
    });
}
