//! The example `pipeline` while it is watched: its series, and how it ends.
#![cfg(feature = "metrics")]

mod programs;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use programs::{Running, program, run};
use tempfile::NamedTempFile;

#[test]
fn a_file_that_is_not_there_or_empty_is_named() {
    let watched = |file: &Path| run(program("pipeline").args(["--seconds", "1"]).arg(file));
    watched(Path::new("not/there")).assert_refused(1, "cannot open not/there");
    let empty = NamedTempFile::new().unwrap();
    watched(empty.path()).assert_refused(1, "is empty");
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
}

// M1
#[test]
fn its_series_are_printed_at_the_end() {
    let ended = run(program("pipeline").args(["--seconds", "2", "--fail", "60"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for counter in ["adds", "retries"] {
        let series = format!("workqueue_{counter}_total{{name=\"pipeline\"}} ");
        let value = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(&series));
        let value: f64 = value
            .unwrap_or_else(|| panic!("no {series} in {ended:?}"))
            .parse()
            .unwrap();
        assert!(value > 0.0, "{counter}: {ended:?}");
    }
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
