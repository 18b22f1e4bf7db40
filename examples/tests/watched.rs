//! The example `pipeline` while it is watched: a frame of what the terminal shows, the series, and how it ends.
#![cfg(feature = "metrics")]

mod programs;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use programs::{Ended, Running, program, run, text};
use tempfile::NamedTempFile;

fn watched() -> Command {
    let mut top = program("pipeline");
    top.arg("--top");
    top
}

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
fn a_frame_shows_depth_groups_rates_times_and_the_oldest_keys() {
    let mut log = NamedTempFile::new().unwrap();
    for number in 0..2000 {
        writeln!(log, "client-{:03} line {number}", number * 7 % 300).unwrap();
    }
    // 300 keys and `urgent`, each held for 20 ms by one of two workers: far more comes than is worked off.
    let top = run(watched()
        .arg(log.path())
        .args(["--frame", "3", "--refresh", "300", "--rate", "100000"])
        .args(["--pause", "20", "--workers", "2", "--fail", "0"]));
    assert_eq!(top.code, Some(0), "{top:?}");
    let frame = &top.stdout;
    assert_eq!(frame.lines().count(), 24, "{frame}");
    assert!(frame.contains("pipeline: "), "{frame}");

    let depth = number(frame, "depth ");
    assert!(depth > 50.0 && depth <= 301.0, "depth {depth}\n{frame}");
    assert!(number(frame, "adds ") > 1.0, "{frame}");
    let done = number(frame, "done ");
    assert!(done > 1.0 && done <= 120.0, "done {done}\n{frame}");
    // A worker rests for 20 ms before each key.
    let (_, times) = frame.split_once("│worker ").unwrap();
    assert!(times.lines().next().unwrap().contains("ms"), "{frame}");
    assert!(number(frame, "│worker ") >= 1.0, "{frame}");

    // All keys but `urgent` begin with the same letter, and have turns of their own.
    assert!(number(frame, "│c  ") > 50.0, "{frame}");
    let (_, levels) = frame.split_once("queued by level: ").unwrap();
    let (urgent, levels) = levels.split_once(" + ").unwrap();
    assert!(urgent == "0" || urgent == "1", "{frame}");
    assert!(number(levels, "") > 50.0, "{frame}");

    // The list of keys, which are the log's.
    let (_, list) = frame.split_once("state").unwrap();
    assert!(list.matches("client-").count() >= 5, "{frame}");
    assert!(list.contains("queued"), "{frame}");
}

#[test]
fn a_file_that_is_not_there_or_empty_is_named() {
    run(watched().arg("not/there")).assert_refused(1, "cannot open not/there");
    let empty = NamedTempFile::new().unwrap();
    run(watched().arg(empty.path())).assert_refused(1, "is empty");
}

#[test]
fn keys_wait_and_are_retried() {
    // With the default, one frame of fifty would show no retry.
    let top = run(watched().args(["--frame", "6", "--fail", "50"]));
    assert_eq!(top.code, Some(0), "{top:?}");
    assert!(number(&top.stdout, "depth ") >= 10.0, "{top:?}");
    assert!(number(&top.stdout, "retries ") > 0.0, "{top:?}");
    assert!(top.stdout.contains("q ends"), "{}", top.stdout);
}

#[test]
fn sixty_columns_are_enough() {
    let narrow = ["--frame", "3", "--columns", "60", "--pause", "1"];
    let top = run(watched().args(narrow));
    assert_eq!(top.code, Some(0), "{top:?}");
    let frame = &top.stdout;
    assert!(
        frame.lines().all(|line| line.chars().count() <= 60),
        "{frame}"
    );
    // What comes last in its line is there, with its unit.
    assert!(
        frame.lines().next().unwrap().ends_with(" delayed"),
        "{frame}"
    );
    for rate in ["adds ", "merged ", "deliveries ", "done ", "retries "] {
        let line = frame.lines().find(|line| line.contains(rate)).unwrap();
        assert!(
            line.split_once(rate).unwrap().1.contains("/s│"),
            "{rate}: {frame}"
        );
    }
    for times in ["│queued ", "│worker "] {
        let line = frame.lines().find(|line| line.contains(times)).unwrap();
        let times = line.split_once(times).unwrap().1;
        assert_eq!(
            times.matches("s ").count() + times.matches("s│").count(),
            3,
            "{frame}"
        );
    }
    assert!(frame.contains("failures│"), "{frame}");

    let narrower = run(watched().args(["--columns", "59"]));
    narrower.assert_refused(2, "59");
}

#[test]
fn a_reader_of_the_frame_may_go_away() {
    let mut child = watched()
        .args(["--frame", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}

/// `script` is a terminal.
#[cfg(target_os = "linux")]
#[test]
fn q_ends_it() {
    let top = format!(
        "stty rows 24 columns 60; {:?} --top",
        program("pipeline").get_program()
    );
    let mut script = Command::new("timeout")
        .args(["60", "script", "-q", "-e", "-c", &top, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keyboard, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = Vec::new();
    // A cursor movement stands for the space of "q ends".
    while !text(&shown).contains("ends") {
        let mut byte = [0];
        screen.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    keyboard.write_all(b"q").unwrap();
    screen.read_to_end(&mut shown).unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(0), "{}", text(&shown));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let mut served = program("pipeline");
        let mut served = Running::piped(served.args(["--listen", "127.0.0.1:0"]));
        served.until_it_says("/metrics\n");
        let ended = served.end_by(signal);
        assert_eq!(ended.code, Some(0), "{signal}: {ended:?}");
        assert!(ended.stderr.contains("ended; "), "{signal}: {ended:?}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(program("pipeline").args(["--listen", &address]));
    let message = format!("pipeline: cannot serve http://{address}/metrics: ");
    ended.assert_refused(1, &message);
}

#[test]
fn wrong_arguments_are_refused_with_2() {
    for arguments in [["--listen", "nowhere"], ["--seconds", "long"]] {
        run(program("pipeline").args(arguments)).assert_refused(2, arguments[1]);
    }
    for alone in [&["--frame", "1"][..], &["--top", "--listen", "[::1]:0"]] {
        run(program("pipeline").args(alone)).assert_refused(2, "--top");
    }
}

// M1
#[test]
fn its_series_are_printed_at_the_end() {
    let ended = run(program("pipeline").args(["--seconds", "1"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let adds = "workqueue_adds_total{name=\"pipeline\"} ";
    assert!(number(&ended.stdout, adds) > 1.0, "{ended:?}");
}

#[test]
fn a_reader_of_the_series_may_go_away() {
    let pipeline = program("pipeline");
    let closed = format!("{:?} --seconds 1 | head -0; wait", pipeline.get_program());
    let ended = run(Command::new("sh").args(["-c", &closed]));
    let said = &ended.stderr;
    assert!(
        !said.contains("panic") && !said.contains("pipeline: "),
        "{ended:?}"
    );
}
