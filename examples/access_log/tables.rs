//! The tables in SQLite: what is counted, and up to where.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Result, TransactionBehavior, params};

/// The tables, which are keys of the queue by their number here.
pub(crate) const TABLES: [&str; 2] = ["clients", "statuses"];

/// What to add to a table: a value of the queue.
#[derive(Default)]
pub(crate) struct Counts {
    /// Requests by client or status, and by minute.
    pub(crate) requests: HashMap<(String, String), u64>,
    /// The part of each log that they are from.
    pub(crate) parts: HashMap<Arc<str>, Range<u64>>,
}

impl Counts {
    /// Merges the counts of the parts that follow.
    pub(crate) fn append(&mut self, newer: Counts) {
        for (row, requests) in newer.requests {
            *self.requests.entry(row).or_default() += requests;
        }
        for (log, newer) in newer.parts {
            self.parts.entry(log).or_insert(newer.clone()).end = newer.end;
        }
    }
}

/// Opens the database, and creates the tables that are missing.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let database = Connection::open(path)?;
    // Somebody who reads does not keep the writers waiting.
    database.pragma_update(None, "journal_mode", "wal")?;
    for table in TABLES {
        database.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {table}
                 (name TEXT, minute TEXT, requests INTEGER, PRIMARY KEY (name, minute)) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS offsets
                 (tab TEXT, log TEXT, offset INTEGER, PRIMARY KEY (tab, log)) WITHOUT ROWID;"
        ))?;
    }
    Ok(database)
}

/// Returns the offset up to which a table has a log.
pub(crate) fn offset(database: &Connection, table: &str, log: &str) -> Result<u64> {
    let insert = "INSERT OR IGNORE INTO offsets VALUES (?1, ?2, 0)";
    database.execute(insert, [table, log])?;
    let select = "SELECT offset FROM offsets WHERE tab = ?1 AND log = ?2";
    database.query_row(select, [table, log], |row| row.get(0))
}

/// Adds the counts to the table, and advances the offsets of the logs, in one transaction.
pub(crate) fn add(database: &mut Connection, table: &str, counts: &Counts) -> anyhow::Result<()> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let add = format!(
        "INSERT INTO {table} VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET requests = requests + ?3"
    );
    for ((name, minute), requests) in &counts.requests {
        let mut add = transaction.prepare_cached(&add)?;
        add.execute(params![name, minute, requests])?;
    }
    for (log, part) in &counts.parts {
        let advance = "UPDATE offsets SET offset = ?1 WHERE tab = ?2 AND log = ?3 AND offset = ?4";
        let rows = transaction.execute(advance, params![part.end, table, log, part.start])?;
        anyhow::ensure!(rows == 1, "another process counts {log:?}, too");
    }
    Ok(transaction.commit()?)
}

/// Returns the clients that have the most requests, with their number.
pub(crate) fn busiest(database: &Connection) -> Result<Vec<(String, u64)>> {
    let select =
        "SELECT name, sum(requests) FROM clients GROUP BY name ORDER BY 2 DESC, 1 LIMIT 10";
    let mut select = database.prepare(select)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
