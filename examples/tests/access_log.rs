//! The example `access_log`, run as a program: each line is counted once in each table, whatever
//! interrupts it.
#![cfg(all(unix, feature = "sqlite"))]

mod programs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use programs::{Ended, Running, program, run};
use rusqlite::Connection;
use tempfile::TempDir;

/// The rows of a table: requests by client or status, and by minute.
type Rows = BTreeMap<(String, String), u64>;

/// A directory with a database and two logs that grow, and what the tables should have in the end.
struct Site {
    directory: TempDir,
    /// What was appended to each log.
    logs: [Vec<u8>; 2],
    expected: [Rows; 2],
    lines: u32,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for log in 0..2 {
            File::create(directory.path().join(format!("log-{log}"))).unwrap();
        }
        Site {
            directory,
            logs: [vec![], vec![]],
            expected: [Rows::new(), Rows::new()],
            lines: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = program("access_log");
        command.current_dir(self.directory.path());
        command.args(["--database", "db", "log-0", "log-1"]);
        command.args(arguments);
        command
    }

    fn database(&self) -> Connection {
        Connection::open(self.path("db")).unwrap()
    }

    fn append(&mut self, log: usize, text: &[u8]) {
        let file = File::options()
            .append(true)
            .open(self.path(&format!("log-{log}")));
        file.unwrap().write_all(text).unwrap();
        self.logs[log].extend_from_slice(text);
    }

    /// Appends lines to each log, in pieces that do not end where lines end.
    fn grow(&mut self, lines: u32) {
        for log in 0..2 {
            let mut text = Vec::new();
            for _ in 0..lines {
                self.write_line(&mut text);
            }
            let (first, second) = text.split_at(text.len() / 2 + 1);
            self.append(log, first);
            self.append(log, second);
        }
    }

    /// Some clients are busy and some rare; some lines are not of an access log.
    fn write_line(&mut self, text: &mut Vec<u8>) {
        let n = self.lines;
        self.lines += 1;
        let random = n.wrapping_mul(2_654_435_761) >> 16;
        let (client, status) = (
            format!("10.0.0.{}", 200 / (1 + random % 200)),
            200 + random % 7,
        );
        let (hour, minute) = (n / 6000 % 24, n / 100 % 60);
        let row = if n % 13 == 7 {
            writeln!(text, "{client} - - what {n} is").unwrap();
            ["?", "?", ""].map(String::from)
        } else {
            let request = r#"GET /a?q=\"b\" [c] HTTP/1.1"#;
            let time = format!("09/Feb/2026:{hour:02}:{minute:02}:59 +0100");
            writeln!(text, "{client} - me [{time}] \"{request}\" {status} {n}").unwrap();
            let minute = format!("2026-02-09 {hour:02}:{minute:02} +0100");
            [client, status.to_string(), minute]
        };
        let [client, status, minute] = row;
        for (rows, name) in self.expected.iter_mut().zip([client, status]) {
            *rows.entry((name, minute.clone())).or_default() += 1;
        }
    }

    /// The sum of all requests by status; none if there is no table yet.
    fn sum(&self) -> Option<u64> {
        let sum = "SELECT sum(requests) FROM statuses";
        let sum = self.database().query_row(sum, [], |row| row.get(0));
        sum.ok().flatten()
    }

