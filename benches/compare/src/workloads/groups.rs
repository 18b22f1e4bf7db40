//! Groups that take turns: what they cost a key that recurs, and distinct keys, by the number of groups.
//!
//! The group of a key is its number modulo the number of groups, or a queue without groups takes the same keys.

use super::levels;
use crate::queue::Queue;
use crate::workload::{Kind, Round};

/// Runs a round on a new queue with this many groups. `None` if this is not about groups.
pub(crate) fn run<C: Queue<u64, Key = u64>>(
    round: &Round<'_>,
    new: impl Fn(u64) -> C,
) -> Option<Vec<f64>> {
    let add = |queue: &C, _level: usize, key: u64| queue.add(key);
    let figure = match round.kind {
        Kind::Groups100Cycle => levels::cycle(round.count, &new(100), add),
        Kind::Groups100 => levels::flow(round, &new(100), &add),
        Kind::Groups100k => levels::flow(round, &new(100_000), &add),
        _ => return None,
    };
    Some(vec![figure])
}
