//! What the tests of all packages share: conditions to wait for, a watchdog, free ports, a way to skip a test, and a heap that
//! counts.

pub mod heap;
mod wait;

use std::env;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::TcpListener;
use std::thread;

pub use wait::{PATIENCE, Watchdog, eventually, found, patience, watchdog};

/// Says that this test cannot run here. It is one of the passed for its harness, so its name is added to the file
/// `$KEYQUEUE_SKIPPED`, whose lines `.ci/run` counts; with `CI_STRICT=1` it fails.
#[track_caller]
pub fn skipped(why: &str) {
    let program = env::args().next().unwrap_or_default();
    let program = program.rsplit(['/', '\\']).next().unwrap_or_default();
    let thread = thread::current();
    let name = thread.name().unwrap_or("main");
    // A program that is no test is not among those that are counted. The name of a program of tests ends with a number of 16 digits.
    let number = program.rsplit_once('-').map(|(_, number)| number.len());
    let line = match number {
        Some(16) => format!("test {program} {name}: {why}"),
        _ => format!("job {program}: {why}"),
    };
    println!("skipped: {line}");
    if let Some(file) = env::var_os("KEYQUEUE_SKIPPED") {
        let file = File::options().create(true).append(true).open(file);
        let noted = file.and_then(|mut file| file.write_all((line + "\n").as_bytes()));
        noted.expect("the file can be written");
    }
    let is_strict = env::var_os("CI_STRICT").is_some_and(|set| set == "1");
    assert!(!is_strict, "{why}");
}

/// Ports of this machine that were free a moment ago. They are below those that systems give to clients (from 32 768 on): one of
/// these could be a client's by the time when a server that was killed is started again.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let first = RandomState::new().hash_one(N) % 20_000;
    let candidates = (0..20_000).map(|step| 10_000 + ((first + step) % 20_000) as u16);
    let free = candidates.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    // All are bound at once, so that they differ.
    let listeners: Vec<_> = free.take(N).collect();
    if listeners.len() < N {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
