//! The example `top`, without a terminal: a frame of a running pipeline.
#![cfg(feature = "metrics")]

mod programs;

use std::io::Write;

use programs::{program, run};
use tempfile::NamedTempFile;

/// The first number in the line that has `label`, after the label.
#[track_caller]
fn number(frame: &str, label: &str) -> f64 {
    let line = frame.lines().find_map(|line| line.split_once(label));
    let (_, rest) = line.unwrap_or_else(|| panic!("no {label:?} in\n{frame}"));
    let numbers = rest.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let mut numbers = numbers.filter_map(|number| number.parse().ok());
    numbers
        .next()
        .unwrap_or_else(|| panic!("{label:?}: {rest:?}"))
}

#[test]
fn a_frame_shows_depth_rates_times_and_the_oldest_keys() {
    let mut log = NamedTempFile::new().unwrap();
    for number in 0..2000 {
        writeln!(log, "client-{:03} line {number}", number * 7 % 300).unwrap();
    }
    // 300 keys, each held for 20 ms by one of two workers: far more comes than is worked off.
    let top = run(program("top")
        .arg(log.path())
        .args(["--frame", "3", "--refresh", "300"])
        .args(["--pause", "20", "--workers", "2"]));
    assert_eq!(top.code, Some(0), "{top:?}");
    let frame = &top.stdout;
    assert_eq!(frame.lines().count(), 24, "{frame}");
    assert!(frame.contains("queue pipeline: "), "{frame}");

    let depth = number(frame, "depth ");
    assert!(depth > 50.0 && depth <= 300.0, "depth {depth}\n{frame}");
    assert!(number(frame, "adds ") > 1.0, "{frame}");
    let done = number(frame, "done ");
    assert!(done > 1.0 && done <= 120.0, "done {done}\n{frame}");
    // A worker rests for 20 ms before each key.
    let (_, times) = frame.split_once("with a worker").unwrap();
    assert!(times.lines().next().unwrap().contains("ms"), "{frame}");
    assert!(number(frame, "with a worker") >= 1.0, "{frame}");

    // The list of keys, which are the log's.
    let (_, list) = frame.split_once("state").unwrap();
    assert!(list.matches("client-").count() >= 5, "{frame}");
    assert!(list.contains("queued"), "{frame}");
}

#[test]
fn a_file_that_is_not_there_or_empty_is_named() {
    run(program("top").arg("not/there")).assert_refused(1, "cannot open not/there");
    let empty = NamedTempFile::new().unwrap();
    run(program("top").arg(empty.path())).assert_refused(1, "is empty");
}
