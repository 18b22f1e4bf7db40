//! The queue one step at a time. Small and without a heap, since the search copies it.

use super::{KEYS, Part, THREADS};
use crate::Setup;
use keyqueue::{Added, Remaining};

/// Where a key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    /// To be put into the FIFO by the thread that made it so.
    Marked,
    Queued,
    /// Out of the FIFO, but its delivery has not begun.
    Taken,
    Processing,
    Dirty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Delay {
    due: u8,
    /// The thread that set it, so that no other registers it.
    by: u8,
    registered: bool,
}

/// How far a thread is within a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing is done yet.
    #[default]
    First,
    /// The second half of what has two.
    Second,
    /// To set a delay due at this tick.
    Set(u8),
    /// So many delays have ended, and of their keys these are still to be put into the FIFO.
    Fired(u8, Owed),
    /// As before, and the delay of this key has ended: it is to be added.
    Add(u8, u8, Owed),
}

/// Keys in an order, four bits for each, which are 0 behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owed(u16);

impl Owed {
    fn then(self, key: u8) -> Self {
        let len = u16::BITS - self.0.leading_zeros();
        Owed(self.0 | (u16::from(key) + 1) << len.next_multiple_of(4))
    }

    fn first(self) -> Option<(u8, Self)> {
        let first = (self.0 % 16).checked_sub(1)?;
        Some((first as u8, Owed(self.0 / 16)))
    }
}

/// The queue, in the middle of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spec {
    phases: [Phase; KEYS],
    fifo: [u8; KEYS],
    len: u8,
    delays: [Option<Delay>; KEYS],
    now: u8,
    /// The delays that each thread's `fire_due` has to see ended, as a set of keys.
    due: [u8; THREADS],
    /// Whether a delay has ended whose key is not yet added.
    firing: bool,
    /// Whether the keys of a `fire_due` are put into the FIFO once all are added.
    late: bool,
    begun: bool,
    /// No delay ends from here on.
    timer_ended: bool,
    /// Keys that take no adds, and keys that take no delays: sets.
    closed: u8,
    delays_closed: u8,
    walked: bool,
    /// What the shut-down has counted: queued, processing, delayed.
    census: [u8; 3],
}

fn bit(key: u8) -> u8 {
    1 << key
}

/// Where a step leads: how far the thread is then, none at the end of the part.
pub(super) type Next = (Option<Step>, Spec);

impl Spec {
    /// The queue of this setup, at first. With groups it runs user code to put a key into the FIFO, and does so while
    /// nothing is locked.
    pub fn of(setup: &Setup) -> Self {
        Spec {
            late: setup.groups() > 0,
            ..Spec::default()
        }
    }

    /// Every way in which `thread` can take its next step in `part`.
    pub(super) fn next(self, thread: u8, part: Part, step: Step, ways: &mut Vec<Next>) {
        match part {
            Part::Add(key, added) => ways.extend(self.add(key, added, step)),
            Part::Delay(key, ticks, accepted) => {
                ways.extend(self.delay(thread, key, ticks, accepted, step));
            }
            Part::Retry(key, ticks, accepted) => {
                let phase = match accepted {
                    true => Phase::Dirty,
                    false => Phase::Processing,
                };
                let is_plain = accepted && ticks == 0;
                let may_be = self.phases[usize::from(key)] == phase && (is_plain || self.walked);
                ways.extend(may_be.then_some((None, self)));
            }
            Part::Cancel(key, there_was) => {
                if self.delays[usize::from(key)].is_some() == there_was {
                    ways.push((None, self.without_delay(key)));
                }
            }
            Part::Got(key) => ways.extend(self.get(key, step)),
            Part::Empty => ways.extend((self.len == 0).then_some((None, self))),
            Part::Ended => ways.extend(self.has_ended().then_some((None, self))),
            Part::Done(key) => ways.extend(self.done(key, step)),
            Part::Fired(count) => self.fire(thread, count, step, ways),
            Part::ShutDown(found) => self.shut_down(found, step, ways),
        }
    }

    fn phase(&mut self, key: u8) -> &mut Phase {
        &mut self.phases[usize::from(key)]
    }

    fn has_ended(&self) -> bool {
        let is_delivered = |phase: &Phase| matches!(phase, Phase::Idle | Phase::Processing);
        self.walked && self.phases.iter().all(is_delivered)
    }

    fn add(mut self, key: u8, added: Added, step: Step) -> Option<Next> {
        if step == Step::Second {
            return Some((None, self.pushed(key)));
        }
        if added == Added::ShutDown {
            return self.begun.then_some((None, self));
        }
        let marked = self.mark(key)?;
        let rest = (marked == Added::Queued).then_some(Step::Second);
        (marked == added).then_some((rest, self))
    }

    /// The state's part of an add: what it returns, none if the key is closed.
    fn mark(&mut self, key: u8) -> Option<Added> {
        if self.closed & bit(key) != 0 {
            return None;
        }
        let phase = self.phase(key);
        let (next, added) = match *phase {
            Phase::Idle => (Phase::Marked, Added::Queued),
            Phase::Processing => (Phase::Dirty, Added::Deferred),
            other => (other, Added::Merged),
        };
        *phase = next;
        Some(added)
    }

    fn pushed(mut self, key: u8) -> Self {
        debug_assert_eq!(self.phases[usize::from(key)], Phase::Marked);
        *self.phase(key) = Phase::Queued;
        self.fifo[usize::from(self.len)] = key;
        self.len += 1;
        self
    }

