//! Values that are put, delivered and swept at the same time.

use std::thread;

use keyqueue::{WorkQueue, merge};

use crate::race::{Flag, race, rounds};

/// V2, C10. The key is a string, so that a sweep frees memory that a put, or a delivery, could still
/// use; each value is plain data that the queue alone orders.
#[test]
fn a_put_is_over_before_a_sweep_drops_its_key() {
    rounds(|| {
        let queue: WorkQueue<String, Vec<u32>> = WorkQueue::builder()
            .shards(2)
            .merge(merge::append)
            .build()
            .unwrap();
        let (queue, swept) = (&queue, Flag::new());
        race!(
            || _ = queue.entry_ref("a").put(vec![1]),
            || _ = queue.entry_ref("a").put(vec![2]),
            || {
                while !swept.is_raised() {
                    queue.shrink();
                    thread::yield_now();
                }
            },
            || {
                let mut got = Vec::new();
                while got.len() < 2 {
                    if let Ok(mut item) = queue.try_get() {
                        got.append(item.value_mut());
                    }
                    thread::yield_now();
                }
                got.sort_unstable();
                assert_eq!(got, [1, 2]);
                swept.raise();
            },
        );
    });
}
