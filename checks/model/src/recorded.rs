//! Runs programs on real threads, and writes down what each call returned and when it was made.
//!
//! The clock of a history is one atomic counter, read before and after each call. It orders the
//! threads' memory more than a user's calls would; what the queue's orderings are worth without such
//! help is for the loom models to say.
//!
//! Some calls wait for a key. Once every thread has ended or is in such a call, the queue is shut
//! down, which ends the wait. In the end all that is left is delivered, so that nothing that was
//! lost goes unnoticed.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use keyqueue::{Added, Clock, GetError, Item, KeyHandle, MockClock, WorkQueue};

use crate::linear::{Call, Do, KEYS, Part, Via};
use crate::{Setup, Spreading};

const TICK: Duration = Duration::from_millis(1);

type Queue = WorkQueue<u8, (), Spreading>;
type Held<'q> = Item<'q, u8>;

/// The keys that a get returned, or the part that says that there was none.
type Got<'q> = Result<Vec<Held<'q>>, Part>;

/// The queue under test.
struct Subject {
    queue: Queue,
    time: MockClock,
    handles: Vec<KeyHandle<u8>>,
}

impl Subject {
    fn new(setup: Setup) -> Self {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::<u8>::builder()
            .hasher(Spreading(setup.spread))
            .shards(setup.shards())
            .ring(setup.ring())
            .clock(clock)
            .tick(TICK)
            .manual_timers()
            .levels(setup.levels())
            .starvation_limit(setup.starvation_limit());
        // One group: the order is the same.
        let builder = match setup.groups() {
            0 => builder,
            _ => builder.group_by(|_| ()),
        };
        let queue = builder.build().expect("the settings are in range");
        // Half of the keys only: a handle keeps its key from being swept.
        let handles = (0..KEYS as u8).step_by(2).map(|key| queue.handle(key));
        Subject {
            handles: handles.collect(),
            queue,
            time,
        }
    }

    fn handle(&self, key: u8) -> Option<&KeyHandle<u8>> {
        self.handles.iter().find(|handle| *handle.key() == key)
    }

    fn add(&self, key: u8, via: Via) -> Added {
        match (via, self.handle(key)) {
            (Via::Handle, Some(handle)) => handle.add(),
            (Via::NewHandle, _) => self.queue.handle(key).add(),
            (Via::Ref, _) => self.queue.entry_ref(&key).add(),
            _ => self.queue.add(key),
        }
    }

    fn add_after(&self, key: u8, delay: Duration, via: Via) -> Added {
        match (via, self.handle(key)) {
            (Via::Handle, Some(handle)) => handle.add_after(delay),
            (Via::NewHandle, _) => self.queue.handle(key).add_after(delay),
            _ => self.queue.add_after(key, delay),
        }
    }

    fn fire(&self) -> usize {
        self.time.advance(TICK);
        self.queue.fire_due()
    }

    fn try_get(&self) -> Got<'_> {
        let got = self.queue.try_get();
        got.map(one).map_err(none)
    }

    fn get_timeout(&self, micros: u8) -> Got<'_> {
        let got = self.queue.get_timeout(Duration::from_micros(micros.into()));
        got.map(one).map_err(none)
    }

    fn poll_get(&self, before: u8) -> Got<'_> {
        let mut getter = self.queue.get_async();
        let context = &mut Context::from_waker(Waker::noop());
        for _ in 0..=before % 4 {
            if let Poll::Ready(got) = Pin::new(&mut getter).poll(context) {
                return got.map(one).ok_or(Part::Ended);
            }
        }
        Err(Part::Empty)
    }

    fn get_batch(&self, max: u8) -> Got<'_> {
        let batch = self.queue.get_batch(usize::from(max % 4));
        batch
            .map(|batch| batch.into_iter().collect())
            .ok_or(Part::Ended)
    }
}

fn one(item: Held<'_>) -> Vec<Held<'_>> {
    vec![item]
}

fn none(error: GetError) -> Part {
    match error {
        GetError::Empty => Part::Empty,
        GetError::ShutDown => Part::Ended,
    }
}

/// What the threads of one history share.
struct Stage<'q> {
    subject: &'q Subject,
    clock: AtomicU64,
    /// Threads that are yet to come to the start.
    absent: AtomicUsize,
    /// How many threads have not ended and do not wait.
    busy: Mutex<usize>,
    /// Nobody is busy.
    quiet: Condvar,
    shut_down: AtomicBool,
}

