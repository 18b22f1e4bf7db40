//! One way to add: every setting of an entry with every other, and with every verb (V6).

use std::convert::identity;
use std::time::Duration;

use super::timed_lists;
use crate::common::timed::{HOUR, secs};
use crate::common::{Task, there};
use pollster::block_on;

use keyqueue::{
    Added, Clock, Ended, Entry, Full, GetError, KeyHandle, MockClock, Receipt, WorkQueue, merge,
};

type Lists = WorkQueue<String, Vec<u32>>;

fn lists(capacity: usize) -> (Lists, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.levels(3).capacity(capacity);
    (builder.merge(merge::append).build().unwrap(), time)
}

/// What the verbs return.
trait Returned {
    fn added(self) -> Added;
}

impl Returned for Added {
    fn added(self) -> Added {
        self
    }
}

impl<B> Returned for Result<Added, Full<B>> {
    fn added(self) -> Added {
        self.expect("there is room")
    }
}

/// The settings of an entry, but for what it does without room.
#[derive(Clone, Copy, Debug)]
struct Settings {
    level: Option<usize>,
    delay: Option<Duration>,
}

impl Settings {
    fn all() -> impl Iterator<Item = Settings> {
        let delays = [None, Some(Duration::ZERO), Some(secs(1))];
        let levels = [None, Some(0), Some(9)];
        let with = move |level| delays.map(|delay| Settings { level, delay });
        levels.into_iter().flat_map(with)
    }

