//! Messages that are cleared away while they wait for their retry.

use std::sync::Arc;

use super::{lists, log, logs, run, taken};
use crate::common::timed::HOUR;
use crate::jobs::WAYS;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::Failures;

#[test] // W11 X2
fn a_list_that_is_cleared_takes_the_failures_of_its_messages_with_it() {
    for way in WAYS {
        let (queue, _) = lists(|builder| {
            let backoff = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
            builder.rate_limiter(backoff)
        });
        queue.put(1, vec![1]);
        let failures = Failures::new(1).unwrap();
        let (changing, kept) = (Arc::clone(&queue), failures.clone());
        let (looks, seen) = logs();
        let look = move || {
            let said = format!("{} {}", kept.len(), changing.num_requeues(&1));
            log(&looks, said);
        };
        let changing = Arc::clone(&queue);
        let tries = run(
            *way,
            &queue,
            1,
            |workers| {
                let workers = workers.concurrency(1).max_retries(1);
                workers.failures(&failures)
            },
            move |number, job| match (number, job.attempt()) {
                (1, 1) => {
                    // For what follows this try, one after the other.
                    changing.put(2, vec![0]);
                    Err("no")
                }
                (0, _) => {
                    look();
                    changing.entry(1).update(Vec::clear);
                    changing.put(3, vec![7]);
                    Ok(())
                }
                (7, _) => {
                    look();
                    changing.put(1, vec![2]);
                    changing.put(4, vec![8]);
                    Ok(())
                }
                (2, _) => Err("no"),
                _ => Ok(_ = changing.shut_down()),
            },
        );
        let expected = [
            "1 at 1",
            "0 at 1",
            "7 at 1",
            "2 at 1",
            "8 at 1",
            "Dropped [2]",
        ];
        assert_eq!(tries, expected, "{way:?}");
        assert_eq!(taken(&seen), ["1 1", "0 0"], "{way:?}");
    }
}