impl Stage<'_> {
    /// A thread ends, or is about to wait.
    fn rest(&self) {
        let mut busy = self.busy.lock().expect("no panic");
        // A thread that panics while it waits ends, too.
        *busy = busy.saturating_sub(1);
        if *busy == 0 {
            self.quiet.notify_one();
        }
    }
}

/// A thread that rests when this is dropped, also by a panic: else the others would wait for it.
struct Resting<'s>(&'s Stage<'s>);

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// Runs each program on its own thread, and then delivers what is left.
pub fn run(setup: Setup, programs: &[Vec<Do>]) -> Vec<Vec<Call>> {
    let subject = Subject::new(setup);
    let stage = Stage {
        subject: &subject,
        clock: AtomicU64::new(0),
        absent: AtomicUsize::new(programs.len()),
        busy: Mutex::new(programs.len()),
        quiet: Condvar::new(),
        shut_down: AtomicBool::new(false),
    };
    let mut last = Actor::new(&stage);
    let mut history: Vec<_> = thread::scope(|scope| {
        let actors: Vec<_> = (programs.iter())
            .map(|program| scope.spawn(|| Actor::new(&stage).act(program)))
            .collect();
        // Ordering: SeqCst, all of the file; the plain order of events is what is wanted.
        let busy = stage.busy.lock().expect("no panic");
        drop(stage.quiet.wait_while(busy, |busy| *busy > 0));
        if actors.iter().all(thread::ScopedJoinHandle::is_finished) {
            // While the queue is open, too.
            (0..4).for_each(|_| last.step(Do::Fire));
            last.deliver_all();
        }
        last.step(Do::ShutDown);
        actors
            .into_iter()
            .map(|actor| actor.join().expect("no actor panics"))
            .collect()
    });
    last.deliver_all();
    history.push(last.calls);
    if setup.groups() > 0 {
        forgive(&mut history);
    }
    history
}

/// Takes out that nothing was found while another thread's call was under way: that thread may have had the
/// group in its hand.
fn forgive(history: &mut [Vec<Call>]) {
    let spans = |calls: &Vec<Call>| {
        calls
            .iter()
            .map(|call| (call.invoked, call.returned))
            .collect()
    };
    let all: Vec<Vec<_>> = history.iter().map(spans).collect();
    for (thread, calls) in history.iter_mut().enumerate() {
        let others = all.iter().enumerate().filter(|(other, _)| *other != thread);
        let others: Vec<_> = others.flat_map(|(_, spans)| spans).collect();
        calls.retain(|call| {
            let meets = |span: &&(u64, u64)| span.0 < call.returned && call.invoked < span.1;
            call.parts != [Part::Empty] || !others.iter().any(meets)
        });
    }
}

/// One thread, and what it has seen.
struct Actor<'q> {
    stage: &'q Stage<'q>,
    items: Vec<Held<'q>>,
    calls: Vec<Call>,
}

