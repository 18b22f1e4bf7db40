//! Those who take keys, each in their own way, until the queue is at its end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::worker::{Outcome, Workers};
use keyqueue::{GetAsync, GetTimeoutError, Item, TryGetError};

use crate::key::Numbered;
use crate::ledger::{Counts, Ledger};
use crate::life::Life;
use crate::plan::Taking;

type Limiter = keyqueue::limiter::ItemExponentialFailure<Numbered>;
type Got<'q> = Item<'q, Numbered, Limiter, keyqueue::DefaultHasher>;
type Future<'q> = GetAsync<'q, Numbered, Limiter, keyqueue::DefaultHasher>;

/// How the work on a key ends.
enum Ending {
    Done,
    Again(Duration),
    Failed,
    Panic,
}

/// One consumer.
struct Consumer<'a> {
    ledger: &'a Ledger,
    mixed: bool,
    counts: Counts,
}

impl<'a> Consumer<'a> {
    fn new(life: &'a Life) -> Self {
        Consumer {
            ledger: &life.ledger,
            mixed: life.plan.mixed,
            counts: Counts::default(),
        }
    }

    fn take(&mut self, item: Got<'_>) {
        let number = item.number;
        self.ledger.work(number);
        match ending(self.ledger, self.mixed, number) {
            Ending::Done => item.done(),
            // Without the panic hook, which ends the process.
            Ending::Panic => {
                let held = AssertUnwindSafe(item);
                let panicked = catch_unwind(move || {
                    let _held = held;
                    resume_unwind(Box::new("as intended"));
                });
                assert!(panicked.is_err(), "C7: a panic goes on past an item");
            }
            Ending::Again(delay) => _ = self.counts.note(item.retry_after(delay)),
            Ending::Failed => _ = self.counts.note(item.retry()),
        }
    }
}

impl Drop for Consumer<'_> {
    fn drop(&mut self) {
        // Not adds of a producer.
        self.counts.adds = 0;
        self.ledger.count(&self.counts);
    }
}

fn ending(ledger: &Ledger, mixed: bool, key: u64) -> Ending {
    if !mixed || !ledger.is_plain(key) {
        return Ending::Done;
    }
    match fastrand::u8(..) {
        0..4 => Ending::Again(Duration::from_micros(fastrand::u64(1..5_000))),
        4..8 => Ending::Failed,
        8 => Ending::Panic,
        _ => Ending::Done,
    }
}

pub(crate) fn consume(life: &Life, taking: Taking) {
    let queue = &life.queue;
    let mut consumer = Consumer::new(life);
    match taking {
        Taking::Get => {
            while let Some(item) = queue.get() {
                consumer.take(item);
            }
            assert!(queue.get().is_none(), "S1: `None` is for ever");
        }
        Taking::Timeout => loop {
            let limit = Duration::from_micros(fastrand::u64(0..2000));
            match queue.get_timeout(limit) {
                Ok(item) => consumer.take(item),
                Err(GetTimeoutError::Timeout) => {}
                Err(GetTimeoutError::ShutDown) => break,
            }
        },
        Taking::Batch => loop {
            let most = fastrand::usize(1..64);
            let Some(batch) = queue.get_batch(most) else {
                break;
            };
            let taken = batch.len();
            assert!((1..=most).contains(&taken), "C12: {taken} of {most}");
            batch.into_iter().for_each(|item| consumer.take(item));
        },
        Taking::Async => pollster::block_on(task(life)),
        Taking::Fickle => fickle(life, &mut consumer),
        Taking::Idle => idle(life, &mut consumer, false),
        Taking::Stuck => idle(life, &mut consumer, true),
        Taking::Try => loop {
            match queue.try_get() {
                Ok(item) => consumer.take(item),
                Err(TryGetError::Empty) => thread::yield_now(),
                Err(TryGetError::ShutDown) => break,
            }
        },
        Taking::Workers => workers(life),
    }
}

/// A consumer that is a task.
pub(crate) async fn task(life: &Life) {
    let mut consumer = Consumer::new(life);
    while let Some(item) = life.queue.get_async().await {
        consumer.take(item);
    }
}

/// Waits, but more often than not changes its mind.
fn fickle(life: &Life, consumer: &mut Consumer<'_>) {
    loop {
        let mut future = life.queue.get_async();
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(item)) => consumer.take(item),
            Poll::Ready(None) => return,
            Poll::Pending => {
                for _ in 0..fastrand::u32(0..2000) {
                    std::hint::spin_loop();
                }
                drop(future);
                thread::sleep(Duration::from_micros(fastrand::u64(1..200)));
            }
        }
    }
}

/// Has some futures at once, and leaves them alone for a while after each poll; if `stuck`, until the end once the
/// producers have stopped. A wake-up that comes meanwhile is not seen by anybody for that long.
fn idle(life: &Life, consumer: &mut Consumer<'_>, stuck: bool) {
    let new = || [(); 4].map(|()| life.queue.get_async());
    let mut futures: [Future<'_>; 4] = new();
    loop {
        let stay = stuck && life.is_stopped();
        if stay {
            // Those that wait already have perhaps been woken: these are yet to be.
            futures = new();
        }
        for future in &mut futures {
            match Pin::new(&mut *future).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(item)) => consumer.take(item),
                Poll::Ready(None) => return,
                Poll::Pending if fastrand::bool() => *future = life.queue.get_async(),
                Poll::Pending => continue,
            }
            *future = life.queue.get_async();
        }
        thread::sleep(Duration::from_micros(fastrand::u64(1..3000)));
        while stay && !life.queue.is_shutting_down() {
            thread::sleep(Duration::from_millis(1));
        }
        if fastrand::u8(..8) == 0 {
            futures = new();
        }
    }
}

fn workers(life: &Life) {
    let (ledger, mixed) = (&life.ledger, life.plan.mixed);
    let ran = Workers::new(&life.queue)
        .threads(2)
        .max_retries(3)
        .on_give_up(|_, _| {})
        .run(|key| {
            ledger.work(key.number);
            let outcome = match ending(ledger, mixed, key.number) {
                Ending::Done | Ending::Panic => return Ok(Outcome::Done),
                Ending::Again(delay) => Ok(Outcome::RequeueAfter(delay)),
                Ending::Failed => Err("made to fail"),
            };
            // It comes back, unless its retries are used up or the queue is shut down.
            ledger.count(&Counts {
                perhaps: 1,
                ..Counts::default()
            });
            outcome
        });
    ran.expect("two threads are in range, and the system has them");
}
