//! What every example has in common: its help, and what it does where it cannot write.
#![cfg(unix)]

mod programs;

use std::fs::File;

use programs::{program, run};

fn programs() -> Vec<&'static str> {
    let mut programs = vec!["quickstart", "service", "pipeline", "mirror"];
    if cfg!(feature = "sqlite") {
        programs.push("access_log");
    }
    programs
}

#[test]
fn the_help_says_what_it_is_and_names_it() {
    for name in programs() {
        let ended = run(program(name).arg("--help"));
        assert_eq!(
            (ended.code, &*ended.stderr),
            (Some(0), ""),
            "{name}: {ended:?}"
        );
        let first = ended.stdout.lines().next().unwrap();
        assert!(first.split(' ').count() > 3, "{name}: {ended:?}");
        let usage = format!("\nUsage: {name}");
        assert!(ended.stdout.contains(&usage), "{name}: {ended:?}");

        let wrong = run(program(name).arg("--wrong"));
        wrong.assert_refused(2, &usage);
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for (name, arguments) in [
        ("quickstart", &[][..]),
        ("pipeline", &["/dev/null"]),
        ("mirror", &[]),
        ("pipeline", &["--seconds", "1"]),
    ] {
        let is_watched = arguments.len() > 1;
        if is_watched && !cfg!(feature = "metrics") {
            continue;
        }
        let full = File::options().write(true).open("/dev/full").unwrap();
        let child = program(name)
            .args(arguments)
            .stdout(full)
            .stderr(std::process::Stdio::piped())
            .spawn();
        let ended = programs::Ended::from(child.unwrap().wait_with_output().unwrap());
        assert_eq!(ended.code, Some(1), "{name}: {ended:?}");
        assert!(ended.stderr.contains("No space left"), "{name}: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{name}: {ended:?}");
    }
}
