//! One way to add: every setting of an entry with every other, and with every verb (V6).

use std::thread;
use std::time::Duration;

use super::timed_lists;
use crate::common::timed::{HOUR, secs};
use crate::common::{Task, eventually, waiting_adds, watchdog};
use pollster::block_on;

use keyqueue::entry::{Exceeds, Untracked};
use keyqueue::{
    Added, Clock, Ended, Entry, Full, GetError, KeyHandle, MockClock, Receipt, State, ValueQueue,
    Valued, WorkQueue, merge,
};

type Lists = ValueQueue<String, Vec<u32>>;

fn lists(capacity: usize) -> (Lists, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.levels(3).capacity(capacity);
    (builder.merge(merge::append).build().unwrap(), time)
}

/// What the verbs return, in all modes.
trait Returned {
    fn parts(self) -> (Added, Option<Receipt>);
}

impl Returned for Added {
    fn parts(self) -> (Added, Option<Receipt>) {
        (self, None)
    }
}

impl Returned for (Added, Receipt) {
    fn parts(self) -> (Added, Option<Receipt>) {
        (self.0, Some(self.1))
    }
}

impl<T: Returned, B> Returned for Result<T, Full<B>> {
    fn parts(self) -> (Added, Option<Receipt>) {
        self.expect("there is room").parts()
    }
}

/// The settings that do not change the type of an entry.
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

    fn of<'q, N, X>(self, mut entry: Entry<'q, N, X>) -> Entry<'q, N, X, Exceeds, Untracked> {
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
    tracked: bool,
    add: impl FnOnce(&Lists, &KeyHandle<Valued<String, Vec<u32>>>) -> (Added, Option<Receipt>),
) -> usize {
    let (queue, time) = lists(1);
    let handle = queue.handle(String::from("a").into());
    let (added, receipt) = add(&queue, &handle);
    let is_delayed = settings.delay.is_some_and(|delay| !delay.is_zero());
    assert_eq!(receipt.is_some(), tracked, "{settings:?}");
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
        assert_eq!(receipt.ended(), Some(Ended::Done), "{settings:?}");
    }
    1
}

/// Checks the verbs of an entry, which `$entry` makes with an adapter of the waiting and one of the receipt.
macro_rules! verbs {
    ($settings:expr, |$queue:ident, $handle:ident| $entry:expr, [$($wait:tt)*]) => {{
        let settings: Settings = $settings;
        let push = |value: &mut Vec<u32>| value.push(1);
        check(settings, None, false, |$queue, $handle| settings.of($entry)$($wait)*.add().parts())
            + check(settings, Some(&[1]), false, |$queue, $handle| settings.of($entry)$($wait)*.put(vec![1]).parts())
            + check(settings, Some(&[1]), false, |$queue, $handle| settings.of($entry)$($wait)*.update(push).parts())
            + check(settings, Some(&[]), true, |$queue, $handle| settings.of($entry)$($wait)*.tracked().add().parts())
            + check(settings, Some(&[1]), true, |$queue, $handle| settings.of($entry)$($wait)*.tracked().put(vec![1]).parts())
            + check(settings, Some(&[1]), true, |$queue, $handle| settings.of($entry).tracked()$($wait)*.update(push).parts())
    }};
}

macro_rules! async_verbs {
    ($settings:expr, |$queue:ident, $handle:ident| $entry:expr) => {{
        let settings: Settings = $settings;
        let push = |value: &mut Vec<u32>| value.push(1);
        check(settings, None, false, |$queue, $handle| {
            block_on(settings.of($entry).add_async()).parts()
        }) + check(settings, Some(&[1]), false, |$queue, $handle| {
            block_on(settings.of($entry).put_async(vec![1])).parts()
        }) + check(settings, Some(&[1]), false, |$queue, $handle| {
            block_on(settings.of($entry).update_async(push)).parts()
        }) + check(settings, Some(&[]), true, |$queue, $handle| {
            block_on(settings.of($entry).tracked().add_async()).parts()
        }) + check(settings, Some(&[1]), true, |$queue, $handle| {
            block_on(settings.of($entry).tracked().put_async(vec![1])).parts()
        }) + check(settings, Some(&[1]), true, |$queue, $handle| {
            block_on(settings.of($entry).tracked().update_async(push)).parts()
        })
    }};
}