    fn tables(&self) -> [Rows; 2] {
        let database = self.database();
        ["clients", "statuses"].map(|table| {
            let select = format!("SELECT name, minute, requests FROM {table}");
            let mut select = database.prepare(&select).unwrap();
            let rows = select.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)));
            rows.unwrap().collect::<Result<_, _>>().unwrap()
        })
    }

    /// The number of requests in a table, and the number of lines up to its offsets, as of one moment.
    fn counted(&self, table: &str) -> (u64, u64) {
        let select = format!(
            "SELECT log, offset, (SELECT coalesce(sum(requests), 0) FROM {table})
             FROM offsets WHERE tab = '{table}'"
        );
        let database = self.database();
        let mut select = database.prepare(&select).unwrap();
        let (mut requests, mut lines) = (0, 0);
        let mut rows = select.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let (path, offset): (String, usize) = (row.get(0).unwrap(), row.get(1).unwrap());
            requests = row.get(2).unwrap();
            let log = &self.logs[usize::from(path.ends_with("log-1"))];
            lines += log[..offset].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        (requests, lines)
    }

    #[track_caller]
    fn assert_complete(&self, ended: &Ended) {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for table in ["clients", "statuses"] {
            assert_eq!(self.counted(table), (self.lines.into(), self.lines.into()));
        }
        assert!(
            self.tables() == self.expected,
            "the sums are right, but not the rows"
        );
        for (number, log) in self.logs.iter().enumerate() {
            let whole = log
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            let path = fs::canonicalize(self.path(&format!("log-{number}"))).unwrap();
            for table in ["clients", "statuses"] {
                let line = format!("{whole:>10} bytes of {path:?} in {table}\n");
                assert!(ended.stdout.contains(&line), "no {line:?} in {ended:?}");
            }
        }
    }
}

#[test]
fn it_is_killed_again_and_again_and_counts_each_line_once() {
    let mut site = Site::new();
    for _ in 0..12 {
        site.grow(4000);
        let running = Running::start(&mut site.program(&[]));
        let before = u64::from(site.lines) - 8000;
        rig::found("some counts", || site.sum().filter(|sum| *sum > before));
        site.grow(4000);
        drop(running); // SIGKILL
        for table in ["clients", "statuses"] {
            let (requests, lines) = site.counted(table);
            assert_eq!(requests, lines, "{table}");
        }
    }
    site.assert_complete(&run(&mut site.program(&["--once"])));
    // There is nothing left to count.
    site.assert_complete(&run(&mut site.program(&["--once"])));
}

/// A trigger that fails each transaction at this statement.
fn fail(at: &str) -> String {
    format!("CREATE TRIGGER fault BEFORE {at} BEGIN SELECT RAISE(ABORT, 'a fault'); END")
}

#[test]
fn counts_that_fail_are_retried_together_with_newer_ones() {
    let mut site = Site::new();
    assert_eq!(run(&mut site.program(&["--once"])).code, Some(0));
    for at in [
        "UPDATE ON offsets",
        "INSERT ON clients",
        "INSERT ON statuses",
    ] {
        let database = site.database();
        database.execute_batch(&fail(at)).unwrap();
        site.grow(3000);
        // However late the trigger is dropped.
        let mut running = Running::piped(&mut site.program(&["--retries", "1000"]));
        running.until_it_says("a fault (attempt 2,");
        site.grow(3000);
        database.execute_batch("DROP TRIGGER fault").unwrap();
        rig::found("all lines", || {
            let all = ["clients", "statuses"].map(|table| site.counted(table).1);
            (all == [site.lines.into(); 2]).then_some(())
        });
        site.assert_complete(&running.end_by("TERM"));
    }
}

#[test]
fn counts_that_are_given_up_are_named_and_counted_by_the_next_run() {
    let mut site = Site::new();
    site.grow(100);
    let first = run(&mut site.program(&["--once"]));
    site.assert_complete(&first);
    let whole = site.logs[0].len();
    site.grow(3000);
    site.database()
        .execute_batch(&fail("UPDATE ON offsets"))
        .unwrap();
    let ended = run(&mut site.program(&["--once", "--retries", "3"]));
    let path = fs::canonicalize(site.path("log-0")).unwrap();
    let message = format!("access_log: {path:?} is given up from byte {whole}\n");
    ended.assert_refused(1, &message);
    assert_eq!(site.counted("clients"), (200, 200));

    site.database().execute_batch("DROP TRIGGER fault").unwrap();
    site.assert_complete(&run(&mut site.program(&["--once"])));
}

