//! Tenants take turns, and each has at most two keys in flight.

use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use keyqueue::worker::Workers;
use keyqueue::{ConfigError, WorkQueue};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Order {
    tenant: String,
    number: u32,
}

fn order(tenant: &str, number: u32) -> Order {
    let tenant = tenant.to_owned();
    Order { tenant, number }
}

#[test]
fn tenants_take_turns_within_their_limits() -> Result<(), ConfigError> {
    let queue = WorkQueue::builder()
        .group_by(|order: &Order| order.tenant.clone())
        .group_limit(2)
        .build()?;
    queue.add_all((0..50).map(|number| order("big", number)));
    queue.add_all([order("small", 0), order("small", 1)]);

    let held: Vec<_> = iter::from_fn(|| queue.try_get().ok()).collect();
    let turns: Vec<_> = held.iter().map(|item| item.tenant.as_str()).collect();
    assert_eq!(turns, ["big", "small", "big", "small"]); // and no third order of "big"
    let big = &queue.groups::<String>()[0];
    assert_eq!((&*big.group, big.queued, big.in_flight), ("big", 48, 2));
    drop(held); // They are done.

    queue.shut_down(); // What is queued is still delivered.
    let [in_flight, most, done] = [0; 3].map(AtomicUsize::new);
    Workers::new(&queue).concurrency(4).run(|_| {
        most.fetch_max(
            in_flight.fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        thread::sleep(Duration::from_millis(1)); // the work
        in_flight.fetch_sub(1, Ordering::Relaxed);
        done.fetch_add(1, Ordering::Relaxed);
    })?;
    assert_eq!(done.into_inner(), 48);
    assert!(most.into_inner() <= 2); // of the four workers
    Ok(())
}
