//! What the models in `tests/` share: how a model is run, and the small queues they are about. `README.md` says
//! how to run them, and which change each of them fails with.
#![cfg(keyqueue_loom)]

pub mod values;

pub use keyqueue::internals::NumberRing;

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use keyqueue::limiter::NoLimit;
use keyqueue::{Builder, Clock, MockClock, WorkQueue};
use loom::sync::Arc;
use loom::thread::JoinHandle;

/// A hasher that returns the same in every run: loom replays its runs.
pub type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// The queue that models are about: few shards, a tiny ring.
pub type Queue = WorkQueue<u8, (), FixedHasher>;

/// Its settings.
pub type Settings<K = u8> = Builder<K, (), FixedHasher>;

/// A queue of two shards, whose ring holds two keys and which retries without a delay, unless `set`, which makes the settings,
/// says something else.
pub fn queue_of<K: Hash + Eq + Send + Sync + 'static>(
    set: impl FnOnce(Settings<K>) -> Settings<K>,
) -> Arc<WorkQueue<K, (), FixedHasher>> {
    let builder = WorkQueue::<K>::builder()
        .hasher(FixedHasher::default())
        .rate_limiter(NoLimit)
        .shards(2)
        .ring(2);
    Arc::new(set(builder).build().expect("the settings are in range"))
}

/// A queue whose ring holds `ring` keys.
pub fn queue(ring: usize) -> Arc<Queue> {
    queue_of(|builder| builder.ring(ring))
}

/// A queue and its clock, which stands still until it is moved. `set` makes the other
/// settings; without `manual_timers` the first delay starts the driver's thread, which ends when
/// the last share of the queue is dropped.
pub fn delayed_queue(set: impl FnOnce(Settings) -> Settings) -> (Arc<Queue>, MockClock) {
    let (clock, time) = Clock::mock();
    (queue_of(|builder| set(builder.clock(clock))), time)
}

thread_local! {
    /// Whether a spawned thread goes on before its spawner, in the model that runs on this thread:
    /// loom runs all threads of a model on one.
    static SPAWNED_FIRST: Cell<bool> = const { Cell::new(false) };
}

/// Spawns a thread of a model. To be used instead of loom's own: see [`check`].
pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let handle = loom::thread::spawn(f);
    if SPAWNED_FIRST.get() {
        loom::thread::yield_now();
    }
    handle
}

/// As [`spawn`], of a thread that shares `shared` with the spawner.
pub fn spawn_with<S: 'static, T: 'static>(
    shared: &Arc<S>,
    f: impl FnOnce(&S) -> T + 'static,
) -> JoinHandle<T> {
    let shared = Arc::clone(shared);
    spawn(move || f(&shared))
}

/// Explores the interleavings of `model` with at most `preemptions` preemptions a run
/// (`LOOM_MAX_PREEMPTIONS` overrides it), and prints how many runs that took.
///
/// Twice: starting from the run in which a spawner goes on first, and from that in which the thread
/// it has spawned does. Either alone leaves interleavings out. loom remembers of each atomic only
/// which thread accessed it last; when a thread loads what another is about to load and change, the other's
/// load hides the first, and that the change might have come before it is never tried.
pub fn check(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let began = Instant::now();
    let model = std::sync::Arc::new(model);
    let overridden = loom::model::Builder::new().preemption_bound;
    let bound = overridden.unwrap_or(preemptions);
    let [one, other] = [false, true].map(|spawned_first| {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(bound);
        builder.max_branches = 20_000;
        let runs = std::sync::Arc::new(AtomicUsize::new(0));
        let (model, counted) = (std::sync::Arc::clone(&model), std::sync::Arc::clone(&runs));
        builder.check(move || {
            // Ordering: Relaxed; a count, and loom runs one thread at a time.
            counted.fetch_add(1, Ordering::Relaxed);
            SPAWNED_FIRST.set(spawned_first);
            model();
        });
        runs
    });
    let seconds = began.elapsed().as_secs_f32();
    println!("model {name}: bound {bound}, {one:?} + {other:?} runs, {seconds:.1} s");
}

/// The page that shows users how to check their own programs: its program is a test.
#[cfg(doctest)]
#[doc = include_str!("../../src/docs/how_to/model_checking.md")]
pub mod model_checking {}