#[test]
fn a_signal_ends_it_and_a_line_is_counted_when_it_has_its_end() {
    let mut site = Site::new();
    for signal in ["TERM", "INT"] {
        site.grow(50);
        let whole = u64::from(site.lines);
        let mut line = Vec::new();
        site.write_line(&mut line);
        let (first, last) = line.split_at(line.len() - 1);
        site.append(1, first);
        let running = Running::piped(&mut site.program(&[]));
        rig::found("the first lines", || site.sum().filter(|sum| *sum == whole));
        let ended = running.end_by(signal);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        assert_eq!(site.sum(), Some(whole));
        site.append(1, last);
    }
    site.assert_complete(&run(&mut site.program(&["--once"])));
}

#[test]
fn a_log_with_two_names_is_one_log() {
    let mut site = Site::new();
    site.grow(10);
    let ended = run(&mut site.program(&["--once", "./log-0"]));
    site.assert_complete(&ended);
}

#[test]
fn lines_of_any_length_and_content_are_counted() {
    let mut site = Site::new();
    let client = "\x1b[31mred\u{202e}";
    let good = format!("{client} - - [09/Feb/2026:00:00:00 +0000] \"-\" 408 -\n");
    site.append(0, good.as_bytes());
    site.append(
        0,
        &[b"bytes \xff\xfe\n\n", &[b'x'; 200_000][..], b"\n"].concat(),
    );
    let ended = run(&mut site.program(&["--once"]));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let minute = "2026-02-09 00:00 +0000";
    let row = |name: &str, minute: &str, requests| ((name.into(), minute.into()), requests);
    // The long line is in four blocks.
    let [clients, statuses] = site.tables();
    assert_eq!(
        clients,
        Rows::from([row("?", "", 6), row(client, minute, 1)])
    );
    assert_eq!(
        statuses,
        Rows::from([row("?", "", 6), row("408", minute, 1)])
    );
    let printed = "         6 requests of ?\n         1 requests of \\u{1b}[31mred\\u{202e}\n";
    assert!(ended.stdout.ends_with(printed), "{ended:?}");
}

#[test]
fn what_cannot_be_used_is_named() {
    let mut site = Site::new();
    site.grow(10);
    for (log, message) in [
        ("missing", "cannot open \"missing\": "),
        (".", "cannot read "),
    ] {
        run(&mut site.program(&["--once", log])).assert_refused(1, message);
    }
    run(&mut site.program(&["--wrong"])).assert_refused(2, "--wrong");
    run(program("access_log").args(["--database", "db"])).assert_refused(2, "<LOG>");
    run(program("access_log").arg("log-0")).assert_refused(2, "--database <FILE>");
    let database = ["--database", "not/there", "/dev/null"];
    run(program("access_log").args(database)).assert_refused(1, "cannot open \"not/there\": ");

    site.assert_complete(&run(&mut site.program(&["--once"])));
    File::create(site.path("log-1")).unwrap();
    let message = "log-1\": it has shrunk\n";
    run(&mut site.program(&["--once"])).assert_refused(1, message);
}

#[test]
fn two_processes_with_the_same_logs_count_nothing_twice() {
    let mut site = Site::new();
    site.assert_complete(&run(&mut site.program(&["--once"]))); // creates the tables
    site.grow(5000);
    let [first, second] = [(); 2].map(|()| Running::piped(&mut site.program(&["--once"])));
    for ended in [first.end(), second.end()] {
        let refused = ended.code == Some(1) && ended.stderr.contains("another process counts");
        assert!(ended.code == Some(0) || refused, "{ended:?}");
    }
    site.assert_complete(&run(&mut site.program(&["--once"])));
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_output_is_not() {
    let site = Site::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = site.program(&["--once"]);
    let child = command
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("No space left"), "{ended:?}");

    let mut site = Site::new();
    site.grow(10);
    let mut running = Running::piped(&mut site.program(&[]));
    drop(running.stdout());
    rig::found("the lines", || site.sum().filter(|sum| *sum == 20));
    let ended = running.end_by("TERM");
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
}
