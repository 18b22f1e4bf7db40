//! What the models share: how a model is run, and the small queues they are about.
//!
//! The models are in `tests/`. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg keyqueue_loom" cargo test -p keyqueue-loom-tests --release
//! ```
#![cfg(keyqueue_loom)]

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use keyqueue::limiter::NoLimit;
use keyqueue::{Builder, Clock, MockClock, WorkQueue};
use loom::sync::Arc;

/// A hasher that answers the same in every run: loom replays its runs.
pub type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// The queue that models are about: few shards, a tiny ring.
pub type Queue = WorkQueue<u8, NoLimit, FixedHasher>;

/// A queue whose ring holds `ring` keys.
pub fn queue(ring: usize) -> Arc<Queue> {
    let queue = WorkQueue::builder()
        .hasher(FixedHasher::default())
        .shards(2)
        .ring(ring)
        .build();
    Arc::new(queue.expect("the settings are in range"))
}

/// A queue of few shards and its clock, which stands still until it is moved. `set` makes the other
/// settings; without `manual_timers` the first delay starts the driver's thread, which ends when
/// the last share of the queue is dropped.
pub fn delayed_queue(
    set: impl FnOnce(Builder<u8, NoLimit, FixedHasher>) -> Builder<u8, NoLimit, FixedHasher>,
) -> (Arc<Queue>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder()
        .hasher(FixedHasher::default())
        .shards(2)
        .ring(2)
        .clock(clock);
    let queue = set(builder).build().expect("the settings are in range");
    (Arc::new(queue), time)
}

/// Explores all interleavings of `model` with at most `preemptions` preemptions a run
/// (`LOOM_MAX_PREEMPTIONS` overrides it), and prints how many runs that took.
pub fn check(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    let began = std::time::Instant::now();
    builder.check(move || {
        // Ordering: Relaxed; a count, and loom runs one thread at a time.
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    // Ordering: Relaxed; as above.
    let runs = runs.load(Ordering::Relaxed);
    println!(
        "model {name}: bound {preemptions}, {runs} runs, {:.1} s",
        began.elapsed().as_secs_f32()
    );
}
