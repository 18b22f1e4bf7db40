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

#[test]
fn a_signal_lets_it_finish_what_is_queued() {
    for signal in ["TERM", "INT"] {
        let ended = ended_by(signal, &[]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        let expected = "finished, keys left: 0 queued, 0 processing, 0 delayed, 0 refused\n";
        assert_eq!(ended.stdout, expected);
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

#[test]
fn it_saves_all_clicks_in_spite_of_errors() {
    let ended = run(program("service").args(["--clicks", "10000", "--fail", "20"]));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let expected = "\nfinished, keys left: 0 queued, 0 processing, 0 delayed, 0 refused\n";
    assert!(ended.stdout.ends_with(expected), "{ended:?}");
}
