//! Random runs of queues of values with all settings: each value is in one delivery that finishes, or is taken back,
//! and its receipt says so (V1 to V3, B1, S8, C10).

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::tracked;
use crate::common::counted::{Alive, Counted};
use crate::common::timed::{HOUR, ms};
use crate::common::{Note, poll, scaled, watchdog};
use keyqueue::{
    Added, Builder, Clock, Ended, Full, Item, MockClock, Receipt, State, WorkQueue, merge,
};

/// Values with numbers.
type Value = Vec<Counted<u32>>;
type Queue = WorkQueue<u32, Value>;
type QueueItem<'q> = Item<'q, u32, Value>;

const CAPACITY: usize = 5;
const KEYS: u32 = 6;

fn numbers(value: &[Counted<u32>]) -> Vec<u32> {
    value.iter().map(|tag| tag.0).collect()
}

/// Draws the settings, and says what they are.
fn settings(
    random: &mut fastrand::Rng,
    builder: Builder<u32, Value>,
) -> (Builder<u32, Value>, String) {
    let mut said = String::new();
    let mut builder = builder.levels(random.usize(1..4)).shards(2);
    let mut draw = |name: &str| {
        let is_set = random.u8(..3) == 0;
        if is_set {
            said.push_str(name);
            said.push(' ');
        }
        is_set
    };
    if draw("bound") {
        builder = builder.capacity(CAPACITY);
    } else if draw("weighed") {
        builder = builder.capacity(CAPACITY).weight(Vec::len);
    }
    if draw("supersede") {
        builder = builder.supersede_delays(true);
    }
    if draw("timed") {
        builder = builder.timing(true);
    }
    if draw("pace") {
        builder = builder.dispatch_rate(100.0, 2);
    }
    if draw("interval") {
        builder = builder.min_interval(ms(15));
    }
    if draw("groups") {
        builder = builder.group_by(|key| *key % 3);
        if draw("limit") {
            builder = builder.group_limit(1);
        }
        if draw("rate") {
            builder = builder.group_rate(100.0, 2);
        }
    }
    (builder, said)
}

/// What ought to become of each value.
struct Run {
    time: MockClock,
    alive: Alive,
    next: u32,
    /// The values that wait for the next delivery of each key.
    waiting: BTreeMap<u32, Vec<u32>>,
    /// Those of them that wait for a retry.
    retries: BTreeSet<u32>,
    receipts: BTreeMap<u32, Receipt>,
    /// How the values have ended that wait no longer and are in no delivery.
    ended: BTreeMap<u32, Ended>,
}

impl Run {
    fn tag(&mut self) -> (u32, Value) {
        self.next += 1;
        (self.next, vec![self.alive.of(self.next)])
    }

    fn put(&mut self, key: u32, number: u32, added: Added) {
        match added.is_accepted() {
            true => self.waiting.entry(key).or_default().push(number),
            false => _ = self.ended.insert(number, Ended::Dropped),
        }
    }

    fn end(&mut self, numbers: Vec<u32>, end: Ended) {
        for number in numbers {
            let before = self.ended.insert(number, end);
            assert_eq!(before, None, "value {number} ends twice");
        }
    }

    fn drop_waiting(&mut self, key: u32) {
        self.retries.remove(&key);
        let numbers = self.waiting.remove(&key).unwrap_or_default();
        self.end(numbers, Ended::Dropped);
    }
}

/// What a worker holds: the item, and the values of its delivery.
type Held<'q> = Vec<(QueueItem<'q>, Vec<u32>)>;

