//! Which results the compiler asks to be looked at (S14). It checks both: an expected warning that is missing is an
//! error, and so is one that is not expected.
#![deny(unfulfilled_lint_expectations, unused_must_use)]

use std::time::Duration;

use keyqueue::worker::DeadLetters;
use keyqueue::{WorkQueue, merge};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test] // S14
fn what_a_call_refuses_must_be_looked_at() {
    let queue = WorkQueue::builder().group_by(|key: &u64| *key).build();
    let queue = queue.unwrap();
    queue.add_all(0..4);
    let [one, two] = [(); 2].map(|()| queue.try_get().unwrap());
    queue.shut_down();
    #[expect(unused_must_use)]
    one.retry();
    #[expect(unused_must_use)]
    two.retry_after(MS);
    let batch = queue.get_batch(2).unwrap();
    #[expect(unused_must_use)]
    batch.retry();
    #[expect(unused_must_use)]
    queue.hold_group(&"not a number", MS);
    #[expect(unused_must_use)]
    queue.try_get();
    let letters = DeadLetters::<u64>::new(1).unwrap();
    #[expect(unused_must_use)]
    letters.put_back(0);
    assert_eq!(queue.take_left().len(), 4);
}

#[test] // S14
fn an_add_may_be_a_statement() {
    let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
    queue.put(1_u64, vec![1_u32]);
    queue.entry(1).update(|all| all.push(2));
    queue.handle(2).put(vec![1]);
    let keys = WorkQueue::<u64>::new();
    keys.add(1);
    keys.add_after(2, HOUR);
    keys.add_rate_limited(3);
    assert_eq!((queue.len(), keys.len()), (2, 1));
}
