//! One way to add, in queues without values: every setting of an entry with every other (V6).

use std::borrow::Borrow;
use std::cell::Cell;
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, secs};
use crate::common::{Task, eventually, waiting_adds, watchdog};
use keyqueue::{Added, Entry, Full, WorkQueue};

type Queue = WorkQueue<String>;

#[derive(Clone, Copy, Debug)]
struct Settings {
    level: Option<usize>,
    delay: Option<Duration>,
}

impl Settings {
    fn all() -> impl Iterator<Item = Settings> {
        let delays = [None, Some(Duration::ZERO), Some(secs(1))];
        let with = move |level| delays.map(|delay| Settings { level, delay });
        [None, Some(0), Some(9)].into_iter().flat_map(with)
    }

    fn of<'q, K, V, X>(self, mut entry: Entry<'q, K, V, X>) -> Entry<'q, K, V, X> {
        if let Some(level) = self.level {
            entry = entry.level(level);
        }
        match self.delay {
            Some(delay) => entry.after(delay),
            None => entry,
        }
    }
}

#[test] // V6
fn every_setting_goes_with_every_other() {
    const WAYS: usize = 15;
    for settings in Settings::all() {
        for way in 0..WAYS {
            let (queue, time) = built(|builder| builder.levels(3).capacity(1));
            let handle = queue.handle("a".to_owned());
            let owned = || settings.of(queue.entry("a".to_owned()));
            let borrowed = || settings.of(queue.entry_ref("a"));
            let by_handle = || settings.of(handle.entry());
            let added = match way {
                0 => owned().add(),
                1 => owned().try_add().unwrap(),
                2 => owned().wait().add(),
                3 => owned().within(HOUR).try_add().unwrap(),
                4 => pollster::block_on(owned().add_async()),
                5 => borrowed().add(),
                6 => borrowed().try_add().unwrap(),
                7 => borrowed().wait().add(),
                8 => borrowed().within(HOUR).try_add().unwrap(),
                9 => pollster::block_on(borrowed().add_async()),
                10 => by_handle().add(),
                11 => by_handle().try_add().unwrap(),
                12 => by_handle().wait().add(),
                13 => by_handle().within(HOUR).try_add().unwrap(),
                _ => pollster::block_on(by_handle().add_async()),
            };
            let is_delayed = settings.delay.is_some_and(|delay| !delay.is_zero());
            match is_delayed {
                true => assert_eq!(added, Added::Delayed, "{way} {settings:?}"),
                false => assert_eq!(added, Added::Queued, "{way} {settings:?}"),
            }
            assert!(
                queue.entry_ref("b").try_add().is_err(),
                "{way} {settings:?}"
            );
            time.advance(secs(1));
            assert_eq!(queue.fire_due(), usize::from(is_delayed));
            let item = queue.try_get().unwrap();
            let level = settings.level.unwrap_or(1).min(2);
            assert_eq!((item.as_str(), item.level()), ("a", level));
            assert!(queue.entry_ref("b").try_add().is_ok(), "{way} {settings:?}");
        }
    }
}

#[test] // V6, B2
fn what_is_refused_comes_back_and_nothing_has_changed() {
    let (queue, _time): (Queue, _) = built(|builder| builder.levels(3).capacity(1));
    queue.entry_ref("full").add();
    let handle = queue.handle("handle".to_owned());
    for settings in Settings::all() {
        let owned = settings.of(queue.entry("owned".to_owned()));
        assert_eq!(owned.try_add(), Err(Full("owned".to_owned())));
        let borrowed = settings.of(queue.entry_ref("borrowed"));
        let soon = Duration::from_millis(1);
        assert_eq!(borrowed.within(soon).try_add(), Err(Full("borrowed")));
        let Full(refused) = settings.of(handle.entry()).try_add().unwrap_err();
        assert!(std::ptr::eq(refused, &handle));
    }
    for key in ["owned", "borrowed", "handle"] {
        assert!(queue.state(key).is_none(), "{key}");
    }
    queue.get().unwrap().done();
    assert_eq!(queue.entry_ref("new").try_add(), Ok(Added::Queued));
    assert_eq!(queue.entry_ref("next").try_add(), Err(Full("next")));
}

