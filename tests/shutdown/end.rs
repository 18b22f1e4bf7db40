//! The end of a queue: adds that race with it, and handles that outlive it (S1, S6).

use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{Config, scaled, watchdog, with_queues, with_these_queues};
use keyqueue::Added;

#[test] // S6 C11
fn a_handle_that_outlives_its_queue_is_refused() {
    with_queues(|config| {
        let queue = config.queue();
        let key = Arc::new(1_u64);
        let fresh = queue.handle(Arc::clone(&key));
        let queued = queue.handle(Arc::new(2));
        assert_eq!(queued.add(), Added::Queued);
        drop(queue);
        for _ in 0..2 {
            assert_eq!(fresh.add(), Added::ShutDown);
            assert_eq!(queued.add(), Added::ShutDown);
        }
        assert_eq!(**fresh.key(), 1);
        assert_eq!(fresh.clone().add(), Added::ShutDown);
        drop(queued);
        assert_eq!(Arc::strong_count(&key), 2, "kept by its handle");
        drop(fresh);
        assert_eq!(Arc::strong_count(&key), 1, "the last handle ends all");
    });
}

#[test] // S6 C11
fn handles_race_with_the_end_of_their_queue() {
    let _watchdog = watchdog(60);
    let key = Arc::new(7_u64);
    for _ in 0..scaled(500) {
        let queue = Config::usual().queue();
        let handles = [(); 2].map(|()| queue.handle(Arc::clone(&key)));
        let start = &Barrier::new(3);
        thread::scope(|scope| {
            for handle in handles {
                scope.spawn(move || {
                    start.wait();
                    while handle.add() != Added::ShutDown {}
                });
            }
            start.wait();
            drop(queue);
        });
    }
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test] // S1 S3
fn an_add_that_races_with_the_shut_down_is_refused_or_delivered() {
    with_these_queues(&Config::races(), |config| {
        for round in 0..scaled(1000) {
            let queue = config.queue::<u64>();
            let handle = queue.handle(0);
            let start = Barrier::new(3);
            let count = |adds: &mut dyn Iterator<Item = Added>| {
                start.wait();
                adds.take_while(|added| added.is_accepted())
                    .filter(|added| *added != Added::Merged)
                    .count()
            };
            thread::scope(|scope| {
                let keys = scope.spawn(|| count(&mut (1..).map(|key| queue.add(key))));
                let known = scope.spawn(|| count(&mut std::iter::repeat_with(|| handle.add())));
                start.wait();
                for _ in 0..round {
                    std::hint::spin_loop();
                }
                queue.shut_down();
                let delivered = queue.iter().count();
                assert_eq!(delivered, keys.join().unwrap() + known.join().unwrap());
            });
            assert!(queue.get().is_none());
            assert!(queue.shut_down().is_nothing());
        }
    });
}
