//! Entries of keys that are given by their parts (V6).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::common::timed::HOUR;
use crate::common::{Task, there};
use keyqueue::{Added, Clock, Ended, Full, MockClock, WorkQueue, merge};

type Key = (String, u32);
type Lists = WorkQueue<Key, Vec<u32>>;

fn lists() -> (Lists, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.levels(2).capacity(2).merge(merge::append);
    (builder.build().unwrap(), time)
}

/// The entry of a key with this number, which counts the keys that are made.
macro_rules! entry {
    ($queue:expr, $made:expr, $number:expr) => {
        $queue.entry_with(
            &("key", $number),
            |known: &Key| known.0 == "key" && known.1 == $number,
            || {
                $made.set($made.get() + 1);
                ("key".to_owned(), $number)
            },
        )
    };
}

fn deliveries(queue: &Lists) -> Vec<(u32, Vec<u32>)> {
    let items = there(queue);
    items
        .map(|mut item| (item.1, item.take().unwrap()))
        .collect()
}

#[test] // V6
fn a_key_is_made_once_by_whichever_verb_and_setting_is_first() {
    let made = Cell::new(0);
    type Verb = fn(&Lists, &Cell<u32>, u32) -> Added;
    let verbs: [Verb; 8] = [
        |queue, made, n| entry!(queue, made, 1).put(vec![n]),
        |queue, made, n| entry!(queue, made, 1).update(|list| list.push(n)),
        |queue, made, n| entry!(queue, made, 1).try_put(vec![n]).ok().unwrap(),
        |queue, made, n| pollster::block_on(entry!(queue, made, 1).put_async(vec![n])),
        |queue, made, n| entry!(queue, made, 1).level(0).wait().put(vec![n]),
        |queue, made, n| {
            let (entry, receipt) = entry!(queue, made, 1).tracked();
            let added = entry.put(vec![n]);
            assert_eq!(receipt.ended(), None);
            added
        },
        |queue, made, n| {
            let added = entry!(queue, made, 1).after(HOUR).put(vec![n]);
            assert!(matches!(added, Added::Delayed));
            added
        },
        |queue, made, n| {
            _ = entry!(queue, made, 1).add();
            entry!(queue, made, 1).debounce(HOUR, HOUR).put(vec![n])
        },
    ];
    for first in verbs {
        let (queue, time) = lists();
        made.set(0);
        first(&queue, &made, 0);
        for (n, verb) in (1..).zip(verbs) {
            verb(&queue, &made, n);
        }
        assert_eq!(made.get(), 1);
        time.advance(HOUR);
        queue.fire_due();
        assert_eq!(deliveries(&queue), [(1, (0..9).collect())]);
    }
}

#[test] // V6 B1 B2
fn without_room_the_value_comes_back_and_the_key_is_made_at_most_once() {
    let (queue, _) = lists();
    let made = Cell::new(0);
    for number in [1, 2] {
        assert_eq!(entry!(queue, made, number).put(vec![number]), Added::Queued);
    }
    let Err(Full(((), value))) = entry!(queue, made, 3).try_put(vec![3]) else {
        panic!("it is full");
    };
    assert_eq!((value, made.get()), (vec![3], 2));
    assert!(entry!(queue, made, 3).after(HOUR).try_put(vec![3]).is_err());
    // One that is known needs none.
    assert_eq!(
        entry!(queue, made, 1).try_put(vec![4]).ok(),
        Some(Added::Merged)
    );
    let before = made.get();
    let mut put = Task::waiting(Box::pin(entry!(queue, made, 3).put_async(vec![3])));
    assert_eq!(deliveries(&queue).len(), 2);
    assert_eq!(put.output(), Added::Queued);
    assert_eq!(made.get(), before + 1);
    assert_eq!(deliveries(&queue), [(3, vec![3])]);
    // Keys alone.
    let keys = WorkQueue::<Key>::builder().capacity(1).build().unwrap();
    assert_eq!(entry!(keys, made, 1).try_add(), Ok(Added::Queued));
    assert_eq!(entry!(keys, made, 1).try_add(), Ok(Added::Merged));
    let before = made.get();
    assert_eq!(entry!(keys, made, 2).try_add(), Err(Full(())));
    assert_eq!(entry!(keys, made, 2).after(HOUR).try_add(), Err(Full(())));
    assert_eq!(made.get(), before, "it is not made for nothing");
    assert_eq!(
        entry!(keys, made, 1).after(HOUR).try_add(),
        Ok(Added::Delayed)
    );
}

#[test] // V6 S1
fn a_queue_that_is_shut_down_neither_compares_nor_makes_a_key() {
    let (queue, _) = lists();
    queue.shut_down();
    let eq = |_: &Key| unreachable!("it is shut down");
    let entry = || queue.entry_with("key", eq, || unreachable!("it is shut down"));
    assert_eq!(entry().put(vec![1]), Added::ShutDown);
    assert_eq!(entry().add(), Added::ShutDown);
    assert_eq!(entry().after(HOUR).put(vec![1]), Added::ShutDown);
    assert_eq!(entry().try_put(vec![1]).ok(), Some(Added::ShutDown));
    let (entry, receipt) = entry().tracked();
    assert_eq!(
        (entry.put(vec![1]), receipt.ended()),
        (Added::ShutDown, Some(Ended::Dropped))
    );
}

#[test] // V6
fn a_key_that_hashes_differently_or_is_not_equal_is_right_all_the_same() {
    let (queue, _) = lists();
    for number in 0..2 {
        let entry = queue.entry_with("other", |_| false, || ("key".to_owned(), 1));
        entry.put(vec![number]);
    }
    assert_eq!(queue.put(("key".to_owned(), 1), vec![2]), Added::Merged);
    assert_eq!(deliveries(&queue), [(1, vec![0, 1, 2])]);
}

#[test] // V6 V4
fn a_key_whose_making_panics_adds_nothing() {
    let (queue, _) = lists();
    let entry = || queue.entry_with("key", |_| false, || resume_unwind(Box::new("as intended")));
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| entry().put(vec![1]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| entry().after(HOUR).put(vec![1]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| entry().try_put(vec![1]).is_ok())).is_err());
    }
    assert!(deliveries(&queue).is_empty());
    assert_eq!(queue.put(("key".to_owned(), 1), vec![1]), Added::Queued);
    assert_eq!(
        queue.entry(("key".to_owned(), 2)).try_put(vec![1]).ok(),
        Some(Added::Queued)
    );
}
