//! The example `service`, run as a program: how it ends.
#![cfg(unix)]

mod programs;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use programs::{Ended, Running, program, run, text};

/// Sends a signal to the program once it saves clicks, and waits for its end.
fn ended_by(signal: &str, arguments: &[&str]) -> Ended {
    let mut command = program("service");
    command.args(arguments);
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut first = String::new();
    let mut stdout = BufReader::new(running.stdout());
    stdout.read_line(&mut first).unwrap();
    assert_eq!(first, "saving, SIGTERM or Ctrl-C ends\n");
    let mut ended = running.end_by(signal);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    ended.stdout = text(&rest);
    ended
}

/// What it says of the clicks in its last line.
#[derive(Debug)]
struct Clicks {
    found: u64,
    made: u64,
    saved: u64,
    left: u64,
}

impl Clicks {
    fn of(ended: &Ended) -> Self {
        let line = ended.stdout.lines().last().expect("a last line");
        let numbers: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [found, made, saved, left] = numbers[..] else {
            panic!("{ended:?}");
        };
        let clicks = Clicks {
            found,
            made,
            saved,
            left,
        };
        assert_eq!(found + made, saved + left, "{clicks:?}");
        clicks
    }
}

#[test]
fn a_signal_lets_it_finish_what_is_queued() {
    for signal in ["TERM", "INT"] {
        let ended = ended_by(signal, &[]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        let expected = "finished, keys left: 0 queued, 0 processing, 0 delayed, 0 refused\n";
        assert!(ended.stdout.starts_with(expected), "{ended:?}");
        assert_eq!(Clicks::of(&ended).left, 0);
    }
}

#[test]
fn a_grace_period_that_is_too_short_ends_it_and_it_says_what_was_left() {
    let ended = ended_by("TERM", &["--grace", "0"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), ""), "{ended:?}");
    assert!(
        ended.stdout.starts_with("out of time, keys left: "),
        "{ended:?}"
    );
}

#[test] // S12 S13
fn what_is_left_is_found_by_the_next_start_however_often_it_ends_too_soon() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left");
    let file = file.to_str().unwrap();
    let (mut made, mut saved, mut left) = (0, 0, 0);
    let mut add = |ended: &Ended| {
        let clicks = Clicks::of(ended);
        assert_eq!(clicks.found, left, "{clicks:?}");
        made += clicks.made;
        saved += clicks.saved;
        left = clicks.left;
        (made, saved, left)
    };
    for _ in 0..3 {
        let (.., left) = add(&ended_by(
            "TERM",
            &["--grace", "0", "--left", file, "--fail", "2"],
        ));
        assert!(left > 0);
    }
    // Each save fails, until it is given up.
    let ended = run(program("service").args(["--clicks", "100", "--left", file, "--fail", "1"]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("user 7 is not saved: "), "{ended:?}");
    add(&ended);

    let ended = run(program("service").args(["--clicks", "10000", "--left", file]));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let (made, saved, left) = add(&ended);
    assert_eq!((made, left), (saved, 0));
}

#[test]
fn a_file_that_is_not_its_own_is_refused_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left");
    std::fs::write(&file, "1 2\nthree 4\n").unwrap();
    let ended = run(program("service").arg("--left").arg(&file));
    ended.assert_refused(1, "\"three 4\" is not a user and a number");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1 2\nthree 4\n");
}

#[test]
fn it_saves_all_clicks_in_spite_of_errors() {
    let ended = run(program("service").args(["--clicks", "10000", "--fail", "20"]));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let clicks = Clicks::of(&ended);
    assert_eq!((clicks.made, clicks.saved), (10_000, 10_000));
}
