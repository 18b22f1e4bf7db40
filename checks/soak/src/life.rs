//! One life of a queue: all threads at work, the end, and what must hold then.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use keyqueue::{Clock, DrainEnd, Remaining, State};
use keyqueue_model::ledger::Ledger;
use tokio::runtime::Runtime;

use crate::consume::{consume, task};
use crate::owner::{Owned, own};
use crate::plan::{End, Plan, Queue, Taking};
use crate::produce::produce;

/// How long a queue that is left alone may take to deliver what it has, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Life {
    pub(crate) plan: Plan,
    pub(crate) queue: Queue,
    pub(crate) clock: Clock,
    pub(crate) ledger: Ledger,
    stop: AtomicBool,
}

/// What a life did.
pub(crate) struct Done {
    pub(crate) adds: u64,
    pub(crate) deliveries: u64,
}

impl Life {
    pub(crate) fn is_stopped(&self) -> bool {
        // Ordering: Relaxed; a hint.
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the key is added at once, and not an owner's.
    pub(crate) fn is_plain(&self, number: u64) -> bool {
        number < self.plan.keys
    }

    /// Whether the end delivers what is delayed.
    fn delivers_delays(&self) -> bool {
        let drains = !matches!(self.plan.end, End::AtRest | End::ShutDown);
        drains && self.plan.drain_delays
    }

    /// C8, C9: what is queued is delivered although no thread adds any more, and delays come up. Returns how many
    /// keys still have a delay then.
    fn wait_until_at_rest(&self, owned: &[Owned]) -> usize {
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

    /// How many keys have a delay, if none is queued or with a worker. That all adds are served
    /// does not say that: an add that a delivery has foreseen makes the key queued once more.
    fn delayed_alone(&self) -> Option<usize> {
        let keys = self.queue.snapshot();
        let idle = keys.iter().all(|key| key.state() == State::Idle);
        idle.then_some(keys.len())
    }

    /// Ends the life as planned, with all threads at work but for an end at rest. Returns what
    /// a shut-down found, if the queue was open until then.
    fn end(&self) -> Option<Remaining> {
        let queue = &self.queue;
        if self.delivers_delays() {
            self.ledger.allow_early();
        }
        match self.plan.end {
            End::AtRest | End::ShutDown => return Some(queue.shut_down()),
            End::Drain(drainers) => thread::scope(|scope| {
                for _ in 0..drainers {
                    scope.spawn(|| {
                        queue.shut_down_with_drain();
                        self.check_drained();
                    });
                }
            }),
            End::DrainAsync => {
                // Perhaps after another that is dropped before it is ready.
                if fastrand::bool() {
                    let mut context = Context::from_waker(Waker::noop());
                    _ = pin!(queue.drain_async()).poll(&mut context);
                }
                pollster::block_on(queue.drain_async());
                self.check_drained();
            }
            End::DrainTimeout => {
                let mut dropped = None;
                loop {
                    let drained = queue.drain_timeout(Duration::from_micros(300));
                    let delayed = drained.left.delayed;
                    let before = *dropped.get_or_insert(delayed);
                    assert_eq!(delayed, before, "S5: each call reports the same");
                    if drained.end == DrainEnd::Finished {
                        break;
                    }
                }
                self.check_drained();
            }
            End::Released => thread::scope(|scope| {
                scope.spawn(|| queue.shut_down_with_drain());
                while !queue.is_shutting_down() {
                    thread::yield_now();
                }
                queue.shut_down();
            }),
        }
        None
    }

    /// S3
    fn check_drained(&self) {
        self.ledger.drained();
        assert_eq!(self.queue.len(), 0, "S3: a drain returned with keys queued");
    }

    /// Checks what is known once all threads and tasks have ended. `resting` is how many keys had a delay when
    /// the queue was at rest, if it was.
    fn check(&self, owned: &[Owned], found: Option<Remaining>, resting: Option<usize>) {
        let left = self.queue.shut_down();
        let unfinished = left.queued + left.processing;
        assert_eq!(unfinished, 0, "S1: {left:?} after the end");
        assert!(self.queue.is_empty(), "S1: keys are left after the end");
        let (all, at_rest) = (self.delivers_delays(), resting.is_some());
        let delivered = owned.iter().filter(|key| key.is_delivered(self)).count();
        let dropped = owned.len() - delivered;
        assert!(
            dropped == 0 || !(all || at_rest),
            "S5: {dropped} keys were delayed, and not delivered"
        );
        let pending = match (all, at_rest) {
            (true, _) => 0,
            (false, true) => owned.iter().filter(|key| key.may_be_pending()).count(),
            (false, false) => owned.len(),
        };
        assert!(
            left.delayed >= dropped && (left.delayed <= pending || (self.plan.mixed && !all)),
            "S5: {dropped} of {pending} delays were dropped, {left:?} reported"
        );
        if let Some(found) = found {
            assert_eq!(
                found.delayed, left.delayed,
                "S5: each call reports the same"
            );
            if let (Some(delayed), false) = (resting, self.plan.mixed) {
                assert!(
                    found.queued + found.processing + found.delayed <= delayed,
                    "C8: {found:?} in a queue at rest but for {delayed} delays"
                );
            }
        }
    }
}

/// Calls `fire_due` until the queue is shut down.
fn drive(life: &Life) {
    while !life.queue.is_shutting_down() {
        life.queue.fire_due();
        thread::sleep(Duration::from_micros(fastrand::u64(1..1000)));
    }
}

/// Lives a life to its end, and checks what must hold of it.
pub(crate) fn run(plan: Plan, tasks: &Runtime) -> Done {
    let clock = Clock::new();
    let keys = plan.keys + plan.delayed * plan.owners;
    let life = Arc::new(Life {
        queue: plan.queue(&clock),
        clock,
        ledger: Ledger::new(keys, plan.counted),
        plan,
        stop: AtomicBool::new(false),
    });
    let running: Vec<_> = (0..life.plan.tasks)
        .map(|_| {
            let life = Arc::clone(&life);
            tasks.spawn(async move { task(&life).await })
        })
        .collect();
    let (owned, found, resting) = thread::scope(|scope| {
        let life = &*life;
        // One consumer that does not give up waiting, and those of the plan.
        scope.spawn(|| consume(life, Taking::Get));
        for &taking in &life.plan.consumers {
            scope.spawn(move || consume(life, taking));
        }
        for _ in 0..life.plan.drivers {
            scope.spawn(|| drive(life));
        }
        let adding = life.plan.producers.iter();
        let producers: Vec<_> = adding
            .map(|&adding| scope.spawn(move || produce(life, adding)))
            .collect();
        let owners: Vec<_> = (0..life.plan.owners)
            .map(|n| life.plan.keys + n * life.plan.delayed)
            .map(|first| scope.spawn(move || own(life, first)))
            .collect();
        thread::sleep(life.plan.time);
        let rests = life.plan.end == End::AtRest;
        let found = if rests { None } else { life.end() };
        // Ordering: Relaxed; a hint.
        life.stop.store(life.plan.adds.is_none(), Ordering::Relaxed);
        for producer in producers {
            producer.join().expect("alive");
        }
        let owned = owners.into_iter().map(|owner| owner.join().expect("alive"));
        let owned: Vec<_> = owned.flatten().collect();
        if !rests {
            return (owned, found, None);
        }
        let resting = life.wait_until_at_rest(&owned);
        (owned, life.end(), Some(resting))
    });
    tasks.block_on(async {
        for task in running {
            task.await.expect("no task panics or is aborted");
        }
    });
    life.check(&owned, found, resting);
    let (adds, deliveries) = life.ledger.check();
    life.queue.shrink();
    let alive = life.ledger.alive();
    assert_eq!(alive, 0, "C10: keys alive after a shut-down and `shrink`");
    Done { adds, deliveries }
}
