//! Consumers of every kind, until the queue is at its end. Those that poll leave when nothing is added any more.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::worker::{Job, Outcome, Verdict, Workers};
use keyqueue::{Added, GetError, UpTo};
use keyqueue_model::ledger::Key;

use crate::carried::{Carried, Crew, Got};
use crate::life::Life;
use crate::pieces::Value;
use crate::plan::{End, Taking};

/// How the work on a key ends.
#[derive(Clone, Copy)]
enum Ending {
    Done,
    Again(Duration),
    Failed,
    Panic,
    /// A guard is dropped, which retries the key.
    Dropped,
    /// A part of the value is done, and the rest is retried.
    Partly,
}

/// Draws how the work on a key ends. Keys of owners and holders are always done.
fn ending<V: Carried>(life: &Life<V>, number: u64) -> Ending {
    if !life.plan.retried || !life.is_plain(number) {
        return Ending::Done;
    }
    match fastrand::u8(..) {
        0..4 => Ending::Again(Duration::from_micros(fastrand::u64(1..5_000))),
        4..8 => Ending::Failed,
        8 => Ending::Panic,
        9..12 => Ending::Dropped,
        12..16 => Ending::Partly,
        _ => Ending::Done,
    }
}

/// Notes that a key has come.
fn begin<V: Carried>(life: &Life<V>, number: u64) {
    if number >= life.plan.first_held() {
        let (now, due) = (life.clock.now(), life.ledger.due(number));
        assert!(
            now >= due,
            "G6: key {number} at {now:?}, held until {due:?}"
        );
    } else if !life.is_plain(number) {
        life.ledger.check_time(number, life.clock.now());
    }
    life.flight.begin(number);
    life.ledger.begin(number);
}

/// Notes that a key has come, and checks what its item says.
fn arrive<V: Carried>(life: &Life<V>, item: &Got<'_, V>) {
    let number = item.number;
    let (level, settings) = (item.level(), &life.plan.settings);
    assert!(level < settings.levels, "P1: key {number} at level {level}");
    let owned = life.plan.keys..life.plan.first_held();
    assert!(
        level == settings.level || !owned.contains(&number),
        "P4: the delayed key {number} at level {level}"
    );
    if let Some(queued) = item.queue_time() {
        let lived = life.clock.now() - life.born;
        assert!(
            queued <= lived,
            "M2: key {number} was queued for {queued:?}"
        );
    }
    begin(life, number);
}

/// Takes some time for a key.
fn dawdle() {
    match fastrand::u16(..) {
        0..256 => thread::yield_now(),
        256..260 => thread::sleep(Duration::from_micros(50)),
        _ => {}
    }
}

/// Notes that the work on a key is over.
fn leave<V: Carried>(life: &Life<V>, number: u64) {
    life.ledger.end(number);
    life.flight.end(number);
}

/// Works on a key that has come.
fn finish<V: Carried>(life: &Life<V>, mut item: Got<'_, V>) {
    let number = item.number;
    dawdle();
    let mut ending = ending(life, number);
    if let Some(value) = V::of_item(&mut item) {
        ending = receive(life, number, value, ending);
    }
    leave(life, number);
    let retried = |added| life.ledger.count(number, added);
    match ending {
        // Forgets the failures.
        Ending::Done if life.plan.settings.backs_off => item.retry_on_drop().done(),
        Ending::Done => drop(item),
        // Without the panic hook, which ends the process.
        Ending::Panic => {
            let held = AssertUnwindSafe(item);
            let panicked = catch_unwind(move || {
                let _held = held;
                resume_unwind(Box::new("as intended"));
            });
            assert!(panicked.is_err(), "C7: a panic goes on past an item");
        }
        Ending::Again(delay) => retried(item.retry_after(delay)),
        Ending::Failed | Ending::Partly => retried(item.retry()),
        Ending::Dropped => {
            retried(Added::Delayed);
            drop(item.retry_on_drop());
        }
    }
}

/// Works on the value of a key. How the work ends depends on it, too.
fn receive<V: Carried>(life: &Life<V>, number: u64, value: &mut Value, ending: Ending) -> Ending {
    match ending {
        Ending::Done | Ending::Panic => life.pieces.delivered(number, value),
        Ending::Partly if value.len() > 1 => {
            let rest = value.split_off(value.len() / 2);
            life.pieces.delivered(number, value);
            *value = rest;
        }
        Ending::Partly => return Ending::Failed,
        Ending::Again(_) | Ending::Failed | Ending::Dropped => {}
    }
    ending
}

