//! The example `pipeline`, run as a program: its result is that of the sequential run in this file.

mod programs;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use programs::{program, text};
use tempfile::NamedTempFile;

/// Some keys are busy and some rare; lines of one key differ, so that their order matters.
fn log() -> Vec<u8> {
    let mut log = Vec::new();
    let mut random = 1_u32;
    for number in 0..30_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = 1000 / (1 + (random >> 16) % 1000);
        let space = if number % 5 == 0 { " \t" } else { "" };
        let end = if number % 7 == 0 { "\r\n" } else { "\n" };
        write!(log, "{space}host-{key} line {number}{end}").unwrap();
        if number % 100 == 0 {
            log.extend_from_slice(b"\n  \r\nbytes \xff\xfe that are no text\n");
        }
    }
    log.extend_from_slice(b"host-1 the last line has no end");
    log
}

/// Lines, bytes and digest for each key.
type Rows = BTreeMap<String, (u64, u64, u32)>;

fn sequential(log: &[u8]) -> Rows {
    let mut rows = Rows::new();
    for line in log.split(|byte| *byte == b'\n') {
        let Some(key) = line
            .split(u8::is_ascii_whitespace)
            .find(|field| !field.is_empty())
        else {
            continue;
        };
        let (lines, bytes, digest) = rows.entry(text(key)).or_default();
        let mut hasher = crc32fast::Hasher::new_with_initial(*digest);
        hasher.update(line);
        hasher.update(b"\n");
        (*lines, *bytes, *digest) = (
            *lines + 1,
            *bytes + line.len() as u64 + 1,
            hasher.finalize(),
        );
    }
    rows
}

/// The table that the program prints, in its order.
fn table(output: &Output) -> Vec<(String, (u64, u64, u32))> {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    let out = text(&output.stdout);
    let rows = out
        .lines()
        .skip(1)
        .take_while(|line| !line.contains(" lines, "));
    rows.map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let [lines, bytes, digest, key] = fields[..] else {
            panic!("not a row: {row}")
        };
        let digest = u32::from_str_radix(digest, 16).unwrap();
        (
            key.to_owned(),
            (lines.parse().unwrap(), bytes.parse().unwrap(), digest),
        )
    })
    .collect()
}

fn run(file: &Path, arguments: &[&str]) -> Output {
    Command::new(program("pipeline"))
        .arg(file)
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs with `input` on the standard input.
fn run_on(input: &[u8], arguments: &[&str]) -> Output {
    let mut command = Command::new(program("pipeline"));
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The output at the end fits into the pipe, so neither side blocks.
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn file(content: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    file
}

const ALL: &str = "1000000";

#[test]
fn any_number_of_workers_gives_the_result_of_a_sequential_run() {
    let log = log();
    let (file, expected) = (file(&log), sequential(&log));
    for workers in ["1", "2", "3", "16"] {
        let output = run(file.path(), &["--top", ALL, "--workers", workers]);
        assert_eq!(
            table(&output).into_iter().collect::<Rows>(),
            expected,
            "{workers} workers"
        );
        let totals = text(&output.stdout);
        let lines: u64 = expected.values().map(|(lines, ..)| lines).sum();
        assert!(totals.contains(&format!("\n{lines} lines, ")), "{totals}");
        assert!(
            totals.contains(&format!(" {} keys, ", expected.len())),
            "{totals}"
        );
    }
}

#[test]
fn the_standard_input_is_read_like_a_file() {
    let log = log();
    let expected = sequential(&log);
    for arguments in [&["--top", ALL][..], &["-", "--top", ALL]] {
        let rows: Rows = table(&run_on(&log, arguments)).into_iter().collect();
        assert_eq!(rows, expected);
    }
}

#[test]
fn the_digest_tells_two_orders_of_the_lines_of_a_key_apart() {
    let digests = [&b"a 1\nb 1\na 2\n"[..], b"a 2\na 1\nb 1\n"].map(|log| {
        let table = table(&run_on(log, &[]));
        table
            .into_iter()
            .map(|(_, (_, _, digest))| digest)
            .collect::<Vec<_>>()
    });
    assert_ne!(digests[0][0], digests[1][0], "the lines of a are swapped");
    assert_eq!(digests[0][1], digests[1][1], "those of b are not");
}

#[test]
fn the_busiest_keys_come_first_and_only_so_many_as_asked_for() {
    let log = log();
    let mut expected: Vec<_> = sequential(&log).into_iter().collect();
    expected.sort_by_key(|(_, row)| Reverse(row.0)); // Stable: equal counts stay in key order.
    let file = file(&log);
    assert_eq!(table(&run(file.path(), &[])), expected[..10]);
    assert_eq!(table(&run(file.path(), &["--top", "3"])), expected[..3]);
    assert_eq!(table(&run(file.path(), &["--top", "0"])), []);
}

#[test]
fn an_empty_input_has_no_keys() {
    for input in [&b""[..], b"\n\n  \r\n"] {
        let output = run_on(input, &[]);
        assert_eq!(table(&output), []);
        assert!(text(&output.stdout).contains("0 lines, 0 bytes, 0 keys, 0 deliveries"));
    }
}

#[test]
fn what_cannot_be_read_is_named_with_1_and_wrong_arguments_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path(), &directory.path().join("missing")] {
        let output = run(path, &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            text(&output.stderr).contains(path.to_str().unwrap()),
            "{output:?}"
        );
        assert_eq!(output.stdout, b"");
    }
    for arguments in [["--workers", "0"], ["--top", "many"], ["-", "another"]] {
        let output = run_on(b"", &arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn a_reader_of_the_output_may_go_away() {
    let mut command = Command::new(program("pipeline"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    drop(child.stdin.take()); // Only now it has something to print.
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
}