macro_rules! waits {
    ($settings:expr, |$queue:ident, $handle:ident| $entry:expr) => {
        verbs!($settings, |$queue, $handle| $entry, [])
            + verbs!($settings, |$queue, $handle| $entry, [.refuse()])
            + verbs!($settings, |$queue, $handle| $entry, [.wait()])
            + verbs!($settings, |$queue, $handle| $entry, [.within(HOUR)])
            + async_verbs!($settings, |$queue, $handle| $entry)
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
    assert_eq!(combinations, 3 * 3 * 3 * 5 * 2 * 3);
}

#[test] // V6, B2
fn what_is_refused_comes_back_and_nothing_has_changed() {
    let (queue, _time) = lists(1);
    queue.put("full".into(), vec![]);
    let handle = queue.handle(String::from("handle").into());
    let soon = Duration::from_millis(1);
    for settings in Settings::all() {
        let entry = || settings.of(queue.entry(String::from("owned")));
        let Full((key, value)) = entry().refuse().put(vec![1]).unwrap_err();
        assert_eq!((&*key, value), ("owned", vec![1]));
        let Full((key, value)) = entry().within(soon).tracked().put(vec![1]).unwrap_err();
        assert_eq!((&*key, value), ("owned", vec![1]));

        let entry = || settings.of(queue.entry_ref("borrowed"));
        let Full((key, value)) = entry().refuse().put(vec![1]).unwrap_err();
        assert_eq!((key, value), ("borrowed", vec![1]));
        let change = entry().refuse().update(|value| value.push(1));
        let Full((key, change)) = change.unwrap_err();
        let mut changed = vec![0];
        change(&mut changed);
        assert_eq!((key, changed), ("borrowed", vec![0, 1]));
        let Full(key) = entry().tracked().refuse().add().unwrap_err();
        assert_eq!(key, "borrowed");

        let entry = || settings.of(handle.entry());
        let Full((key, value)) = entry().refuse().put(vec![1]).unwrap_err();
        assert_eq!((key.as_str(), value), ("handle", vec![1]));
        assert!(entry().within(soon).update(Vec::clear).is_err());
    }
    for key in ["owned", "borrowed", "handle"] {
        assert!(!queue.contains(&key.to_owned()), "{key}");
    }
    assert_eq!(queue.get().unwrap().key().key(), "full");
    assert!(
        queue.entry_ref("new").refuse().put(vec![]).is_ok(),
        "no room is lost"
    );
    assert!(
        queue.entry_ref("next").refuse().put(vec![]).is_err(),
        "no room has come"
    );
}

#[test] // V6, B1
fn what_merges_with_a_value_that_waits_needs_no_room() {
    let (queue, time) = lists(2);
    let handle = queue.handle(String::from("a").into());
    queue.entry_ref("a").after(secs(2)).put(vec![1]);
    queue.put("full".into(), vec![]);
    let added = queue.entry_ref("a").refuse().after(secs(1)).put(vec![2]);
    assert_eq!(added, Ok(Added::Delayed));
    let added = handle
        .entry()
        .refuse()
        .after(secs(3))
        .level(0)
        .update(|value| value.push(3));
    assert_eq!(added.ok(), Some(Added::Delayed));
    let (added, receipt) = queue.entry_ref("a").tracked().wait().after(HOUR).add();
    assert_eq!(added, Added::Delayed);
    assert!(
        queue
            .entry_ref("b")
            .refuse()
            .after(HOUR)
            .put(vec![])
            .is_err()
    );
    time.advance(secs(1));
    queue.fire_due();
    let item = queue.get().unwrap();
    assert_eq!((item.key().key().as_str(), item.level()), ("a", 0));
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
fn a_delayed_put_that_waits_for_room_is_delayed_once_there_is_some() {
    let _watchdog = watchdog(60);
    let (queue, time) = lists(1);
    queue.put("full".into(), vec![]);
    thread::scope(|scope| {
        let wait = scope.spawn(|| {
            queue
                .entry_ref("a")
                .after(secs(1))
                .level(0)
                .wait()
                .put(vec![1])
        });
        eventually("the add waits for room", || waiting_adds(&queue) == 1);
        assert!(!wait.is_finished());
        assert_eq!(queue.state(&"a".to_owned()), State::Idle);
        queue.get().unwrap().done();
        assert_eq!(wait.join().unwrap(), Added::Delayed);
    });
    assert!(
        queue.entry_ref("b").refuse().put(vec![]).is_err(),
        "the delay takes room"
    );
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(queue.get().unwrap().level(), 0);
}

#[test] // V6, B2
fn a_task_that_is_cancelled_while_it_waits_has_added_nothing() {
    let (queue, _time) = lists(1);
    queue.put("full".into(), vec![]);
    let update = queue
        .entry_ref("a")
        .after(HOUR)
        .tracked()
        .update_async(Vec::clear);
    let update = Task::waiting(Box::pin(update));
    let mut put = Task::waiting(Box::pin(queue.entry_ref("b").level(0).put_async(vec![2])));
    drop(update);
    put.assert_pending();
    queue.get().unwrap().done();
    assert_eq!(put.output(), Added::Queued);
    assert!(!queue.contains(&"a".to_owned()));
    let item = queue.get().unwrap();
    assert_eq!((item.level(), item.value()), (0, &vec![2]));
}

#[test] // V6
fn a_delay_that_is_cancelled_ends_the_receipt_as_dropped() {
    let (queue, _time) = lists(1);
    let (added, receipt) = queue.entry_ref("a").after(HOUR).tracked().put(vec![1]);
    assert_eq!((added, receipt.ended()), (Added::Delayed, None));
    assert!(queue.cancel(&"a".to_owned()));
    assert_eq!(receipt.ended(), Some(Ended::Dropped));
    assert!(
        queue.entry_ref("b").refuse().put(vec![]).is_ok(),
        "its room is given back"
    );
}

#[test] // V6, S1
fn a_queue_that_is_shut_down_refuses_every_combination() {
    let (queue, _time) = lists(1);
    let handle = queue.handle(String::from("a").into());
    queue.put("full".into(), vec![]);
    queue.shut_down();
    for settings in Settings::all() {
        let owned = || settings.of(queue.entry(String::from("b")));
        let borrowed = || settings.of(queue.entry_ref("c"));
        let by_handle = || settings.of(handle.entry());
        assert_eq!(owned().refuse().put(vec![]), Ok(Added::ShutDown));
        assert_eq!(owned().within(HOUR).add(), Ok(Added::ShutDown));
        assert_eq!(borrowed().wait().update(Vec::clear), Added::ShutDown);
        assert_eq!(borrowed().add(), Added::ShutDown);
        assert_eq!(by_handle().put(vec![]), Added::ShutDown);
        assert_eq!(by_handle().wait().add(), Added::ShutDown);
        assert_eq!(
            block_on(by_handle().update_async(Vec::clear)),
            Added::ShutDown
        );
        let refused = [
            owned().tracked().put(vec![]),
            borrowed().wait().tracked().update(Vec::clear),
            by_handle().tracked().refuse().add().unwrap(),
        ];
        for (added, receipt) in refused {
            assert_eq!(
                (added, receipt.ended()),
                (Added::ShutDown, Some(Ended::Dropped))
            );
        }
    }
    assert_eq!(queue.try_iter().count(), 1);
    assert!(!queue.contains(&"b".to_owned()) && !queue.contains(&"c".to_owned()));
}

#[test] // V6, B1
fn an_update_by_weight_needs_room_for_one_and_counts_in_full() {
    let (queue, _time) = timed_lists(|builder| builder.capacity(3).weight(Vec::len));
    let update = |key, n| {
        queue
            .entry(key)
            .refuse()
            .update(move |value| value.extend(0..n))
    };
    assert!(update("a", 2).is_ok());
    assert!(update("b", 2).is_ok(), "there was room for one");
    assert!(update("a", 0).is_err() && update("c", 1).is_err());
    queue.get().unwrap().done();
    assert!(
        update("c", 1).is_ok() && update("d", 1).is_err(),
        "two and one wait"
    );
}