fn step<'q>(run: &mut Run, queue: &'q Queue, random: &mut fastrand::Rng, held: &mut Held<'q>) {
    let key = random.u32(..KEYS);
    let (number, value) = run.tag();
    match random.u8(..22) {
        0 | 1 => {
            let receipt = tracked(queue, key, value);
            run.receipts.insert(number, receipt);
            run.put(key, number, Added::Queued);
        }
        2 => run.put(
            key,
            number,
            queue.entry(key).level(random.usize(..3)).put(value),
        ),
        3 => run.put(key, number, queue.entry_ref(&key).put(value)),
        4 => run.put(
            key,
            number,
            queue.entry(key).update(|list| list.extend(value)),
        ),
        5 => run.put(key, number, queue.handle(key).put(value)),
        6 | 7 => match queue.entry(key).try_put(value) {
            Ok(added) => run.put(key, number, added),
            Err(Full((of, value))) => assert_eq!((of, numbers(&value)), (key, vec![number])),
        },
        8 => {
            let put = poll(
                &mut Box::pin(queue.entry(key).put_async(value)),
                Waker::noop(),
            );
            if let Poll::Ready(added) = put {
                run.put(key, number, added);
            }
        }
        9 | 10 => {
            let delay = ms(random.u64(..30));
            run.put(key, number, queue.entry(key).after(delay).put(value));
        }
        11..=13 => {
            if let Ok(item) = queue.try_get() {
                let expected = run.waiting.remove(item.key());
                run.retries.remove(item.key());
                assert_eq!(Some(numbers(item.value())), expected, "of {:?}", item.key());
                held.push((item, expected.unwrap()));
            }
        }
        14 | 15 if !held.is_empty() => {
            let (item, numbers) = held.swap_remove(0);
            item.done();
            run.end(numbers, Ended::Done);
        }
        16 if !held.is_empty() => {
            // The older values go first.
            let (item, mut numbers) = held.swap_remove(0);
            let key = *item.key();
            let _ = item.retry_after(ms(random.u64(..20)));
            numbers.extend(run.waiting.remove(&key).unwrap_or_default());
            run.waiting.insert(key, numbers);
            run.retries.insert(key);
        }
        17 if !held.is_empty() => {
            // A value that was taken is not delivered again.
            let (mut item, numbers) = held.swap_remove(0);
            item.take();
            let key = *item.key();
            run.retries
                .extend(run.waiting.contains_key(&key).then_some(key));
            let _ = item.retry_after(ms(random.u64(..2)));
            run.end(numbers, Ended::GivenUp);
        }
        18 => {
            run.time.advance(ms(random.u64(..20)));
            queue.fire_due();
        }
        19 => {
            let removed = queue.remove(&key).map(|value| numbers(&value));
            assert_eq!(removed.as_ref(), run.waiting.get(&key));
            run.drop_waiting(key);
        }
        20 => {
            let state = queue.state(&key);
            if queue.cancel(&key) && !matches!(state, Some(State::Queued | State::Dirty)) {
                run.drop_waiting(key);
            }
        }
        21 if random.u8(..4) == 0 => {
            let queued = |key: &u32| queue.state(key) == Some(State::Queued);
            let queued: Vec<_> = (0..KEYS).filter(queued).collect();
            queue.clear();
            queued.into_iter().for_each(|key| run.drop_waiting(key));
        }
        _ => {
            let holds = [Duration::ZERO, ms(9), HOUR, Duration::MAX];
            let _ = queue.hold_group(&(key % 3), holds[random.usize(..4)]);
            queue.shrink();
        }
    }
}

impl Run {
    fn assert_agrees(&self, held: &Held<'_>) {
        for (number, receipt) in &self.receipts {
            let ended = self.ended.get(number).copied();
            assert_eq!(receipt.ended(), ended, "of value {number}");
        }
        // No value lives but those that wait or are delivered.
        let waiting: usize = self.waiting.values().map(Vec::len).sum();
        let loaded: usize = held.iter().map(|(_, numbers)| numbers.len()).sum();
        assert_eq!(self.alive.count(), waiting + loaded);
    }