#[test] // V6, B1
fn a_delay_of_a_key_that_is_there_needs_no_room() {
    let (queue, _time): (Queue, _) = built(|builder| builder.capacity(3));
    queue.entry_ref("processing").add();
    let item = queue.get().unwrap();
    queue.entry_ref("queued").add();
    queue.entry_ref("delayed").after(HOUR).add();
    queue.entry_ref("other").add();
    let handle = queue.handle("queued".to_owned());
    let refuse = |key| queue.entry_ref(key).after(HOUR).try_add();
    assert_eq!(refuse("new"), Err(Full("new")));
    assert_eq!(refuse("delayed"), Ok(Added::Delayed));
    assert_eq!(refuse("processing"), Ok(Added::Delayed));
    assert!(handle.entry().after(HOUR).try_add().is_ok());
    assert_eq!(queue.counts().delayed, 3);
    drop(item);
}

#[test] // V6, B1, B2
fn a_delay_takes_room_when_it_is_set_and_waits_for_it() {
    let _watchdog = watchdog(60);
    let (queue, time): (Queue, _) = built(|builder| builder.levels(3).capacity(1));
    let handle = queue.handle("b".to_owned());
    assert_eq!(
        queue.entry_ref("a").after(HOUR).try_add(),
        Ok(Added::Delayed)
    );
    thread::scope(|scope| {
        let wait = scope.spawn(|| handle.entry().after(secs(1)).level(0).wait().add());
        eventually("the add waits for room", || waiting_adds(&queue) == 1);
        assert!(!wait.is_finished());
        assert!(queue.state("b").is_none());
        assert!(queue.cancel("a"));
        assert_eq!(wait.join().unwrap(), Added::Delayed);
    });
    let mut c = Task::waiting(Box::pin(queue.entry_ref("c").after(HOUR).add_async()));
    let d = Task::waiting(Box::pin(queue.entry_ref("d").level(0).add_async()));
    time.advance(secs(1));
    queue.fire_due();
    c.assert_pending();
    assert_eq!(queue.get().unwrap().level(), 0);
    drop(d);
    assert_eq!(c.output(), Added::Delayed);
    assert_eq!((queue.state("d"), queue.counts().delayed), (None, 1));
}

/// A key that counts its copies.
#[derive(PartialEq, Eq, Hash)]
struct Copied(String);

#[derive(PartialEq, Eq, Hash)]
#[repr(transparent)]
struct Part(str);

thread_local!(static COPIES: Cell<usize> = const { Cell::new(0) });

impl Part {
    fn new(part: &str) -> &Part {
        // SAFETY: `Part` is transparent.
        unsafe { &*(std::ptr::from_ref(part) as *const Part) }
    }
}

impl Borrow<Part> for Copied {
    fn borrow(&self) -> &Part {
        Part::new(&self.0)
    }
}

impl ToOwned for Part {
    type Owned = Copied;

    fn to_owned(&self) -> Copied {
        COPIES.set(COPIES.get() + 1);
        Copied(self.0.to_owned())
    }
}

#[test] // V6
fn a_borrowed_key_is_copied_only_if_it_is_unknown_and_has_room() {
    let (queue, _time) = built::<Copied>(|builder| builder.capacity(1));
    let entry = || queue.entry_ref(Part::new("a"));
    entry().try_add().expect("there is room");
    assert_eq!(COPIES.get(), 1);
    entry().add();
    entry().level(0).wait().add();
    entry().after(HOUR).add();
    assert_eq!(COPIES.get(), 1, "it is known");
    let other = || queue.entry_ref(Part::new("b"));
    assert!(other().try_add().is_err());
    assert!(other().after(HOUR).try_add().is_err());
    drop(Task::waiting(Box::pin(other().add_async())));
    assert_eq!(COPIES.get(), 1, "there is no room");
    other().after(HOUR).add();
    assert_eq!(COPIES.get(), 2);
}
