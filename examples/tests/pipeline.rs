//! The example `pipeline`, run as a program: its result is that of the sequential run in this file.

mod programs;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Stdio};

use programs::{Ended, program, text};
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

/// A key with the number of its lines, of their bytes, and their digest.
type Row = (String, u64, u64, u32);

/// The rows in the program's order: the busiest keys first, equally busy ones by name.
fn sequential(log: &[u8]) -> Vec<Row> {
    let mut rows = BTreeMap::new();
    for line in log.split(|byte| *byte == b'\n') {
        let mut fields = line.split(u8::is_ascii_whitespace);
        let Some(key) = fields.find(|field| !field.is_empty()) else {
            continue;
        };
        let row = (text(key), 0, 0, 0);
        let (_, lines, bytes, digest) = rows.entry(key).or_insert(row);
        let mut hasher = crc32fast::Hasher::new_with_initial(*digest);
        hasher.update(line);
        hasher.update(b"\n");
        *lines += 1;
        *bytes += line.len() as u64 + 1;
        *digest = hasher.finalize();
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by_key(|(_, lines, ..)| Reverse(*lines));
    rows
}

/// The table that the program printed.
fn table(ended: &Ended) -> Vec<Row> {
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let rows = ended.stdout.lines().skip(1);
    let rows = rows.take_while(|line| !line.contains(" lines, "));
    rows.map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let [lines, bytes, digest, key] = fields[..] else {
            panic!("not a row: {row}")
        };
        let digest = u32::from_str_radix(digest, 16).unwrap();
        let (lines, bytes) = (lines.parse().unwrap(), bytes.parse().unwrap());
        (key.to_owned(), lines, bytes, digest)
    })
    .collect()
}

fn start(arguments: &[&str]) -> Child {
    program("pipeline")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs with `input` on the standard input.
fn run(input: &[u8], arguments: &[&str]) -> Ended {
    let mut child = start(arguments);
    // The output at the end fits into the pipe, so neither side blocks.
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn any_number_of_workers_gives_the_result_of_a_sequential_run() {
    let log = log();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&log).unwrap();
    let file = file.path().to_str().unwrap();

    let expected = sequential(&log);
    let (keys, lines) = (expected.len(), expected.iter().map(|row| row.1));
    let totals = (
        format!("\n{} lines, ", lines.sum::<u64>()),
        format!(" {keys} keys, "),
    );
    for (input, arguments) in [
        (&b""[..], &[file, "--workers", "1"][..]),
        (b"", &[file, "--workers", "2"]),
        (b"", &[file, "--workers", "3"]),
        (b"", &[file, "--workers", "16"]),
        (&log, &["-"]),
        (&log, &[]),
    ] {
        let ended = run(input, &[arguments, &["--busiest", "1000000"]].concat());
        assert_eq!(table(&ended), expected, "{arguments:?}");
        assert!(ended.stdout.contains(&totals.0), "{ended:?}");
        assert!(ended.stdout.contains(&totals.1), "{ended:?}");
    }
    // Only as many as were asked for.
    assert_eq!(table(&run(b"", &[file])), expected[..10]);
    assert_eq!(table(&run(b"", &[file, "--busiest", "3"])), expected[..3]);
    assert_eq!(table(&run(b"", &[file, "--busiest", "0"])), []);
}

#[test]
fn the_digest_tells_two_orders_of_the_lines_of_a_key_apart() {
    let [one, other] =
        [&b"a 1\nb 1\na 2\n"[..], b"a 2\na 1\nb 1\n"].map(|log| table(&run(log, &[])));
    assert_ne!(one[0], other[0], "the lines of a are swapped");
    assert_eq!(one[1], other[1], "those of b are not");
}

#[test]
fn an_empty_input_has_no_keys() {
    for input in [&b""[..], b"\n\n  \r\n"] {
        let ended = run(input, &[]);
        assert_eq!(table(&ended), []);
        let totals = "0 lines, 0 bytes, 0 keys, 0 deliveries";
        assert!(ended.stdout.contains(totals), "{ended:?}");
    }
}

#[test]
fn what_cannot_be_read_is_named_with_1_and_wrong_arguments_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path(), &directory.path().join("missing")] {
        let path = path.to_str().unwrap();
        run(b"", &[path]).assert_refused(1, path);
    }
    let workers = [["--workers", "0"], ["--workers", "100000"]];
    for arguments in workers
        .into_iter()
        .chain([["--busiest", "many"], ["-", "another"]])
    {
        run(b"", &arguments).assert_refused(2, arguments[1]);
    }
}

#[test]
fn a_reader_of_the_output_may_go_away() {
    let mut child = start(&[]);
    drop(child.stdout.take());
    drop(child.stdin.take()); // Only now it has something to print.
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}

#[test]
fn a_line_may_be_longer_than_what_is_read_at_once() {
    const PIECE: usize = 64 << 10;
    for length in [
        PIECE - 9,
        PIECE - 8,
        PIECE - 7,
        PIECE,
        3 * PIECE - 8,
        1 << 20,
    ] {
        let mut log = b"host-1 first\nhost-2 ".to_vec();
        log.resize(log.len() + length, b'x');
        for end in [&b""[..], b"\n", b"\nhost-1 last"] {
            let log = [&log, end].concat();
            assert_eq!(table(&run(&log, &[])), sequential(&log), "{length} {end:?}");
        }
    }
}

#[test]
fn a_long_key_is_cut_and_control_characters_are_escaped() {
    let long = "k".repeat(2000);
    let log = format!("{long}1 a\n{long}2 b\n\x1b[31mred\u{202e}\u{7} c\n\u{e9}t\u{e9} d\n");
    let rows = table(&run(log.as_bytes(), &[]));
    let keys: Vec<_> = rows
        .iter()
        .map(|(key, lines, ..)| (&**key, *lines))
        .collect();
    let cut = format!("{}…", &long[..60]);
    let red = r"\u{1b}[31mred\u{202e}\u{7}";
    assert_eq!(keys, [(&*cut, 2), (red, 1), ("\u{e9}t\u{e9}", 1)]);
}

/// 300 MB in one line, where the program has 400 MB of address space, half of them stacks and code.
#[cfg(target_os = "linux")]
#[test]
fn a_line_of_any_length_needs_little_memory() {
    for text in ["x", "x "] {
        let limited =
            r#"ulimit -v 400000; yes "$1" | tr -d '\n' | head -c 300000000 | "$0" --workers 2"#;
        let pipeline = program("pipeline");
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", limited])
            .arg(pipeline.get_program())
            .arg(text);
        let ended = programs::run(shell.env("MALLOC_ARENA_MAX", "1"));
        let rows = table(&ended);
        assert_eq!(
            (rows.len(), rows[0].1, rows[0].2),
            (1, 1, 300_000_001),
            "{ended:?}"
        );
    }
}