    fn of<X>(self, mut entry: Entry<'_, String, Vec<u32>, X>) -> Entry<'_, String, Vec<u32>, X> {
        if let Some(level) = self.level {
            entry = entry.level(level);
        }
        match self.delay {
            Some(delay) => entry.after(delay),
            None => entry,
        }
    }
}

/// Adds the key "a" to a new queue, and checks what was added and how it is delivered.
fn check(
    settings: Settings,
    value: Option<&[u32]>,
    add: impl FnOnce(&Lists, &KeyHandle<String, Vec<u32>>) -> (Added, Option<Receipt>),
) -> usize {
    let (queue, time) = lists(1);
    let handle = queue.handle(String::from("a"));
    let (added, receipt) = add(&queue, &handle);
    let is_delayed = settings.delay.is_some_and(|delay| !delay.is_zero());
    if is_delayed {
        assert_eq!(added, Added::Delayed, "{settings:?}");
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
        time.advance(secs(1));
        assert_eq!(queue.fire_due(), 1);
    } else {
        assert_eq!(added, Added::Queued, "{settings:?}");
    }
    assert_eq!(receipt.as_ref().and_then(Receipt::ended), None);
    match value {
        None => assert_eq!(queue.try_get().unwrap_err(), GetError::Empty),
        Some(value) => {
            let item = queue.try_get().unwrap();
            let level = settings.level.unwrap_or(1).min(2);
            assert_eq!((item.value(), item.level()), (&value.to_vec(), level));
            item.done();
        }
    }
    if let Some(receipt) = receipt {
        let end = value.map_or(Ended::Dropped, |_| Ended::Done);
        assert_eq!(receipt.ended(), Some(end), "{settings:?}");
    }
    1
}

/// Checks the verbs of an entry, which `$entry` makes, with what it does without room. `$run` returns what a verb says.
macro_rules! verbs {
    (
        $settings:expr, |$queue:ident, $handle:ident| $entry:expr, [$($wait:tt)*],
        $run:expr, $add:ident, $put:ident, $update:ident
    ) => {{
        let settings: Settings = $settings;
        let push = |value: &mut Vec<u32>| value.push(1);
        check(settings, None, |$queue, $handle| {
            ($run(settings.of($entry)$($wait)*.$add()).added(), None)
        }) + check(settings, Some(&[1]), |$queue, $handle| {
            ($run(settings.of($entry)$($wait)*.$put(vec![1])).added(), None)
        }) + check(settings, Some(&[1]), |$queue, $handle| {
            ($run(settings.of($entry)$($wait)*.$update(push)).added(), None)
        }) + check(settings, None, |$queue, $handle| {
            let (entry, receipt) = settings.of($entry)$($wait)*.tracked();
            ($run(entry.$add()).added(), Some(receipt))
        }) + check(settings, Some(&[1]), |$queue, $handle| {
            let (entry, receipt) = settings.of($entry)$($wait)*.tracked();
            ($run(entry.$put(vec![1])).added(), Some(receipt))
        }) + check(settings, Some(&[1]), |$queue, $handle| {
            let (entry, receipt) = settings.of($entry).tracked();
            ($run(entry$($wait)*.$update(push)).added(), Some(receipt))
        })
    }};
}

macro_rules! waits {
    ($settings:expr, |$queue:ident, $handle:ident| $entry:expr) => {
        verbs!($settings, |$queue, $handle| $entry, [], identity, add, put, update)
            + verbs!($settings, |$queue, $handle| $entry, [], identity, try_add, try_put, try_update)
            + verbs!($settings, |$queue, $handle| $entry, [.wait()], identity, add, put, update)
            + verbs!($settings, |$queue, $handle| $entry, [.wait()], identity, try_add, try_put, try_update)
            + verbs!($settings, |$queue, $handle| $entry, [.within(HOUR)], identity, add, put, update)
            + verbs!($settings, |$queue, $handle| $entry, [.within(HOUR)], identity, try_add, try_put, try_update)
            + verbs!($settings, |$queue, $handle| $entry, [], block_on, add_async, put_async, update_async)
            + verbs!($settings, |$queue, $handle| $entry, [.wait()], block_on, add_async, put_async, update_async)
            + verbs!($settings, |$queue, $handle| $entry, [.within(HOUR)], block_on, add_async, put_async, update_async)
    };
}

#[test] // V6
fn every_setting_goes_with_every_other_and_with_every_verb() {
    let mut combinations = 0;
    for settings in Settings::all() {
        combinations += waits!(settings, |queue, _handle| queue.entry(String::from("a")));
        combinations += waits!(settings, |queue, _handle| queue.entry_ref("a"));
        combinations += waits!(settings, |_queue, handle| handle.entry());
    }
    // Levels, delays, keys, ways to wait, receipts, verbs.
    assert_eq!(combinations, 3 * 3 * 3 * 9 * 2 * 3);
}

#[test] // V6, B2
fn what_is_refused_comes_back_and_nothing_has_changed() {
    let (queue, _time) = lists(1);
    queue.put("full".into(), vec![]);
    let handle = queue.handle(String::from("handle"));
    let soon = Duration::from_millis(1);
    for settings in Settings::all() {
        let entry = || settings.of(queue.entry(String::from("owned")));
        let Full((key, value)) = entry().try_put(vec![1]).unwrap_err();
        assert_eq!((&*key, value), ("owned", vec![1]));
        let (within, receipt) = entry().within(soon).tracked();
        let Full((key, value)) = within.try_put(vec![1]).unwrap_err();
        assert_eq!(receipt.ended(), Some(Ended::Dropped));
        assert_eq!((&*key, value), ("owned", vec![1]));

        let entry = || settings.of(queue.entry_ref("borrowed"));
        let Full((key, value)) = entry().try_put(vec![1]).unwrap_err();
        assert_eq!((key, value), ("borrowed", vec![1]));
        let change = entry().try_update(|value| value.push(1));
        let Full((key, change)) = change.unwrap_err();
        let mut changed = vec![0];
        change(&mut changed);
        assert_eq!((key, changed), ("borrowed", vec![0, 1]));

        let entry = || settings.of(handle.entry());
        let Full((key, value)) = entry().try_put(vec![1]).unwrap_err();
        assert_eq!((key.as_str(), value), ("handle", vec![1]));
        assert!(entry().within(soon).try_update(Vec::clear).is_err());
    }
    for key in ["owned", "borrowed", "handle"] {
        assert!(queue.state(&key.to_owned()).is_none(), "{key}");
    }
    assert_eq!(queue.get().unwrap().key(), "full");
    assert!(
        queue.entry_ref("new").try_put(vec![]).is_ok(),
        "no room is lost"
    );
    assert!(
        queue.entry_ref("next").try_put(vec![]).is_err(),
        "no room has come"
    );
}

#[test] // V6, B1
fn what_merges_with_a_value_that_waits_needs_no_room() {
    let (queue, time) = lists(2);
    let handle = queue.handle(String::from("a"));
    queue.entry_ref("a").after(secs(2)).put(vec![1]);
    queue.put("full".into(), vec![]);
    let added = queue.entry_ref("a").after(secs(1)).try_put(vec![2]);
    assert_eq!(added, Ok(Added::Delayed));
    let added = handle
        .entry()
        .after(secs(3))
        .level(0)
        .try_update(|value| value.push(3));
    assert_eq!(added.ok(), Some(Added::Delayed));
    let (entry, receipt) = queue.entry_ref("a").tracked();
    assert_eq!(entry.wait().after(HOUR).add(), Added::Delayed);
    assert!(queue.entry_ref("b").after(HOUR).try_put(vec![]).is_err());
    time.advance(secs(1));
    queue.fire_due();
    let item = queue.get().unwrap();
    assert_eq!((item.key().as_str(), item.level()), ("a", 0));
    assert_eq!(item.value(), &[1, 2, 3]);
    item.done();
    assert_eq!(receipt.ended(), Some(Ended::Done));
}

#[test] // V6, D3, P4
fn of_two_delays_the_more_urgent_level_counts() {
    for (first, second, level) in [(2, 0, 0), (0, 2, 0), (1, 1, 1)] {
        let (queue, time) = lists(9);
        queue
            .entry_ref("a")
            .level(first)
            .after(secs(1))
            .put(vec![1]);
        queue
            .entry_ref("a")
            .after(secs(2))
            .level(second)
            .put(vec![2]);
        time.advance(secs(1));
        queue.fire_due();
        let item = queue.get().unwrap();
        assert_eq!((item.level(), item.value()), (level, &vec![1, 2]));
    }
}

#[test] // V6, B2
fn a_task_that_is_cancelled_while_it_waits_has_added_nothing() {
    let (queue, _time) = lists(1);
    queue.put("full".into(), vec![]);
    let (entry, receipt) = queue.entry_ref("a").after(HOUR).tracked();
    let update = Task::waiting(Box::pin(entry.update_async(Vec::clear)));
    let mut put = Task::waiting(Box::pin(queue.entry_ref("b").level(0).put_async(vec![2])));
    drop(update);
    assert_eq!(receipt.ended(), Some(Ended::Dropped));
    put.assert_pending();
    queue.get().unwrap().done();
    assert_eq!(put.output(), Added::Queued);
    assert!(queue.state(&"a".to_owned()).is_none());
    let item = queue.get().unwrap();
    assert_eq!((item.level(), item.value()), (0, &vec![2]));
}

#[test] // V6
fn a_delay_that_is_cancelled_ends_the_receipt_as_dropped() {
    let (queue, _time) = lists(1);
    let (entry, receipt) = queue.entry_ref("a").after(HOUR).tracked();
    assert_eq!(
        (entry.put(vec![1]), receipt.ended()),
        (Added::Delayed, None)
    );
    assert!(queue.cancel(&"a".to_owned()));
    assert_eq!(receipt.ended(), Some(Ended::Dropped));
    assert!(
        queue.entry_ref("b").try_put(vec![]).is_ok(),
        "its room is given back"
    );
}

#[test] // V6, S1
fn a_queue_that_is_shut_down_refuses_every_combination() {
    let (queue, _time) = lists(1);
    let handle = queue.handle(String::from("a"));
    queue.put("full".into(), vec![]);
    queue.shut_down();
    for settings in Settings::all() {
        let owned = || settings.of(queue.entry(String::from("b")));
        let borrowed = || settings.of(queue.entry_ref("c"));
        let by_handle = || settings.of(handle.entry());
        assert_eq!(owned().try_put(vec![]), Ok(Added::ShutDown));
        assert_eq!(owned().within(HOUR).try_add(), Ok(Added::ShutDown));
        assert_eq!(borrowed().wait().update(Vec::clear), Added::ShutDown);
        assert_eq!(borrowed().add(), Added::ShutDown);
        assert_eq!(by_handle().put(vec![]), Added::ShutDown);
        assert_eq!(by_handle().wait().add(), Added::ShutDown);
        assert_eq!(
            block_on(by_handle().update_async(Vec::clear)),
            Added::ShutDown
        );
        let (owned, first) = owned().tracked();
        let (borrowed, second) = borrowed().wait().tracked();
        let (by_handle, third) = by_handle().tracked();
        let refused = [
            owned.put(vec![]),
            borrowed.update(Vec::clear),
            by_handle.try_add().unwrap(),
        ];
        assert_eq!(refused, [Added::ShutDown; 3]);
        let ends = [first, second, third].map(|receipt| receipt.ended());
        assert_eq!(ends, [Some(Ended::Dropped); 3]);
    }
    assert_eq!(there(&queue).count(), 1);
    assert!(queue.state(&"b".to_owned()).is_none() && queue.state(&"c".to_owned()).is_none());
}

#[test] // V6, B1
fn an_update_by_weight_needs_room_for_one_and_counts_in_full() {
    let (queue, _time) = timed_lists(|builder| builder.capacity(3).weight(Vec::len));
    let update = |key, n| queue.entry(key).try_update(move |value| value.extend(0..n));
    assert!(update("a", 2).is_ok());
    assert!(update("b", 2).is_ok(), "there was room for one");
    assert!(update("a", 0).is_err() && update("c", 1).is_err());
    queue.get().unwrap().done();
    assert!(
        update("c", 1).is_ok() && update("d", 1).is_err(),
        "two and one wait"
    );
}

#[test] // V6 V2
fn a_tracked_add_adds_no_value_and_ends_with_the_one_that_waits() {
    let (queue, _time) = lists(9);
    queue.put("a".into(), vec![1]);
    let (entry, receipt) = queue.entry_ref("a").tracked();
    assert_eq!(entry.add(), Added::Merged);
    let item = queue.get().unwrap();
    assert_eq!(*item.value(), [1]);
    // The next one ends with a later value.
    let (entry, next) = queue.entry_ref("a").tracked();
    assert_eq!(entry.add(), Added::Deferred);
    item.done();
    assert_eq!((receipt.ended(), next.ended()), (Some(Ended::Done), None));
    queue.put("a".into(), vec![2]);
    let mut item = queue.get().unwrap();
    assert_eq!(item.take(), Some(vec![2]));
    item.done();
    assert_eq!(next.ended(), Some(Ended::Done));
    // Without a value there is no delivery, and the receipt says so.
    let (entry, none) = queue.entry_ref("a").tracked();
    assert_eq!(entry.add(), Added::Queued);
    assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
    assert_eq!(none.ended(), Some(Ended::Dropped));
}
