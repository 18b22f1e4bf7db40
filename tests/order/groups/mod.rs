//! Groups that take turns (G1 to G6).

mod ends;
mod forgotten;
mod holds;
mod leaving;
mod limits;
mod longest;
mod rates;
mod taken;
mod turns;

use crate::common::there;
use crate::common::timed::built;
use keyqueue::{Builder, MockClock, WorkQueue};

/// A group, and a number in it.
pub(crate) type Key = (&'static str, u32);
pub(crate) type Queue = WorkQueue<Key>;

pub(crate) fn grouped(set: impl FnOnce(Builder<Key>) -> Builder<Key>) -> (Queue, MockClock) {
    built(|builder| set(builder.group_by(|key: &Key| key.0)))
}

pub(crate) fn turns() -> Queue {
    grouped(|builder| builder).0
}

pub(crate) fn keys(
    group: &'static str,
    numbers: std::ops::Range<u32>,
) -> impl Iterator<Item = Key> {
    numbers.map(move |number| (group, number))
}

/// The groups of the next deliveries, each done before the next.
pub(crate) fn groups_of(queue: &Queue, n: usize) -> Vec<&'static str> {
    there(queue).take(n).map(|item| item.0).collect()
}