impl<'q> Actor<'q> {
    fn new(stage: &'q Stage<'q>) -> Self {
        Actor {
            stage,
            items: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Takes all steps, and is done with what it holds then.
    fn act(mut self, program: &[Do]) -> Vec<Call> {
        let _resting = Resting(self.stage);
        self.stage.absent.fetch_sub(1, Ordering::SeqCst);
        let mut spins = 0_u32;
        while self.stage.absent.load(Ordering::SeqCst) > 0 {
            spins += 1;
            if spins.is_multiple_of(1024) {
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
        for step in program {
            self.step(*step);
        }
        while !self.items.is_empty() {
            self.step(Do::Done(0));
        }
        self.calls
    }

    /// Makes a call, and notes it with what its result means.
    fn note<A>(
        &mut self,
        call: impl FnOnce(&'q Subject) -> A,
        parts: impl FnOnce(&mut Self, A) -> Vec<Part>,
    ) {
        let clock = &self.stage.clock;
        let invoked = clock.fetch_add(1, Ordering::SeqCst);
        let result = call(self.stage.subject);
        let returned = clock.fetch_add(1, Ordering::SeqCst);
        let parts = parts(self, result);
        self.calls.push(Call {
            invoked,
            returned,
            parts,
        });
    }

    /// The same, where the call returns what its result means.
    fn note_parts<const N: usize>(&mut self, call: impl FnOnce(&'q Subject) -> [Part; N]) {
        self.note(call, |_, parts| parts.into());
    }

    fn step(&mut self, step: Do) {
        let id = |number: u8| number % KEYS as u8;
        match step {
            Do::Add(number, via) => {
                let key = id(number);
                self.note_parts(|subject| [Part::Add(key, subject.add(key, via))]);
            }
            Do::AddAfter(number, ticks, via) => {
                let (key, ticks) = (id(number), ticks % 4);
                let delay = TICK * u32::from(ticks);
                self.note_parts(|subject| {
                    [delayed(key, ticks, subject.add_after(key, delay, via))]
                });
            }
            Do::Cancel(number) => {
                let key = id(number);
                self.note_parts(|subject| [Part::Cancel(key, subject.queue.cancel(&key))]);
            }
            Do::TryGet => self.note(Subject::try_get, Self::keep),
            Do::GetTimeout(micros) => self.note(|subject| subject.get_timeout(micros), Self::keep),
            Do::PollGet(before) => self.note(|subject| subject.poll_get(before), Self::keep),
            Do::Get => self.wait(|subject| subject.queue.get().map(one).ok_or(Part::Ended)),
            Do::GetBatch(max) => self.wait(|subject| subject.get_batch(max)),
            Do::Done(which) => {
                if let Some(item) = self.choose(which) {
                    let key = *item;
                    self.note(|_| item.done(), |_, ()| vec![Part::Done(key)]);
                }
            }
            Do::RetryAfter(which, ticks) => {
                if let Some(item) = self.choose(which) {
                    let (key, ticks) = (*item, ticks % 4);
                    let delay = TICK * u32::from(ticks);
                    self.note_parts(|_| {
                        [
                            retried(key, ticks, item.retry_after(delay)),
                            Part::Done(key),
                        ]
                    });
                }
            }
            Do::Fire => self.note_parts(|subject| [Part::Fired(subject.fire() as u8)]),
            Do::ShutDown => {
                if !self.stage.shut_down.swap(true, Ordering::SeqCst) {
                    self.note_parts(|subject| [Part::ShutDown(subject.queue.shut_down())]);
                }
            }
            Do::Shrink => self.stage.subject.queue.shrink(),
            Do::Pause(spins) => (0..spins).for_each(|_| std::hint::spin_loop()),
        }
    }

    /// As [`note`](Self::note), for a call that may wait forever. A thread that holds a key does not wait: the
    /// key may be dirty, and then the end of the queue waits for its `done`.
    fn wait(&mut self, get: impl FnOnce(&'q Subject) -> Got<'q>) {
        if !self.items.is_empty() {
            return self.step(Do::TryGet);
        }
        self.stage.rest();
        self.note(get, Self::keep);
        *self.stage.busy.lock().expect("no panic") += 1;
    }

    fn keep(&mut self, got: Got<'q>) -> Vec<Part> {
        match got {
            Ok(items) => {
                let parts = items.iter().map(|item| Part::Got(**item)).collect();
                self.items.extend(items);
                parts
            }
            Err(nothing) => vec![nothing],
        }
    }

    fn choose(&mut self, number: u8) -> Option<Held<'q>> {
        let at = usize::from(number).checked_rem(self.items.len())?;
        Some(self.items.swap_remove(at))
    }

    /// Takes and finishes keys until there are none, or there would be no end to it.
    fn deliver_all(&mut self) {
        for _ in 0..4 * KEYS {
            self.step(Do::TryGet);
            if self.items.is_empty() {
                break;
            }
            self.step(Do::Done(0));
        }
    }
}

/// What the result of a retry after `ticks` means.
fn retried(key: u8, ticks: u8, added: Added) -> Part {
    match added {
        Added::Merged | Added::ShutDown => Part::Retry(key, ticks, added == Added::Merged),
        added => delayed(key, ticks, added),
    }
}

/// What the result of an add after `ticks` means.
fn delayed(key: u8, ticks: u8, added: Added) -> Part {
    match (ticks, added) {
        (0, _) => Part::Add(key, added),
        (_, Added::Delayed | Added::ShutDown) => Part::Delay(key, ticks, added == Added::Delayed),
        (_, other) => panic!("add_after({key}, {ticks}) returned {other:?}"),
    }
}
