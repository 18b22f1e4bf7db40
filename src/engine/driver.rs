//! The thread that drives the timer: it starts with the first delay and ends with the queue.
//!
//! A queue that never delays a key has no thread (S6). A shut-down or the queue's drop stops the
//! thread; the drop waits for it. Until then the thread holds a reference to the core, never to the
//! queue itself, so it does not keep the queue from being dropped.

use crate::engine::Core;
use crate::fifo::groups::parked::NEVER;
use crate::keys::node::Pin;
use crate::keys::state::Level;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Mutex, ThreadParker};
use crate::timer::{Ended, Timer, Turn};

/// The timer thread of one queue, once it is started.
pub(crate) struct Driver {
    started: AtomicBool,
    stopped: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Driver {
    pub(crate) fn new() -> Self {
        Driver {
            started: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    /// Starts the thread, unless it is running or the timers are manual.
    ///
    /// If the system cannot start a thread, the next call tries again; the delays wait meanwhile.
    #[inline]
    pub(crate) fn start<K: Send + Sync + 'static>(&self, core: &Arc<Core<K>>) {
        // Ordering: Relaxed; the thread's handle is behind the mutex.
        if !core.timer.is_manual() && !self.started.load(Ordering::Relaxed) {
            self.start_slow(core);
        }
    }

    #[cold]
    fn start_slow<K: Send + Sync + 'static>(&self, core: &Arc<Core<K>>) {
        let mut thread = self.thread.lock();
        if thread.is_some() || self.is_stopped() {
            return;
        }
        // A thread's name must not contain NUL, which a queue's name may.
        let name = core.name().unwrap_or_default().replace('\0', "");
        let name = format!("keyqueue-timer {name}").trim_end().to_owned();
        let core = Arc::clone(core);
        if let Ok(started) = thread::Builder::new()
            .name(name)
            .spawn(move || drive(&core))
        {
            *thread = Some(started);
            // Ordering: Relaxed; as above.
            self.started.store(true, Ordering::Relaxed);
        }
    }

    /// Stops the thread, without waiting for it.
    pub(crate) fn stop<K>(&self, timer: &Timer<K>) {
        // Ordering: Release; pairs with the Acquire in `is_stopped`. The wake-up after it finds
        // the sleeper's waker, or the sleeper finds the flag: see `Timer::sleep`.
        self.stopped.store(true, Ordering::Release);
        timer.wake();
    }

    fn is_stopped(&self) -> bool {
        // Ordering: Acquire; pairs with the Release in `stop`.
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits for the thread to end. Does not wait for itself: a waker that the thread runs may
    /// drop the queue.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // If the thread panicked, it has ended, too.
            let _ = thread.join();
        }
    }
}

fn drive<K>(core: &Core<K>) {
    let parker = ThreadParker::current();
    while !core.driver.is_stopped() && !core.closing.all_delivered() {
        if let (0, Turn::Rest(until)) = core.turn() {
            let _more = core.look();
            let until = until.into_iter().chain(core.next_unpark()).min();
            // What waits for a time is in no wheel: one that came meanwhile may be earlier.
            let stays_awake = || {
                core.driver.is_stopped()
                    || core
                        .next_unpark()
                        .is_some_and(|at| until.is_none_or(|until| at < until))
            };
            core.timer
                .sleep(until, core.next_look(), &parker, stays_awake);
        }
    }
}

impl<K> Core<K> {
    /// Returns the tick in which a group or a key has waited long enough.
    fn next_unpark(&self) -> Option<u64> {
        let at = self.groups()?.next();
        (at != NEVER).then(|| self.timer.tick_of(at))
    }

    /// Takes a turn: adds keys whose delays are over, and returns the number of these delays.
    fn turn(&self) -> (usize, Turn) {
        let mut fired = 0;
        let mut queued = 0;
        let turn = self.timer.turn(|pin, level| {
            fired += 1;
            queued += self.add_and_unpin(&pin, level);
        });
        self.getters.notify(queued);
        if let Some(groups) = self.groups() {
            self.getters.notify(groups.unpark());
        }
        if let Some(room) = self.room() {
            // After the pushes, which have taken room of their own.
            room.release(fired);
        }
        (fired, turn)
    }

    /// Adds every key whose delay is over now, and returns the number of these delays.
    pub(crate) fn fire_due(&self) -> usize {
        let mut all = 0;
        loop {
            let (fired, turn) = self.turn();
            all += fired;
            if !matches!(turn, Turn::More) {
                return all;
            }
        }
    }

    /// Ends the timer. With `deliver`, first adds every key whose delay is pending, in due order.
    /// Notifies no getter.
    pub(crate) fn end_timer(&self, deliver: bool) -> Ended<K> {
        // Before the wheel is taken away: the thread finds it gone only once it has to stop. Groups may
        // still have keys that wait for a time.
        if self.groups().is_none() {
            self.driver.stop(&self.timer);
        }
        let add = |pin: Pin<K>, level| _ = self.add_and_unpin(&pin, level);
        self.timer.end(deliver.then_some(add))
    }

    /// Adds a key whose delay has ended, and returns the number of keys that this queued. Notifies
    /// no getter.
    fn add_and_unpin(&self, pin: &Pin<K>, level: Level) -> usize {
        let added = pin.add_at(level);
        // SAFETY: the key is pinned.
        unsafe { self.note_added(&added) };
        // A queued or dirty key stays interned without the pin; otherwise nothing is to be pushed.
        pin.unpin();
        usize::from(self.settle_unannounced(added))
    }
}
