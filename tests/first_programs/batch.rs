//! Rows go to a database in batches; a transaction that fails is tried again.

use std::thread;
use std::time::Duration;

use keyqueue::{ConfigError, UpTo, WorkQueue, merge};

type Row = (u32, String);

/// As if it were a database.
#[derive(Default)]
struct Database {
    rows: Vec<Row>,
    transactions: u32,
}

impl Database {
    fn insert(&mut self, rows: impl Iterator<Item = Row>) -> Result<(), &'static str> {
        self.transactions += 1;
        if self.transactions == 1 {
            return Err("the database is locked");
        }
        self.rows.extend(rows);
        Ok(())
    }
}

/// Writes one batch. Returns whether there may be another one.
fn write(queue: &WorkQueue<u32, String>, database: &mut Database) -> Result<bool, &'static str> {
    let up_to = UpTo::new(100).linger(Duration::from_millis(10));
    let Some(batch) = queue.get_batch(up_to) else {
        return Ok(false);
    };
    let batch = batch.retry_on_drop();
    let rows = batch.iter().map(|item| (**item, item.value().clone()));
    database.insert(rows)?; // The drop of the batch adds its rows again.
    batch.done();
    Ok(true)
}

#[test]
fn rows_are_written_in_batches() -> Result<(), ConfigError> {
    let builder = WorkQueue::builder().merge(merge::latest);
    let queue = builder.drain_delays(true).build()?;
    for id in 0..250 {
        queue.put(id, "new".to_owned());
    }
    queue.put(7, "newer".to_owned());

    let mut database = Database::default();
    thread::scope(|scope| {
        let _end = queue.shut_down_on_drop();
        scope.spawn(|| while write(&queue, &mut database) != Ok(false) {});
        assert!(queue.shut_down_with_drain().is_nothing());
    });
    database.rows.sort();
    assert_eq!(database.rows.len(), 250);
    assert_eq!(database.rows[7], (7, "newer".to_owned()));
    assert_eq!(database.transactions, 4); // one has failed
    Ok(())
}
