//! Consumers of every kind, until the queue is at its end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Added, DefaultHasher, GetTimeoutError, Item, TryGetError};
use keyqueue_model::ledger::Key;

use crate::life::Life;
use crate::plan::Taking;

type Got<'q> = Item<'q, Key, ItemExponentialFailure<Key>, DefaultHasher>;

/// How the work on a key ends.
enum Ending {
    Done,
    Again(Duration),
    Failed,
    Panic,
}

/// Works on a key.
fn work(life: &Life, number: u64) {
    if !life.is_plain(number) {
        life.ledger.check_time(number, life.clock.now());
    }
    life.ledger.begin(number);
    match fastrand::u16(..) {
        0..256 => thread::yield_now(),
        256..260 => thread::sleep(Duration::from_micros(50)),
        _ => {}
    }
    life.ledger.end(number);
}

fn take(life: &Life, item: Got<'_>) {
    let number = item.number;
    work(life, number);
    match ending(life, number) {
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
        Ending::Again(delay) => life.ledger.count(number, item.retry_after(delay)),
        Ending::Failed => life.ledger.count(number, item.retry()),
    }
}

fn ending(life: &Life, number: u64) -> Ending {
    if !life.plan.mixed || !life.is_plain(number) {
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
    match taking {
        Taking::Get => {
            while let Some(item) = queue.get() {
                take(life, item);
            }
            assert!(queue.get().is_none(), "S1: `None` is forever");
        }
        Taking::Timeout => loop {
            let limit = Duration::from_micros(fastrand::u64(0..2000));
            match queue.get_timeout(limit) {
                Ok(item) => take(life, item),
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
            batch.into_iter().for_each(|item| take(life, item));
        },
        Taking::Async => pollster::block_on(task(life)),
        Taking::Fickle => waver(life, 200),
        Taking::Idle => waver(life, 3000),
        Taking::Try => loop {
            match queue.try_get() {
                Ok(item) => take(life, item),
                Err(TryGetError::Empty) => thread::yield_now(),
                Err(TryGetError::ShutDown) => break,
            }
        },
        Taking::Workers => workers(life),
    }
}

/// A consumer that is a task.
pub(crate) async fn task(life: &Life) {
    while let Some(item) = life.queue.get_async().await {
        take(life, item);
    }
}

/// Has some futures at once, which it leaves alone for a while after each poll. Half of them are
/// dropped then. A wake-up that comes meanwhile is not seen for up to this many microseconds.
fn waver(life: &Life, longest: u64) {
    let mut futures = [(); 4].map(|()| life.queue.get_async());
    loop {
        for future in &mut futures {
            if fastrand::bool() {
                *future = life.queue.get_async();
            }
            match Pin::new(&mut *future).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(item)) => take(life, item),
                Poll::Ready(None) => return,
                Poll::Pending => continue,
            }
            *future = life.queue.get_async();
        }
        thread::sleep(Duration::from_micros(fastrand::u64(1..longest)));
    }
}

fn workers(life: &Life) {
    let ran = Workers::new(&life.queue)
        .threads(2)
        .max_retries(3)
        .on_give_up(|_, _| {})
        .run(|key| {
            work(life, key.number);
            let outcome = match ending(life, key.number) {
                Ending::Done | Ending::Panic => return Ok(Outcome::Done),
                Ending::Again(delay) => Ok(Outcome::RequeueAfter(delay)),
                Ending::Failed => Err("made to fail"),
            };
            // It comes back, unless its retries are used up or the queue is shut down.
            life.ledger.count(key.number, Added::Delayed);
            outcome
        });
    ran.expect("two threads are in range, and the system has them");
}
