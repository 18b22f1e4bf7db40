//! Inspection: `snapshot`, `stuck` and the ages, and that an untimed queue does not pay for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{built, ms};
use crate::common::watchdog;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::{Clock, MockClock, State, WorkQueue};

fn named() -> (WorkQueue<&'static str>, MockClock) {
    built(|builder| builder.name("snapshot"))
}

/// What a snapshot says of each key: state, age, held.
fn seen(
    queue: &WorkQueue<&'static str>,
) -> HashMap<&'static str, (State, Option<Duration>, Option<Duration>)> {
    let snapshot = queue.snapshot();
    let row = |key: &keyqueue::KeySnapshot<'_, &'static str>| {
        (*key.key(), (key.state(), key.age(), key.held()))
    };
    snapshot.iter().map(row).collect()
}

#[test]
fn a_snapshot_has_every_key_with_its_state_and_its_age() {
    let (queue, time) = named();
    queue.add("queued");
    queue.add("busy");
    time.advance(ms(10));
    let first = queue.get().unwrap();
    let busy = queue.get().unwrap();
    first.done();
    time.advance(ms(5));
    queue.add("queued");
    time.advance(ms(3));

    assert_eq!(
        seen(&queue),
        HashMap::from([
            ("queued", (State::Queued, Some(ms(3)), None)),
            ("busy", (State::Processing, Some(ms(8)), Some(ms(8)))),
        ])
    );
    queue.add("busy");
    queue.add("busy");
    time.advance(ms(1));
    let now = seen(&queue);
    assert_eq!(now["busy"], (State::Dirty, Some(ms(1)), Some(ms(9))));

    busy.done();
    time.advance(ms(1));
    let now = seen(&queue);
    // From the add that made it dirty, not from the `done`.
    assert_eq!(now["busy"], (State::Queued, Some(ms(2)), None));
    drop(queue.get());
    drop(queue.get());
    assert!(seen(&queue).is_empty(), "idle keys are left out");
}

#[test]
fn a_snapshot_tells_of_delays_and_requeues() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(5), ms(1000)).unwrap();
    let queue = WorkQueue::builder()
        .name("snapshot")
        .rate_limiter(limiter.with_clock(clock.clone()))
        .clock(clock)
        .manual_timers()
        .build()
        .unwrap();
    for _ in 0..3 {
        queue.add_rate_limited("failing"); // 5 ms counts
    }
    let _idle = queue.handle("idle");
    time.advance(ms(2));
    let keys = queue.snapshot();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(*keys[0].key(), "failing");
    assert_eq!((keys[0].state(), keys[0].age()), (State::Idle, None));
    assert_eq!((keys[0].requeues(), keys[0].due_in()), (3, Some(ms(3))));
    time.advance(ms(9));
    assert_eq!(queue.snapshot()[0].due_in(), Some(Duration::ZERO));
    // What it was is what it stays, and the key is kept from the sweep.
    queue.fire_due();
    drop(queue.get());
    queue.shrink();
    assert_eq!((*keys[0].key(), keys[0].state()), ("failing", State::Idle));
}

#[test]
fn a_snapshot_names_the_keys_in_flight_for_too_long() {
    let (queue, time) = named();
    queue.add_all(["slow", "quick", "queued"]);
    let _slow = queue.get().unwrap();
    time.advance(ms(700));
    let _quick = queue.get().unwrap();
    time.advance(ms(300));
    let stuck = |than| {
        let keys = queue.snapshot().into_iter();
        let stuck = keys.filter(|key| key.held() >= Some(than));
        stuck.map(|key| *key.key()).collect::<Vec<_>>()
    };
    assert_eq!(stuck(ms(1000)), ["slow"]);
    assert_eq!(stuck(ms(1001)), [""; 0]);
    assert_eq!(stuck(ms(300)).len(), 2);
}

