//! A put that is debounced, urgent and tracked.

use std::time::Duration;

use keyqueue::{Added, Clock, ConfigError, Ended, Receipt, WorkQueue, merge};

const QUIET: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_millis(500);

/// What somebody has typed so far: searched for once they pause, before all else.
fn typed(queue: &WorkQueue<String, String>, text: &str) -> Receipt {
    let (entry, receipt) = queue
        .entry_ref("search")
        .level(0)
        .debounce(QUIET, LIMIT)
        .tracked();
    assert_eq!(entry.put(text.to_owned()), Added::Delayed);
    receipt
}

#[test]
fn a_put_is_debounced_urgent_and_tracked() -> Result<(), ConfigError> {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder()
        .merge(merge::latest)
        .levels(3)
        .clock(clock)
        .manual_timers()
        .build()?;
    queue.put("report".to_owned(), "monthly".to_owned()); // at level 1

    let first = typed(&queue, "key");
    time.advance(QUIET / 2);
    let second = typed(&queue, "keyqueue");
    time.advance(QUIET / 2);
    assert_eq!(queue.fire_due(), 0); // not quiet for long enough
    time.advance(QUIET / 2);
    assert_eq!(queue.fire_due(), 1);

    let item = queue.try_get().unwrap();
    assert_eq!(
        (item.key().as_str(), item.value().as_str()),
        ("search", "keyqueue")
    );
    assert_eq!(item.level(), 0);
    assert_eq!((first.ended(), second.ended()), (None, None));
    item.done();
    assert_eq!((first.wait(), second.wait()), (Ended::Done, Ended::Done));

    let item = queue.try_get().unwrap();
    assert_eq!((item.key().as_str(), item.level()), ("report", 1));
    Ok(())
}
