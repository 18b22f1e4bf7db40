//! One life of a queue: all threads at work, the end, and what must hold then.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use keyqueue::{Clock, Remaining, State};
use keyqueue_model::ledger::Ledger;
use tokio::runtime::Runtime;

use crate::carried::{Carried, take_left};
use crate::consume::{consume, task};
use crate::flight::Flight;
use crate::holder::hold;
use crate::owner::{Owned, own};
use crate::pieces::{Pieces, Source, Value};
use crate::plan::{Adding, End, Plan, Taking};
use crate::produce::{Producer, Tracked, produce};
use crate::settings::{Queue, Rate};

/// How long a queue that is left alone may take to deliver what it has, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most room that is filled in a queue at rest, to see whether it is there.
const MOST_ROOM: u64 = 64;
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Life<V: Carried> {
    pub(crate) plan: Plan,
    pub(crate) queue: Arc<Queue<V>>,
    pub(crate) clock: Clock,
    /// When it began.
    pub(crate) born: Duration,
    pub(crate) ledger: Ledger,
    pub(crate) flight: Flight,
    pub(crate) pieces: Pieces,
    stop: AtomicBool,
}

/// What a life did.
pub(crate) struct Done {
    pub(crate) adds: u64,
    pub(crate) deliveries: u64,
}

/// What is known of a life when all adds are over.
pub(crate) struct Last<V: Carried> {
    /// The keys of owners that were not at rest.
    pub(crate) owned: Vec<Owned<V>>,
    pub(crate) receipts: Vec<Tracked>,
    /// How many keys had a delay when the queue was at rest, if it was.
    pub(crate) resting: Option<usize>,
    /// What the end reported.
    pub(crate) found: Remaining,
}

