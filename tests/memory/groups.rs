//! What groups take (G3).

use crate::MILLION;
use crate::common::alone;
use keyqueue::WorkQueue;
use rig::heap::held;

/// The bytes for each of a million queued keys.
fn per_key(queue: &WorkQueue<u64>) -> f64 {
    let before = held();
    queue.add_all(0..MILLION);
    (held() - before) as f64 / MILLION as f64
}

#[test] // G3
fn a_group_of_one_key_costs_no_more_than_five_keys_more() {
    alone(|| {
        let plain = per_key(&WorkQueue::new());
        let by = |groups: u64| {
            let builder = WorkQueue::builder().group_by(move |key: &u64| key % groups);
            let queue = builder.build().unwrap();
            let bytes = per_key(&queue);
            // All of it is given back with the keys.
            let before = held();
            while queue.try_get().is_ok() {}
            queue.shrink();
            let given = (before - held()) as f64 / MILLION as f64;
            assert!(
                given > 0.9 * bytes,
                "{given} of {bytes} bytes are given back"
            );
            bytes
        };
        let (few, each) = (by(100), by(MILLION));
        println!(
            "{plain:.0} bytes a key, {few:.0} in a hundred groups, {each:.0} in a group of its own"
        );
        assert!(
            few < 1.8 * plain,
            "{few} bytes a key in few groups, {plain} without"
        );
        assert!(
            each < 6.0 * plain,
            "{each} bytes a key and its group, {plain} without"
        );
    });
}
