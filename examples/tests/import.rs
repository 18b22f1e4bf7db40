//! The example `import`, run as a program, and killed: each good line becomes one row, and each bad one a dead letter.
#![cfg(all(unix, feature = "sqlite"))]

mod programs;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use programs::{Running, program, run};
use rig::eventually;
use rusqlite::Connection;
use tempfile::TempDir;

/// One bad line in so many.
const BAD: u64 = 1000;

/// A log with bad lines of each kind: what SQLite refuses, and what is no row.
fn log(lines: u64) -> (TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    let (mut text, mut sum) = (Vec::new(), 0);
    for line in 0..lines {
        match (line % BAD, line / BAD % 3) {
            (7, 0) => text.extend(format!("account-{line} -{line}\n").into_bytes()),
            (7, 1) => text.extend(b"account-\xff 5\n"),
            (7, _) => text.extend(b"nonsense\n"),
            _ => {
                let amount = line % 97 + 1;
                sum += amount;
                text.extend(format!("account-{} {amount}\n", line % 1009).into_bytes());
            }
        }
    }
    fs::write(directory.path().join("log"), text).unwrap();
    (directory, sum)
}

fn import(directory: &Path) -> Command {
    let mut command = program("import");
    command.current_dir(directory);
    command.args(["--database", "db", "log"]);
    command
}

/// Imports a log, is killed so many times in between, and checks what is in the database in the end.
fn import_and_kill(lines: u64, kills: u64) {
    let (directory, sum) = log(lines);
    let directory = directory.path();
    let bytes = fs::metadata(directory.join("log")).unwrap().len();
    for kill in 1..=kills {
        let _killed = Running::piped(&mut import(directory));
        eventually("a part of the log is imported", || {
            let stored = Connection::open(directory.join("db")).and_then(|database| {
                let query = "SELECT first_unfinished FROM progress";
                database.query_row(query, [], |row| row.get::<_, u64>(0))
            });
            stored.is_ok_and(|stored| stored >= bytes * kill / (kills + 1))
        });
    }
    let ended = run(&mut import(directory));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let dead = lines / BAD;
    let rows = lines - dead;
    let said = format!("; {rows} rows, {dead} dead letters, 0 lines unfinished\n");
    assert!(ended.stdout.ends_with(&said), "{ended:?}");

    let database = Connection::open(directory.join("db")).unwrap();
    let number = |query| {
        database
            .query_row(query, [], |row| row.get::<_, u64>(0))
            .unwrap()
    };
    assert_eq!(number("SELECT count(*) FROM payments"), rows);
    assert_eq!(number("SELECT sum(amount) FROM payments"), sum);
    assert_eq!(number("SELECT count(*) FROM dead"), dead);
    assert_eq!(
        number("SELECT count(*) FROM dead JOIN payments USING (at)"),
        0
    );
    assert_eq!(
        number("SELECT count(*) FROM dead WHERE error LIKE '%amount > 0%'"),
        dead.div_ceil(3)
    );
    // All of it is finished, and nothing is read again. A line that is not whole waits for the rest of it.
    let mut log = File::options()
        .append(true)
        .open(directory.join("log"))
        .unwrap();
    for (part, read) in [("", 0), ("account-1 ", 0), ("5\n\n", 2)] {
        log.write_all(part.as_bytes()).unwrap();
        let again = run(&mut import(directory));
        assert!(
            again.stdout.starts_with(&format!("read {read} lines;")),
            "{again:?}"
        );
    }
}

#[test]
fn each_line_is_a_row_or_a_dead_letter_whatever_kills_it() {
    import_and_kill(100_000, 3);
}

#[test]
#[ignore = "five million lines take long in a debug build; `.ci/run sqlite` runs it"]
fn five_million_lines() {
    import_and_kill(5_000_000, 9);
}

#[test]
fn an_interrupt_ends_it_with_all_that_it_has_read() {
    let (directory, _) = log(100_000);
    let directory = directory.path();
    let running = Running::piped(&mut import(directory));
    eventually("it has begun", || directory.join("db-wal").exists());
    let ended = running.interrupt();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(", 0 lines unfinished"), "{ended:?}");
    let ended = run(&mut import(directory));
    assert!(
        ended
            .stdout
            .ends_with("99900 rows, 100 dead letters, 0 lines unfinished\n"),
        "{ended:?}"
    );
}

#[test]
fn what_cannot_be_done_is_named() {
    let (directory, _) = log(10);
    let directory = directory.path();
    run(program("import")
        .current_dir(directory)
        .args(["--database", "db", "none"]))
    .assert_refused(1, "cannot read \"none\"");
    run(program("import")
        .current_dir(directory)
        .args(["--database", "no/db", "log"]))
    .assert_refused(1, "cannot open \"no/db\"");
    assert_eq!(run(&mut import(directory)).code, Some(0));
    fs::write(directory.join("log"), "").unwrap();
    run(&mut import(directory)).assert_refused(1, "it has shrunk");
}
