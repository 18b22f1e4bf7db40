//! What is kept, and what is reported: sweeps, `shrink`, and metrics with values (C10, M1).

use super::deliveries;
use crate::common::counted::Alive;
use crate::common::there;
use keyqueue::limiter::NoLimit;
use keyqueue::{WorkQueue, merge};

const KEYS: u32 = crate::common::scaled(50_000) as u32;

#[test] // C10
fn values_of_many_keys_are_dropped_when_they_are_done() {
    let alive = Alive::default();
    let queue: WorkQueue<u32, Vec<_>> = WorkQueue::builder().merge(merge::append).build().unwrap();
    for round in 0..3 {
        for key in 0..KEYS {
            // New keys in each round, so that sweeps run.
            queue.put(round * KEYS + key, vec![alive.of(key)]);
            if key % 3 == 0 {
                queue.put(round * KEYS + key, vec![alive.of(key)]);
            }
        }
        assert_eq!(alive.count() as u32, KEYS + KEYS.div_ceil(3));
        let mut keys = 0;
        for item in there(&queue) {
            keys += 1;
            assert_eq!(
                item.value().len(),
                1 + usize::from((*item.key() % KEYS).is_multiple_of(3))
            );
        }
        assert_eq!((keys, alive.count()), (KEYS, 0));
        queue.shrink();
    }
}

#[test] // C10
fn a_sweep_keeps_what_waits() {
    let alive = Alive::default();
    let queue: WorkQueue<u32, Vec<_>> = WorkQueue::builder().merge(merge::append).build().unwrap();
    let hour = crate::common::timed::HOUR;
    queue.put(0, vec![alive.of(0_u32)]);
    queue.entry(1).after(hour).put(vec![alive.of(0)]);
    let handle = queue.handle(2);
    queue.put(3, vec![alive.of(0)]);
    let held = queue.get().unwrap();
    assert_eq!(*held, 0);
    queue.put(0, vec![alive.of(0)]);
    handle.put(vec![alive.of(0)]);
    queue.shrink();
    assert_eq!(alive.count(), 5);
    assert_eq!(queue.remove(&1).map(|value| value.len()), Some(1));
    let delivered = deliveries(&queue);
    assert_eq!(
        delivered.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        [3, 2]
    );
    drop((delivered, held));
    assert_eq!(deliveries(&queue).len(), 1);
    queue.shrink();
    assert_eq!(alive.count(), 0);
}

#[test] // M1 V2
fn a_named_queue_counts_what_is_put() {
    let (clock, time) = keyqueue::Clock::mock();
    let queue = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .name("values")
        .clock(clock)
        .manual_timers()
        .merge(merge::sum::<usize>)
        .capacity(10)
        .build()
        .unwrap();
    let ms = crate::common::timed::ms;
    queue.put("a", 1);
    time.advance(ms(3));
    queue.put("a", 2);
    let item = queue.get().unwrap();
    assert_eq!(item.queue_time(), Some(ms(3)));
    queue.put("a", 4);
    time.advance(ms(2));
    let _ = item.retry();
    let item = queue.get().unwrap();
    assert_eq!((*item.value(), item.queue_time()), (7, Some(ms(2))));
    let snapshot = queue.snapshot();
    assert_eq!(snapshot.len(), 1);
    let _ = item.retry_after(ms(1));
    time.advance(ms(1));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(deliveries(&queue), [("a", 7)]);
}
