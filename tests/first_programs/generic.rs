//! Functions that take any queue, whatever its keys, its values and its hasher are.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use keyqueue::worker::Workers;
use keyqueue::{ConfigError, WorkQueue, merge};

/// Returns a line for a log.
fn describe<K, V, S>(queue: &WorkQueue<K, V, S>) -> String {
    let name = queue.name().unwrap_or("a queue");
    format!("{name}: {} queued", queue.len())
}

/// Adds keys that carry the default value, and returns how many were accepted.
fn put_defaults<K, V, S>(queue: &WorkQueue<K, V, S>, keys: impl IntoIterator<Item = K>) -> usize
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Default + Send + 'static,
    S: BuildHasher,
{
    let put = |key| queue.put(key, V::default()).is_accepted();
    keys.into_iter()
        .map(put)
        .filter(|accepted| *accepted)
        .count()
}

/// Shuts the queue down, works on all that is queued, and returns how many keys that were.
fn finish<K, V, S>(
    queue: &WorkQueue<K, V, S>,
    work: impl Fn(&K) + Sync,
) -> Result<usize, ConfigError>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    queue.shut_down();
    let finished = AtomicUsize::new(0);
    Workers::new(queue).concurrency(2).run(|job| {
        work(&job);
        finished.fetch_add(1, Ordering::Relaxed);
    })?;
    Ok(finished.into_inner())
}

#[test]
fn functions_take_any_queue() -> Result<(), ConfigError> {
    let plain = WorkQueue::new();
    assert_eq!(put_defaults(&plain, [1, 2, 2]), 3);
    assert_eq!(describe(&plain), "a queue: 2 queued");
    assert_eq!(finish(&plain, |key: &u32| assert!(*key > 0))?, 2);

    let builder = WorkQueue::<String>::builder().name("sums");
    let sums: WorkQueue<_, u64> = builder.merge(merge::sum).build()?;
    assert_eq!(put_defaults(&sums, ["a".to_owned()]), 1);
    assert_eq!(describe(&sums), "sums: 1 queued");
    assert_eq!(finish(&sums, |key| assert_eq!(key, "a"))?, 1);

    let builder = WorkQueue::<&str>::builder();
    let hashed = builder.hasher(RandomState::new()).build()?;
    assert_eq!(put_defaults(&hashed, ["a", "b"]), 2);
    assert_eq!(finish(&hashed, |_| ())?, 2);
    assert_eq!(put_defaults(&hashed, ["c"]), 0); // it is shut down
    Ok(())
}
