//! What is done beside adding and getting.

use std::time::Duration;

use super::{AGE, Place, R, lock};
use crate::plan::GROUPS;
use crate::{Kind, MS, below, dawdle, once_in};

impl<K: Kind> Place<K> {
    /// Moves the clock half a tick.
    pub fn pass_time(&self) {
        self.time.advance(MS / 2);
        if self.plan.manual {
            self.queue.fire_due();
        }
    }

    /// Moves the clock until the run is over.
    pub fn run_clock(&self) {
        while !self.over.load(R) {
            self.pass_time();
            dawdle(8);
        }
    }

    /// Lets the clock stand still.
    pub fn stop_clock(&self) {
        self.over.store(true, R);
    }

    /// Holds groups, and releases them, or waits for the end of the hold.
    pub fn hold_groups(&self) {
        for number in 1..=2 {
            let group = below(GROUPS);
            let hold = [MS, MS * 3, Duration::MAX][below(3) as usize];
            let until = self.clock.now().saturating_add(hold);
            let note = |hold| lock(&self.holds)[group as usize] = hold;
            assert!(self.queue.hold_group(&group, hold), "G6");
            note((number, until));
            dawdle(20);
            if hold > AGE || once_in(2) {
                note((0, Duration::ZERO));
                assert!(self.queue.hold_group(&group, Duration::ZERO), "G6");
            } else {
                // So that the next one does not replace it.
                while self.clock.now() < until {
                    dawdle(8);
                }
            }
        }
    }

    /// Holds the first group until it is released.
    pub fn hold_first(&self, holds: bool) {
        let hold = if holds { AGE } else { Duration::ZERO };
        assert!(self.queue.hold_group(&0_u64, hold), "G6");
    }

    /// Takes keys and values back.
    pub fn clear(&self) {
        for _ in 0..2 {
            dawdle(20);
            if once_in(2) {
                let cleared = self.queue.clear();
                self.ledger.abandoned(cleared);
                // They were held for a moment, in which adds needed no room.
                self.exceed(cleared);
                continue;
            }
            let key = self.ledger.key(below(self.plan.keys));
            if let Some(puts) = K::remove(&self.queue, &key) {
                self.ledger.abandoned(1);
                lock(&self.waiting).now -= puts.len();
                self.puts.end(&puts);
            }
        }
    }

    /// Drops what is idle.
    pub fn sweep(&self) {
        for _ in 0..2 {
            dawdle(20);
            self.queue.shrink();
        }
    }
}
