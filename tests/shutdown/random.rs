//! Random runs of queues with all settings, and every way to end them: each accepted key is delivered or counted,
//! room comes back, and nothing stays in memory (C5, C8, C10, B1, S1, S5, S8).

use std::collections::HashMap;
use std::time::Duration;

use crate::common::counted::{Alive, Counted};
use crate::common::timed::{HOUR, built, ms};
use crate::common::{Note, figures, there, watchdog};
use keyqueue::{Builder, DelayPolicy, GetError, Item, MockClock, State, WorkQueue};

type Key = Counted<u64>;
type Queue = WorkQueue<Key>;

const CAPACITY: usize = 6;
const KEYS: u64 = 9;

/// Draws the settings, and says what they are.
fn settings(random: &mut fastrand::Rng, builder: Builder<Key>) -> (Builder<Key>, String) {
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
    }
    if draw("supersede") {
        builder = builder.supersede_delays(true);
    }
    if draw("drain_delays") {
        builder = builder.drain_delays(true);
    }
    if draw("timed") {
        builder = builder.timing(true);
    }
    if draw("latest") {
        builder = builder.delay_policy(DelayPolicy::Latest);
    }
    if draw("pace") {
        builder = builder.dispatch_rate(100.0, 2);
    }
    if draw("interval") {
        builder = builder.min_interval(ms(15));
    }
    if draw("endless") {
        builder = builder.min_interval(HOUR);
    }
    if draw("groups") {
        builder = builder.group_by(|key: &Key| key.0 % 3);
        if draw("limit") {
            builder = builder.group_limit(1);
        }
        if draw("rate") {
            builder = builder.group_rate(100.0, 2);
        }
        if draw("weight") {
            builder = builder.group_weight(|group: &u64| *group as u32);
        }
    }
    (builder, said)
}

struct Run {
    queue: Queue,
    time: MockClock,
    alive: Alive,
    /// Whether the queue has a bound.
    is_bounded: bool,
    is_grouped: bool,
}

impl Run {
    fn key(&self, n: u64) -> Key {
        self.alive.of(n)
    }

    /// The numbers of queued, processing and delayed keys.
    fn counts(&self) -> (usize, usize, usize) {
        let counts = self.queue.counts();
        (counts.queued, counts.processing, counts.delayed)
    }

    /// Some calls, whose results are checked as far as each tells something by itself.
    fn step<'q>(&'q self, random: &mut fastrand::Rng, held: &mut Vec<Item<'q, Key>>) {
        let queue = &self.queue;
        let n = random.u64(..KEYS);
        let key = self.key(n);
        match random.u8(..20) {
            0 | 1 => _ = queue.add(key),
            2 => _ = queue.entry(key).level(random.usize(..3)).add(),
            3 => _ = queue.entry(key).try_add(),
            4 => _ = queue.entry(key).within(Duration::ZERO).try_add(),
            5 | 6 => _ = queue.add_after(key, ms(random.u64(..30))),
            7 => _ = queue.cancel(&key),
            8 => _ = queue.handle(key).add(),
            9 | 10 => held.extend(queue.try_get().ok()),
            11 => held.extend(queue.try_get_batch(3).into_iter().flatten()),
            12 if !held.is_empty() => held.swap_remove(0).done(),
            13 if !held.is_empty() => {
                let _ = held.swap_remove(0).retry_after(ms(random.u64(..20)));
            }
            14 | 15 => {
                self.time.advance(ms(random.u64(..20)));
                queue.fire_due();
            }
            16 if random.u8(..4) == 0 => {
                let queued = queue.counts().queued;
                assert_eq!(queue.clear(), queued);
                assert_eq!((queue.len(), queue.is_empty()), (0, true));
            }
            17 => {
                let holds = [Duration::ZERO, ms(9), HOUR, Duration::MAX];
                let _ = queue.hold_group(&(n % 3), holds[random.usize(..4)]);
            }
            18 => queue.shrink(),
            19 => drop(crate::common::poll(
                &mut Box::pin(queue.entry(key).add_async()),
                std::task::Waker::noop(),
            )),
            _ => {}
        }
    }

    /// Asserts that what is counted in several ways agrees.
    fn assert_agrees(&self, held: usize) {
        let queue = &self.queue;
        let (queued, processing, _) = self.counts();
        assert_eq!((queue.len(), queue.is_empty()), (queued, queued == 0));
        let by_level = queue.counts().by_level;
        assert!(by_level.is_empty() || by_level.iter().sum::<usize>() == queued);
        assert_eq!(processing, held);
        let groups = queue.groups::<u64>();
        let in_groups = groups.iter().map(|group| (group.queued, group.in_flight));
        let sums = in_groups.fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
        let all = match self.is_grouped {
            true => (queued, processing),
            false => (0, 0),
        };
        assert_eq!(sums, all, "{groups:?}");
        let mut states = HashMap::new();
        for key in queue.snapshot() {
            *states.entry(key.state()).or_insert(0) += 1;
        }
        let of = |state| states.get(&state).copied().unwrap_or(0);
        assert_eq!(of(State::Queued), queued);
        assert_eq!(of(State::Processing) + of(State::Dirty), processing);
    }

    /// Asserts that there is as much room as the keys that wait leave.
    fn assert_room(&self) {
        let (queued, _, delayed) = self.counts();
        let taken = |n: &u64| self.queue.entry(self.key(*n)).try_add().is_ok();
        let room = (100..120).filter(taken).count();
        if self.is_bounded {
            assert_eq!(room, CAPACITY.saturating_sub(queued + delayed));
        }
    }

    /// Lets all waits end, and takes what comes. Returns how many keys that were.
    fn deliver_all(&self) -> usize {
        let mut delivered = 0;
        for group in 0..3_u64 {
            let _ = self.queue.hold_group(&group, Duration::ZERO);
        }
        for _ in 0..60 {
            self.time.advance(HOUR);
            self.queue.fire_due();
            delivered += there(&self.queue).count();
        }
        delivered
    }
}

