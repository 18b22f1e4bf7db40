//! Waiting for conditions, and noticing that a test hangs.

use std::io::Write;
use std::process::abort;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The longest a condition may take to come true, however loaded the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// How many times longer than usual everything may take.
pub fn patience() -> u32 {
    let times = std::env::var("KEYQUEUE_TEST_PATIENCE").ok();
    times.map_or(1, |times| times.parse().expect("a number"))
}

/// Waits until `condition` holds; fails with `what` if it never does.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    found(what, || condition().then_some(()));
}

/// Waits until `look` finds something; fails with `what` if it never does.
#[track_caller]
pub fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = begun.elapsed() / patience();
        assert!(waited < PATIENCE, "never came true: {what}");
        // Not a synchronisation, only manners: leaves the processor to those waited for.
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE);
    }
}

/// Stops watching when it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    alive: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        // Miri and the leak checker take a thread that outlives its test for a leak.
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Ends the whole process if the guard is not dropped within this number of seconds, or
/// `KEYQUEUE_TEST_PATIENCE` times as many: under a sanitizer everything is slower.
pub fn watchdog(seconds: u64) -> Watchdog {
    let seconds = seconds * u64::from(patience());
    let test = thread::current().name().unwrap_or("main").to_owned();
    let (alive, watch) = mpsc::channel();
    let thread = thread::spawn(move || {
        if watch.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
            // Past the test harness, which would swallow what is printed.
            let note = format!("watchdog: test `{test}` hung for {seconds} s\n");
            let _ = std::io::stderr().write_all(note.as_bytes());
            abort();
        }
    });
    Watchdog {
        alive: Some(alive),
        thread: Some(thread),
    }
}
