//! The examples as programs, for their tests.
#![allow(
    dead_code,
    reason = "each test binary compiles this module and uses a part of it"
)]

use std::path::PathBuf;

/// cargo builds the examples before it runs all tests; with `--test NAME` alone it does not.
pub(crate) fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let file = format!("examples/{name}{}", std::env::consts::EXE_SUFFIX);
    let program = tests.ancestors().nth(2).unwrap().join(file);
    assert!(
        program.exists(),
        "build it: cargo build --all-features --example {name} ({})",
        program.display()
    );
    program
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
