//! The example `metrics`: how it ends, and its errors.
#![cfg(all(feature = "metrics", unix))]

mod programs;

use std::net::TcpListener;

use programs::{Running, program, run};

#[test]
fn a_signal_ends_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let mut command = program("metrics");
        let command = command.args(["--seconds", "0", "--listen", "127.0.0.1:0"]);
        let mut metrics = Running::piped(command);
        metrics.until_it_says("/metrics\n");
        let ended = metrics.end_by(signal);
        assert_eq!(ended.code, Some(0), "{signal}: {ended:?}");
        assert!(ended.stderr.contains(" events; "), "{signal}: {ended:?}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(program("metrics").args(["--listen", &address]));
    ended.assert_refused(
        1,
        &format!("metrics: cannot serve http://{address}/metrics: "),
    );
}

#[test]
fn wrong_arguments_are_refused_with_2() {
    for arguments in [
        ["--workers", "0"],
        ["--workers", "100000"],
        ["--listen", "nowhere"],
    ] {
        run(program("metrics").args(arguments)).assert_refused(2, arguments[1]);
    }
}

#[test]
fn a_reader_of_the_series_may_go_away() {
    let closed = format!(
        "{:?} --seconds 1 | head -0; wait",
        program("metrics").get_program()
    );
    let ended = run(std::process::Command::new("sh").args(["-c", &closed]));
    assert!(
        !ended.stderr.contains("panic") && !ended.stderr.contains("metrics: "),
        "{ended:?}"
    );
}
