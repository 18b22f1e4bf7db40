//! Those who take keys, each in their own way, until the queue is at its end.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::worker::{Outcome, Workers};
use keyqueue::{GetTimeoutError, Item, TryGetError};

use crate::ledger::{Counts, Ledger};
use crate::life::Life;
use crate::plan::Taking;

type Got<'q> =
    Item<'q, u64, keyqueue::limiter::ItemExponentialFailure<u64>, keyqueue::DefaultHasher>;

/// How the work on a key ends.
enum Ending {
    Done,
    Again(Duration),
    Failed,
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
        self.ledger.work(*item);
        match ending(self.ledger, self.mixed, *item) {
            Ending::Done => item.done(),
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
            let batch = queue.get_batch(most);
            assert!(batch.len() <= most, "C12: {} of {most}", batch.len());
            if batch.is_empty() {
                break;
            }
            batch.into_iter().for_each(|item| consumer.take(item));
        },
        Taking::Async => pollster::block_on(task(life)),
        Taking::Fickle => fickle(life, &mut consumer),
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

fn workers(life: &Life) {
    let (ledger, mixed) = (&life.ledger, life.plan.mixed);
    let ran = Workers::new(&life.queue)
        .threads(2)
        .max_retries(3)
        .on_give_up(|_, _| {})
        .run(|&key| {
            ledger.work(key);
            let outcome = match ending(ledger, mixed, key) {
                Ending::Done => return Ok(Outcome::Done),
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