fn run(seed: u64) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut said = String::new();
    let (queue, time) = built(|builder| {
        let (builder, settings) = settings(random, builder);
        said = settings;
        builder
    });
    let (is_bounded, delivers) = (said.contains("bound"), said.contains("drain_delays"));
    let run = Run {
        queue,
        time,
        alive: Alive::default(),
        is_bounded,
        is_grouped: said.contains("groups"),
    };
    let _note = Note((seed, said));
    let queue = &run.queue;
    let mut held = Vec::new();
    for _ in 0..random.usize(1..80) {
        run.step(random, &mut held);
        run.assert_agrees(held.len());
    }
    if random.bool() {
        run.assert_room();
    }
    let before = run.counts();
    let dirty = queue
        .snapshot()
        .iter()
        .filter(|key| key.state() == State::Dirty)
        .count();
    match random.u8(..4) {
        0 => {
            assert_eq!(figures(queue.shut_down()), before);
            if random.bool() {
                assert_eq!(figures(queue.shut_down_now()), before, "after a shut-down");
                held.clear();
                run.assert_ended(before.2);
            } else {
                held.clear();
                assert_eq!(run.deliver_all(), before.0 + dirty);
                run.assert_ended(before.2);
            }
        }
        1 => {
            assert_eq!(figures(queue.shut_down_now()), before);
            assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
            held.clear();
            run.assert_ended(before.2);
        }
        2 => {
            let drained = queue.drain_timeout(Duration::ZERO);
            let queued = drained.queued;
            match delivers {
                true => assert!((before.0..=before.0 + before.2).contains(&queued)),
                false => assert_eq!(queued, before.0),
            }
            let dirty = queue
                .snapshot()
                .iter()
                .filter(|key| key.state() == State::Dirty)
                .count();
            held.clear();
            assert_eq!(run.deliver_all(), queued + dirty);
            run.assert_ended(if delivers { 0 } else { before.2 });
        }
        _ => {
            held.clear();
            let queued = run.counts().0;
            let delivered = run.deliver_all();
            assert!((queued..=queued + before.2).contains(&delivered));
            assert_eq!(run.counts(), (0, 0, 0));
            if is_bounded {
                let room = (100..120).filter(|n| queue.entry(run.key(*n)).try_add().is_ok());
                assert_eq!(room.count(), CAPACITY);
            }
        }
    }
    drop(held);
    let Run { queue, alive, .. } = run;
    drop(queue);
    assert_eq!(alive.count(), 0);
}

impl Run {
    /// Asserts that nothing is left of a queue that was ended and whose keys are done.
    fn assert_ended(&self, dropped: usize) {
        let queue = &self.queue;
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
        let drained = queue.drain_timeout(Duration::ZERO);
        assert_eq!(figures(drained), (0, 0, dropped));
        assert_eq!((queue.len(), queue.is_empty()), (0, true));
        assert!(queue.snapshot().is_empty());
        assert!(
            queue
                .groups::<u64>()
                .iter()
                .all(|group| group.queued + group.in_flight == 0)
        );
        queue.shrink();
        assert_eq!(self.alive.count(), 0, "keys are alive");
    }
}

#[test] // C5 C8 C10 B1 S1 S5 S8
fn whatever_a_queue_has_when_it_ends_is_delivered_or_counted_and_forgotten() {
    let _watchdog = watchdog(120);
    for seed in 0..if cfg!(miri) { 4 } else { 3000 } {
        run(seed);
    }
}
