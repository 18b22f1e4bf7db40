//! What a report of the metrics reads from the queue.
//!
//! Some of it takes a scan of all keys: to keep it up to date, every operation would have to write a
//! counter. The scan locks one shard at a time, each for a portion of its keys only, so an adder waits for
//! some microseconds at most. Each key is read as it is at some moment, and a key whose shard's
//! table changes during the scan may be missed or counted twice.

use crate::engine::Core;
use crate::engine::timing::Watch;
use crate::fifo::groups::grouping::Grouping;
use crate::keys::state::State;
use crate::keys::times::Ticks;
use crate::keys::visit::PORTION;
use crate::metrics::{Gauges, Scan, Source, Tally};
use crate::wait::room::Room;

impl<K, V> Source for Core<K, V> {
    fn tally(&self) -> Option<&Tally> {
        Some(&self.watch()?.tally)
    }

    fn is_at_rest(&self) -> bool {
        self.closing.has_begun() && self.closing.all_finished()
    }

    fn nanos(&self, ticks: Ticks) -> u64 {
        self.watch().map_or(0, |watch| watch.nanos(0, ticks))
    }

    fn gauges(&self) -> Gauges {
        let (letters, oldest_letter) = self.watch().map_or((0, 0), Watch::dead_letters);
        Gauges {
            letters,
            oldest_letter,
            queued: self.len(),
            waiting: self.bound().map_or(0, Room::waiting),
        }
    }

    fn scan(&self) -> Scan {
        let mut scan = Scan {
            levels: self.no_counts().by_level,
            ..Scan::default()
        };
        let Some(watch) = self.watch() else {
            return scan;
        };
        // Calibrates the clock, which may take 200 ms the first time, while no shard is locked: a queue that has only delays
        // has not read it.
        let _ = watch.now();
        for index in 0..self.keys.count() {
            let mut place = Some(0);
            while let Some(from) = place {
                let shard = self.keys.shard(index);
                let now = watch.now();
                place = shard.visit(from, PORTION, |node| {
                    let (node, times) = (node.get(), node.times(&watch.timed));
                    let seen = times.read(&node.state);
                    let age = |since: Option<Ticks>| since.map_or(0, |from| watch.nanos(from, now));
                    let (dirty, held) = (age(seen.dirty), age(seen.held));
                    scan.dirty += u64::from(seen.phase == State::Dirty);
                    if seen.phase == State::Queued
                        && let Some(level) = seen.level
                        && let Some(count) = scan.levels.get_mut(usize::from(level))
                    {
                        *count += 1;
                    }
                    scan.oldest = scan.oldest.max(dirty);
                    scan.unfinished = scan.unfinished.saturating_add(held);
                    scan.longest = scan.longest.max(held);
                    scan.delayed += u64::from(node.delay.due().is_some());
                    scan.retrying += u64::from(node.is_retrying());
                });
                if place.is_none() {
                    scan.sweeps += shard.sweeps();
                }
            }
        }
        scan.parked = self.groups().map_or(0, Grouping::parked);
        scan
    }
}
