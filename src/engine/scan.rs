//! A scan of all keys, for a report: to keep its values up to date, every operation would have to
//! write a counter.
//!
//! The scan locks one shard at a time, each for a portion of its keys only, so an adder waits for
//! some microseconds at most. Each key is read as it is at some moment, and a key whose shard's
//! table changes during the scan may be missed or counted twice.

use crate::engine::Core;
use crate::engine::timing::Watch;
use crate::keys::state::State;
use crate::keys::times::Ticks;

/// The number of places of a shard's table that are visited at a time under its lock.
const PORTION: usize = 1024;

/// What a scan of all keys has found. Ages are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Keys that are processing and will be queued again.
    pub(crate) dirty: u64,
    /// The age of the key that has been queued, or dirty, for the longest time.
    pub(crate) oldest: u64,
    /// The sum and the maximum of the times that the processing keys have been processing.
    pub(crate) unfinished: u64,
    pub(crate) longest: u64,
    /// Pending delays.
    pub(crate) delayed: u64,
    /// Sweeps since the queue was built.
    pub(crate) sweeps: u64,
}

impl<K> Core<K> {
    pub(crate) fn scan(&self, watch: &Watch) -> Scan {
        let mut scan = Scan::default();
        for index in 0..self.keys.count() {
            let mut place = Some(0);
            while let Some(from) = place {
                let shard = self.keys.shard(index);
                let now = watch.now();
                place = shard.visit(from, PORTION, |node| {
                    // SAFETY: the node is in the table of a shard whose lock is held.
                    let (node, times) = unsafe { (node.get(), node.times(watch.timed())) };
                    let seen = times.read(&node.state);
                    let age = |since: Option<Ticks>| since.map_or(0, |from| watch.nanos(from, now));
                    let (dirty, held) = (age(seen.dirty), age(seen.held));
                    scan.dirty += u64::from(seen.phase == State::Dirty);
                    scan.oldest = scan.oldest.max(dirty);
                    scan.unfinished = scan.unfinished.saturating_add(held);
                    scan.longest = scan.longest.max(held);
                    scan.delayed += u64::from(node.delay.due().is_some());
                });
                if place.is_none() {
                    scan.sweeps += shard.sweeps();
                }
            }
        }
        scan
    }
}
