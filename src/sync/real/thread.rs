//! A thread of the crate's own.

use std::io;
use std::thread::{Builder, JoinHandle, current};

pub(crate) struct Thread(JoinHandle<()>);

impl Thread {
    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Builder::new().name(name.into()).spawn(run).map(Thread)
    }

    /// Waits for the thread to end, unless it is the calling one.
    pub(crate) fn join_unless_current(self) {
        if self.0.thread().id() != current().id() {
            // It catches what it runs; had it panicked all the same, it has ended as well.
            let _ = self.0.join();
        }
    }
}
