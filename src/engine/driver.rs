//! The thread that drives the timer: it starts with the first time to wait for, and ends with the queue.
//!
//! That is the end of a delay, of a linger, of the limit of an add in a task, or of what holds a group up. A queue that has
//! none of these has no thread (S6). A shut-down or the queue's drop stops the thread; the drop waits for it. Until then
//! the thread holds a reference to the core, never to the queue itself, so it does not keep the queue from being dropped.

use std::iter;

use crate::engine::Core;
use crate::fifo::groups::NEVER;
use crate::fifo::groups::grouping::{Grouping, Ready};
use crate::keys::delay::Stamp;
use crate::keys::node::{Added, Pin};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Mutex, ThreadParker};
use crate::timer::{Ended, Timer, Turn};
use crate::wait::WaitList;
use crate::wait::room::Share;

/// The timer thread of one queue, once it is started.
#[derive(Default)]
pub(crate) struct Driver {
    started: AtomicBool,
    stopped: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Driver {
    /// Starts the thread, unless it is running or the timers are manual.
    ///
    /// If the system cannot start a thread, the next call tries again; the delays wait meanwhile.
    #[inline]
    pub(crate) fn start<K: Send + Sync + 'static, V: Send + 'static>(
        &self,
        core: &Arc<Core<K, V>>,
    ) {
        // Ordering: Relaxed; the thread's handle is behind the mutex.
        if !core.timer.manual && !self.started.load(Ordering::Relaxed) {
            self.start_slow(core);
        }
    }

    #[cold]
    fn start_slow<K: Send + Sync + 'static, V: Send + 'static>(&self, core: &Arc<Core<K, V>>) {
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

fn drive<K, V>(core: &Core<K, V>) {
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

impl<K, V> Core<K, V> {
    /// The lists of those that wait at most until a time: getters that linger, and tasks that wait for room.
    fn timed(&self) -> impl Iterator<Item = &WaitList> {
        let adds = self.bound().map(|room| &room.timed);
        iter::once(&self.getters).chain(adds)
    }

    /// Returns the tick in which a group, a key, a getter or an add has waited long enough.
    fn next_unpark(&self) -> Option<u64> {
        let groups = self.groups().map(Grouping::next);
        let at = groups.filter(|at| *at != NEVER);
        let timed = self.timed().filter_map(WaitList::next_expiry);
        let at = at.into_iter().chain(timed).min();
        at.map(|at| self.timer.tick_of(at))
    }

    /// Takes a turn: adds keys whose delays are over, and returns the number of these delays.
    fn turn(&self) -> (usize, Turn) {
        let (mut fired, mut queued, mut several) = (0, 0, false);
        let mut count = |ready| {
            queued += usize::from(ready != Ready::Nothing);
            several |= ready > Ready::One;
        };
        // What the delays had room for and did not queue is offered to others after the notifications.
        let mut share = Share::exceeding(self.room());
        // The timer is locked during the turn, and the groups' `push` runs user code.
        let waits = self.groups().is_some_and(Grouping::runs_user_code);
        let mut waiting = Vec::new();
        let turn = self.timer.turn(|pin, stamp| {
            let added = self.end_delay(pin, stamp, &mut share)?;
            fired += 1;
            match waits {
                true => waiting.push(added),
                false => count(self.after_add_unannounced(added)),
            }
            Some(())
        });
        for added in waiting {
            count(self.after_add_unannounced(added));
        }
        count(self.groups().map_or(Ready::Nothing, Grouping::unpark));
        match several {
            false => self.getters.notify(queued),
            true => self.getters.notify_several(queued),
        }
        for waiting in self.timed() {
            waiting.expire(|| self.timer.clock().nanos());
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

    /// Ends the timer. With `deliver`, first adds every key whose delay is pending, in due order, and
    /// passes what is left to do for that to `owed`.
    pub(crate) fn end_timer(&self, deliver: bool, mut owed: impl FnMut(Added<K>)) -> Ended<K> {
        // Before the wheel is taken away: the thread finds it gone only once it has to stop. Groups may
        // still have keys that wait for a time.
        if self.groups().is_none() {
            self.driver.stop(&self.timer);
        }
        let mut share = Share::exceeding(self.room());
        let add = |pin: &Pin<K>, stamp| self.end_delay(pin, stamp, &mut share).map(&mut owed);
        let ended = self.timer.end(deliver.then_some(add));
        // Nobody gets room any more: the caller closes it.
        share.forget();
        ended
    }

    /// Ends the delay with this stamp, and adds its key. Returns `None` if the delay is not pending, and then the key
    /// stays pinned.
    fn end_delay(&self, pin: &Pin<K>, stamp: Stamp, share: &mut Share<'_>) -> Option<Added<K>> {
        // A thread that holds this lock, to look at the key or to supersede its delay, finds the delay pending or the key
        // added.
        let _shard = self.keys.lock_of(pin);
        let ended = pin.delay().end(stamp)?;
        Some(self.add_delayed(pin, ended, share))
    }

    /// Adds a key whose delay has ended, and unpins it. What is left to do for that is the caller's.
    pub(super) fn add_delayed(
        &self,
        pin: &Pin<K>,
        stamp: Stamp,
        share: &mut Share<'_>,
    ) -> Added<K> {
        share.receive(stamp.is_retry());
        let added = self.add_in_share(pin, stamp.level(), share);
        let added = added.unwrap_or(Added::Closed);
        // A queued or dirty key stays interned without the pin; otherwise nothing is to be pushed.
        pin.unpin();
        added
    }
}
