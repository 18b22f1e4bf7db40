//! One thread alone with a queue: cycle, memory, start.

use std::borrow::Borrow;
use std::time::Instant;

use crate::keys::{Key, Tally};
use crate::memory::Meter;
use crate::queue::Queue;
use crate::spec::Scale;

/// Recurring keys, one after the other: add by reference, get, done.
pub(super) fn cycle<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let keys: Vec<Q::Owned> = (0..scale.recurring).map(Q::nth).collect();
    let add = |queue: &C, key: &Q::Owned| queue.add_ref(key.borrow());
    cycles(scale, &C::new(), &keys, add)
}

/// The same through handles.
pub(super) fn cycle_handle<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let queue = C::new();
    let handles: Vec<C::Handle> = (0..scale.recurring)
        .map(|n| queue.handle(Q::nth(n)))
        .collect();
    cycles(scale, &queue, &handles, C::add_handle)
}

fn cycles<Q, C, T>(scale: &Scale, queue: &C, sources: &[T], add: impl Fn(&C, &T)) -> Vec<f64>
where
    Q: Key + ?Sized,
    C: Queue<Q>,
{
    let passes = scale.passes(sources.len());
    let mut delivered = Tally::default();
    let start = Instant::now();
    for _ in 0..passes {
        for source in sources {
            add(queue, source);
            let item = queue.get().expect("a key was added");
            delivered.count(C::key_of(&item));
            queue.done(item);
        }
    }
    let elapsed = start.elapsed();
    assert_eq!(
        delivered,
        Tally::of_first::<Q>(sources.len()).times(passes as u64)
    );
    vec![elapsed.as_nanos() as f64 / delivered.count as f64]
}

/// Bytes per queued key, and what a queue holds after they were done: at once, and after `shrink`.
pub(super) fn memory<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let meter = Meter::start();
    let queue = C::new();
    for n in 0..scale.keys {
        queue.add(C::key(Q::nth(n)));
    }
    assert_eq!(queue.len(), scale.keys);
    let queued = meter.bytes() / scale.keys as f64;

    let mut delivered = Tally::default();
    for _ in 0..scale.keys {
        let item = queue.get().expect("that many keys are queued");
        delivered.count(C::key_of(&item));
        queue.done(item);
    }
    assert_eq!(delivered, Tally::of_first::<Q>(scale.keys));
    assert_eq!(queue.len(), 0);
    let left = meter.bytes();
    queue.shrink();
    vec![queued, left, meter.bytes()]
}

/// Constructing a queue and dropping it; the same with one key through it meanwhile; and the threads that
/// one has.
pub(super) fn start<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / scale.starts as f64;
    let begun = Instant::now();
    for _ in 0..scale.starts {
        std::hint::black_box(C::new());
    }
    let unused = each(begun);

    let key = Q::nth(0);
    let mut delivered = Tally::default();
    let begun = Instant::now();
    for _ in 0..scale.starts {
        let queue = C::new();
        queue.add_ref(key.borrow());
        let item = queue.get().expect("a key was added");
        delivered.count(C::key_of(&item));
        queue.done(item);
    }
    let used = each(begun);
    assert_eq!(
        delivered,
        Tally::of_first::<Q>(1).times(scale.starts as u64)
    );

    let before = threads();
    let queue = C::new();
    queue.add_ref(key.borrow());
    let started = threads() - before;
    drop(queue);
    vec![unused, used, started]
}

/// The threads of this process, where the system says so; otherwise not a number.
fn threads() -> f64 {
    std::fs::read_dir("/proc/self/task").map_or(f64::NAN, |threads| threads.count() as f64)
}