fn take<V: Carried>(life: &Life<V>, item: Got<'_, V>) {
    arrive(life, &item);
    finish(life, item);
}

pub(crate) fn consume<V: Carried>(life: &Life<V>, taking: Taking) {
    let queue = &life.queue;
    match taking {
        Taking::Get => {
            while let Some(item) = queue.get() {
                take(life, item);
            }
            assert!(queue.get().is_none(), "S1: `None` is forever");
        }
        Taking::Timeout => {
            while !life.only_waits() {
                let limit = Duration::from_micros(fastrand::u64(0..2000));
                match queue.get_timeout(limit) {
                    Ok(item) => take(life, item),
                    Err(GetError::Empty) => {}
                    Err(GetError::ShutDown) => break,
                }
            }
        }
        Taking::Batch => loop {
            let most = fastrand::usize(1..64);
            let linger = Duration::from_micros(fastrand::u64(0..2000));
            let linger = if fastrand::bool() {
                linger
            } else {
                Duration::ZERO
            };
            let Some(batch) = queue.get_batch(UpTo::new(most).linger(linger)) else {
                break;
            };
            let taken = batch.len();
            assert!((1..=most).contains(&taken), "C12: {taken} of {most}");
            // All of it is in flight from now on.
            batch.iter().for_each(|item| arrive(life, item));
            batch.into_iter().for_each(|item| finish(life, item));
        },
        Taking::Async => pollster::block_on(task(life)),
        Taking::Owned => pollster::block_on(async {
            while let Some(item) = queue.get_async().await {
                take(life, item.into_owned());
            }
        }),
        Taking::Fickle => waver(life, 200),
        Taking::Idle => waver(life, 3000),
        Taking::Try => {
            while !life.only_waits() {
                match queue.try_get() {
                    Ok(item) => take(life, item),
                    Err(GetError::Empty) => thread::yield_now(),
                    Err(GetError::ShutDown) => break,
                }
            }
        }
        Taking::Workers => {
            let ran = crew(life, 2).run(|mut job| {
                begin(life, job.number);
                work(life, &mut job)
            });
            ran.expect(RUNS);
        }
        Taking::Tasks => {
            let ran = crew(life, 4).run_async(async |mut job| {
                begin(life, job.number);
                yield_once().await;
                work(life, &mut job)
            });
            pollster::block_on(ran).expect(RUNS);
        }
        Taking::WorkersOfBatches => {
            let linger = UpTo::new(fastrand::usize(1..64)).linger(Duration::from_micros(100));
            let ran = crew(life, 2).run_batches(linger, |jobs| work_all(life, jobs));
            ran.expect(RUNS);
        }
        Taking::TasksOfBatches => {
            let ran = crew(life, 4).run_batches_async(16, async |jobs| {
                yield_once().await;
                work_all(life, jobs)
            });
            pollster::block_on(ran).expect(RUNS);
        }
        Taking::WorkersOfEach => {
            let crew = V::each(crew(life, 2), turn());
            let ran = crew.run(|mut job| work_on_one(life, &mut job));
            ran.expect(RUNS);
        }
        Taking::TasksOfEach => pollster::block_on(each_as_tasks(life)),
    }
}

/// How many messages of a key are tried in a row.
fn turn() -> usize {
    1 << fastrand::u32(..6)
}

/// Workers that are futures, and try the messages of a key one by one. In a life that ends at rest, when each message comes
/// again that was cancelled, they are dropped now and then, and others go on.
async fn each_as_tasks<V: Carried>(life: &Life<V>) {
    loop {
        let crew = V::each(crew(life, 4), turn());
        let not_begun = Cell::new(0);
        let mut ran = pin!(crew.run_async(async |mut job| {
            not_begun.update(|jobs| jobs + 1);
            yield_once().await;
            not_begun.update(|jobs| jobs - 1);
            work_on_one(life, &mut job)
        }));
        let polls = fastrand::u32(..1000);
        // What goes back exceeds the bound.
        let drops = life.plan.end == End::AtRest && !life.plan.apart;
        let mut left = drops.then_some(polls);
        let ended = std::future::poll_fn(|context| match ran.as_mut().poll(context) {
            Poll::Ready(ran) => Poll::Ready(Some(ran)),
            Poll::Pending if left == Some(0) && !life.is_stopped() => Poll::Ready(None),
            Poll::Pending => {
                left = left.map(|left| left.saturating_sub(1));
                Poll::Pending
            }
        });
        if let Some(ran) = ended.await {
            return ran.expect(RUNS);
        }
        // Such a key goes back before its work has begun, and merges into an add that came in the meantime.
        life.ledger.discard([], || not_begun.get());
    }
}

