//! Adding keys that are queued already, from one or more threads: nothing should happen.

use std::borrow::Borrow;

use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::race::{self, Racer};
use crate::spec::{By, Scale};

pub(super) fn run<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale, threads: usize, by: By) -> Vec<f64> {
    let queue = C::new();
    let keys: Vec<Q::Owned> = (0..scale.recurring).map(Q::nth).collect();
    for n in 0..scale.recurring {
        queue.add(C::key(Q::nth(n)));
    }
    let passes = (scale.duplicates / threads / scale.recurring).max(1);
    let ns = if by == By::Handle {
        let handle = |n| queue.handle(Q::nth(n));
        let handles: Vec<C::Handle> = (0..scale.recurring).map(handle).collect();
        passes_of(threads, passes, &handles, |handle| queue.add_handle(handle))
    } else {
        passes_of(threads, passes, &keys, |key| queue.add_ref(key.borrow()))
    };

    assert_eq!(queue.len(), scale.recurring);
    queue.shut_down();
    let mut delivered = Tally::default();
    while let Some(item) = queue.get() {
        delivered.count(C::key_of(&item));
        queue.done(item);
    }
    assert_eq!(delivered, Tally::of_first::<Q>(scale.recurring));
    vec![ns / (passes * threads * scale.recurring) as f64]
}

/// Nanoseconds until every thread has been through the sources that often.
fn passes_of<T: Sync>(
    threads: usize,
    passes: usize,
    sources: &[T],
    add: impl Fn(&T) + Sync,
) -> f64 {
    let adder = || -> Racer<'_, ()> {
        Box::new(|| {
            for source in std::iter::repeat_n(sources, passes).flatten() {
                add(source);
            }
        })
    };
    race::ns(&race::run((0..threads).map(|_| adder()).collect()))
}
