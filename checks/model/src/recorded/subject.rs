//! The queue under test, with or without a flaw.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::linear::{KEYS, Part, Via};
use crate::{Setup, Spreading};
use keyqueue::limiter::NoLimit;
use keyqueue::{
    Added, Clock, GetTimeoutError, Item, KeyHandle, MockClock, Remaining, TryGetError, WorkQueue,
};

use super::Got;

const TICK: Duration = Duration::from_millis(1);
/// A flaw shows each so many calls.
const ODDS: usize = 4;

type Queue = WorkQueue<u8, NoLimit, Spreading>;

/// Declares the flaws, and [`Flaw::ALL`] of them.
macro_rules! flaws {
    ($($(#[$doc:meta])* $flaw:ident,)*) => {
        /// What a broken queue does wrong, now and then.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Flaw {
            $($(#[$doc])* $flaw,)*
        }

        impl Flaw {
            /// Every flaw.
            pub const ALL: &[Flaw] = &[$(Flaw::$flaw),*];
        }
    };
}

flaws! {
    /// Says that a key is queued, and forgets it.
    LosesAdds,
    /// Adds of a key that is processed are taken for done.
    LosesDirty,
    /// Takes a queued key for one that is processed, in its result alone.
    MisreportsAdds,
    /// Hands out a key that is held.
    TwoHolders,
    /// Hands out the second key before the first.
    Overtakes,
    /// Finds nothing where there is something.
    BlindGets,
    /// Ends although a key is dirty.
    EndsEarly,
    /// Says that a delay is pending, and forgets it.
    LosesDelays,
    /// Says that a delay was cancelled, and lets it be.
    KeepsCancelled,
    /// Ends the delays of the next tick, too.
    FiresEarly,
    /// Counts a key too many when it is shut down.
    Miscounts,
}

pub(crate) struct Subject {
    queue: Queue,
    time: MockClock,
    handles: Vec<KeyHandle<u8>>,
    flaw: Option<Flaw>,
    chances: AtomicUsize,
    /// How often each key is handed out.
    holders: [AtomicUsize; KEYS],
    /// The key that was overtaken.
    overtaken: Mutex<Option<u8>>,
}

/// A key handed out; the item of one that is only pretended to be is missing.
pub(crate) struct Held<'q> {
    pub(crate) key: u8,
    item: Option<Item<'q, u8, NoLimit, Spreading>>,
}

impl Subject {
    pub(crate) fn new(setup: Setup, flaw: Option<Flaw>) -> Self {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::<u8>::builder()
            .hasher(Spreading(setup.spread))
            .shards(setup.shards())
            .ring(setup.ring())
            .clock(clock)
            .tick(TICK)
            .manual_timers()
            .build()
            .expect("the settings are in range");
        // Half of the keys only: a handle keeps its key from being swept.
        let handles = (0..KEYS as u8).step_by(2).map(|key| queue.handle(key));
        Subject {
            handles: handles.collect(),
            queue,
            time,
            flaw,
            chances: AtomicUsize::new(0),
            holders: Default::default(),
            overtaken: Mutex::new(None),
        }
    }

    /// Whether the flaw, if it is this one, shows now.
    fn shows(&self, flaw: Flaw) -> bool {
        // Ordering: Relaxed; a count.
        self.flaw == Some(flaw)
            && self
                .chances
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(ODDS)
    }

    fn is_held(&self, key: u8) -> bool {
        self.holders[usize::from(key)].load(Ordering::SeqCst) > 0
    }

    pub(crate) fn add(&self, key: u8, via: Via) -> Added {
        if self.shows(Flaw::LosesAdds) {
            return Added::Queued;
        }
        if self.is_held(key) && self.shows(Flaw::LosesDirty) {
            return Added::Deferred;
        }
        let added = match via {
            Via::Key => self.queue.add(key),
            Via::Ref => self.queue.add_ref(&key),
            Via::Handle => match self.handle(key) {
                Some(handle) => handle.add(),
                None => self.queue.add(key),
            },
            Via::NewHandle => self.queue.handle(key).add(),
        };
        match added {
            Added::Queued if self.shows(Flaw::MisreportsAdds) => Added::Deferred,
            added => added,
        }
    }

    fn handle(&self, key: u8) -> Option<&KeyHandle<u8>> {
        self.handles.iter().find(|handle| *handle.key() == key)
    }

    pub(crate) fn add_after(&self, key: u8, ticks: u8, via: Via) -> Added {
        let delay = TICK * u32::from(ticks);
        if ticks > 0 && self.shows(Flaw::LosesDelays) {
            return Added::Delayed;
        }
        match (via, self.handle(key)) {
            (Via::Handle, Some(handle)) => handle.add_after(delay),
            (Via::NewHandle, _) => self.queue.handle(key).add_after(delay),
            _ => self.queue.add_after(key, delay),
        }
    }

    pub(crate) fn cancel(&self, key: u8) -> bool {
        self.shows(Flaw::KeepsCancelled) || self.queue.cancel(&key)
    }

    pub(crate) fn fire(&self) -> u8 {
        let early = self.shows(Flaw::FiresEarly);
        self.time.advance(if early { 2 * TICK } else { TICK });
        self.queue.fire_due() as u8
    }

    pub(crate) fn try_get(&self) -> Got<'_> {
        if let Some(got) = self.flawed_get() {
            return got;
        }
        self.queue
            .try_get()
            .map(|item| self.held(item))
            .map_err(|error| match error {
                TryGetError::Empty => Part::Empty,
                TryGetError::ShutDown => Part::Ended,
            })
    }

    pub(crate) fn get_timeout(&self, micros: u8) -> Got<'_> {
        let limit = Duration::from_micros(micros.into());
        let got = self.queue.get_timeout(limit).map(|item| self.held(item));
        got.map_err(|error| match error {
            GetTimeoutError::Timeout => Part::Empty,
            GetTimeoutError::ShutDown => Part::Ended,
        })
    }

    pub(crate) fn poll_get(&self, before: u8) -> Got<'_> {
        let mut getter = self.queue.get_async();
        let context = &mut Context::from_waker(Waker::noop());
        for _ in 0..=before % 4 {
            if let Poll::Ready(got) = Pin::new(&mut getter).poll(context) {
                return got.map(|item| self.held(item)).ok_or(Part::Ended);
            }
        }
        Err(Part::Empty)
    }

    pub(crate) fn get(&self) -> Got<'_> {
        self.queue
            .get()
            .map(|item| self.held(item))
            .ok_or(Part::Ended)
    }

    pub(crate) fn get_batch(&self, max: u8) -> Got<'_> {
        let batch = self
            .queue
            .get_batch(usize::from(max % 4))
            .ok_or(Part::Ended)?;
        Ok(batch.into_iter().flat_map(|item| self.held(item)).collect())
    }

    fn held<'q>(&'q self, item: Item<'q, u8, NoLimit, Spreading>) -> Vec<Held<'q>> {
        let key = *item;
        self.holders[usize::from(key)].fetch_add(1, Ordering::SeqCst);
        vec![Held {
            key,
            item: Some(item),
        }]
    }

    fn flawed_get(&self) -> Option<Got<'_>> {
        if let Some(key) = self.overtaken.lock().expect("no panic").take() {
            return Some(Ok(vec![Held { key, item: None }]));
        }
        let held = (0..KEYS as u8).find(|key| self.is_held(*key));
        if let Some(key) = held.filter(|_| self.shows(Flaw::TwoHolders)) {
            return Some(Ok(vec![Held { key, item: None }]));
        }
        if self.queue.len() > 1 && self.shows(Flaw::Overtakes) {
            let first = self.queue.try_get().ok()?;
            let second = self.queue.try_get();
            *self.overtaken.lock().expect("no panic") = Some(*first);
            return Some(second.map(|item| self.held(item)).map_err(|_| Part::Empty));
        }
        if self.shows(Flaw::BlindGets) {
            return Some(Err(Part::Empty));
        }
        let may_end = self.queue.is_shutting_down() && self.queue.is_empty();
        (may_end && self.shows(Flaw::EndsEarly)).then_some(Err(Part::Ended))
    }

    pub(crate) fn done(&self, held: Held<'_>) {
        self.leave(&held);
        if let Some(item) = held.item {
            item.done();
        }
    }

    pub(crate) fn retry_after(&self, held: Held<'_>, ticks: u8) -> Added {
        self.leave(&held);
        let delay = TICK * u32::from(ticks);
        match held.item {
            Some(item) => item.retry_after(delay),
            None => self.queue.add_after(held.key, delay),
        }
    }

    fn leave(&self, held: &Held<'_>) {
        if held.item.is_some() {
            self.holders[usize::from(held.key)].fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn shut_down(&self) -> Remaining {
        let mut left = self.queue.shut_down();
        left.queued += usize::from(self.shows(Flaw::Miscounts));
        left
    }

    pub(crate) fn shrink(&self) {
        self.queue.shrink();
    }
}
