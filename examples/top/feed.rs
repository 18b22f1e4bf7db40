//! Reads a file over and over, at a set rate.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Feed<'a> {
    file: File,
    /// Bytes a second.
    rate: u64,
    stop: &'a AtomicBool,
    began: Instant,
    read: u64,
}

impl<'a> Feed<'a> {
    /// Ends when `stop` is set.
    pub(crate) fn new(file: File, rate: u64, stop: &'a AtomicBool) -> Self {
        Feed {
            file,
            rate: rate.max(1),
            stop,
            began: Instant::now(),
            read: 0,
        }
    }
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Ordering: Relaxed; a flag.
        while !self.stop.load(Ordering::Relaxed) {
            // The bytes that may be read by now.
            let due = (self.began.elapsed().as_secs_f64() * self.rate as f64) as u64 - self.read;
            if due == 0 {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            let read = self.file.by_ref().take(due).read(buffer)?;
            if read > 0 {
                self.read += read as u64;
                return Ok(read);
            }
            self.file.rewind()?;
        }
        Ok(0)
    }
}
