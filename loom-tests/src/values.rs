//! Queues whose keys carry values, and values with witnesses.

use keyqueue::limiter::NoLimit;
use keyqueue::{Added, Builder, Clock, MockClock, Receipt, WorkQueue};
use loom::cell::UnsafeCell;
use loom::sync::Arc;

use crate::FixedHasher;

/// The queue that models of values are about.
pub type Values = WorkQueue<u8, Bag, FixedHasher>;

/// Its settings.
pub type Settings = Builder<u8, Bag, FixedHasher>;

/// A delivery of it.
pub type Item<'q> = keyqueue::Item<'q, u8, Bag>;

/// A value: numbers, each with a cell of loom's, which finds accesses that are not ordered.
#[derive(Debug)]
pub struct Bag(Vec<(u8, UnsafeCell<()>)>);

/// A value of one number.
pub fn bag(number: u8) -> Bag {
    Bag(vec![(number, UnsafeCell::new(()))])
}

impl Bag {
    /// Accesses every number as a writer does, and returns them.
    pub fn touch(&mut self) -> Vec<u8> {
        let touch = |(number, cell): &(u8, UnsafeCell<()>)| {
            cell.with_mut(|_| ());
            *number
        };
        self.0.iter().map(touch).collect()
    }

    /// Merges a newer value into this one.
    pub fn append(&mut self, mut newer: Bag) {
        self.touch();
        newer.touch();
        self.0.append(&mut newer.0);
    }
}

impl Bag {
    /// Returns how many numbers there are, which is the value's weight.
    #[allow(clippy::len_without_is_empty, reason = "for models")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl IntoIterator for Bag {
    type Item = (u8, UnsafeCell<()>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.touch();
        std::mem::take(&mut self.0).into_iter()
    }
}

impl FromIterator<(u8, UnsafeCell<()>)> for Bag {
    fn from_iter<I: IntoIterator<Item = (u8, UnsafeCell<()>)>>(numbers: I) -> Self {
        Bag(numbers.into_iter().collect())
    }
}

impl Drop for Bag {
    fn drop(&mut self) {
        self.touch();
    }
}

/// A queue of two shards, whose ring holds two keys and which retries without a delay, with further settings.
pub fn values(set: impl FnOnce(Settings) -> Settings) -> Arc<Values> {
    let builder = WorkQueue::<u8>::builder()
        .hasher(FixedHasher::default())
        .rate_limiter(NoLimit)
        .shards(2)
        .ring(2)
        .merge(Bag::append);
    Arc::new(set(builder).build().expect("the settings are in range"))
}

/// A queue, whose drain delivers delays, and its clock, which stands still until it is moved. The
/// models end delays by `fire_due`.
pub fn delayed_values() -> (Arc<Values>, MockClock) {
    let (clock, time) = Clock::mock();
    let queue = values(|builder| builder.clock(clock).manual_timers().drain_delays(true));
    (queue, time)
}

/// Puts a value, and returns its receipt.
pub fn put_tracked(queue: &Values, key: u8, value: Bag) -> (Added, Receipt) {
    let (entry, receipt) = queue.entry(key).tracked();
    (entry.put(value), receipt)
}

/// Takes what is queued, each key done before the next, and returns the numbers of each delivery.
pub fn drain(queue: &Values) -> Vec<Vec<u8>> {
    let get = || queue.try_get().ok();
    std::iter::from_fn(get)
        .map(|mut item| item.value_mut().touch())
        .collect()
}