    /// Asserts that there is as much room as the values that wait leave.
    fn assert_room(&mut self, queue: &Queue, said: &str) {
        let weight = |value: &Vec<u32>| match (said.contains("bound"), said.contains("weighed")) {
            (true, _) => Some(1),
            (_, true) => Some(value.len()),
            _ => None,
        };
        let all = self.waiting.values().map(weight).sum::<Option<usize>>();
        let Some(all) = all.filter(|_| weight(&Vec::new()).is_some()) else {
            return;
        };
        let retries = self.retries.iter().filter_map(|key| self.waiting.get(key));
        let retries: usize = retries.filter_map(weight).sum();
        // B5
        let taken = all - retries.saturating_sub(CAPACITY / 2).min(CAPACITY);
        for n in 0..CAPACITY.saturating_sub(taken) as u32 {
            let (number, value) = self.tag();
            let added = queue.entry(100 + n).try_put(value);
            self.put(100 + n, number, added.expect("there is room"));
        }
        let (_, value) = self.tag();
        assert!(queue.entry(200).try_put(value).is_err(), "there is no room");
    }
}

/// Lets all waits end, and takes what comes.
fn deliver_all(run: &mut Run, queue: &Queue) {
    (0..3_u32).for_each(|group| _ = queue.hold_group(&group, Duration::ZERO));
    for _ in 0..60 {
        run.time.advance(HOUR);
        queue.fire_due();
        while let Ok(item) = queue.try_get() {
            let expected = run.waiting.remove(item.key());
            assert_eq!(Some(numbers(item.value())), expected, "of {:?}", item.key());
            item.done();
            run.end(expected.unwrap(), Ended::Done);
        }
    }
    assert_eq!(run.waiting, BTreeMap::new(), "values wait for nothing");
}

/// Finishes what workers hold, of a queue that refuses retries.
fn finish(run: &mut Run, random: &mut fastrand::Rng, held: Held<'_>) {
    for (item, numbers) in held {
        if random.bool() {
            item.done();
            run.end(numbers, Ended::Done);
            continue;
        }
        let key = *item.key();
        match item.retry() {
            // It goes with the delivery that is owed (S11).
            Added::Merged => drop(run.waiting.entry(key).or_default().splice(0..0, numbers)),
            added => {
                assert_eq!(added, Added::ShutDown);
                run.end(numbers, Ended::Dropped);
            }
        }
    }
}

fn run(seed: u64) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let (builder, said) = settings(random, builder.merge(merge::append));
    let _note = Note((seed, said.clone()));
    let queue = builder.build().unwrap();
    let run = &mut Run {
        time,
        alive: Alive::default(),
        next: 0,
        waiting: BTreeMap::new(),
        retries: BTreeSet::new(),
        receipts: BTreeMap::new(),
        ended: BTreeMap::new(),
    };
    let mut held = Vec::new();
    for _ in 0..random.usize(1..80) {
        step(run, &queue, random, &mut held);
        run.assert_agrees(&held);
    }
    if random.bool() {
        run.assert_room(&queue, &said);
    }
    let keys: Vec<u32> = run.waiting.keys().copied().collect();
    match random.u8(..3) {
        0 => {
            queue.shut_down();
            // The delays are dropped.
            let is_left =
                |key: &u32| !matches!(queue.state(key), Some(State::Queued | State::Dirty));
            keys.into_iter()
                .filter(is_left)
                .for_each(|key| run.drop_waiting(key));
            finish(run, random, held);
            deliver_all(run, &queue);
        }
        1 => {
            queue.shut_down_now();
            keys.into_iter().for_each(|key| run.drop_waiting(key));
            finish(run, random, held);
        }
        _ => {
            for (item, numbers) in held {
                item.done();
                run.end(numbers, Ended::Done);
            }
            deliver_all(run, &queue);
            run.assert_room(&queue, &said);
            queue.shut_down_now();
            (100..200).for_each(|key| run.drop_waiting(key));
        }
    }
    queue.shrink();
    // No value is left, nor a receipt that waits.
    run.assert_agrees(&Vec::new());
    drop(queue);
    assert_eq!(run.alive.count(), 0);
}

#[test] // V1 V2 V3 B1 S1 S8 C10
fn each_value_is_delivered_or_taken_back_and_its_receipt_says_so() {
    let _watchdog = watchdog(120);
    for seed in 0..scaled(3000) as u64 {
        run(seed);
    }
}
