//! A limiter of your own: the delays of a key are Fibonacci's numbers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue::limiter::RateLimiter;
use keyqueue::worker::Workers;
use keyqueue::{ConfigError, WorkQueue};

struct Fibonacci<K> {
    unit: Duration,
    failures: Mutex<HashMap<K, u32>>,
}

impl<K: Hash + Eq + Clone + Send + Sync> RateLimiter<K> for Fibonacci<K> {
    fn when(&self, key: &K) -> Duration {
        let mut failures = self.failures.lock().unwrap();
        let failures = failures.entry(key.clone()).or_default();
        *failures += 1;
        let (mut number, mut next) = (1u32, 1u32);
        for _ in 1..*failures {
            (number, next) = (next, number.saturating_add(next));
        }
        self.unit.saturating_mul(number)
    }

    fn forget(&self, key: &K) {
        self.failures.lock().unwrap().remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.lock().unwrap().get(key).copied().unwrap_or(0)
    }
}

#[test]
fn a_queue_takes_a_limiter_of_your_own() -> Result<(), ConfigError> {
    let (unit, failures) = (Duration::from_millis(1), Mutex::default());
    let limiter = Arc::new(Fibonacci { unit, failures });
    let builder = WorkQueue::builder().rate_limiter(Arc::clone(&limiter));
    let queue = builder.build()?;
    queue.add("feed");

    let delays = Mutex::new(Vec::new());
    Workers::new(&queue)
        .concurrency(1)
        .max_retries(5)
        .on_error(|_, failed| delays.lock().unwrap().extend(failed.next))
        .on_give_up(|key, given_up| {
            assert_eq!((*key, given_up.retries), ("feed", 5));
            queue.shut_down();
        })
        .run(|_| Err::<(), _>("no route"))?;
    let delays = delays.into_inner().unwrap();
    assert_eq!(delays, [1, 1, 2, 3, 5].map(Duration::from_millis));
    assert_eq!(limiter.num_requeues(&"feed"), 0); // a key that is given up is forgotten
    Ok(())
}
