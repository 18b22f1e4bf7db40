//! The order in which delays of a queue with its own thread end.

use std::time::Duration;

use keyqueue::{Clock, WorkQueue};

// D8
#[test]
#[cfg_attr(miri, ignore = "a hundred thousand rounds")]
fn of_two_delays_the_one_due_earlier_comes_first() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder()
        .clock(clock)
        .build()
        .expect("valid settings");
    let mut random = fastrand::Rng::with_seed(17);
    for round in 0..100_000 {
        let (first, second) = (random.u64(1..4), random.u64(1..4));
        queue.add_after((first, 0), Duration::from_millis(first));
        queue.add_after((second, 1), Duration::from_millis(second));
        time.advance(Duration::from_millis(3));
        let came = [(); 2].map(|()| *queue.get().expect("the queue is open"));
        // Delays of the same tick come in the order of the calls.
        let mut expected = [(first, 0), (second, 1)];
        expected.sort_unstable();
        assert_eq!(came, expected, "round {round}");
    }
}
