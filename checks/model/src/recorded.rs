//! Runs programs on real threads, and writes down what each call returned and when it was made.
//!
//! The clock of a history is one atomic counter, read before and after each call. It orders the
//! threads' memory more than a user's calls would; what the queue's orderings are worth without such
//! help is for the loom models to say.
//!
//! Some calls wait for a key. Once every thread has ended or is in such a call, the queue is shut
//! down, which ends the wait. In the end all that is left is delivered, so that nothing that was
//! lost goes unnoticed.

mod subject;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

use keyqueue::Added;

use crate::Setup;
use crate::linear::{Call, Do, KEYS, Part};

pub use subject::Flaw;
use subject::Held;
pub(crate) use subject::Subject;

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
        *busy -= 1;
        if *busy == 0 {
            self.quiet.notify_one();
        }
    }
}

/// Runs each program on its own thread, and then delivers what is left.
pub fn run(setup: Setup, programs: &[Vec<Do>], flaw: Option<Flaw>) -> Vec<Vec<Call>> {
    let subject = Subject::new(setup, flaw);
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
    history
}

/// One thread, and what it has seen.
struct Actor<'q> {
    stage: &'q Stage<'q>,
    items: Vec<Held<'q>>,
    calls: Vec<Call>,
}

impl<'q> Actor<'q> {
    fn new(stage: &'q Stage<'q>) -> Self {
        let (items, calls) = Default::default();
        Actor {
            stage,
            items,
            calls,
        }
    }

    /// Takes all steps, and is done with what it holds then.
    fn act(mut self, program: &[Do]) -> Vec<Call> {
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
        self.stage.rest();
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

    fn step(&mut self, step: Do) {
        let id = |number: u8| number % KEYS as u8;
        match step {
            Do::Add(number, via) => {
                let key = id(number);
                self.note(
                    |subject| subject.add(key, via),
                    |_, added| vec![Part::Add(key, added)],
                );
            }
            Do::AddAfter(number, ticks, via) => {
                let (key, ticks) = (id(number), ticks % 4);
                self.note(
                    |subject| subject.add_after(key, ticks, via),
                    |_, added| vec![delayed(key, ticks, added)],
                );
            }
            Do::Cancel(number) => {
                let key = id(number);
                self.note(
                    |subject| subject.cancel(key),
                    |_, was| vec![Part::Cancel(key, was)],
                );
            }
            Do::TryGet => self.note(Subject::try_get, Self::keep),
            Do::GetTimeout(micros) => self.note(|subject| subject.get_timeout(micros), Self::keep),
            Do::PollGet(before) => self.note(|subject| subject.poll_get(before), Self::keep),
            Do::Get => self.wait(Subject::get),
            Do::GetBatch(max) => self.wait(|subject| subject.get_batch(max)),
            Do::Done(which) => {
                if let Some(item) = self.choose(which) {
                    let key = item.key;
                    self.note(|subject| subject.done(item), |_, ()| vec![Part::Done(key)]);
                }
            }
            Do::RetryAfter(which, ticks) => {
                if let Some(item) = self.choose(which) {
                    let (key, ticks) = (item.key, ticks % 4);
                    self.note(
                        |subject| subject.retry_after(item, ticks),
                        |_, added| vec![delayed(key, ticks, added), Part::Done(key)],
                    );
                }
            }
            Do::Fire => self.note(Subject::fire, |_, fired| vec![Part::Fired(fired)]),
            Do::ShutDown => {
                if !self.stage.shut_down.swap(true, Ordering::SeqCst) {
                    self.note(Subject::shut_down, |_, left| vec![Part::ShutDown(left)]);
                }
            }
            Do::Shrink => self.stage.subject.shrink(),
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
                let parts = items.iter().map(|item| Part::Got(item.key)).collect();
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

/// The keys that a get returned, or the part that says that there was none.
type Got<'q> = Result<Vec<Held<'q>>, Part>;

/// What the result of an add after `ticks` means.
fn delayed(key: u8, ticks: u8, added: Added) -> Part {
    match (ticks, added) {
        (0, _) => Part::Add(key, added),
        (_, Added::Delayed | Added::ShutDown) => Part::Delay(key, ticks, added == Added::Delayed),
        (_, other) => panic!("add_after({key}, {ticks}) returned {other:?}"),
    }
}
