//! Those who wait for one event: a line of numbers.

use std::collections::{BTreeSet, VecDeque};

/// The numbers of waiters that were woken, in the order in which it happened.
pub type Woken = Vec<usize>;

/// Those who wait, in the order in which they came, and those who were woken and have not yet
/// looked.
#[derive(Clone, Debug, Default)]
pub struct Waiters {
    line: VecDeque<usize>,
    notified: BTreeSet<usize>,
    /// Those who were notified one by one, in that order, and have neither looked since nor been made
    /// up for.
    away: VecDeque<usize>,
    woken: Woken,
}

impl Waiters {
    /// Puts `who` at the end of the line.
    pub fn register(&mut self, who: usize) {
        assert!(!self.line.contains(&who), "{who} waits already");
        self.line.push_back(who);
    }

    /// Whether `who` is still in the line: it has nothing to look for.
    pub fn waits(&self, who: usize) -> bool {
        self.line.contains(&who)
    }

    /// `who` looks, or leaves. Whether it had been woken since it registered.
    pub fn leave(&mut self, who: usize) -> bool {
        self.line.retain(|other| *other != who);
        self.away.retain(|other| *other != who);
        self.notified.remove(&who)
    }

    /// `who` looks. How many had been notified before it and have not looked yet, each counted once.
    pub fn come_back(&mut self, who: usize) -> usize {
        let overtaken = self.away.iter().position(|other| *other == who);
        self.away.drain(..overtaken.unwrap_or(0));
        self.leave(who);
        overtaken.unwrap_or(0)
    }

    /// Wakes up to `most`, the first in line first.
    pub fn wake(&mut self, most: usize) {
        for _ in 0..most {
            let Some(who) = self.line.pop_front() else {
                break;
            };
            self.notified.insert(who);
            self.away.push_back(who);
            self.woken.push(who);
        }
    }

    /// Wakes all. None of them has to be made up for.
    pub fn wake_all(&mut self) {
        self.notified.extend(&self.line);
        self.woken.extend(self.line.drain(..));
    }

    /// How many stand in line, and how many were woken and have not yet looked.
    pub fn counts(&self) -> (usize, usize) {
        (self.line.len(), self.notified.len())
    }

    /// Who was woken since the last call.
    pub fn take_woken(&mut self) -> Woken {
        std::mem::take(&mut self.woken)
    }
}
