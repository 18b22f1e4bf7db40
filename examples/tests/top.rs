//! The example `top`, without a terminal: a frame of a running pipeline.
#![cfg(feature = "metrics")]

mod programs;

use std::io::Write;
use std::process::Command;

use programs::{program, text};
use tempfile::NamedTempFile;

fn frame(arguments: &[&str]) -> Vec<String> {
    let mut log = NamedTempFile::new().unwrap();
    for number in 0..2000 {
        writeln!(log, "client-{:03} line {number}", number * 7 % 300).unwrap();
    }
    let output = Command::new(program("top"))
        .arg(log.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// The first number in the line that has `label`, after the label.
#[track_caller]
fn number(frame: &[String], label: &str) -> f64 {
    let line = frame.iter().find_map(|line| line.split_once(label));
    let (_, rest) = line.unwrap_or_else(|| panic!("no {label:?} in\n{}", frame.join("\n")));
    let digits: String = rest
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("{label:?}: {rest:?}"))
}

#[test]
fn a_frame_shows_depth_rates_times_and_the_oldest_keys() {
    // 300 keys, each held for 20 ms by one of two workers: far more comes than is worked off.
    let frame = frame(&[
        "--frame",
        "3",
        "--refresh",
        "300",
        "--pause",
        "20",
        "--workers",
        "2",
    ]);
    assert_eq!(frame.len(), 24, "{frame:#?}");
    let text = frame.join("\n");
    assert!(text.contains("queue pipeline: "), "{text}");

    let depth = number(&frame, "depth ");
    assert!(depth > 50.0 && depth <= 300.0, "depth {depth}\n{text}");
    assert!(number(&frame, "adds ") > 1.0, "{text}");
    let done = number(&frame, "done ");
    assert!(done > 1.0 && done <= 120.0, "done {done}\n{text}");
    // A worker rests for 20 ms before each key.
    let row = frame
        .iter()
        .find(|line| line.contains("with a worker"))
        .unwrap();
    assert!(row.contains(" ms") || row.contains(" s"), "{row}");
    assert!(number(&frame, "with a worker") >= 1.0, "{text}");

    // The list is in the order of age, its keys are the log's.
    let head = frame
        .iter()
        .position(|line| line.contains("state"))
        .unwrap();
    let keys: Vec<&str> = frame[head + 1..]
        .iter()
        .filter_map(|line| line.trim_matches(['│', ' ']).split_whitespace().next())
        .filter(|word| word.starts_with("client-"))
        .collect();
    assert!(keys.len() >= 5, "{text}");
    assert!(text.contains("queued"), "{text}");
}

#[test]
fn a_file_that_is_not_there_or_empty_is_named() {
    let missing = Command::new(program("top"))
        .arg("not/there")
        .output()
        .unwrap();
    assert!(!missing.status.success());
    let said = text(&missing.stderr);
    assert!(said.contains("cannot open not/there"), "{said}");
    let empty = NamedTempFile::new().unwrap();
    let output = Command::new(program("top"))
        .arg(empty.path())
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("is empty"));
}