const RUNS: &str = "the number of workers is in range, and the system has the threads";

/// Workers that note which values are given up.
fn crew<V: Carried>(life: &Life<V>, concurrency: usize) -> Crew<'_, V> {
    let crew = Workers::new(&life.queue).on_give_up(|key: &Key, given_up| {
        let value = given_up.value.into_iter();
        value.for_each(|value: V| value.given_up(life, key.number));
    });
    crew.concurrency(concurrency).max_retries(3)
}

/// A consumer that is a task.
pub(crate) async fn task<V: Carried>(life: &Life<V>) {
    while let Some(item) = life.queue.get_async().await {
        take(life, item);
    }
}

/// Lets other tasks go on.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Has some futures at once, which it leaves alone for a while after each poll. Half of them are
/// dropped then. A wake-up that comes meanwhile is not seen for up to this many microseconds.
fn waver<V: Carried>(life: &Life<V>, longest: u64) {
    let mut futures = [(); 4].map(|()| life.queue.get_async());
    while !life.only_waits() {
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

/// Works on a batch for the worker loop, or fails as a whole: then nothing was begun.
fn work_all<V: Carried>(
    life: &Life<V>,
    mut jobs: Vec<Job<'_, Key, V>>,
) -> Result<Vec<Verdict<&'static str>>, &'static str> {
    if jobs.len() > 1 {
        match fastrand::u8(..32) {
            0 => return Err("made to fail as a whole"),
            1 => resume_unwind(Box::new("as intended")),
            2 => return jobs[0].give_up("made to fail for the first one"),
            3 => return Ok(Vec::new()),
            _ => {}
        }
    }
    jobs.iter().for_each(|job| begin(life, job.number));
    let each = jobs.iter_mut().map(|job| {
        let work = AssertUnwindSafe(|| work(life, job));
        catch_unwind(work).unwrap_or(Verdict::Retry("as intended"))
    });
    Ok(each.collect())
}

/// Works on one message of a key for the worker loop. Each counts as a delivery that may be another one of the key.
fn work_on_one<V: Carried>(life: &Life<V>, job: &mut Job<'_, Key, V>) -> Verdict<&'static str> {
    life.ledger.count(job.number, Added::Delayed);
    begin(life, job.number);
    let one = V::of_job(job).is_none_or(|value| value.len() == 1);
    assert!(one, "W11: key {} with more than a message", job.number);
    work(life, job)
}

/// Works on a key for the worker loop.
fn work<V: Carried>(life: &Life<V>, job: &mut Job<'_, Key, V>) -> Verdict<&'static str> {
    let number = job.number;
    dawdle();
    let mut ending = ending(life, number);
    // For a worker, that is a failure.
    let panics = matches!(ending, Ending::Panic);
    if panics {
        ending = Ending::Failed;
    }
    let gives_up = matches!(ending, Ending::Again(_)) && fastrand::u8(..8) == 0;
    if let Some(value) = V::of_job(job) {
        ending = receive(life, number, value, ending);
    }
    leave(life, number);
    if !matches!(ending, Ending::Done) && !gives_up {
        // It comes back, unless its retries are used up or the queue is shut down.
        life.ledger.count(number, Added::Delayed);
    }
    match ending {
        // Without the panic hook.
        _ if panics => resume_unwind(Box::new("as intended")),
        Ending::Done => Verdict::Ok(Outcome::Done),
        Ending::Again(_) if gives_up => Verdict::GiveUp("made to give up"),
        Ending::Again(delay) => match fastrand::u8(..5) {
            0 => Verdict::Ok(Outcome::RequeueAfter(delay)),
            1 => Verdict::Ok(Outcome::Later(delay)),
            2 => Verdict::Ok(Outcome::HoldGroup(delay / 4)),
            3 => Verdict::Ok(Outcome::RequeueRateLimited),
            _ => Verdict::RetryAfter("made to fail", delay),
        },
        _ => Verdict::Retry("made to fail"),
    }
}