#[test] // M4: shown by what is not known.
fn an_unnamed_queue_has_no_ages_unless_it_is_asked_to() {
    let queue = WorkQueue::new();
    queue.add("a");
    let keys = queue.snapshot();
    assert_eq!((keys[0].state(), keys[0].age()), (State::Queued, None));
    drop(keys);
    let _item = queue.get();
    assert_eq!(queue.snapshot()[0].state(), State::Processing);
    assert_eq!(queue.snapshot()[0].held(), None);

    let builder = WorkQueue::builder().name("off").timing(false);
    let queue = builder.build().unwrap();
    queue.add("a");
    let _item = queue.get();
    assert_eq!(queue.snapshot()[0].held(), None);
    let queue = WorkQueue::builder().timing(true).build().unwrap();
    queue.add("a");
    assert!(queue.snapshot()[0].age().is_some());
    let _item = queue.get();
    assert!(queue.snapshot()[0].held().is_some());
}

#[test]
fn ages_are_measured_in_real_time() {
    let queue = WorkQueue::builder().timing(true).build().unwrap();
    queue.add("a");
    let _item = queue.get();
    let _watchdog = watchdog(60);
    while queue.snapshot()[0].held() < Some(ms(20)) {
        thread::yield_now();
    }
    let held = queue.snapshot()[0].held().unwrap();
    assert!(held >= ms(20) && held < Duration::from_secs(60), "{held:?}");
}

/// Whatever a key is doing, state and age belong together: each state of a key began no earlier
/// than the one before it.
#[test]
fn snapshots_beside_busy_workers_are_consistent_for_each_key() {
    let _watchdog = watchdog(120);
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::<u64>::builder()
        .name("busy")
        .clock(clock.clone());
    let queue = builder.manual_timers().shards(2).build().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = queue.get() {
                    time.advance(ms(1));
                    item.done();
                    time.advance(ms(1));
                }
            });
        }
        scope.spawn(|| {
            // Ordering: Relaxed; it ends sometime.
            while !stop.load(Ordering::Relaxed) {
                for key in 0..2_u64 {
                    queue.add(key);
                }
            }
            queue.shut_down();
        });
        let mut began = [Duration::ZERO; 2];
        let mut seen = HashMap::new();
        while seen.len() < 3 || seen.values().any(|times| *times < 100) {
            let before = clock.now();
            let keys = queue.snapshot();
            let after = clock.now();
            for key in keys {
                let age = key.age().expect("none is idle");
                // "Just now" may be said of a key whose time is being written.
                if age.is_zero() {
                    continue;
                }
                let latest = &mut began[*key.key() as usize];
                assert!(after - age >= *latest, "{key:?}, {after:?}, {latest:?}");
                *latest = before.saturating_sub(age).max(*latest);
                *seen.entry(key.state()).or_insert(0) += 1;
            }
        }
        // Ordering: Relaxed; as above.
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_queue_and_a_key_are_short_to_print() {
    let (queue, time) = named();
    queue.add("a");
    time.advance(ms(2));
    assert_eq!(
        format!("{queue:?}"),
        "WorkQueue { name: Some(\"snapshot\"), len: 1, waiting: 0, waiting_adds: 0, \
         timed: true, shutting_down: false, .. }"
    );
    assert_eq!(
        format!("{:?}", queue.snapshot()[0]),
        "KeySnapshot { key: \"a\", state: Queued, level: None, age: Some(2ms), held: None, \
         requeues: 0, due_in: None }"
    );
    assert_eq!(State::Dirty.to_string(), "dirty");
}

#[test]
fn a_snapshot_can_be_serialised() {
    let (queue, time) = named();
    queue.add("a");
    time.advance(ms(250));
    assert_eq!(
        serde_json::to_string(&queue.snapshot()).unwrap(),
        r#"[{"key":"a","state":"queued","level":null,"age":0.25,"held":null,"requeues":0,"due_in":null}]"#
    );
}