impl<V: Carried> Life<V> {
    fn new(plan: Plan) -> Self {
        let clock = Clock::new();
        Life {
            // Miri cannot read it.
            born: if cfg!(miri) {
                Duration::ZERO
            } else {
                clock.now()
            },
            queue: Arc::new(plan.settings.queue(&clock)),
            clock,
            ledger: Ledger::new(plan.all_keys(), plan.counted),
            flight: Flight::new(&plan),
            // One place more, for `check_room`.
            pieces: Pieces::new(&plan.settings, plan.all_keys(), plan.adders() + 1),
            plan,
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Ordering: Relaxed; a hint.
        self.stop.load(Ordering::Relaxed) || self.queue.is_shutting_down()
    }

    /// Whether consumers that poll are to leave: they would make up for a wake-up that was lost, and no add does
    /// that any more.
    pub(crate) fn only_waits(&self) -> bool {
        // Ordering: Relaxed; a hint.
        self.plan.end == End::AtRest && self.stop.load(Ordering::Relaxed)
    }

    /// Whether the key is added at once, and not an owner's or a holder's.
    pub(crate) fn is_plain(&self, number: u64) -> bool {
        number < self.plan.keys
    }

    /// The pieces of the values that a thread puts. Those of keys that are only delayed may be lost by the end.
    pub(crate) fn source(&self, thread: usize) -> Source {
        let others = self.plan.producers.len()..self.plan.adders();
        let delays = others.start..others.start + self.plan.owners as usize;
        // The bound of keys is known only if all weigh the same, and owners and holders count their deliveries.
        let is_counted = self.plan.tries_each() && others.contains(&thread);
        let most = if self.plan.apart || is_counted { 1 } else { 3 };
        self.pieces.source(thread, most, delays.contains(&thread))
    }

    /// Whether the end delivers what is delayed.
    pub(crate) fn delivers_delays(&self) -> bool {
        let drains = !matches!(self.plan.end, End::AtRest | End::ShutDown | End::Now(_));
        drains && self.plan.settings.drain_delays
    }

    /// C8, C9: what is queued is delivered although no thread adds any more, and delays come up. Returns how many
    /// keys still have a delay then, all of them owners'.
    fn wait_until_at_rest(&self, owned: &[Owned<V>]) -> usize {
        let begun = Instant::now();
        loop {
            let served = self.ledger.is_served() && owned.iter().all(|key| key.is_delivered(self));
            if let Some(delayed) = served.then(|| self.delayed_alone()).flatten() {
                return delayed;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "C9, D1: keys wait and are not delivered: {} queued, {:?}",
                self.queue.len(),
                self.queue
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many keys have a delay, if none is queued or with a worker, and none that producers add is delayed. That
    /// all adds are served does not say that: an add that a delivery has foreseen makes the key queued once more.
    fn delayed_alone(&self) -> Option<usize> {
        let keys = self.queue.snapshot();
        let mut states = keys.iter().map(|key| (key.state(), key.key().number));
        let idle = states.all(|(state, key)| state == State::Idle && !self.is_plain(key));
        idle.then_some(keys.len())
    }

    /// B1, B2, D6: in a queue at rest without delays all room is there again, and no more than that.
    fn check_room(&self) {
        let room = self.plan.settings.room().map(|room| room as u64);
        let Some(room) = room.filter(|room| *room <= MOST_ROOM) else {
            return;
        };
        let place = self.plan.adders();
        let mut producer = Producer::new(self, place);
        producer.source = self.pieces.source(place, 1, false);
        let mut lost = self.pieces.source(place, 1, true);
        // Delays take room, and no consumer gives it back.
        let last = self.plan.keys - 1;
        let mut delayed: Vec<_> = (0..last.min(room)).collect();
        for key in &delayed {
            let added = V::delay(&self.queue, &mut lost, self.ledger.key(*key), None, HOUR);
            self.ledger.count(*key, added);
        }
        if delayed.len() as u64 == room {
            let added = producer.add(last, Adding::Try);
            assert!(!added.is_accepted(), "B1: an add beside {room} delays");
        }
        let cancel = |key| {
            let cancelled = self.queue.cancel(&self.ledger.key(key));
            assert!(cancelled, "D6: the delay of {key}");
            self.ledger.cancelled(key);
        };
        delayed.pop().into_iter().for_each(cancel);
        let added = producer.add(last, Adding::Try);
        assert!(
            added.is_accepted(),
            "B2: no room beside {} of {room}",
            delayed.len()
        );
        delayed.into_iter().for_each(cancel);
    }

    /// All threads at work, until the end. `tasks` are the consumers that are tasks.
    fn work(self: &Arc<Self>, tasks: &Runtime) -> Last<V> {
        let running: Vec<_> = (0..self.plan.tasks)
            .map(|_| {
                let life = Arc::clone(self);
                tasks.spawn(async move { task(&*life).await })
            })
            .collect();
        let last = thread::scope(|scope| {
            let life = &**self;
            // One consumer that does not give up waiting, and those of the plan.
            scope.spawn(|| consume(life, Taking::Get));
            for &taking in &life.plan.consumers {
                scope.spawn(move || consume(life, taking));
            }
            for _ in 0..life.plan.drivers {
                scope.spawn(|| drive(life));
            }
            let producers: Vec<_> = (0..life.plan.producers.len())
                .map(|place| scope.spawn(move || produce(life, place)))
                .collect();
            let owners: Vec<_> = (0..life.plan.owners)
                .map(|n| scope.spawn(move || own(life, n)))
                .collect();
            let holders: Vec<_> = (0..life.plan.holders)
                .map(|n| scope.spawn(move || hold(life, n)))
                .collect();
            thread::sleep(life.plan.time);
            let rests = life.plan.end == End::AtRest;
            let found = if rests { None } else { Some(life.end()) };
            // Ordering: Relaxed; a hint.
            life.stop.store(life.plan.adds.is_none(), Ordering::Relaxed);
            let receipts = producers
                .into_iter()
                .flat_map(|producer| producer.join().expect("alive"));
            let receipts = receipts.collect();
            // Holders only stop when they are told to.
            life.stop.store(true, Ordering::Relaxed); // Ordering: as above.
            for holder in holders {
                holder.join().expect("alive");
            }
            let owned = owners
                .into_iter()
                .flat_map(|owner| owner.join().expect("alive"));
            let owned: Vec<_> = owned.collect();
            let resting = rests.then(|| {
                if life.wait_until_at_rest(&owned) == 0 {
                    life.check_room();
                }
                life.wait_until_at_rest(&owned)
            });
            Last {
                owned,
                receipts,
                resting,
                found: found.unwrap_or_else(|| life.end()),
            }
        });
        tasks.block_on(async {
            for task in running {
                task.await.expect("no task panics or is aborted");
            }
        });
        last
    }

    /// C10, G3, S8, S12: nothing is kept after the end, and no value was lost.
    fn check_memory(&self) {
        // By two at once: each key is left to one of them.
        thread::scope(|scope| {
            scope.spawn(|| take_left(&self.queue));
            take_left(&self.queue);
        });
        self.queue.shrink();
        let alive = self.ledger.alive();
        assert_eq!(alive, 0, "C10: keys alive after the end and `shrink`");
        self.pieces.check(self.plan.may_lose_values());
        for group in self.queue.groups::<u64>() {
            let keys = group.queued + group.in_flight;
            assert_eq!(keys, 0, "G3: {group:?} after the end");
        }
    }

    /// T1, G5: no more was delivered than the rates permit.
    fn check_rates(&self) {
        if self.plan.tries_each() {
            return;
        }
        let deliveries = |number| self.ledger.deliveries(number) as f64;
        let keys = 0..self.plan.all_keys();
        if let Some(rate) = self.plan.settings.rate {
            let delivered: f64 = keys.clone().map(deliveries).sum();
            self.check_rate("T1: the queue", delivered, rate);
        }
        if let Some(groups) = &self.plan.settings.groups
            && let Some(rate) = groups.rate
        {
            let mut delivered = HashMap::new();
            for number in keys {
                *delivered.entry(groups.of(number)).or_default() += deliveries(number);
            }
            for (group, delivered) in delivered {
                self.check_rate(&format!("G5: group {group}"), delivered, rate);
            }
        }
    }

    fn check_rate(&self, what: &str, delivered: f64, (per_second, burst): Rate) {
        let elapsed = (self.clock.now() - self.born).as_secs_f64();
        let most = per_second * elapsed + f64::from(burst) + 1.0;
        assert!(
            delivered <= most,
            "{what} had {delivered} deliveries in {elapsed} s, of {most}"
        );
    }
}

/// Calls `fire_due` until the queue is shut down and at rest: keys wait for rates and holds after a shut-down, too.
fn drive<V: Carried>(life: &Life<V>) {
    let mut context = Context::from_waker(Waker::noop());
    let mut drain = pin!(life.queue.drain_async());
    loop {
        life.queue.fire_due();
        if life.queue.is_shutting_down()
            && let Poll::Ready(drained) = drain.as_mut().poll(&mut context)
        {
            match drained.is_finished() {
                true => return,
                false => drain.set(life.queue.drain_async()),
            }
        }
        thread::sleep(Duration::from_micros(fastrand::u64(1..1000)));
    }
}

/// Lives a life to its end, and checks what must hold of it.
pub(crate) fn run(plan: Plan, tasks: &Runtime) -> Done {
    match plan.settings.values {
        None => Arc::new(Life::<()>::new(plan)).run(tasks),
        Some(_) => Arc::new(Life::<Value>::new(plan)).run(tasks),
    }
}

impl<V: Carried> Life<V> {
    fn run(self: Arc<Self>, tasks: &Runtime) -> Done {
        let last = self.work(tasks);
        self.check_end(&last);
        let (adds, deliveries) = self.ledger.check();
        self.check_rates();
        self.check_memory();
        Done { adds, deliveries }
    }
}