    fn get(mut self, key: u8, step: Step) -> Option<Next> {
        if step == Step::Second {
            *self.phase(key) = Phase::Processing;
            return Some((None, self));
        }
        if self.len == 0 || self.fifo[0] != key {
            return None;
        }
        self.fifo.rotate_left(1);
        self.len -= 1;
        // What is behind the end is not to tell equal states apart.
        self.fifo[usize::from(self.len)..].fill(0);
        *self.phase(key) = Phase::Taken;
        Some((Some(Step::Second), self))
    }

    fn done(mut self, key: u8, step: Step) -> Option<Next> {
        if step == Step::Second {
            return Some((None, self.pushed(key)));
        }
        let phase = self.phase(key);
        match *phase {
            Phase::Processing => {
                *phase = Phase::Idle;
                Some((None, self))
            }
            Phase::Dirty => {
                *phase = Phase::Marked;
                Some((Some(Step::Second), self))
            }
            _ => None,
        }
    }

    fn delay(mut self, thread: u8, key: u8, ticks: u8, accepted: bool, step: Step) -> Option<Next> {
        let pending = self.delays[usize::from(key)];
        match step {
            Step::First if !accepted => self.begun.then_some((None, self)),
            Step::First => Some((Some(Step::Set(self.now + ticks)), self)),
            Step::Set(_) if self.delays_closed & bit(key) != 0 => None,
            // The earlier one counts.
            Step::Set(due) if pending.is_some_and(|pending| pending.due <= due) => {
                Some((None, self))
            }
            Step::Set(due) => {
                self = self.without_delay(key);
                self.delays[usize::from(key)] = Some(Delay {
                    due,
                    by: thread,
                    registered: false,
                });
                Some((Some(Step::Second), self))
            }
            _ => {
                if let Some(delay) = &mut self.delays[usize::from(key)] {
                    delay.registered |= delay.by == thread;
                }
                Some((None, self))
            }
        }
    }

    fn without_delay(mut self, key: u8) -> Self {
        self.delays[usize::from(key)] = None;
        for due in &mut self.due {
            *due &= !bit(key);
        }
        self
    }

    /// The due tick of a delay that a `fire_due` can end now.
    fn due_now(&self, key: u8) -> Option<u8> {
        let delay = self.delays[usize::from(key)]?;
        (delay.registered && delay.due <= self.now).then_some(delay.due)
    }

    fn fire(mut self, thread: u8, count: u8, step: Step, ways: &mut Vec<Next>) {
        let me = usize::from(thread);
        match step {
            Step::First | Step::Second | Step::Set(_) => {
                self.now += 1;
                let due = (0..KEYS as u8).filter(|key| self.due_now(*key).is_some());
                self.due[me] = due.fold(0, |due, key| due | bit(key));
                ways.push((Some(Step::Fired(0, Owed::default())), self));
            }
            Step::Fired(fired, owed) => {
                if let Some((key, rest)) = owed.first() {
                    let mut next = self.pushed(key);
                    next.firing &= self.late;
                    ways.push((Some(Step::Fired(fired, rest)), next));
                } else if fired == count && (self.due[me] == 0 || self.begun) {
                    // What was registered before is ended now, by this call or by others.
                    self.due[me] = 0;
                    ways.push((None, self));
                }
                if fired == count || self.firing || self.timer_ended {
                    return;
                }
                for key in 0..KEYS as u8 {
                    let Some(due) = self.due_now(key) else {
                        continue;
                    };
                    if self.is_overdue_before(thread, due) {
                        continue;
                    }
                    let mut next = self.without_delay(key);
                    next.firing = true;
                    ways.push((Some(Step::Add(fired, key, owed)), next));
                }
            }
            Step::Add(fired, key, owed) => {
                let queued = self.mark(key) == Some(Added::Queued);
                self.firing = queued && !self.late;
                let owed = if queued { owed.then(key) } else { owed };
                ways.push((Some(Step::Fired(fired + 1, owed)), self));
            }
        }
    }

    /// Whether one of the delays that were there when the call began is due before tick `due`.
    fn is_overdue_before(&self, thread: u8, due: u8) -> bool {
        (0..KEYS as u8)
            .filter(|key| self.due[usize::from(thread)] & bit(*key) != 0)
            .any(|key| self.due_now(key).is_some_and(|other| other < due))
    }

    fn shut_down(mut self, found: Remaining, step: Step, ways: &mut Vec<Next>) {
        if step == Step::First {
            self.begun = true;
            ways.push((Some(Step::Second), self));
            return;
        }
        if !self.timer_ended {
            if !self.firing {
                self.timer_ended = true;
                ways.push((Some(Step::Second), self));
            }
            return;
        }
        // A key's delay is dropped right after the key was closed, before the next key.
        if self.closed != self.delays_closed {
            let key = (self.closed ^ self.delays_closed).trailing_zeros() as u8;
            self.census[2] += u8::from(self.delays[usize::from(key)].is_some());
            self = self.without_delay(key);
            self.delays_closed |= bit(key);
            ways.push((Some(Step::Second), self));
            return;
        }
        let found = [found.queued, found.processing, found.delayed];
        if self.closed == bit(KEYS as u8) - 1 {
            if self.census.map(usize::from) == found {
                self.walked = true;
                ways.push((None, self));
            }
            return;
        }
        for key in (0..KEYS as u8).filter(|key| self.closed & bit(*key) == 0) {
            let mut next = self;
            next.closed |= bit(key);
            match *next.phase(key) {
                Phase::Idle => {}
                Phase::Marked | Phase::Queued | Phase::Taken => next.census[0] += 1,
                Phase::Processing | Phase::Dirty => next.census[1] += 1,
            }
            let over =
                std::iter::zip(next.census, found).any(|(so_far, all)| usize::from(so_far) > all);
            if !over {
                ways.push((Some(Step::Second), next));
            }
        }
    }
}
